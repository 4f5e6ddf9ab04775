//! What the two ends say to each other.

use measure::{Cost, CpuShare, Endpoint, LedgerLine, Profile, Trial};
use serde::{Deserialize, Serialize};

/// Version of the control protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 1;

/// One line on the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Sender: what it would like to send.
    Offer(Offer),
    /// Receiver: agreed; the stream tags to use, one a sending thread, and the UDP port to send to.
    Accept {
        /// Stream tags.
        streams: Vec<u16>,
        /// UDP port.
        data_port: u16,
        /// Whether packets come back to the address that this conversation comes from.
        #[serde(default)]
        reflects: bool,
    },
    /// Receiver: not agreed.
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
    /// Sender: the trial as both ends will show it.
    Summary(Box<Trial>),
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
    /// Seconds it will send.
    pub duration_s: Option<f64>,
    /// Packets it will send.
    pub count: Option<u64>,
    /// Whether it wants its packets back.
    #[serde(default)]
    pub reflect: bool,
    /// Whether it wants to know where receiving takes its time.
    #[serde(default)]
    pub profile: bool,
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
}
