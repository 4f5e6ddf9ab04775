//! The transmit ring (`PACKET_TX_RING`, `TPACKET_V2`).

use std::mem::{offset_of, size_of};

use libc::{TP_STATUS_AVAILABLE, TP_STATUS_SEND_REQUEST, TP_STATUS_WRONG_FORMAT, tpacket_req, tpacket2_hdr};

use super::memory::Memory;

const STATUS: usize = offset_of!(tpacket2_hdr, tp_status);
const LEN: usize = offset_of!(tpacket2_hdr, tp_len);
/// The offset of the frame in a slot: after the header (`tp_hdrlen - sizeof(struct sockaddr_ll)`).
const VIRTIO: usize = size_of::<tpacket2_hdr>();
/// `hdr_len` of `struct virtio_net_hdr` (linux/virtio_net.h).
const VIRTIO_HDR_LEN: usize = VIRTIO + 2;
const FRAME: usize = VIRTIO + 10;
/// The kernel allocates and maps the ring in blocks that no slot crosses.
const BLOCK_BYTES: usize = 1 << 16;

const _: () = assert!(VIRTIO == 32 && LEN == 4 && STATUS == 0, "include/uapi/linux/if_packet.h");

/// Slots that the kernel sends frames from.
///
/// A small header before each frame (`PACKET_VNET_HDR`) makes the kernel copy the whole frame into the packet.
/// Without it the kernel attaches the ring's page to the packet, and a veth must still copy it later: slower for
/// small and for large frames, as `benches/packet.rs` of `port` shows against a plain ring.
pub struct TxRing {
    memory: Memory,
    layout: TxRingLayout,
    next: usize,
    waiting: usize,
}

/// The size of a transmit ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxRingLayout {
    slots: usize,
    slot_bytes: usize,
    frame_bytes: usize,
}

impl TxRingLayout {
    /// The longest frame that a slot can hold.
    pub const MOST_FRAME_BYTES: usize = BLOCK_BYTES - FRAME;

    /// Room for at least `slots` frames of up to `frame_bytes`: rounded up to fill the last block.
    ///
    /// # Panics
    /// Without slots, or when a frame is empty or exceeds [`TxRingLayout::MOST_FRAME_BYTES`].
    pub fn new(slots: usize, frame_bytes: usize) -> Self {
        assert!(slots > 0, "an empty ring sends nothing");
        assert!((1..=Self::MOST_FRAME_BYTES).contains(&frame_bytes), "{frame_bytes} bytes do not fit a slot");
        // A power of two, so that slots fill blocks exactly and the ring is one array.
        let slot_bytes = (FRAME + frame_bytes).next_power_of_two();
        Self { slots: slots.next_multiple_of(BLOCK_BYTES / slot_bytes), slot_bytes, frame_bytes }
    }

    /// The memory that the ring takes.
    pub fn bytes(&self) -> usize {
        self.slots * self.slot_bytes
    }

    pub(super) fn request(&self) -> tpacket_req {
        tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (self.bytes() / BLOCK_BYTES) as u32,
            tp_frame_size: self.slot_bytes as u32,
            tp_frame_nr: self.slots as u32,
        }
    }
}

impl TxRing {
    /// A ring of empty slots.
    ///
    /// # Panics
    /// When the memory's length differs from the layout's.
    pub(super) fn over(memory: Memory, layout: TxRingLayout) -> Self {
        assert_eq!(memory.len(), layout.bytes(), "the memory is as long as the ring");
        Self { memory, layout, next: 0, waiting: 0 }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.layout.slots
    }

    /// Frames filled but not yet taken by the kernel, as far as [`TxRing::count_taken`] has seen.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A slot's frame, to write its constant part.
    #[inline]
    pub fn frame_mut(&mut self, slot: usize) -> &mut [u8] {
        self.memory.bytes_mut(slot * self.layout.slot_bytes + FRAME, self.layout.frame_bytes)
    }

    /// Fills up to `frames` slots in order, each with the number of bytes that `fill` returns, and returns their number; fewer
    /// when the kernel still needs the next slot.
    ///
    /// # Panics
    /// When a frame is longer than its slot.
    #[inline]
    pub fn fill(&mut self, frames: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        for filled in 0..frames {
            let start = self.next * self.layout.slot_bytes;
            if self.memory.load(start + STATUS) != TP_STATUS_AVAILABLE {
                return filled;
            }
            let len = fill(self.frame_mut(self.next));
            assert!(len <= self.layout.frame_bytes, "{len} bytes do not fit the slot");
            let words = self.memory.bytes_mut(start, FRAME);
            words[LEN..LEN + 4].copy_from_slice(&((FRAME - VIRTIO + len) as u32).to_ne_bytes());
            words[VIRTIO_HDR_LEN..VIRTIO_HDR_LEN + 2].copy_from_slice(&(len as u16).to_ne_bytes());
            self.memory.store(start + STATUS, TP_STATUS_SEND_REQUEST);
            self.next = if self.next + 1 == self.layout.slots { 0 } else { self.next + 1 };
            self.waiting += 1;
        }
        frames
    }

    /// Frames that the kernel has taken since the last time; it takes them in order.
    #[inline]
    pub fn count_taken(&mut self) -> usize {
        let before = self.waiting;
        while self.waiting > 0 {
            let oldest = match self.next.checked_sub(self.waiting) {
                Some(slot) => slot,
                None => self.next + self.layout.slots - self.waiting,
            };
            let status = self.memory.load(oldest * self.layout.slot_bytes + STATUS);
            if status & (TP_STATUS_SEND_REQUEST | TP_STATUS_WRONG_FORMAT) != 0 {
                break;
            }
            self.waiting -= 1;
        }
        before - self.waiting
    }
}

#[cfg(test)]
mod tests;
