//! What the two ends say to each other.

use measure::{ClockComparison, ClockStage, Cost, CpuShare, Endpoint, LedgerLine, Profile, Trial};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the control protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 4;

/// One line on the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Both, before anything else where they have a secret: Noise's words, in hex.
    Handshake {
        /// As `NNpsk0` has them.
        noise: String,
    },
    /// Sender: what it would like to send.
    Offer(Offer),
    /// In place of an offer: the other end is to send, to the address that asks and nowhere else.
    Request(Box<Request>),
    /// Receiver: agreed; the stream tags to use, one a sending thread. Packets go to the UDP port whose TCP port this
    /// conversation goes to.
    Accept {
        /// Stream tags.
        streams: Vec<u16>,
        /// Whether packets come back to the address that this conversation comes from.
        #[serde(default)]
        reflects: bool,
        /// Whether packets are timed: then the sender asks for the receiver's clock before, while and after it sends.
        #[serde(default)]
        times: bool,
    },
    /// Sender: what the receiver's clock is.
    ClockQuestion(ClockQuestion),
    /// Receiver: its clock, in nanoseconds since its host's start.
    ClockAnswer {
        /// When the question left, as it says.
        asked_ns: u64,
        /// When it came.
        heard_ns: u64,
        /// When this answer left.
        answered_ns: u64,
    },
    /// Receiver: not agreed, or no longer.
    Refuse {
        /// Why, for a person.
        reason: String,
    },
    /// Both: what happened so far; also the sign of life.
    Progress(Progress),
    /// Sender: all is sent.
    Done {
        /// Packets that the sender's kernel took.
        sent: u64,
    },
    /// Receiver: what arrived, after what was in flight came or got lost.
    Report(Box<Report>),
    /// Sender: the trial of what it sent to this receiver, as both ends will show it.
    Summary(Box<Trial>),
    /// The first words of another version's sender, of which no more is read.
    #[serde(skip)]
    OtherVersion {
        /// Its protocol.
        protocol: u32,
        /// Its linerate's version.
        version: String,
    },
}

impl Message {
    /// First words say who speaks; what else they say may be in another form by then.
    pub(crate) fn of_other_version(value: &Value) -> Option<Self> {
        let is_first = matches!(value["type"].as_str(), Some("offer" | "request"));
        let protocol = u32::try_from(value["protocol"].as_u64()?).ok()?;
        (is_first && protocol != PROTOCOL).then(|| Self::OtherVersion {
            protocol,
            version: value["version"].as_str().unwrap_or("of an unknown version").into(),
        })
    }
}

/// What a sender asks to be allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// linerate's version.
    pub version: String,
    /// Sending threads.
    pub streams: u16,
    /// The smallest UDP payload in bytes.
    pub payload_bytes: u32,
    /// Packets per second asked for, `None` for the maximum.
    pub rate_pps: Option<f64>,
    /// Seconds it will send; this or `count` is there.
    pub duration_s: Option<f64>,
    /// Packets it will send.
    pub count: Option<u64>,
    /// Whether it wants its packets back.
    #[serde(default)]
    pub reflect: bool,
    /// Whether it wants to know where receiving takes its time.
    #[serde(default)]
    pub profile: bool,
    /// What it would like to be received by; `None` takes what the receiver was started with.
    #[serde(default)]
    pub receiver: Option<Wanted>,
    /// Whether it wants its packets to be counted at the receiving driver, beside all others.
    #[serde(default)]
    pub witness: bool,
    /// What PTP says of its clock.
    #[serde(default)]
    pub kept: Option<KeptClock>,
}

/// A question about the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockQuestion {
    /// When in the trial.
    pub stage: ClockStage,
    /// When this left, in nanoseconds since the sender's host's start.
    pub asked_ns: u64,
    /// By how much the sender's wall clock is ahead of that.
    pub wall_ahead_ns: u64,
    /// When the answer before came, where one did.
    pub returned_ns: Option<u64>,
}

/// What a daemon that keeps a host's wall clock says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptClock {
    /// The clock that all follow.
    pub reference: String,
    /// By how much the wall clock is ahead of it.
    pub ahead_ns: i64,
    /// By how much that may be wrong.
    pub bound_ns: u64,
    /// By how much the wall clock is ahead of the time since the host's start.
    pub wall_ahead_ns: u64,
}

/// What the other end is asked to send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// linerate's version.
    pub version: String,
    /// The port of a receiver at the address that asks: it must agree as any receiver does.
    pub port: u16,
    /// What to send, as the trial's own plan has it.
    pub plan: Value,
}

/// A receiving engine that a sender asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The engine with its switches: `udp+reuseport`.
    pub engine: String,
    /// Receiving threads, where the engine leaves the choice.
    pub threads: u16,
}

/// Counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Packets sent or delivered.
    pub packets: u64,
    /// UDP payload bytes of those packets.
    pub payload_bytes: u64,
    /// Packets that the receiver's sockets dropped, all senders' together.
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
    /// What receiving cost, all senders' together.
    pub cost: Cost,
    /// The receiver's CPUs.
    pub cpus: Vec<CpuShare>,
    /// Senders that shared the receiver at some time during the trial, this one included.
    pub senders: u32,
    /// Where receiving took its time, without stacks, which no line has room for; `None` where nobody looked.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// What its driver saw of this sender's packets; `None` where that was not asked for, or nobody looked.
    #[serde(default)]
    pub wire: Option<WireReport>,
    /// How the two hosts' clocks were related, where packets were timed.
    #[serde(default)]
    pub clocks: Option<ClockComparison>,
}

/// What the receiving host's driver saw of a sender's packets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WireReport {
    /// Packets that it handed on; `None` where nobody counted them.
    pub seen: Option<u64>,
    /// What `seen` was read from.
    pub source: String,
    /// Losses in front of that by counters of all traffic.
    pub of_all_traffic: Vec<LedgerLine>,
    /// CPU time of the counting program, a packet.
    pub cost_ns: Option<f64>,
    /// What is uncertain, and why.
    pub doubts: Vec<String>,
}
