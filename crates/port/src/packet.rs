//! The path through packet sockets (`AF_PACKET`): whole frames that bypass the protocol stack.

mod receive;
mod reflect;
mod transmit;

pub use receive::{Fanout, PacketRx, PacketRxOptions};
pub use reflect::PacketReflector;
pub use sys::packet::{FanoutMode, Statistics as PacketStatistics};
pub use transmit::{PacketTx, PacketTxOptions};

use std::io;

use sys::packet::PacketSocket;

use crate::PortError;

/// An unbound packet socket, and the conversion of its errors.
fn open(interface: u32) -> Result<PacketSocket, PortError> {
    PacketSocket::open().map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => {
            PortError::Capability { path: "packet", capability: "CAP_NET_RAW", source }
        }
        _ => failed("open a packet socket", interface)(source),
    })
}

fn failed(tried: &'static str, interface: u32) -> impl Fn(io::Error) -> PortError {
    move |source| PortError::Interface { tried, interface, source }
}
