//! Packet sockets (`AF_PACKET`, packet(7)): whole Ethernet frames past the protocol stack, through rings that
//! the kernel and this process share.
//!
//! The rings are code over memory that is given to them: a socket's mapping, and in the tests an array, where the
//! test plays the kernel. Frames in many small calls instead of a ring go through
//! [`SendBatch`](crate::udp::SendBatch).

mod memory;
mod receive;
mod socket;
mod transmit;

pub use receive::{BlockRead, Packet, RxRing, RxRingLayout};
pub use socket::{FanoutMode, PacketSocket, Statistics};
pub use transmit::{TxRing, TxRingLayout};
