//! A socket that takes datagrams and drops them at once.

use std::{io, net::SocketAddr};

use super::socket::{SocketOptions, UdpSocket};

/// Keeps a port open, so that no ICMP "port unreachable" is sent, and drops all datagrams with a socket filter.
pub struct UdpSink {
    _socket: UdpSocket,
}

impl UdpSink {
    /// Opens the port.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address, &SocketOptions::default())?;
        socket.drop_all()?;
        Ok(Self { _socket: socket })
    }
}
