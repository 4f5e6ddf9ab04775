//! Packet sockets (`AF_PACKET`, packet(7)): whole Ethernet frames that bypass the protocol stack, through rings that
//! the kernel and this process share.
//!
//! The rings work on memory passed to them: a socket's mapping, or in tests an array, where the test plays the kernel.
//! Frames in many small calls instead of a ring go through
//! [`SendBatch`](crate::udp::SendBatch).

mod memory;
mod receive;
mod socket;
mod transmit;

pub use receive::{BlockRead, Packet, RxRing, RxRingLayout};
pub use socket::{FanoutMode, PacketSocket, Statistics};
pub use transmit::{TxRing, TxRingLayout};
