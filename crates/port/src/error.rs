//! What can go wrong at a port: what was tried, on what, and why it failed.

use std::{io, net::SocketAddr};

use bpf::BpfError;
use sys::{NetlinkError, xsk::XskError};
use thiserror::Error;

/// A port could not be opened, or broke.
#[derive(Debug, Error)]
pub enum PortError {
    /// A local address could not be bound.
    #[error("cannot bind UDP {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A peer could not be connected to.
    #[error("cannot reach {peer} by UDP")]
    Connect {
        /// The peer.
        peer: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// An option was refused.
    #[error("cannot set {option} on a UDP socket")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Sending failed for good.
    #[error("cannot send to {peer}")]
    Send {
        /// The peer.
        peer: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Receiving failed for good.
    #[error("cannot receive on {address}")]
    Receive {
        /// The local address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// An interface could not be found.
    #[error("cannot use {interface}")]
    Interface {
        /// The interface.
        interface: String,
        /// The kernel's reason.
        source: NetlinkError,
    },
    /// A queue that the interface does not have.
    #[error("{interface} has no queue {queue}: it has {queues}, numbered from 0")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// A frame that the port's memory has no room for.
    #[error("a frame of {bytes} bytes does not fit the port's {most}")]
    FrameTooLong {
        /// The longest frame of the run.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// There is no AF_XDP socket to be had.
    #[error("cannot open an AF_XDP socket on queue {queue} of {interface}")]
    Xsk {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What was missing.
        source: XskError,
    },
    /// Packets cannot be redirected to AF_XDP sockets.
    #[error("cannot redirect packets of {interface} to AF_XDP sockets")]
    Bpf {
        /// The interface.
        interface: String,
        /// What was missing.
        source: BpfError,
    },
    /// An AF_XDP socket broke.
    #[error("cannot {action} the AF_XDP socket on queue {queue} of {interface}")]
    XskBroken {
        /// What was tried.
        action: &'static str,
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl PortError {
    /// The kernel's reason, where it gave an error number at once.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Bind { source, .. }
            | Self::Connect { source, .. }
            | Self::Option { source, .. }
            | Self::Send { source, .. }
            | Self::Receive { source, .. }
            | Self::XskBroken { source, .. } => Some(source),
            Self::Xsk { source, .. } => Some(source.io()),
            Self::Interface { .. } | Self::NoQueue { .. } | Self::FrameTooLong { .. } | Self::Bpf { .. } => {
                None
            }
        }
    }
}
