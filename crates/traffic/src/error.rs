//! Why workers could not start, or stopped.

use std::io;

use port::PortError;
use thiserror::Error;

/// A worker could not start, or its path broke.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The worker's port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The worker's network namespace.
    #[error("worker {worker} cannot enter its network namespace")]
    Enter {
        /// Number of the worker.
        worker: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The CPU it should run on.
    #[error("worker {worker} cannot be pinned to CPU {cpu}")]
    Pin {
        /// Number of the worker.
        worker: usize,
        /// The CPU.
        cpu: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A thread could not be created.
    #[error("cannot start a thread for worker {worker}")]
    Thread {
        /// Number of the worker.
        worker: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel's generator cannot build such packets.
    #[error("the kernel's pktgen cannot send this: {reason}")]
    NotByPktgen {
        /// What it can.
        reason: &'static str,
    },
    /// More flows than source ports.
    #[error("{flows} flows are too many: senders that build frames have {most} source ports")]
    Flows {
        /// Flows of all workers.
        flows: usize,
        /// Source ports of all workers.
        most: usize,
    },
    /// More sockets than files that this process may open.
    #[error("{flows} flows are as many sockets: this process may not open so many files")]
    Files {
        /// Flows of all workers.
        flows: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The packets' description.
    #[error(transparent)]
    Frames(#[from] wire::SpecError),
}
