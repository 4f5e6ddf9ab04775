//! Rings of legacy descriptors, as in Intel's 8254x and 82574.
//!
//! Every receive slot always has a buffer. The card owns the slots from its head to the tail, this side the others:
//! the one at [`RxRing::tail`] is a gap that distinguishes a full ring from an empty one. Format: 8254x Software Developer's Manual,
//! sections 3.2.3 and 3.3.3.

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{BUFFER_BYTES, Buffer, Table};

/// Bits of a receive descriptor.
pub mod rx {
    /// Status: the card has written the buffer.
    pub const DONE: u8 = 1;
    /// Status: the frame ends in this buffer.
    pub const END_OF_PACKET: u8 = 2;
    /// Errors that make a frame unusable: CRC, symbol, sequence, carrier extension, and data errors.
    pub const FRAME_ERRORS: u8 = 0b1001_0111;
}

/// Bits of a transmit descriptor.
pub mod tx {
    /// Command: the frame ends in this buffer.
    pub const END_OF_PACKET: u8 = 1;
    /// Command: append the frame check sequence.
    pub const INSERT_FCS: u8 = 2;
    /// Command: report when it is sent.
    pub const REPORT_STATUS: u8 = 8;
    /// Status: sent.
    pub const DONE: u64 = 1;
}

/// What the card wrote into a receive descriptor; untrusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Bytes written, as reported by the card.
    pub length: u16,
    /// See [`rx`].
    pub status: u8,
    /// See [`rx::FRAME_ERRORS`].
    pub errors: u8,
}

impl Done {
    fn of(half: u64) -> Self {
        let bytes = half.to_le_bytes();
        Self { length: u16::from_le_bytes([bytes[0], bytes[1]]), status: bytes[4], errors: bytes[5] }
    }
}

impl Table {
    #[inline]
    fn atomic(&self, slot: u32, half: usize) -> &AtomicU64 {
        // SAFETY: the half is aligned to 8 bytes and mapped as long as the table is; the card writes whole descriptors, and
        // this is the only access from this side.
        unsafe { AtomicU64::from_ptr(self.half(slot, half).as_ptr()) }
    }
}

/// A receive ring.
pub struct RxRing {
    table: Table,
    buffers: Box<[Buffer]>,
    /// The next slot to read.
    next: u32,
}

impl RxRing {
    /// A ring with a buffer for every descriptor of the table; all but one are the card's once [`RxRing::tail`] is written.
    ///
    /// # Panics
    /// When there are not as many buffers as descriptors.
    pub fn new(table: Table, buffers: Vec<Buffer>) -> Self {
        assert_eq!(buffers.len(), table.slots() as usize, "a buffer for each descriptor");
        let ring = Self { table, buffers: buffers.into(), next: 0 };
        for slot in 0..ring.slots() {
            ring.hand_over(slot);
        }
        ring
    }

    /// Number of descriptors.
    pub fn slots(&self) -> u32 {
        self.table.slots()
    }

    /// The card's address of the table.
    pub fn device_address(&self) -> u64 {
        self.table.device_address()
    }

    /// The value for the card's tail register: the slot before the next one.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.next.checked_sub(1).unwrap_or(self.slots() - 1)
    }

    /// The slot at this distance after the next one, when the card has filled it.
    #[inline]
    pub fn done(&self, ahead: u32) -> Option<Done> {
        let done = Done::of(self.table.atomic(self.slot(ahead), 1).load(Ordering::Acquire).to_le());
        (done.status & rx::DONE != 0).then_some(done)
    }

    /// The first `len` bytes of that slot's buffer, which the card has filled; at most all of them.
    #[inline]
    pub fn bytes(&self, ahead: u32, len: usize) -> &[u8] {
        self.buffers[self.slot(ahead) as usize].bytes(len.min(BUFFER_BYTES))
    }

    /// Prefetches that slot's descriptor and the beginning of its buffer.
    #[inline]
    pub fn prefetch(&self, ahead: u32) {
        let slot = self.slot(ahead);
        prefetch(self.table.half(slot, 0).cast());
        prefetch(self.buffers[slot as usize].start());
    }

    #[inline]
    fn slot(&self, ahead: u32) -> u32 {
        let slot = self.next + ahead;
        if slot < self.slots() { slot } else { slot - self.slots() }
    }

    /// Returns the next slot to the card with the same buffer: only clears the descriptor.
    #[inline]
    pub fn recycle(&mut self) {
        // The card does not change the address.
        self.table.atomic(self.next, 1).store(0, Ordering::Release);
        self.advance();
    }

    /// Returns the next slot to the card with another buffer; returns the filled one.
    #[inline]
    pub fn replace(&mut self, buffer: Buffer) -> Buffer {
        let filled = std::mem::replace(&mut self.buffers[self.next as usize], buffer);
        self.hand_over(self.next);
        self.advance();
        filled
    }

    /// Acts as the card: writes bytes into the buffer, as many as fit, and the descriptor.
    ///
    /// # Panics
    /// When there is a real card.
    pub fn pretend(&mut self, slot: u32, bytes: &[u8], done: Done) {
        assert!(self.table.is_pretended(), "a real card writes its own descriptors");
        let fits = bytes.len().min(BUFFER_BYTES);
        self.buffers[slot as usize].bytes_mut()[..fits].copy_from_slice(&bytes[..fits]);
        let [low, high] = done.length.to_le_bytes();
        let half = u64::from_le_bytes([low, high, 0, 0, done.status, done.errors, 0, 0]);
        self.table.atomic(slot, 1).store(half.to_le(), Ordering::Release);
    }

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.slots() {
            self.next = 0;
        }
    }

    #[inline]
    fn hand_over(&self, slot: u32) {
        self.table
            .atomic(slot, 0)
            .store(self.buffers[slot as usize].device_address().to_le(), Ordering::Relaxed);
        self.table.atomic(slot, 1).store(0, Ordering::Release);
    }
}

/// A hint: it affects only the time of a later access.
#[inline]
fn prefetch(address: std::ptr::NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses no memory that the program can observe, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.as_ptr().cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// A transmit ring, whose slots keep their buffers.
pub struct TxRing {
    table: Table,
    buffers: Box<[Buffer]>,
    /// The slot to fill next.
    next: u32,
    /// The oldest slot that the card has not reported.
    oldest: u32,
    /// Slots that the card has.
    with_card: u32,
}

impl TxRing {
    /// A ring with a buffer for every descriptor of the table.
    ///
    /// # Panics
    /// When there are not as many buffers as descriptors.
    pub fn new(table: Table, buffers: Vec<Buffer>) -> Self {
        assert_eq!(buffers.len(), table.slots() as usize, "a buffer for each descriptor");
        let ring = Self { table, buffers: buffers.into(), next: 0, oldest: 0, with_card: 0 };
        for (slot, buffer) in ring.buffers.iter().enumerate() {
            ring.table.atomic(slot as u32, 0).store(buffer.device_address().to_le(), Ordering::Relaxed);
        }
        ring
    }

    /// Number of descriptors.
    pub fn slots(&self) -> u32 {
        self.table.slots()
    }

    /// The card's address of the table.
    pub fn device_address(&self) -> u64 {
        self.table.device_address()
    }

    /// The value for the card's tail register: the slot after the last one filled.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.next
    }

    /// Every buffer, before the first is sent.
    ///
    /// # Panics
    /// When the card has any of them.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        assert_eq!(self.with_card, 0, "the card has buffers");
        self.buffers.iter_mut().map(Buffer::bytes_mut)
    }

    /// Reclaims the slots of sent frames; returns their number.
    #[inline]
    pub fn reclaim(&mut self) -> u32 {
        let before = self.with_card;
        while self.with_card > 0 {
            let half = self.table.atomic(self.oldest, 1).load(Ordering::Acquire).to_le();
            if half >> 32 & tx::DONE == 0 {
                break;
            }
            self.oldest = if self.oldest + 1 == self.slots() { 0 } else { self.oldest + 1 };
            self.with_card -= 1;
        }
        before - self.with_card
    }

    /// Free slots; one always stays empty.
    #[inline]
    pub fn free(&self) -> u32 {
        self.slots() - 1 - self.with_card
    }

    /// Frames that the card has.
    #[inline]
    pub fn with_card(&self) -> u32 {
        self.with_card
    }

    /// Fills the next slot: `fill` writes a frame and returns its length. The card gets it with the next write of [`TxRing::tail`].
    ///
    /// # Panics
    /// When no slot is free, or the frame is longer than a buffer.
    #[inline]
    pub fn push(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) {
        assert!(self.free() > 0, "the ring is full");
        let len = fill(self.buffers[self.next as usize].bytes_mut());
        assert!(len <= BUFFER_BYTES, "{len} bytes do not fit a buffer");
        let command = u64::from(tx::END_OF_PACKET | tx::INSERT_FCS | tx::REPORT_STATUS);
        self.table.atomic(self.next, 1).store((len as u64 | command << 24).to_le(), Ordering::Release);
        self.next = if self.next + 1 == self.slots() { 0 } else { self.next + 1 };
        self.with_card += 1;
    }

    /// Acts as the card: returns the frame's bytes and reports it as sent.
    ///
    /// # Panics
    /// When there is a real card, or the card was not handed the slot.
    pub fn pretend(&mut self, slot: u32) -> &[u8] {
        assert!(self.table.is_pretended(), "a real card sends its own frames");
        let behind = (slot + self.slots() - self.oldest) % self.slots();
        assert!(behind < self.with_card, "the card does not own slot {slot}");
        let half = self.table.atomic(slot, 1).load(Ordering::Acquire).to_le();
        self.table.atomic(slot, 1).store((half | tx::DONE << 32).to_le(), Ordering::Release);
        self.buffers[slot as usize].bytes((half & 0xffff) as usize)
    }
}
