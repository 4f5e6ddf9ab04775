//! UDP sockets in batches: `sendmmsg`, `recvmmsg`, segmentation offload, and drop counts.

mod receive;
mod send;
mod sink;
mod slab;
mod socket;

pub use receive::{Message, ReceiveTimes, RecvBatch};
pub use send::SendBatch;
pub use sink::UdpSink;
pub use socket::{SocketOptions, UdpSocket};
