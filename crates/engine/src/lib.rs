//! Pinned workers that generate and receive packets. The only crate that starts threads for traffic.
//!
//! A worker is planned, started and stopped, never reconfigured. Two things cross its thread's border: the
//! wish to stop, inwards, and its published tally, outwards.
#![forbid(unsafe_code)]

mod error;
mod generate;
mod pace;
mod publish;
mod receive;
mod worker;

pub use error::EngineError;
pub use generate::{Sender, SenderPlan, SenderResult, TxEngine, TxWorkerPlan, UdpTxPlan};
pub use pace::{Departures, Limit, Schedule};
pub use publish::{RxSnapshot, STREAMS, StreamCount, TxSnapshot};
pub use receive::{Receiver, ReceiverPlan, ReceiverResult, RxEngine, RxResult, UdpRxPlan};
pub use worker::{Placement, WorkerCost};
