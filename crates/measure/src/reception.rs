//! What a receiver measured, as it stands in a record: by reader, sender and flow, and in total.

use serde::{Deserialize, Serialize};

use crate::{clocks::ClockComparison, distribution::NanosSummary, sequence::SequenceSummary};

/// How much a receiver measures; each level contains the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StatisticsLevel {
    /// Packets and bytes.
    #[default]
    Counter,
    /// Times of the first and last packet, rates, and what sequence numbers tell.
    Basic,
    /// Inter-arrival times, jitter and latency.
    Time,
}

/// Everything that a receiver measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceptionStatistics {
    /// How much was measured.
    pub level: StatisticsLevel,
    /// All readers together.
    pub total: ReceptionShare,
    /// One entry a reader: a worker and its queue, or a CPU.
    pub readers: Vec<ReceptionShare>,
    /// By receive queue, where somebody tells them apart and a queue is no reader. Those of the engines `udp` and `packet`
    /// are counted before packets come to sockets' buffers, so what is lost there is among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueCount>,
    /// Why packets are not told apart by queue, or not all of them, where neither readers nor `queues` do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues_unknown: Option<String>,
    /// One entry a sender (address and stream tag), each with its own sequence numbers.
    pub senders: Vec<SenderStatistics>,
    /// One entry a flow (addresses and ports).
    pub flows: Vec<FlowStatistics>,
    /// All senders' sequence numbers together.
    pub sequence: Option<SequenceSummary>,
    /// Packets whose sender or flow found no room in the tables; they are in the totals alone.
    pub beyond_tables: u64,
    /// Who stamped the packets, by which clocks, and at what cost; at the level `time`.
    pub timing: Option<Timing>,
}

/// What one reader received, or all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceptionShare {
    /// The worker, `null` for a share that is no worker's.
    pub worker: Option<u32>,
    /// The CPU that the reader last ran on; for the engine `xdp` the one that received.
    pub cpu: Option<u32>,
    /// The receive queue, where a reader has one of its own.
    pub queue: Option<u32>,
    /// Packets with the probe header.
    pub packets: u64,
    /// Packets without; they were left to the kernel where the engine can.
    pub foreign: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Bytes of frames from Ethernet header to FCS; for the engine `udp` worked out from the payload, without VLAN
    /// tags.
    pub frame_bytes: u64,
    /// The same with preamble, start delimiter and gap.
    pub l1_bytes: u64,
    /// Nanoseconds from the first to the last packet.
    pub work_time_ns: Option<u64>,
    /// Packets after the first, divided by the work time.
    pub rx_pps: Option<f64>,
    /// Bits of frames (Ethernet header to FCS) per second.
    pub frame_bps: Option<f64>,
    /// Bits on the wire per second.
    pub l1_bps: Option<f64>,
    /// Time since the packet before at the same reader.
    pub inter_arrival: Option<NanosSummary>,
    /// Time since the packet before of the same flow at the same reader.
    pub flow_inter_arrival: Option<NanosSummary>,
    /// Difference of the transit times of two packets of a sender one after another (the pktgen receiver's jitter).
    pub jitter: Option<NanosSummary>,
    /// Time from departure to arrival, wrong by `timing.clock_bound_ns` at most; `null` unless that bound is below a tenth of the
    /// median, or both are one host's clock.
    pub latency: Option<NanosSummary>,
    /// Packets that arrived before they were sent, which the latency leaves out: the clocks disagree.
    pub before_sent: u64,
}

/// Packets of one receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueCount {
    /// The queue's number.
    pub queue: u32,
    /// Packets with the probe header.
    pub packets: u64,
    /// UDP payload bytes.
    #[serde(default)]
    pub payload_bytes: u64,
    /// Bytes of frames from Ethernet header to FCS, as a reader's.
    #[serde(default)]
    pub frame_bytes: u64,
    /// The same with preamble, start delimiter and gap.
    #[serde(default)]
    pub l1_bytes: u64,
    /// Nanoseconds from the first to the last packet.
    #[serde(default)]
    pub work_time_ns: Option<u64>,
    /// Packets after the first, divided by the work time.
    #[serde(default)]
    pub rx_pps: Option<f64>,
    /// Bits of frames (Ethernet header to FCS) per second.
    #[serde(default)]
    pub frame_bps: Option<f64>,
    /// Bits on the wire per second.
    #[serde(default)]
    pub l1_bps: Option<f64>,
}

/// What one sender's packets told.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SenderStatistics {
    /// Its address.
    pub address: String,
    /// Its stream tag, 0 for packets without.
    pub stream: u16,
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Different send times: several packets share one when the sender stamps a batch at once.
    pub send_times: u64,
    /// What its sequence numbers told.
    pub sequence: Option<SequenceSummary>,
    /// Interarrival jitter of RFC 3550, 6.4.1: an estimate at the end, the largest of all readers.
    pub jitter_rfc3550_ns: Option<f64>,
}

/// What one flow's packets told.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowStatistics {
    /// Addresses and ports.
    pub flow: String,
    /// The stream tag of its first packet.
    pub stream: u16,
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// What its sequence numbers told; `lost` is `null` when its sender numbers several flows together.
    pub sequence: Option<SequenceSummary>,
    /// Mean time since the packet before.
    pub inter_arrival_mean_ns: Option<f64>,
    /// The longest time since the packet before.
    pub inter_arrival_max_ns: Option<u64>,
}

/// What came back of a sender's packets, timed by the sender's clock alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundTrips {
    /// Packets that came back, each counted once.
    pub returned: u64,
    /// Packets that did not: lost on either way, at the receiver, or here.
    pub missing: u64,
    /// Of those, packets that came back and found no room in this host's sockets.
    pub dropped_here: u64,
    /// What the numbers of those that came back told.
    pub sequence: Option<SequenceSummary>,
    /// Time from departure to return, the receiver's own time included.
    pub round_trip: Option<NanosSummary>,
    /// Difference of the round trips of two packets one after another.
    pub jitter: Option<NanosSummary>,
    /// Different send times: several packets share one when the sender stamps a batch at once.
    pub send_times: u64,
    /// Who says when a packet came back.
    pub rx_stamp: String,
    /// The same in words.
    pub rx_stamp_means: String,
    /// The smallest step that the clock was seen to make.
    pub clock_resolution_ns: u64,
    /// What one look at the clock costs.
    pub clock_read_ns: f64,
}

/// How sending and receiving clock belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ClockRelation {
    /// One host, one clock: one-way latency is exact.
    SameHost,
    /// Two hosts kept together by PTP or NTP: one-way latency is right to within the bound.
    Synchronised,
    /// Two hosts whose clocks the sessions between them compared: one-way latency is right to within the bound.
    Measured,
    /// Nothing is known: only differences of times mean something, one-way latency is refused.
    #[default]
    None,
}

/// Who stamped packets, by which clocks, and at what cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timing {
    /// Who says when a packet was received: `card`, `kernel`, `program`, `poll` or `loop`.
    pub rx_stamp: String,
    /// The same in words.
    pub rx_stamp_means: String,
    /// Packets that nobody stamped; the reading loop's clock stands in.
    pub unstamped: u64,
    /// How the clocks belong together.
    pub clocks: ClockRelation,
    /// How that is known.
    pub clocks_known_by: String,
    /// By how much this host's clock is ahead: of the reference that it is kept by at the time of the report, or of the only
    /// sender's clock at its first packet.
    pub clock_offset_ns: Option<i64>,
    /// How wrong one-way latencies can be because of the clocks.
    pub clock_bound_ns: Option<u64>,
    /// Why one-way latency is refused, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_refused: Option<String>,
    /// What each session found out about its sender's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ClockComparison>,
    /// The smallest step that the clock was seen to make.
    pub clock_resolution_ns: u64,
    /// What one look at the clock costs.
    pub clock_read_ns: f64,
    /// What measuring a packet takes, tried with packets made for it: in the reading loop once the header was found and the
    /// clock looked at, or all of a program in XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring_ns: Option<f64>,
    /// The same for a packet that left and came together with the one before: such are only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring_together_ns: Option<f64>,
}
