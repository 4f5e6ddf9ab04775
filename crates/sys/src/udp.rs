//! UDP sockets in batches: `sendmmsg`, `recvmmsg`, segmentation offload, and drop counts.

pub(crate) mod ancillary;
mod receive;
mod send;
mod sink;
mod slab;
mod socket;

pub use ancillary::ReceiveTimes;
pub use receive::{Message, RecvBatch};
pub use send::SendBatch;
pub use sink::UdpSink;
pub use socket::{SocketOptions, UdpSocket};
