//! Why the rows could not be measured.

use std::io;

use divert::DivertError;
use lab::LabError;
use sys::procfs;
use thiserror::Error;
use traffic::EngineError;
use trial::TrialError;

use super::load::FloodFilter;

/// Why the rows could not be measured.
#[derive(Debug, Error)]
pub enum SingleRxQueueError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row's trial.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A running diversion.
    #[error(transparent)]
    Divert(#[from] DivertError),
    /// The queues of flows cannot be chosen.
    #[error(
        "cannot choose flows for the queues of {interface}: it does not report its table, its key and what it hashes"
    )]
    Spread {
        /// The receiving interface.
        interface: String,
    },
    /// The queue is not one of several.
    #[error("{interface} has no receive queue {queue} beside others: it has {queues}, numbered from 0")]
    NoQueue {
        /// The receiving interface.
        interface: String,
        /// The requested queue.
        queue: u32,
        /// How many it has.
        queues: u32,
    },
    /// Sockets of the service and the transfer.
    #[error("cannot {what}")]
    Socket {
        /// The operation.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Counters of a filter.
    #[error("cannot read the drop counter of {filter}")]
    Counter {
        /// The filter.
        filter: FloodFilter,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The machine's CPU times.
    #[error(transparent)]
    Cpus(#[from] procfs::ProcError),
}

pub(super) fn socket_error(what: &'static str) -> impl Fn(io::Error) -> SingleRxQueueError {
    move |source| SingleRxQueueError::Socket { what, source }
}
