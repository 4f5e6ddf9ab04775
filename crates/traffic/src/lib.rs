//! Traffic: pinned workers that generate and receive packets, over the engines of `engines/`, one file each. The only
//! crate that starts threads for traffic.
//!
//! A worker is planned, started and stopped, never reconfigured. Two things cross the thread boundary: the
//! stop request, inwards, and its published tally, outwards.
//!
//! ```
//! use traffic::{RxSpec, TxSpec, engines};
//!
//! let sender: TxSpec = "udp+gso".parse()?;
//! assert_eq!(sender.settings()["gso"], true);
//! assert!(sender.facts().hands_over_many && !sender.facts().makes_frames);
//! assert_eq!("xdp".parse::<RxSpec>()?.name(), "xdp");
//! assert!(engines().iter().any(|engine| engine.name == "packet"));
//! # Ok::<(), traffic::SpecError>(())
//! ```
#![forbid(unsafe_code)]

mod collect;
mod emit;
mod engine;
mod engines;
mod error;
mod generate;
mod interface;
mod measuring;
#[cfg(test)]
mod no_allocation;
mod observe;
mod pace;
mod plan;
mod publish;
mod queues;
mod reader;
mod received;
mod receiver;
mod registry;
mod sender;
mod sender_clocks;
mod tally;
mod window;
mod worker;

pub use collect::{Arrival, Collector, LatencyMeans, ReaderPlace, Readings, reception};
pub use engine::{
    Conditions, ReceiverPlan, RingOptions, RxFacts, RxLayer, RxOptions, RxSpec, RxWorkers, SenderPlan,
    TxFacts, TxOptions, TxSpec,
};
pub use engines::{SpecError, engines};
pub use error::EngineError;
pub use generate::SenderResult;
pub use pace::{Departures, Limit, Schedule};
pub use plan::{FIRST_SOURCE_PORT, RxTraffic, StatisticsPlan, TxTraffic, TxWorkerPlan};
/// What a receiving port merged and lost, the senders to return probes to, and the source of timestamps.
pub use port::{
    Buffers, CardAccess, FileCache, FileChoice, Joined, Loss, MessageFile, ReturnList, TimeSource,
};
pub use publish::{RxSnapshot, STREAMS, StreamCount, TxSnapshot};
pub use received::{ReceiverResult, RxResult};
pub use receiver::{Receiver, RxContext};
pub use registry::{Engine, EngineSide, Finding, Switch};
pub use sender::Sender;
pub use sender_clocks::{SenderAhead, SenderClocks};
pub use window::{AfterReading, StatisticsReader};
pub use worker::{Placement, WorkerCost};
