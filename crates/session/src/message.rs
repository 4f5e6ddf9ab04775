//! The messages between the two ends.

use measure::{ClockComparison, ClockStage, Cost, CpuShare, Endpoint, LedgerLine, Profile, Trial};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the control protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 4;

/// One line on the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Both, before anything else if they have a secret: Noise's handshake message, in hex.
    Handshake {
        /// In the form of `NNpsk0`.
        noise: String,
    },
    /// Sender: what it wants to send.
    Offer(Offer),
    /// Instead of an offer: the other end should send, only to the requesting address.
    Request(Box<Request>),
    /// Receiver: consent, with the stream tags to use, one per sending thread. Packets go to the UDP port with the number of
    /// this connection's TCP port.
    Accept {
        /// Stream tags.
        streams: Vec<u16>,
        /// Whether packets return to the address at the other end of this connection.
        #[serde(default)]
        reflects: bool,
        /// Whether packets are timed: then the sender sends clock questions before, during and after the trial.
        #[serde(default)]
        times: bool,
    },
    /// Sender: a question about the receiver's clock.
    ClockQuestion(ClockQuestion),
    /// Receiver: its clock, in nanoseconds since its host's boot.
    ClockAnswer {
        /// When the question left, copied from it.
        asked_ns: u64,
        /// When it arrived.
        heard_ns: u64,
        /// When this answer left.
        answered_ns: u64,
    },
    /// Receiver: refusal, or withdrawal of its consent.
    Refuse {
        /// The reason, for a person.
        reason: String,
    },
    /// Both: counters so far; also the heartbeat.
    Progress(Progress),
    /// Sender: everything is sent.
    Done {
        /// Packets that the sender's kernel accepted.
        sent: u64,
    },
    /// Receiver: what arrived, after packets in flight arrived or were lost.
    Report(Box<Report>),
    /// Sender: the trial that it sent to this receiver, as both ends will show it.
    Summary(Box<Trial>),
    /// The first message of another version's sender; its other fields are not read.
    #[serde(skip)]
    OtherVersion {
        /// Its protocol version.
        protocol: u32,
        /// Its linerate version.
        version: String,
    },
}

impl Message {
    // The first message identifies the version; its other fields may have another form in that version.
    pub(crate) fn of_other_version(value: &Value) -> Option<Self> {
        let is_first = matches!(value["type"].as_str(), Some("offer" | "request"));
        let protocol = u32::try_from(value["protocol"].as_u64()?).ok()?;
        (is_first && protocol != PROTOCOL).then(|| Self::OtherVersion {
            protocol,
            version: value["version"].as_str().unwrap_or("of an unknown version").into(),
        })
    }
}

/// What a sender requests permission for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// linerate's version.
    pub version: String,
    /// Number of sending threads.
    pub streams: u16,
    /// The smallest UDP payload in bytes.
    pub payload_bytes: u32,
    /// Requested packets per second, `None` for the maximum.
    pub rate_pps: Option<f64>,
    /// Seconds to send; either this or `count` is present.
    pub duration_s: Option<f64>,
    /// Packets to send.
    pub count: Option<u64>,
    /// Whether it requests its packets back.
    #[serde(default)]
    pub reflect: bool,
    /// Whether it requests a profile of receiving.
    #[serde(default)]
    pub profile: bool,
    /// The requested receiving engine; `None` accepts the one that the receiver was started with.
    #[serde(default)]
    pub receiver: Option<Wanted>,
    /// Whether it requests a count of its packets at the receiving driver.
    #[serde(default)]
    pub witness: bool,
    /// PTP's state of its clock.
    #[serde(default)]
    pub kept: Option<KeptClock>,
}

/// A question about the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockQuestion {
    /// When in the trial.
    pub stage: ClockStage,
    /// When this left, in nanoseconds since boot of the sender's host.
    pub asked_ns: u64,
    /// How far the sender's wall clock is ahead of that.
    pub wall_ahead_ns: u64,
    /// When the previous answer arrived, if there was one.
    pub returned_ns: Option<u64>,
}

/// The state of a host's wall clock, from the daemon that synchronises it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptClock {
    /// The reference clock.
    pub reference: String,
    /// How far the wall clock is ahead of it.
    pub ahead_ns: i64,
    /// The uncertainty of that.
    pub bound_ns: u64,
    /// How far the wall clock is ahead of the time since the host's boot.
    pub wall_ahead_ns: u64,
}

/// What the other end should send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// linerate's version.
    pub version: String,
    /// The port of a receiver at the requesting address, which must consent as any receiver.
    pub port: u16,
    /// What to send, in the form of a trial's plan.
    pub plan: Value,
}

/// A receiving engine that a sender requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The engine with its switches: `udp+reuseport`.
    pub engine: String,
    /// Number of receiving threads, if the engine permits a choice.
    pub threads: u16,
}

/// Counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Packets sent or delivered.
    pub packets: u64,
    /// UDP payload bytes of those packets.
    pub payload_bytes: u64,
    /// Packets that the receiver's sockets dropped, of all senders together.
    pub dropped: u64,
}

/// The receiver's half of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Packets of this sender that were delivered.
    pub delivered: u64,
    /// Places on the receiving side where packets were lost.
    pub lines: Vec<LedgerLine>,
    /// The receiving side.
    pub rx: Endpoint,
    /// The cost of receiving, for all senders together.
    pub cost: Cost,
    /// The receiver's CPUs.
    pub cpus: Vec<CpuShare>,
    /// Senders that shared the receiver at some time during the trial, including this one.
    pub senders: u32,
    /// Profile of receiving, without stacks, which do not fit into a line; `None` if not measured.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// What its driver counted of this sender's packets; `None` if not requested or not measured.
    #[serde(default)]
    pub wire: Option<WireReport>,
    /// The relation of the two hosts' clocks, if packets were timed.
    #[serde(default)]
    pub clocks: Option<ClockComparison>,
}

/// What the receiving host's driver counted of a sender's packets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WireReport {
    /// Packets that it passed on; `None` if not counted.
    pub seen: Option<u64>,
    /// The source of `seen`.
    pub source: String,
    /// Losses before that point, by counters of all traffic.
    pub of_all_traffic: Vec<LedgerLine>,
    /// CPU time of the counting program, per packet.
    pub cost_ns: Option<f64>,
    /// What is uncertain, and why.
    pub doubts: Vec<String>,
}
