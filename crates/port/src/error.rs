//! What can go wrong at a port: what was tried, on what, and why it failed.

use std::{io, net::SocketAddr};

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
    /// An interface is not there.
    #[error("cannot use interface {interface}")]
    Interface {
        /// Its name.
        interface: String,
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
}

impl PortError {
    /// The kernel's reason.
    pub fn io(&self) -> &io::Error {
        match self {
            Self::Bind { source, .. }
            | Self::Interface { source, .. }
            | Self::Connect { source, .. }
            | Self::Option { source, .. }
            | Self::Send { source, .. }
            | Self::Receive { source, .. } => source,
        }
    }
}
