//! From workers' results to the record's parts.

use measure::{
    ClockComparison, Cost, CpuShare, Endpoint, Histogram, Ledger, LedgerLine, Profile, QueueUse, Receipt,
    ReceptionStatistics, RingUse, RoundTrips, Stream, Trial, Wire,
};
use sys::cycles::HardwareCounts;
use traffic::{EngineError, ReceiverResult, RxSnapshot, SenderResult, TxSnapshot, WorkerCost};

/// The sums over all sending workers.
#[derive(Debug)]
pub struct TxOutcome {
    /// Packets and bytes.
    pub tally: TxSnapshot,
    /// Packets that were due.
    pub scheduled: u64,
    /// Seconds from the common start to the last worker's end.
    pub seconds: f64,
    /// CPU time and cycles.
    pub cost: WorkerCost,
    /// Lateness of all packets.
    pub lateness: Histogram,
    /// The longest time in which any worker handed nothing over.
    pub largest_gap_ns: u64,
    /// The first error that ended a worker.
    pub error: Option<EngineError>,
}

/// The settings of a trial for its record.
#[derive(Debug, Clone)]
pub struct TrialSettings {
    /// Number of the trial among those of its pair, from 1.
    pub trial: u32,
    /// The sending side.
    pub tx: Endpoint,
    /// Frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// UDP payload.
    pub payload_bytes: u32,
    /// Packets per second requested; `None` is the maximum.
    pub asked_pps: Option<f64>,
}

/// The receiving half of a trial.
#[derive(Debug, Clone)]
pub struct RxOutcome {
    /// The receiving side.
    pub endpoint: Endpoint,
    /// Packets delivered.
    pub delivered: u64,
    /// The cost of receiving.
    pub cost: Cost,
    /// Places of loss, of both sides.
    pub lines: Vec<LedgerLine>,
    /// The CPUs' time during the trial.
    pub cpus: Vec<CpuShare>,
    /// Frames that left, by the sending interface's own counter.
    pub on_wire: Option<u64>,
    /// The receiver's measurements.
    pub statistics: Option<ReceptionStatistics>,
    /// The packets that returned to the sender.
    pub round_trips: Option<RoundTrips>,
    /// The traffic of streams.
    pub stream: Option<Stream>,
    /// Packets by queue of both interfaces.
    pub queues: Option<QueueUse>,
    /// The profile of receiving.
    pub profile: Option<Profile>,
    /// The counts of both hosts' drivers.
    pub wire: Option<Wire>,
    /// The relation of both hosts' clocks.
    pub clocks: Option<ClockComparison>,
    /// The receiver's own ring, if it drove one.
    pub ring: Option<RingUse>,
}

impl RxOutcome {
    /// A receiving side that has counted nothing yet.
    pub fn of(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            delivered: 0,
            cost: Cost::default(),
            lines: Vec::new(),
            cpus: Vec::new(),
            on_wire: None,
            statistics: None,
            round_trips: None,
            stream: None,
            queues: None,
            profile: None,
            wire: None,
            clocks: None,
            ring: None,
        }
    }
}

impl TxOutcome {
    /// Adds up workers' results.
    pub fn of(results: Vec<SenderResult>) -> Self {
        let start_ns = results.iter().map(|r| r.start_ns).min().unwrap_or(0);
        let end_ns = results.iter().map(|r| r.end_ns).max().unwrap_or(start_ns);
        let mut lateness = Histogram::new();
        results.iter().for_each(|r| lateness.merge(&r.lateness));
        Self {
            tally: results.iter().map(|r| r.tally).fold(TxSnapshot::default(), TxSnapshot::plus),
            scheduled: results.iter().map(|r| r.scheduled).sum(),
            seconds: (end_ns - start_ns) as f64 / 1e9,
            cost: total_cost(results.iter().map(|r| r.cost)),
            lateness,
            largest_gap_ns: results.iter().map(|r| r.largest_gap_ns).max().unwrap_or(0),
            error: results.into_iter().find_map(|r| r.error),
        }
    }

    /// The finished trial; `interrupted` is whether a signal or a lost peer cut it short.
    pub(crate) fn into_trial(self, settings: TrialSettings, rx: RxOutcome, interrupted: bool) -> Trial {
        let sent = self.tally.packets;
        let per_second = |packets: u64| if self.seconds > 0.0 { packets as f64 / self.seconds } else { 0.0 };
        let mut receipt =
            Receipt::judge(settings.asked_pps, self.scheduled, sent, self.seconds, &self.lateness);
        receipt.on_wire = rx.on_wire;
        receipt.delivered = rx.delivered;
        receipt.largest_gap_ns = self.largest_gap_ns;
        let ledger = Ledger::close(sent, rx.delivered, rx.lines);
        Trial {
            trial: settings.trial,
            tx: settings.tx,
            rx: rx.endpoint,
            frame_size_bytes: settings.frame_size_bytes,
            payload_bytes: settings.payload_bytes,
            asked_pps: settings.asked_pps,
            duration_s: self.seconds,
            sent,
            sent_pps: per_second(sent),
            delivered: rx.delivered,
            delivered_pps: per_second(rx.delivered),
            loss_ratio: ledger.loss_ratio(),
            tx_cost: cost_per_packet(self.cost, sent),
            rx_cost: rx.cost,
            cpus: rx.cpus,
            ledger,
            receipt,
            statistics: rx.statistics,
            round_trips: rx.round_trips,
            stream: rx.stream,
            interrupted: interrupted || self.error.is_some(),
            queues: rx.queues,
            profile: rx.profile,
            wire: rx.wire,
            clocks: rx.clocks,
            ring: rx.ring,
            ..Trial::default()
        }
    }
}

/// The cost of a receiver's workers, per packet delivered.
pub fn receive_cost(result: &ReceiverResult) -> Cost {
    let RxSnapshot { packets, foreign, .. } = result.tally();
    cost_per_packet(total_cost(result.workers.iter().map(|worker| worker.cost)), packets + foreign)
}

fn total_cost(costs: impl Iterator<Item = WorkerCost>) -> WorkerCost {
    costs.reduce(WorkerCost::plus).unwrap_or_default()
}

fn cost_per_packet(cost: WorkerCost, packets: u64) -> Cost {
    let per_packet = |amount: u64| (packets > 0).then(|| amount as f64 / packets as f64);
    let counted =
        |count: fn(HardwareCounts) -> Option<u64>| cost.hardware.and_then(count).and_then(per_packet);
    Cost {
        user_s: cost.user_ns as f64 / 1e9,
        system_s: cost.system_ns as f64 / 1e9,
        ns_per_packet: per_packet(cost.user_ns + cost.system_ns),
        cycles_per_packet: counted(|counts| Some(counts.cycles)),
        instructions_per_packet: counted(|counts| counts.instructions),
        cache_misses_per_packet: counted(|counts| counts.cache_misses),
        ..Cost::default()
    }
}
