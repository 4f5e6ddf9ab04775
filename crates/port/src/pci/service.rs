//! How a receive ring is served: frames are read in groups, their descriptors return to the card, and one write of
//! the tail register publishes them.

use std::cmp::Ordering;

use measure::Histogram;
use sys::{clock, pci::RxRing};

use super::{
    buffers::Refill,
    frames::{Assembler, Part},
};
use crate::Received;

/// One of this many groups is timed: reading the clock costs as much as returning one or two descriptors.
const TIMED_EVERY: u32 = 8;
/// Clock readings, the cheapest of which is the clock's cost.
const CLOCK_READINGS: u32 = 64;

/// Returns descriptors to the card and measures the cost.
pub(super) struct Service {
    tail_batch: u32,
    /// How many descriptors ahead the CPU prefetches; 0: none.
    prefetch: u32,
    /// Slots returned since the last tail write.
    unwritten: u32,
    pub(super) refills: u64,
    pub(super) tail_writes: u64,
    groups: u32,
    pub(super) timed: u64,
    /// Costs per descriptor in fractions of a nanosecond; their median ignores groups in which the worker was interrupted.
    costs: Histogram,
    clock_ns: u64,
}

/// Fractions of a nanosecond in which costs are stored.
const PARTS: u64 = 16;

impl Service {
    pub(super) fn new(tail_batch: u32, prefetch: u32) -> Self {
        let reading = |_| {
            let before = clock::monotonic_ns();
            clock::monotonic_ns() - before
        };
        let clock_ns = (0..CLOCK_READINGS).map(reading).min().unwrap_or(0);
        Self {
            tail_batch,
            prefetch,
            unwritten: 0,
            refills: 0,
            tail_writes: 0,
            groups: 0,
            timed: 0,
            costs: Histogram::new(),
            clock_ns,
        }
    }

    /// Nanoseconds to return one descriptor: the median of a sample.
    pub(super) fn refill_ns(&self) -> Option<f64> {
        Some(self.costs.percentile(50.0)? as f64 / PARTS as f64)
    }

    /// Lends the frames that the card has filled, up to this number of descriptors; returns the number of frames. `write_tail`
    /// publishes the returned descriptors to the card.
    #[inline]
    pub(super) fn take<R: Refill>(
        &mut self,
        (ring, frames, policy): (&mut RxRing, &mut Assembler, &mut R),
        at_most: usize,
        mut write_tail: impl FnMut(u32),
        mut sink: impl FnMut(Received<'_>),
    ) -> usize {
        let mut lend =
            |bytes: &[u8]| sink(Received { bytes, truncated: false, arrived_ns: None, source: None });
        let mut received = 0;
        // At most one ring of descriptors, even if all claim to be filled.
        let mut left = at_most.min(ring.slots() as usize) as u32;
        while left > 0 {
            let most = (self.tail_batch - self.unwritten).min(left);
            let mut filled = 0;
            while filled < most
                && let Some(done) = ring.done(filled)
            {
                if self.prefetch > 0 {
                    ring.prefetch(filled + self.prefetch);
                }
                match frames.take(done, ring.bytes(filled, done.length.into())) {
                    Part::Frame(bytes) => {
                        lend(bytes);
                        received += 1;
                    }
                    Part::Last => {
                        lend(frames.frame());
                        frames.done();
                        received += 1;
                    }
                    Part::Nothing => {}
                }
                filled += 1;
            }
            if filled == 0 {
                break;
            }
            self.hand_back(filled, ring, policy);
            self.unwritten += filled;
            if self.unwritten >= self.tail_batch {
                self.unwritten = 0;
                self.tail_writes += 1;
                write_tail(ring.tail());
            }
            left -= filled;
            if filled.cmp(&most) == Ordering::Less {
                break;
            }
        }
        received
    }

    #[inline]
    fn hand_back<R: Refill>(&mut self, descriptors: u32, ring: &mut RxRing, policy: &mut R) {
        self.refills += u64::from(descriptors);
        self.groups = self.groups.wrapping_add(1);
        let before = self.groups.is_multiple_of(TIMED_EVERY).then(clock::monotonic_ns);
        for _ in 0..descriptors {
            policy.refill(ring);
        }
        if let Some(before) = before {
            let took = (clock::monotonic_ns() - before).saturating_sub(self.clock_ns);
            self.costs.record(took * PARTS / u64::from(descriptors));
            self.timed += u64::from(descriptors);
        }
    }
}
