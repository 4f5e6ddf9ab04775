//! AF_XDP: packets between user space and one queue of a network interface through four shared rings.
//!
//! The packets lie in a [`Umem`], cut into frames of one size. The owner of a [`Frame`] may read and write its bytes; a
//! frame cannot be copied, and passing it to a ring moves it, so no frame is ever in two places. [`TxQueue`] passes
//! frames to the kernel for sending and gets them back through the completion ring. [`RxQueue`] passes empty frames
//! through the fill ring and gets them back filled. A receiver that returns each frame right after reading it recycles
//! receive descriptors: neither this process nor the kernel allocates anything per packet.
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
