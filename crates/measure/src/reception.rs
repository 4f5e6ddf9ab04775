//! A receiver's measurements as saved in a record: by reader, sender and flow, and in total.

use serde::{Deserialize, Serialize};

use crate::{clocks::ClockComparison, distribution::NanosSummary, sequence::SequenceSummary};

/// How much a receiver measures; each level includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StatisticsLevel {
    /// Packets and bytes.
    #[default]
    Counter,
    /// Times of the first and last packet, rates, and loss and order from sequence numbers.
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
    /// One entry per reader: a worker and its queue, or a CPU.
    pub readers: Vec<ReceptionShare>,
    /// By receive queue, when queues can be distinguished and are not readers. For the engines `udp` and `packet` these
    /// packets are counted before the sockets' buffers, so they include packets lost there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueCount>,
    /// Why packets, or some of them, are not distinguished by queue, when neither readers nor `queues` do that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues_unknown: Option<String>,
    /// One entry per sender (address and stream tag), each with its own sequence numbers.
    pub senders: Vec<SenderStatistics>,
    /// One entry per flow (addresses and ports).
    pub flows: Vec<FlowStatistics>,
    /// All senders' sequence numbers together.
    pub sequence: Option<SequenceSummary>,
    /// Packets whose sender or flow did not fit the tables; only the totals include them.
    pub beyond_tables: u64,
    /// The timestamp source, its clocks and its cost; at the level `time`.
    pub timing: Option<Timing>,
}

/// What one reader received, or all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceptionShare {
    /// The worker, `null` for a share without a worker.
    pub worker: Option<u32>,
    /// The CPU that the reader last ran on; for the engine `xdp` the receiving CPU.
    pub cpu: Option<u32>,
    /// The receive queue, when a reader has exactly one.
    pub queue: Option<u32>,
    /// Packets with the probe header.
    pub packets: u64,
    /// Packets without it; engines that can do so leave them to the kernel.
    pub foreign: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Bytes of frames from Ethernet header to FCS; for the engine `udp` computed from the payload, without VLAN
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
    /// Time since the previous packet at the same reader.
    pub inter_arrival: Option<NanosSummary>,
    /// Time since the previous packet of the same flow at the same reader.
    pub flow_inter_arrival: Option<NanosSummary>,
    /// Difference of the transit times of consecutive packets of a sender (the pktgen receiver's jitter).
    pub jitter: Option<NanosSummary>,
    /// Time from departure to arrival, wrong by `timing.clock_bound_ns` at most; `null` unless that bound is below a tenth of the
    /// median, or both are one host's clock.
    pub latency: Option<NanosSummary>,
    /// Packets that arrived before they were sent, because the clocks disagree; the latency excludes them.
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
    /// Bytes of frames from Ethernet header to FCS, as for a reader.
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

/// Measurements of one sender's packets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SenderStatistics {
    /// Its address.
    pub address: String,
    /// Its stream tag, 0 for packets without one.
    pub stream: u16,
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
    /// Different send times: several packets share one when the sender stamps a batch at once.
    pub send_times: u64,
    /// Loss and order from its sequence numbers.
    pub sequence: Option<SequenceSummary>,
    /// Interarrival jitter of RFC 3550, 6.4.1: an estimate at the end, the largest of all readers.
    pub jitter_rfc3550_ns: Option<f64>,
}

/// Measurements of one flow's packets.
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
    /// Loss and order from its sequence numbers; `lost` is `null` when its sender numbers several flows together.
    pub sequence: Option<SequenceSummary>,
    /// Mean time since the previous packet.
    pub inter_arrival_mean_ns: Option<f64>,
    /// The longest time since the previous packet.
    pub inter_arrival_max_ns: Option<u64>,
}

/// A sender's returned packets, timed by the sender's clock alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundTrips {
    /// Packets that came back, each counted once.
    pub returned: u64,
    /// Packets that did not come back: lost in either direction, at the receiver, or here.
    pub missing: u64,
    /// Of those, packets that came back and were dropped because this host's socket buffers were full.
    pub dropped_here: u64,
    /// Loss and order from the numbers of returned packets.
    pub sequence: Option<SequenceSummary>,
    /// Time from departure to return, the receiver's own time included.
    pub round_trip: Option<NanosSummary>,
    /// Difference of the round-trip times of consecutive packets.
    pub jitter: Option<NanosSummary>,
    /// Different send times: several packets share one when the sender stamps a batch at once.
    pub send_times: u64,
    /// The timestamp source of returned packets.
    pub rx_stamp: String,
    /// The same in words.
    pub rx_stamp_means: String,
    /// The smallest observed step of the clock.
    pub clock_resolution_ns: u64,
    /// The cost of one clock read.
    pub clock_read_ns: f64,
}

/// The relation of the sending and the receiving clock.
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

/// The timestamp source, its clocks and its cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timing {
    /// The timestamp source: `card`, `kernel`, `program`, `poll` or `loop`.
    pub rx_stamp: String,
    /// The same in words.
    pub rx_stamp_means: String,
    /// Packets without a timestamp from that source; the reading loop's clock is used instead.
    pub unstamped: u64,
    /// The relation of the clocks.
    pub clocks: ClockRelation,
    /// How that is known.
    pub clocks_known_by: String,
    /// By how much this host's clock is ahead: of the reference that it is kept by at the time of the report, or of the only
    /// sender's clock at its first packet.
    pub clock_offset_ns: Option<i64>,
    /// The error bound of one-way latencies due to the clocks.
    pub clock_bound_ns: Option<u64>,
    /// Why one-way latency is refused, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_refused: Option<String>,
    /// What each session found out about its sender's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ClockComparison>,
    /// The smallest step that the clock was seen to make.
    pub clock_resolution_ns: u64,
    /// The cost of one clock read.
    pub clock_read_ns: f64,
    /// The cost of measuring a packet, tried with synthetic packets: in the reading loop after parsing the header and
    /// reading the clock, or the whole program in XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring_ns: Option<f64>,
    /// The same for a packet that was sent and received together with the previous one: it is only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring_together_ns: Option<f64>,
}
