//! AF_XDP: packets between user space and one queue of a network interface through four shared rings.
//!
//! The packets lie in a [`Umem`], cut into frames of one size. Whoever holds a [`Frame`] may read and write
//! its bytes; a frame cannot be copied, and giving it to a ring takes it away, so no frame is ever in two
//! places. [`TxQueue`] hands frames to the kernel to be sent and gets them back through the completion ring.
//! [`RxQueue`] hands empty frames over through the fill ring and gets them back filled. A receiver that gives
//! each frame back as soon as it has looked at it recycles receive descriptors: nothing is allocated for a
//! packet, neither here nor in the kernel.
//!
//! Formats: `linux/if_xdp.h`, <https://docs.kernel.org/networking/af_xdp.html>.

mod error;
#[cfg(test)]
mod fake;
mod lent;
pub(crate) mod mapping;
mod queue;
mod ring;
mod socket;
mod umem;

pub use error::XskError;
pub use queue::{Received, RxQueue, TxQueue};
pub use socket::{BusyPoll, CopyMode, Opened, XskConfig, XskSocket, XskStatistics};
pub use umem::{Frame, Pages, Umem, UmemConfig};
