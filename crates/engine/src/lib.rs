//! Pinned workers that generate and receive packets. The only crate that starts threads for traffic.
//!
//! A worker is planned, started and stopped, never reconfigured. Two things cross its thread's border: the
//! wish to stop, inwards, and its published tally, outwards.
#![forbid(unsafe_code)]

mod collect;
mod emit;
mod error;
mod generate;
mod kernel;
#[cfg(test)]
mod no_allocation;
mod observe;
mod pace;
mod publish;
mod receive;
mod worker;

pub use collect::{Arrival, Collector, LatencyMeans, ReaderPlace, Readings, reception};
pub use error::EngineError;
pub use generate::{
    PacketTxPlan, PktgenTxPlan, Sender, SenderPlan, SenderResult, TcpTxPlan, TxEngine, TxWorkerPlan,
    UdpTxPlan, XdpTxPlan, XskTxPlan,
};
pub use observe::Then;
pub use pace::{Departures, Limit, Schedule};
/// Packets that a receiving port lost at one place, whose packets go back, and who says when a packet came.
pub use port::{Loss, ReturnList, TcpSend, TimeSource, WORK_AT_MOST_NS as PROGRAM_WORK_AT_MOST_NS};
pub use publish::{RxSnapshot, STREAMS, StreamCount, TxSnapshot};
pub use receive::{
    PACKET_RING_BYTES, PacketRxPlan, Receiver, ReceiverPlan, ReceiverResult, RxEngine, RxResult,
    StatisticsPlan, TcpRxPlan, UdpRxPlan, XdpRxPlan, XskRxPlan,
};
pub use worker::{Placement, WorkerCost};
