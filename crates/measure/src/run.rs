//! `Run`: the one record of a measurement or a model, as saved, compared and shown.
//!
//! The unit is in each name. `linerate.run/1` is published as a JSON Schema in the repository.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::quiet::QuietReading;
use crate::{
    capacity::{Capacity, LOSSLESS, STAGE},
    clocks::ClockComparison,
    cpu::{CpuShare, InterruptAccounting},
    cpu_control::CpuControl,
    figure::Figure,
    fleet::FleetRun,
    instructions::Instructions,
    ledger::Ledger,
    profile::Profile,
    queues::QueueUse,
    receipt::Receipt,
    reception::{ReceptionStatistics, RoundTrips},
    ring::RingUse,
    statistics::Summary,
    throughput::{GoalResult, Throughput, ThroughputLimit},
    timeline::Timeline,
    tuned::{TuneRejected, TuneSearch, TuneStep, TunedRate},
};

/// The schema's name and version, in every record.
pub const SCHEMA: &str = "linerate.run/1";

/// A finished (or interrupted) run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What was requested, where and when.
    pub start: Start,
    /// The run tick by tick.
    pub intervals: Vec<Interval>,
    /// What came out.
    pub end: End,
}

/// The request and the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Start {
    /// The command: `bench`, `send`, `recv`, `model` ...
    pub command: String,
    /// linerate's version.
    pub version: String,
    /// When it started, RFC 3339, UTC.
    pub started_at: String,
    /// Where the packets went.
    pub origin: Origin,
    /// The properties of the machine that affect packet rates.
    pub machine: Machine,
    /// Every parameter by name, defaults included.
    pub asked: BTreeMap<String, Value>,
}

/// The kind of path that a run's packets took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A private veth pair on one machine.
    Lab,
    /// Real interfaces or addresses.
    Hosts,
    /// A simulation.
    Model,
    /// An emulated machine whose instructions were counted.
    Exact,
}

/// The machine a run ran on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// The CPU's own name.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The clock source in use.
    pub clocksource: String,
    /// CPU vulnerabilities and how each is mitigated, by name.
    pub mitigations: BTreeMap<String, String>,
    /// Interfaces used, with their settings.
    pub interfaces: Vec<NicFacts>,
    /// How the kernel accounts time in interrupts.
    #[serde(default)]
    pub interrupt_accounting: InterruptAccounting,
    /// Why cycles, instructions and cache misses per packet are unknown, as text; `None` when they were counted.
    #[serde(default)]
    pub no_hardware_counters: Option<String>,
    /// What sets the CPUs' frequency and how deeply they sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_control: Option<CpuControl>,
    /// The last look at how fit it is to measure on (`linerate probe --quiet`), since it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietReading>,
}

/// The properties of an interface that affect packet rates.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NicFacts {
    /// Interface name.
    pub name: String,
    /// Driver name.
    pub driver: String,
    /// `tx`, `rx` or `both`.
    pub role: String,
    /// MTU in bytes.
    pub mtu_bytes: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Link speed in bits per second, if reported.
    pub speed_bps: Option<u64>,
    /// Settings by name: offloads, threaded NAPI, coalescing ...
    pub settings: BTreeMap<String, String>,
}

/// One tick of a running trial; counts are of this tick alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// Index into `end.trials`.
    pub trial: u32,
    /// Seconds from the trial's start to the tick's end.
    pub end_s: f64,
    /// Measured length of the tick in seconds.
    pub length_s: f64,
    /// Packets sent, `None` on a receiver.
    pub sent: Option<u64>,
    /// Packets delivered, `None` on a sender that does not know.
    pub delivered: Option<u64>,
    /// UDP payload bytes delivered (or sent, on a sender).
    pub payload_bytes: u64,
    /// Packets that the receiving socket or ring dropped, where known.
    pub rx_dropped: Option<u64>,
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct End {
    /// Seconds from start to end.
    pub duration_s: f64,
    /// Whether a signal or a lost peer ended it early.
    pub interrupted: bool,
    /// Every trial.
    pub trials: Vec<Trial>,
    /// Trials of the same pair and settings, summarised.
    pub pairs: Vec<PairSummary>,
    /// Measurements of a receiver that ran alone, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<ReceptionStatistics>,
    /// The capacity of each engine on each side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacities: Vec<Capacity>,
    /// Engines that were skipped, and why.
    pub skipped: Vec<Skipped>,
    /// A sweep's or a model's points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
    /// What throughput searches found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throughput: Vec<Throughput>,
    /// Published figures beside this run's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// A trace of events, if one was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timelines: Vec<Timeline>,
    /// In a search for the best settings: the settings before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<TunedRate>,
    /// The best settings that were proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<TunedRate>,
    /// The proven steps from the baseline to the best.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<TuneStep>,
    /// Values that were tried and rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<TuneRejected>,
    /// How the search went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuneSearch>,
    /// What each machine did, where many took part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetRun<Trial>>,
    /// Remarks that a reader needs to judge the numbers.
    pub notes: Vec<String>,
}

/// A point of a sweep or model: its parameters and results by name, units in the names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Parameters and results.
    #[serde(flatten)]
    pub values: BTreeMap<String, Value>,
}

/// One trial: one sender, one receiver, one load. The default is a trial that sent and measured nothing, so only trials
/// that measure a figure need to set it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
// The derived serializer; `unknown.rs` adjusts its output.
#[serde(remote = "Self")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// Number of the trial among those of the same pair, from 1.
    pub trial: u32,
    /// The sending side.
    pub tx: Endpoint,
    /// The receiving side.
    pub rx: Endpoint,
    /// Frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// UDP payload.
    pub payload_bytes: u32,
    /// Requested packets per second, all threads together; `None` is the maximum.
    pub asked_pps: Option<f64>,
    /// The sweep's parameters by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
    /// Seconds from first to last packet handed over.
    pub duration_s: f64,
    /// Packets that the kernel or ring accepted.
    pub sent: u64,
    /// Packets per second sent.
    pub sent_pps: f64,
    /// Packets that the receiving engine saw; `null` in JSON, 0 here when unknown, like the next two.
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub delivered: u64,
    /// Packets per second delivered, over the same time as `sent_pps`.
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub delivered_pps: f64,
    /// Lost share of the packets sent.
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub loss_ratio: f64,
    /// The cost of the sending threads.
    pub tx_cost: Cost,
    /// The cost of the receiving threads.
    pub rx_cost: Cost,
    /// How the machine's CPUs spent the trial.
    pub cpus: Vec<CpuShare>,
    /// Packets by queue of the interfaces, if counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueueUse>,
    /// Where every packet went.
    pub ledger: Ledger,
    /// What the generator achieved.
    pub receipt: Receipt,
    /// The receiver's measurements, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<ReceptionStatistics>,
    /// Returned packets, if the receiver was to send them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<RoundTrips>,
    /// Bytes and packets of a stream; every other field then counts messages as packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// This trial's packets as counted at the drivers of two hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// How the two hosts' clocks were related, where the receiver timed packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<ClockComparison>,
    /// Whether it ended early.
    pub interrupted: bool,
    /// Where the receiving CPUs' time went, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// How the receiver used a card's ring that it drove itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingUse>,
    /// The kernel that the trial ran on, when a run has several: `uname -r`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Its instructions, if they were counted one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
}

/// A trial's packets as counted at the drivers of two hosts, without other traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wire {
    /// Packets that left the sending host's driver; `None` when not counted.
    pub left: Option<u64>,
    /// The source of `left`.
    pub left_source: String,
    /// Packets that the receiving host's driver passed on; `None` when not counted.
    pub seen: Option<u64>,
    /// The source of `seen`.
    pub seen_source: String,
    /// CPU time per packet of the counting programs of both hosts together; `None` without a program.
    pub cost_ns: Option<f64>,
    /// Reservations about these counts, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// The traffic of a trial's streams: bytes by the applications' count, packets by the interfaces'.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stream {
    /// Bytes per message: one call to send.
    pub message_bytes: u32,
    /// Bytes of all messages sent.
    pub sent_bytes: u64,
    /// Bytes delivered, including unfinished messages.
    pub delivered_bytes: u64,
    /// Bits of messages delivered per second.
    pub delivered_bps: f64,
    /// Packets by the sending interface's counter; with segmentation offload each may hold many segments.
    pub tx_packets: u64,
    /// Packets by the receiving interface's counter.
    pub rx_packets: u64,
    /// Packets in the other direction: acknowledgements.
    pub acknowledging_packets: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
}

/// One side of a trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Endpoint {
    /// Engine: `udp`, `packet`, `xsk`, `xdp`, `pktgen`, `tcp`.
    pub engine: String,
    /// Engine and variant as the ladder shows it, for example `udp+gso`.
    pub label: String,
    /// Worker threads.
    pub threads: u32,
    /// CPUs they were pinned to, empty when not pinned.
    pub cpus: Vec<u32>,
    /// The engine's options by name.
    pub options: BTreeMap<String, Value>,
}

/// The cost of one side's threads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// User CPU seconds of the workers.
    pub user_s: f64,
    /// System CPU seconds of the workers (including softirqs in their context, as the kernel accounts them).
    pub system_s: f64,
    /// CPU time of the workers divided by the packets they moved, in nanoseconds.
    pub ns_per_packet: Option<f64>,
    /// CPU cycles of the workers per packet, if the CPU's counters can be read.
    pub cycles_per_packet: Option<f64>,
    /// Instructions of the workers per packet, with the softirqs in their context, if the CPU's counters can be read or an
    /// emulator counts.
    #[serde(default)]
    pub instructions_per_packet: Option<f64>,
    /// Cache misses of the workers per packet, if the CPU's counters can be read.
    #[serde(default)]
    pub cache_misses_per_packet: Option<f64>,
    /// Where instructions were counted by an emulator: CPU time per packet of the same pair on the machine that it ran on, in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_ns_per_packet: Option<f64>,
    /// `instructions_per_packet` divided by `beside_ns_per_packet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_ns: Option<f64>,
}

/// Trials of one pair with the same settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
// What the derived code writes, `unknown.rs` completes.
#[serde(remote = "Self")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairSummary {
    /// The sender's label.
    pub tx: String,
    /// The receiver's label.
    pub rx: String,
    /// Sending threads.
    pub tx_threads: u32,
    /// Receiving threads.
    pub rx_threads: u32,
    /// Frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Requested packets per second; `None` is the maximum.
    pub asked_pps: Option<f64>,
    /// The sweep's parameters by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
    /// Sent packets per second.
    pub sent_pps: Summary,
    /// Delivered packets per second, of the trials of which that is known; `null` in JSON, of no trial here where it is of none,
    /// as the next.
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Summary>"))]
    pub delivered_pps: Summary,
    /// Whether the trials agree (spread of delivered at most 10 % of its median).
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub agrees: bool,
}

/// An engine or pair that did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// The engine.
    pub engine: String,
    /// The reason, and what it needs.
    pub reason: String,
}

/// The key by which two trials are repeats: labels, threads, frame size, load and a sweep's parameters.
type Settings<'t> = (&'t str, &'t str, u32, u32, u32, Option<f64>, &'t BTreeMap<String, Value>);

impl Trial {
    /// Its stage, when it is not part of the ladder.
    pub fn stage(&self) -> Option<&str> {
        self.parameters.get(STAGE).and_then(Value::as_str)
    }

    /// Whether it is a step of a short search: its load was chosen to test whether it is too high.
    pub fn is_search_step(&self) -> bool {
        self.stage() == Some(LOSSLESS)
    }

    fn settings(&self) -> Settings<'_> {
        let (tx, rx) = (&self.tx, &self.rx);
        let (frame_size_bytes, asked_pps) = (self.frame_size_bytes, self.asked_pps);
        (&tx.label, &rx.label, tx.threads, rx.threads, frame_size_bytes, asked_pps, &self.parameters)
    }
}

impl PairSummary {
    /// Summarises repeats (same labels, threads, frame size and load), in order of first appearance. The steps of a short
    /// search are not repeats.
    pub fn of(trials: &[Trial]) -> Vec<Self> {
        let mut firsts: Vec<&Trial> = Vec::new();
        for trial in trials.iter().filter(|trial| !trial.is_search_step()) {
            if !firsts.iter().any(|first| first.settings() == trial.settings()) {
                firsts.push(trial);
            }
        }
        firsts
            .into_iter()
            .filter_map(|first| {
                let repeats = || trials.iter().filter(|trial| trial.settings() == first.settings());
                let sent_pps = Summary::of(&repeats().map(|t| t.sent_pps).collect::<Vec<_>>())?;
                let known = repeats().filter(|t| t.ledger.unknown_because().is_none());
                let delivered_pps =
                    Summary::of(&known.map(|t| t.delivered_pps).collect::<Vec<_>>()).unwrap_or_default();
                let agrees = delivered_pps.trials > 0 && delivered_pps.agrees();
                Some(Self {
                    tx: first.tx.label.clone(),
                    rx: first.rx.label.clone(),
                    tx_threads: first.tx.threads,
                    rx_threads: first.rx.threads,
                    frame_size_bytes: first.frame_size_bytes,
                    asked_pps: first.asked_pps,
                    parameters: first.parameters.clone(),
                    sent_pps,
                    delivered_pps,
                    agrees,
                })
            })
            .collect()
    }

    /// Whether a trial is one of those summarised here.
    pub fn covers(&self, trial: &Trial) -> bool {
        trial.settings() == self.settings()
    }

    /// Whether two summaries are of the same pair with the same settings and can be compared.
    pub fn matches(&self, other: &Self) -> bool {
        self.settings() == other.settings()
    }

    fn settings(&self) -> Settings<'_> {
        let (tx, rx, asked_pps) = (self.tx.as_str(), self.rx.as_str(), self.asked_pps);
        (tx, rx, self.tx_threads, self.rx_threads, self.frame_size_bytes, asked_pps, &self.parameters)
    }
}

impl End {
    /// Whether every rate was held, every ledger closed and every pair sent something: exit status 0 instead of 1. A
    /// throughput search tries rates that cannot be held to find the ones that can; it has met its goals when it found them
    /// all.
    pub fn goals_met(&self) -> bool {
        let mut asked = self.trials.iter().filter(|trial| !trial.is_search_step());
        // A search requests rates that cannot be held.
        let is_search = !self.throughput.is_empty() || self.tuning.is_some();
        let rates_held = is_search || asked.all(|trial| trial.receipt.kept_up);
        let all_sent = PairSummary::of(&self.trials).iter().all(|pair| pair.sent_pps.max > 0.0);
        let found = |goal: &GoalResult| goal.lower_pps.is_some() && goal.limit != ThroughputLimit::Unfinished;
        !self.interrupted
            && rates_held
            && all_sent
            && self.trials.iter().all(|t| t.ledger.is_closed())
            && self.throughput.iter().flat_map(|found| &found.goals).all(found)
    }
}
