//! The path through AF_XDP: frames in memory shared with the kernel, one socket per queue.
//!
//! Busy-polling sockets change two settings of the interface while they are open (`napi.rs`). Memory is
//! on huge pages if free ones exist; [`XskGot`] reports what was used.
//!
//! Received frames are recycled: a frame returns to the fill ring right after it is read, so
//! nothing is allocated per packet (receive descriptor recycling). [`XskRx::recycling`] counts it.
//!
//! A redirected packet appears on the queue that it arrived on. On a veth that is the queue that the sender
//! transmitted on: [`XskTxOptions::queue`] chooses it.

mod kick;
mod napi;
mod queue;
mod reflect;
mod rx;
mod tx;

use measure::Place;
use sys::{
    ethtool::EthtoolSocket,
    rtnetlink::{Link, RouteSocket},
    xsk::{CopyMode, Pages, XskStatistics},
};

pub use queue::{After, Turn, XskQueue, XskQueueOptions};
pub use reflect::XskReflector;
pub use rx::{Recycling, XskRx, XskRxOptions};
pub use tx::{XskTx, XskTxOptions};

use crate::{Loss, PortError};

/// The memory and the rings of one AF_XDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XskShape {
    /// Bytes of a frame: 2048 or 4096.
    pub frame_size: u32,
    /// Frames of the socket, a power of two.
    pub frames: u32,
    /// Slots of its RX or TX ring, a power of two.
    pub ring_slots: u32,
}

impl XskShape {
    const USUAL: Self = Self { frame_size: 2048, frames: 4096, ring_slots: 2048 };

    /// The best shape for receiving on an interface of the calling thread's namespace: the default, but 4096-byte frames for
    /// cards whose buffers are whole KiB (SRRCTL.BSIZEPKT). With 2048 bytes, XDP's headroom leaves those cards 1024, and with
    /// zero-copy their drivers drop packets that need a second buffer.
    fn receiving(interface: &str) -> Self {
        let driver = EthtoolSocket::open().and_then(|ethtool| ethtool.driver(interface));
        let by_kib = driver.is_ok_and(|driver| matches!(&*driver.name, "igb" | "igc" | "ixgbe"));
        if by_kib { Self { frame_size: 4096, ..Self::USUAL } } else { Self::USUAL }
    }
}

/// The part of its request that a socket got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XskGot {
    /// [`CopyMode::Copy`] or [`CopyMode::ZeroCopy`].
    pub copy_mode: CopyMode,
    /// The kind of pages of its frames.
    pub pages: Pages,
}

/// The interface of this name in the calling thread's namespace, when it has this queue.
fn interface(name: &str, queue: u32) -> Result<Link, PortError> {
    let link = RouteSocket::open()
        .and_then(|mut route| route.link_by_name(name))
        .map_err(|source| PortError::Link { interface: name.into(), source })?;
    let queues = link.rx_queues.max(link.tx_queues);
    if queue < queues { Ok(link) } else { Err(PortError::NoQueue { interface: name.into(), queue, queues }) }
}

/// The places where a socket in copy mode loses packets; the lines add up to the total.
///
/// The kernel counts a packet that found the fill ring empty in two counters; here it is in one line.
pub fn receive_losses(counted: &XskStatistics) -> [Loss; 3] {
    let without_frame = counted.rx_fill_ring_empty_descs.min(counted.rx_dropped);
    [
        Loss {
            place: Place::XskFillEmpty,
            packets: without_frame,
            source: "XDP_STATISTICS rx_fill_ring_empty_descs",
            remedy: "more frames, or a receiver that returns them faster",
        },
        Loss {
            place: Place::XskFrameSmall,
            packets: counted.rx_dropped - without_frame,
            source: "XDP_STATISTICS rx_dropped - rx_fill_ring_empty_descs",
            remedy: "frames of 4096 bytes",
        },
        Loss {
            place: Place::XskRingFull,
            packets: counted.rx_ring_full,
            source: "XDP_STATISTICS rx_ring_full",
            remedy: "a larger RX ring, or a faster receiver",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_found_no_frame_is_lost_once() {
        let counted = XskStatistics {
            rx_dropped: 10,
            rx_fill_ring_empty_descs: 7,
            rx_ring_full: 5,
            ..XskStatistics::default()
        };
        let packets = receive_losses(&counted).map(|loss| loss.packets);
        assert_eq!(packets, [7, 3, 5]);
        assert_eq!(packets.iter().sum::<u64>(), counted.rx_lost());
    }
}
