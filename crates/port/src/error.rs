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
    /// The path needs a right that this process has not.
    #[error("the {path} path needs {capability}")]
    Capability {
        /// The path.
        path: &'static str,
        /// The capability's name, as in capabilities(7).
        capability: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A step on an interface failed.
    #[error("cannot {tried} on interface {interface}")]
    Interface {
        /// What was tried.
        tried: &'static str,
        /// The interface's number.
        interface: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The interface does not carry such frames.
    #[error("frames of {frame_bytes} bytes do not fit interface {interface}: at most {longest} without FCS")]
    FrameTooLong {
        /// The frame's length without FCS.
        frame_bytes: usize,
        /// The longest that fits.
        longest: usize,
        /// The interface's number.
        interface: u32,
    },
}

impl PortError {
    /// The kernel's reason, where the kernel was asked.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Bind { source, .. }
            | Self::Interface { source, .. }
            | Self::Connect { source, .. }
            | Self::Option { source, .. }
            | Self::Send { source, .. }
            | Self::Receive { source, .. }
            | Self::Capability { source, .. }
            | Self::Interface { source, .. } => Some(source),
            Self::FrameTooLong { .. } => None,
        }
    }
}
