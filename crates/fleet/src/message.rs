//! What a coordinator and agents say to each other, as JSON.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use measure::{FleetAgent, Interval, Start, Trial};
use serde::{Deserialize, Serialize};
use traffic::ReceiverPlan;
use trial::{HostPlan, Report};

use crate::{clock::Sight, limits::StatedLimits};

/// Version of what is said; a coordinator and its agents must have the same.
pub(crate) const PROTOCOL: u32 = 4;

/// One attempt at a trial of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) run: String,
    pub(crate) trial: u32,
    pub(crate) attempt: u32,
}

/// What a coordinator asks an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Its description.
    Describe,
    /// What its clock shows.
    Clock,
    /// How its packets get to these addresses: one datagram of this size to each, port 9, finds narrower links.
    Paths { to: Vec<IpAddr>, packet_bytes: u32, has_agent: bool },
    /// Open ports, read counters, ask receivers; send nothing.
    Prepare(Box<Prepare>),
    /// Send from then on, by the agent's own clock.
    Start { of: Attempt, at_ns: u64 },
    /// Stop, or do not even start.
    Stop { of: Attempt, reason: String },
}

/// An agent's part of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) protocol: u32,
    pub(crate) of: Attempt,
    pub(crate) part: Part,
    /// The secret of this attempt, which senders and receivers prove to each other.
    pub(crate) secret: String,
    /// How long the agent goes on without hearing anything more.
    pub(crate) lease_ms: u64,
    /// Whether a sender shows its counters while it sends, for a live view.
    pub(crate) live: bool,
}

/// A running sender's counters, for a live view: a lost one is not repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) agent: String,
    pub(crate) of: Attempt,
    pub(crate) sent: u64,
    pub(crate) delivered: Option<u64>,
    pub(crate) sent_pps: f64,
    pub(crate) delivered_pps: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub(crate) enum Part {
    Send { plan: Box<HostPlan> },
    Receive { plan: Box<ReceiverPlan>, senders: u32, most_pps: Option<f64> },
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Its description.
    Description(Box<Description>),
    /// What its clock showed when the question came and when the answer left.
    Clock { heard_ns: u64, answered_ns: u64 },
    /// One for each address.
    Paths { paths: Vec<PathFinding> },
    /// Prepared; a receiver says where it listens.
    Ready { address: Option<SocketAddr> },
    /// It will start, so long after the order came.
    Starting { margin_ns: u64 },
    /// Stopped, or nothing to stop.
    Stopped,
    /// No.
    Refused { reason: String },
}

/// How packets get to an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathFinding {
    pub(crate) to: IpAddr,
    /// The interface they leave by; `None` without a route.
    pub(crate) interface: Option<String>,
    /// The largest IP packet, as far as the kernel knows; 0 without a route.
    pub(crate) mtu_bytes: u32,
}

/// An agent, as it describes itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Description {
    /// Version of the fleet's messages.
    pub protocol: u32,
    /// Name, machine, interface.
    #[serde(flatten)]
    pub facts: FleetAgent,
    /// Which engines work there.
    pub engines: Vec<EngineFinding>,
    /// What its owner allows.
    pub(crate) limits: StatedLimits,
    /// The run that it takes part in.
    pub busy_with: Option<String>,
    /// How its interface spreads flows over queues, where a card does.
    #[serde(default)]
    pub spread: Option<Spread>,
    /// By how much its clock is ahead of the asking host's, and how wrong that may be; known to the asking host only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ns: Option<i64>,
    /// How wrong that may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_ns: Option<u64>,
}

impl Description {
    /// The engines that work there, and how many do not.
    pub fn engines_in_words(&self) -> String {
        let working = |side: &str| {
            let engines = self.engines.iter().filter(|engine| engine.works);
            let names = engines.filter_map(|engine| engine.engine.strip_prefix(side)?.strip_prefix(' '));
            names.collect::<Vec<_>>().join(", ")
        };
        let missing = self.engines.iter().filter(|engine| !engine.works).count();
        let more =
            if missing > 0 { format!("; {missing} unavailable (--json has reasons)") } else { String::new() };
        format!("engines: tx {}; rx {}{more}", working("tx"), working("rx"))
    }

    /// What its owner allows, in words.
    pub fn limits_in_words(&self) -> String {
        let limits = &self.limits;
        let rate = limits.max_pps.map_or("any rate".into(), |pps| format!("at most {pps:.0} pps"));
        let to = if limits.allow_to.is_empty() {
            "to private and benchmarking addresses".into()
        } else {
            format!("to {}", limits.allow_to.join(", "))
        };
        match (limits.may_send, limits.may_receive) {
            (true, true) => format!("sends {rate} {to}, receives"),
            (true, false) => format!("sends {rate} {to}"),
            (false, true) => "receives".into(),
            (false, false) => "does nothing".into(),
        }
    }
}

/// An engine and whether it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineFinding {
    /// Its name.
    pub engine: String,
    /// Whether it works.
    pub works: bool,
    /// What it got, or what it needs.
    pub detail: String,
}

/// How a card chooses a receive queue: Toeplitz over addresses and ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// The key.
    pub key: Vec<u8>,
    /// Queues by the low bits of the hash.
    pub table: Vec<u32>,
    /// Whether ports of UDP are hashed, too.
    pub ports: bool,
}

/// What an agent measured, stored by the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) agent: String,
    pub(crate) incarnation: String,
    pub(crate) of: Attempt,
    /// Counts the results of an incarnation.
    pub(crate) sequence: u64,
    pub(crate) what: Measured,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Measured {
    /// A sender's trial.
    Sent {
        trial: Box<Trial>,
        intervals: Vec<Interval>,
        /// When it began, by the agent's clock.
        began_ns: u64,
        /// What ended it early.
        cut_short: Option<String>,
    },
    /// What a receiver counted of all senders together.
    Received { report: Box<Report>, cut_short: Option<String> },
    /// Nothing was measured.
    Failed { reason: String },
}

impl Outcome {
    /// The same result said twice is counted once.
    pub(crate) fn id(&self) -> String {
        let Attempt { run, trial, attempt } = &self.of;
        format!("{}/{}/{run}/{trial}/{attempt}/{}", self.agent, self.incarnation, self.sequence)
    }
}

/// What a run is to do, stored before it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) start: Start,
    pub(crate) agents: Vec<FleetAgent>,
    pub(crate) tolerate: u32,
    pub(crate) most_start_error_ns: u64,
}

/// What a run decided on the way, stored as it goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum Step {
    /// All is prepared: this attempt is going to start.
    Starts(Box<Launch>),
    /// The clocks after it.
    Clocks { of: Attempt, after: BTreeMap<String, Sight> },
    /// An attempt counts for nothing.
    Voided { of: Attempt, reason: String },
    /// The run is over.
    Ended,
}

/// An attempt that starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) of: Attempt,
    /// By the coordinator's clock.
    pub(crate) start_at_ns: u64,
    /// By how much each agent's clock was ahead.
    pub(crate) clocks: BTreeMap<String, Sight>,
    /// Incarnation of each agent: results of another one are not of this attempt.
    pub(crate) incarnations: BTreeMap<String, String>,
    /// Each sender's receivers.
    pub(crate) senders: BTreeMap<String, Vec<String>>,
    pub(crate) receivers: Vec<String>,
    pub(crate) duration_ns: u64,
}
