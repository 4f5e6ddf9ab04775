//! What can go wrong with a diversion.

use std::io;

use bpf::BpfError;
use filter::{EbpfRefusal, FilterError};
use nic::SessionError;
use port::PortError;
use sys::NetlinkError;
use thiserror::Error;
use wire::RateError;

/// Why a rule is invalid.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// One line of a file.
    #[error("line {number}")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// The reason.
        source: Box<RuleError>,
    },
    /// A file without rules.
    #[error("there is no rule in it")]
    NoRule,
    /// It does not begin with a verdict.
    #[error("'{word}' is no verdict: a rule begins with drop, pass or keep")]
    Verdict {
        /// What it begins with.
        word: String,
    },
    /// It has no expression.
    #[error("the expression is empty: write all for every packet")]
    NoExpression,
    /// What follows `limit` is no rate.
    #[error("cannot limit to '{text}'")]
    Rate {
        /// The given text.
        text: String,
        /// The reason.
        source: RateError,
    },
    /// A rate that is no number of packets or bits.
    #[error("cannot limit to {rate}: write packets or bits a second, for example 10kpps or 5Mbps")]
    Limit {
        /// The rate.
        rate: String,
    },
    /// What follows `per` is nothing that packets have in common.
    #[error("'{word}' is nothing to limit by: write per source, per destination or per flow")]
    Per {
        /// The given text.
        word: String,
    },
    /// The expression is none.
    #[error("cannot use the expression '{expression}'")]
    Expression {
        /// The expression.
        expression: String,
        /// The reason.
        source: FilterError,
    },
    /// The expressions cannot be turned into a program for the kernel.
    #[error("the rules cannot be turned into an XDP program")]
    Program {
        /// Why not.
        source: EbpfRefusal,
    },
    /// A line of a set that is no network.
    #[error("{problem}")]
    Network {
        /// The reason.
        problem: String,
    },
    /// An expression names a set that was not given.
    #[error("unknown set '{set}'")]
    UnknownSet {
        /// Its name.
        set: String,
    },
    /// Expressions look for more addresses in sets than the program does.
    #[error("the rules look for addresses in more than {most} sets; one address in one set counts once")]
    TooManySets {
        /// The limit.
        most: usize,
    },
    /// More networks than the program's levels hold.
    #[error("a set has more than 8 million networks")]
    SetTooLarge,
    /// Only this process can keep packets, not the kernel's program.
    #[error("the rule '{rule}' keeps packets, which needs --where user")]
    NothingToKeep {
        /// The rule.
        rule: String,
    },
}

/// A diversion could not be planned, begun, changed or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DivertError {
    /// The interface is not there.
    #[error("cannot use interface {interface}")]
    Interface {
        /// Its name.
        interface: String,
        /// The kernel's reason.
        source: NetlinkError,
    },
    /// The card or driver joins packets before XDP sees them.
    #[error("{interface} joins packets before a program can see them (large receive offload)")]
    Joins {
        /// The interface.
        interface: String,
    },
    /// Another XDP program is attached.
    #[error("{interface} carries the XDP program '{program}' (id {id}) already")]
    Occupied {
        /// The interface.
        interface: String,
        /// The other program's name; empty where it may not be known.
        program: String,
        /// The kernel's number of it.
        id: u32,
    },
    /// The interface has no such queue.
    #[error("{interface} has no receive queue {queue}: it has {queues}, numbered from 0")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How many it has.
        queues: u32,
    },
    /// The queue is diverted already.
    #[error("queue {queue} of {interface} is diverted already")]
    Diverted {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The queue is the kernel's.
    #[error("queue {queue} of {interface} is not diverted")]
    NotDiverted {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// A rule cannot be used.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The program was not loaded, attached or read.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A queue's socket was not opened, or broke.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A worker was not started.
    #[error("cannot start the thread of queue {queue}")]
    Thread {
        /// The queue.
        queue: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A worker was not placed.
    #[error("cannot pin the thread of queue {queue} to CPU {cpu}")]
    Pin {
        /// The queue.
        queue: u32,
        /// The CPU.
        cpu: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The file for sampled or kept packets cannot be written.
    #[error("cannot write {path}")]
    File {
        /// The file.
        path: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The card's settings for the diversion failed.
    #[error("cannot prepare {interface}")]
    Card {
        /// The interface.
        interface: String,
        /// Why.
        source: Box<SessionError>,
    },
    /// The card's rules follow the rules of the start.
    #[error("{interface} steers or drops packets in the card by the old rules")]
    Steered {
        /// The interface.
        interface: String,
    },
    /// A limit is decided about where packets are dropped.
    #[error("a limit cannot be tried without dropping")]
    ShadowLimits,
    /// Packets that leave the kernel and are not re-injected are lost to it.
    #[error("without dropping, a decision in this process needs --reinject")]
    ShadowKeeps,
    /// Only the program knows which packets a rule would drop.
    #[error("samples of packets that would be dropped need --where xdp")]
    ShadowSamples,
    /// Packets cannot be re-injected where generic XDP would take them again.
    #[error(
        "cannot re-inject packets into {interface}, whose driver has no native XDP: generic XDP would divert them again"
    )]
    GenericReinjection {
        /// The interface.
        interface: String,
    },
}
