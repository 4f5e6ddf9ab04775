//! One ring with one producer and one consumer, which share two indexes, flags and slots.
//!
//! Indexes run freely and wrap at 2^32; the slot of an index is its low bits. Each side reads the other's
//! index only when its last known value leaves no work. The other side is never trusted:
//! for any value of its index, no more slots are used than the ring has.

use std::{
    any::Any,
    ptr::NonNull,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// `XDP_RING_NEED_WAKEUP`: the kernel sleeps until it is called.
pub(super) const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// The contents of one slot. Slots are atomics, so that even a peer that breaks all rules causes no data race.
pub(super) trait Slot {
    /// The value in it.
    type Value: Copy;
    fn read(&self) -> Self::Value;
    fn write(&self, value: Self::Value);
}

/// A slot of the fill and completion rings: a frame's address, counted in bytes from the UMEM's start.
pub(super) type AddressSlot = AtomicU64;

/// A slot of the RX and TX rings: `struct xdp_desc`.
#[derive(Default)]
#[repr(C)]
pub(super) struct DescriptorSlot {
    address: AtomicU64,
    len: AtomicU32,
    options: AtomicU32,
}

const _: () = assert!(size_of::<DescriptorSlot>() == size_of::<libc::xdp_desc>());
const _: () = assert!(std::mem::offset_of!(DescriptorSlot, len) == std::mem::offset_of!(libc::xdp_desc, len));

/// Where a packet lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Bytes from the UMEM's start.
    pub(super) address: u64,
    /// Bytes of the packet.
    pub(super) len: u32,
}

impl Slot for AddressSlot {
    type Value = u64;

    #[inline]
    fn read(&self) -> u64 {
        self.load(Relaxed)
    }

    #[inline]
    fn write(&self, address: u64) {
        self.store(address, Relaxed);
    }
}

impl Slot for DescriptorSlot {
    type Value = Descriptor;

    #[inline]
    fn read(&self) -> Descriptor {
        Descriptor { address: self.address.load(Relaxed), len: self.len.load(Relaxed) }
    }

    #[inline]
    fn write(&self, descriptor: Descriptor) {
        self.address.store(descriptor.address, Relaxed);
        self.len.store(descriptor.len, Relaxed);
        self.options.store(0, Relaxed);
    }
}

/// The memory of a ring, a mapping of the kernel's rings, or an array.
pub(super) struct RingMemory<S> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<[S]>,
    _owner: Box<dyn Any + Send>,
}

// SAFETY: everything that the pointers point to is atomic, and lives in the owner, which may be sent.
unsafe impl<S: Sync> Send for RingMemory<S> {}

impl<S> RingMemory<S> {
    /// A ring over memory that `owner` keeps alive.
    ///
    /// # Safety
    /// All pointers must be valid for shared references, whose targets are only changed by atomic
    /// operations, as long as `owner` lives, even when it moves.
    pub(super) unsafe fn new(
        [producer, consumer, flags]: [NonNull<AtomicU32>; 3],
        slots: NonNull<[S]>,
        owner: Box<dyn Any + Send>,
    ) -> Self {
        assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 31, "a ring of {} slots", slots.len());
        Self { producer, consumer, flags, slots, _owner: owner }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: valid as long as the owner lives, as `new` demands.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: valid as long as the owner lives, as `new` demands.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: valid as long as the owner lives, as `new` demands.
        unsafe { self.flags.as_ref() }
    }

    #[inline]
    fn slot(&self, index: u32) -> &S {
        // SAFETY: valid as long as the owner lives, as `new` demands.
        let slots = unsafe { self.slots.as_ref() };
        &slots[index as usize & (slots.len() - 1)]
    }

    fn size(&self) -> u32 {
        self.slots.len() as u32
    }
}

/// Our end of a ring that the kernel consumes: fill, TX.
pub(super) struct Producer<S> {
    memory: RingMemory<S>,
    /// The next slot to write; slots from the shared index on do not yet belong to the kernel.
    next: u32,
    /// The shared index as we wrote it last.
    published: u32,
    /// The kernel's index as we read it last.
    consumed: u32,
}

impl<S: Slot> Producer<S> {
    /// Continues at the memory's current indexes.
    pub(super) fn new(memory: RingMemory<S>) -> Self {
        let published = memory.producer().load(Relaxed);
        let consumed = memory.consumer().load(Acquire);
        Self { memory, next: published, published, consumed }
    }

    pub(super) fn size(&self) -> u32 {
        self.memory.size()
    }

    /// Slots that can be written, at least `wanted` if the kernel has left that many.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = self.known_room();
        if room >= wanted {
            return room;
        }
        self.consumed = self.memory.consumer().load(Acquire);
        self.known_room()
    }

    #[inline]
    fn known_room(&self) -> u32 {
        self.size().saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Writes one slot; returns whether there was room.
    #[inline]
    pub(super) fn push(&mut self, value: S::Value) -> bool {
        let has_room = self.room(1) > 0;
        if has_room {
            self.memory.slot(self.next).write(value);
            self.next = self.next.wrapping_add(1);
        }
        has_room
    }

    /// Publishes everything written to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.next {
            self.memory.producer().store(self.next, Release);
            self.published = self.next;
        }
    }

    /// Published slots that the kernel has not taken yet.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.consumed = self.memory.consumer().load(Acquire);
        self.published.wrapping_sub(self.consumed).min(self.size())
    }

    /// Whether the kernel sleeps until it is called.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.memory.flags().load(Relaxed) & NEED_WAKEUP != 0
    }
}

/// Our end of a ring that the kernel fills: completion, RX.
pub(super) struct Consumer<S> {
    memory: RingMemory<S>,
    /// The next slot to read; slots from the shared index on are not yet returned to the kernel.
    next: u32,
    /// The shared index as we wrote it last.
    released: u32,
    /// The kernel's index as we read it last.
    produced: u32,
}

impl<S: Slot> Consumer<S> {
    /// Continues at the memory's current indexes.
    pub(super) fn new(memory: RingMemory<S>) -> Self {
        let released = memory.consumer().load(Relaxed);
        let produced = memory.producer().load(Acquire);
        Self { memory, next: released, released, produced }
    }

    pub(super) fn size(&self) -> u32 {
        self.memory.size()
    }

    /// Slots that can be read; the kernel's index is only read when none is known.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.next == self.produced {
            self.produced = self.memory.producer().load(Acquire);
        }
        let unread = self.produced.wrapping_sub(self.next);
        let held = self.next.wrapping_sub(self.released);
        unread.min(self.size().saturating_sub(held))
    }

    /// Reads one slot; `None` when there is nothing.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<S::Value> {
        (self.available() > 0).then(|| {
            let value = self.memory.slot(self.next).read();
            self.next = self.next.wrapping_add(1);
            value
        })
    }

    /// A later slot, if it is known to be filled.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> Option<S::Value> {
        let is_there = self.produced.wrapping_sub(self.next) > ahead;
        is_there.then(|| self.memory.slot(self.next.wrapping_add(ahead)).read())
    }

    /// Returns everything read to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.released != self.next {
            self.memory.consumer().store(self.next, Release);
            self.released = self.next;
        }
    }
}

#[cfg(test)]
mod tests;
