//! The kernel's side of the rings, over arrays: a test controls it, and can make it misbehave.

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use super::ring::{NEED_WAKEUP, RingMemory, Slot};

/// The start index of every test, so that it wraps: the second step passes 2^32.
pub(super) const NEAR_THE_END: u32 = u32::MAX - 1;

/// A ring's memory, shared by both sides.
pub(super) struct Array<S> {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: Box<[S]>,
}

/// The kernel's end of one ring.
pub(super) struct Kernel<S> {
    array: Arc<Array<S>>,
}

impl<S: Slot + Default + Send + Sync + 'static> Kernel<S> {
    /// An empty ring whose indexes are about to wrap, and the memory for our end of it.
    pub(super) fn with_ring(slots: usize) -> (Self, RingMemory<S>) {
        let array = Arc::new(Array {
            producer: NEAR_THE_END.into(),
            consumer: NEAR_THE_END.into(),
            flags: 0.into(),
            slots: (0..slots).map(|_| S::default()).collect(),
        });
        let indexes = [&array.producer, &array.consumer, &array.flags].map(NonNull::from);
        let slots = NonNull::from(&*array.slots);
        // SAFETY: the array is shared and never moved, the box keeps it alive, and its parts are atomic.
        let memory = unsafe { RingMemory::new(indexes, slots, Box::new(array.clone())) };
        (Self { array }, memory)
    }

    /// Takes the next value of a ring that we produce.
    pub(super) fn take(&self) -> Option<S::Value> {
        let next = self.array.consumer.load(Relaxed);
        (self.array.producer.load(Acquire) != next).then(|| {
            let value = self.slot(next).read();
            self.array.consumer.store(next.wrapping_add(1), Release);
            value
        })
    }

    /// The values of a ring that we produce, without reporting them as taken.
    pub(super) fn look(&self) -> Vec<S::Value> {
        let next = self.array.consumer.load(Relaxed);
        (0..self.used()).map(|ahead| self.slot(next.wrapping_add(ahead)).read()).collect()
    }

    /// Puts a value into a ring that we consume; returns whether there was room.
    pub(super) fn give(&self, value: S::Value) -> bool {
        let next = self.array.producer.load(Relaxed);
        let used = next.wrapping_sub(self.array.consumer.load(Acquire));
        let has_room = (used as usize) < self.array.slots.len();
        if has_room {
            self.slot(next).write(value);
            self.array.producer.store(next.wrapping_add(1), Release);
        }
        has_room
    }

    /// Values in the ring.
    pub(super) fn used(&self) -> u32 {
        self.array.producer.load(Acquire).wrapping_sub(self.array.consumer.load(Acquire))
    }

    /// Sets whether the kernel must be called.
    pub(super) fn sleep(&self, asleep: bool) {
        self.array.flags.store(if asleep { NEED_WAKEUP } else { 0 }, Relaxed);
    }

    /// Writes nonsense to the index that is the kernel's when we produce.
    pub(super) fn lie_about_consumed(&self, index: u32) {
        self.array.consumer.store(index, Release);
    }

    /// Writes nonsense to the index that is the kernel's when we consume.
    pub(super) fn lie_about_produced(&self, index: u32) {
        self.array.producer.store(index, Release);
    }

    fn slot(&self, index: u32) -> &S {
        &self.array.slots[index as usize & (self.array.slots.len() - 1)]
    }
}
