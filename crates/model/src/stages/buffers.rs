//! The buffer policy: the cost of a new buffer for a descriptor. The RDR paper's subject.
//!
//! *Reallocating* passes every buffer up with its frame and allocates another. That is cheap
//! while the slab has free buffers, and a trip to the page allocator when it has none. Buffers come back
//! when the stack frees them; the slab keeps a limited number, so bursts of frees return some of
//! them to the page allocator, from which they must be fetched again. *Recycling* leaves the buffer in
//! its descriptor.

use serde::{Deserialize, Serialize};

use crate::{
    parameter::{Parameter, Problems},
    units::ps_from_ns,
};

/// Where buffers come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Buffers {
    /// The policy.
    pub policy: BufferPolicy,
    /// CPU time to reset a descriptor, with any policy, in nanoseconds.
    pub reset_ns: f64,
    /// Reallocating: freeing and allocating a buffer that the slab has, in nanoseconds.
    pub slab_ns: f64,
    /// Reallocating: free buffers that the slab keeps; others return to the page allocator.
    pub slab_keeps: u32,
    /// Reallocating: free buffers that the slab has when traffic starts.
    pub slab_at_start: u32,
    /// Reallocating: buffers that stack and programs hold until they free them together.
    pub free_burst: u32,
    /// Reallocating: buffers that one trip to the page allocator brings.
    pub page_batch: u32,
    /// Reallocating: CPU time of such a trip, in nanoseconds.
    pub page_batch_ns: f64,
    /// Page pool and fill ring: taking a recycled buffer, in nanoseconds.
    pub pool_ns: f64,
    /// Page pool: free buffers it keeps. Fill ring: all buffers, including those in the ring.
    pub pool_buffers: u32,
    /// Copybreak: frames up to this size are copied, and their buffer stays in its descriptor.
    pub copybreak_bytes: u32,
    /// Copybreak: CPU time of such a copy, in nanoseconds.
    pub copy_ns: f64,
}

/// Policies for a descriptor's next buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BufferPolicy {
    /// Allocates and frees a buffer for every frame.
    #[serde(alias = "alloc")]
    Realloc,
    /// The buffer stays in its descriptor: receive descriptor recycling.
    Recycle,
    /// Buffers return to a pool of the queue (Linux page_pool).
    PagePool,
    /// Small frames are copied out, large ones reallocated.
    Copybreak,
    /// The program returns buffers through a ring (AF_XDP fill ring, io_uring refill ring).
    FillRing,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            policy: BufferPolicy::PagePool,
            reset_ns: 10.0,
            slab_ns: 70.0,
            slab_keeps: 157,
            slab_at_start: 24,
            free_burst: 1,
            page_batch: 32,
            page_batch_ns: 8000.0,
            pool_ns: 6.0,
            pool_buffers: 4096,
            copybreak_bytes: 256,
            copy_ns: 30.0,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("buffers.policy", "", "realloc (or alloc), recycle, page-pool, copybreak or fill-ring")
        .short("policy"),
    Parameter::new("buffers.reset_ns", "ns", "resetting a descriptor, with any policy"),
    Parameter::new("buffers.slab_ns", "ns", "freeing and allocating a buffer that the slab has")
        .source("238 cycles through the allocator, 19 recycled (page_pool's measurements)"),
    Parameter::new("buffers.slab_keeps", "buffers", "free buffers that the slab keeps")
        .source("Linux 2.6.12 slab, 4 KB objects, 2 CPUs: 24 a CPU + 96 shared + 37 in slabs = 157"),
    Parameter::new("buffers.slab_at_start", "buffers", "free buffers that the slab has when traffic starts")
        .source("Linux 2.6.12 slab: one CPU's array of 24"),
    Parameter::new(
        "buffers.free_burst",
        "buffers",
        "buffers held by stack and programs until freed together",
    ),
    Parameter::new("buffers.page_batch", "buffers", "buffers that one trip to the page allocator brings")
        .source("Linux SWAP_CLUSTER_MAX: 32 pages"),
    Parameter::new("buffers.page_batch_ns", "ns", "CPU time of such a trip"),
    Parameter::new("buffers.pool_ns", "ns", "taking a recycled buffer from a pool")
        .source("page_pool: 19 cycles recycled"),
    Parameter::new("buffers.pool_buffers", "buffers", "page pool: buffers it keeps; fill ring: all buffers"),
    Parameter::new("buffers.copybreak_bytes", "bytes", "copybreak: frames up to this size are copied")
        .source("Linux e1000: 256"),
    Parameter::new("buffers.copy_ns", "ns", "copybreak: CPU time of such a copy"),
];

impl Buffers {
    pub(crate) fn check(&self, ring: u32, problems: &mut Problems) {
        for (name, ns) in [
            ("buffers.reset_ns", self.reset_ns),
            ("buffers.slab_ns", self.slab_ns),
            ("buffers.page_batch_ns", self.page_batch_ns),
            ("buffers.pool_ns", self.pool_ns),
            ("buffers.copy_ns", self.copy_ns),
        ] {
            problems.duration_ns(name, ns);
        }
        problems.range("buffers.page_batch", self.page_batch, 1, 1 << 20);
        problems.range("buffers.free_burst", self.free_burst, 1, 1 << 20);
        if self.policy == BufferPolicy::FillRing && self.pool_buffers < ring {
            let buffers = self.pool_buffers;
            problems.add(
                "buffers.pool_buffers",
                format!("{buffers} buffers cannot fill a ring of {ring} descriptors: set at least {ring}"),
            );
        }
    }
}

/// CPU time of a buffer for a descriptor, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BufferTime {
    /// Setting up the descriptor.
    pub(crate) reset_ps: u64,
    /// Freeing and allocating, or the pool.
    pub(crate) allocate_ps: u64,
    /// The page allocator.
    pub(crate) pages_ps: u64,
}

impl BufferTime {
    pub(crate) fn total_ps(self) -> u64 {
        self.reset_ps + self.allocate_ps + self.pages_ps
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.reset_ps += other.reset_ps;
        self.allocate_ps += other.allocate_ps;
        self.pages_ps += other.pages_ps;
    }
}

/// A queue's buffers. All buffers are alike, so counting them is enough.
#[derive(Debug)]
pub(crate) struct Allocator {
    policy: BufferPolicy,
    copybreak_bytes: u32,
    reset_ps: u64,
    slab_ps: u64,
    page_batch_ps: u64,
    pool_ps: u64,
    copy_ps: u64,
    keeps: u64,
    page_batch: u64,
    free_burst: u64,
    /// Buffers ready in the slab, the pool or the fill ring.
    ready: u64,
    /// Buffers that stayed with their descriptors.
    kept: u64,
    /// Buffers that stack and programs hold until the next burst of frees.
    held: u64,
    /// Trips to the page allocator.
    pub(crate) page_trips: u64,
}

impl Allocator {
    pub(crate) fn new(config: &Buffers, ring: u32) -> Self {
        let pool = u64::from(config.pool_buffers);
        let (keeps, ready) = match config.policy {
            BufferPolicy::PagePool => (pool, 0),
            BufferPolicy::FillRing => (pool, pool - u64::from(ring)),
            _ => (u64::from(config.slab_keeps), u64::from(config.slab_at_start)),
        };
        Self {
            policy: config.policy,
            copybreak_bytes: config.copybreak_bytes,
            reset_ps: ps_from_ns(config.reset_ns),
            slab_ps: ps_from_ns(config.slab_ns),
            page_batch_ps: ps_from_ns(config.page_batch_ns),
            pool_ps: ps_from_ns(config.pool_ns),
            copy_ps: ps_from_ns(config.copy_ns),
            keeps,
            page_batch: u64::from(config.page_batch),
            free_burst: u64::from(config.free_burst),
            ready,
            kept: 0,
            held: 0,
            page_trips: 0,
        }
    }

    /// A frame leaves its descriptor; returns the CPU time that this costs beyond the driver's own.
    #[inline]
    pub(crate) fn frame_taken(&mut self, bytes: u32) -> u64 {
        match self.policy {
            BufferPolicy::Recycle => {
                self.kept += 1;
                0
            }
            BufferPolicy::Copybreak if bytes <= self.copybreak_bytes => {
                self.kept += 1;
                self.copy_ps + self.slab_ps
            }
            _ => 0,
        }
    }

    /// A buffer for a descriptor and its cost; `None` when no buffer is free.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<BufferTime> {
        let reset = BufferTime { reset_ps: self.reset_ps, ..BufferTime::default() };
        if self.kept > 0 {
            self.kept -= 1;
            return Some(reset);
        }
        let ready_ps = match self.policy {
            BufferPolicy::PagePool | BufferPolicy::FillRing => self.pool_ps,
            _ => self.slab_ps,
        };
        if self.ready > 0 {
            self.ready -= 1;
            return Some(BufferTime { allocate_ps: ready_ps, ..reset });
        }
        if self.policy == BufferPolicy::FillRing {
            return None;
        }
        self.page_trips += 1;
        self.ready = self.page_batch - 1;
        Some(BufferTime { allocate_ps: ready_ps, pages_ps: self.page_batch_ps, ..reset })
    }

    /// The stack or program has released a frame.
    #[inline]
    pub(crate) fn give_back(&mut self, bytes: u32) {
        match self.policy {
            BufferPolicy::Recycle => {}
            BufferPolicy::Copybreak if bytes <= self.copybreak_bytes => {}
            BufferPolicy::PagePool | BufferPolicy::FillRing => self.ready = (self.ready + 1).min(self.keeps),
            BufferPolicy::Realloc | BufferPolicy::Copybreak => {
                self.held += 1;
                if self.held == self.free_burst {
                    self.ready = (self.ready + self.held).min(self.keeps.max(self.ready));
                    self.held = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost_of(allocator: &mut Allocator, n: usize) -> u64 {
        (0..n).map(|_| allocator.take().unwrap().total_ps()).sum()
    }

    #[test]
    fn a_cold_slab_goes_to_the_page_allocator_once_a_batch() {
        let config = Buffers {
            policy: BufferPolicy::Realloc,
            reset_ns: 1.0,
            slab_ns: 0.0,
            slab_at_start: 24,
            page_batch_ns: 1000.0,
            ..Buffers::default()
        };
        let mut slab = Allocator::new(&config, 256);
        assert_eq!(cost_of(&mut slab, 24), 24_000);
        assert_eq!(cost_of(&mut slab, 1), 1_001_000);
        assert_eq!(cost_of(&mut slab, 31), 31_000);
        assert_eq!(cost_of(&mut slab, 1), 1_001_000);
    }

    #[test]
    fn what_the_slab_does_not_keep_must_be_fetched_again() {
        let config = Buffers {
            policy: BufferPolicy::Realloc,
            slab_keeps: 10,
            slab_at_start: 0,
            free_burst: 100,
            ..Buffers::default()
        };
        let mut slab = Allocator::new(&config, 256);
        (0..99).for_each(|_| slab.give_back(64));
        assert_eq!(slab.ready, 0);
        slab.give_back(64);
        assert_eq!(slab.ready, 10);
    }

    #[test]
    fn a_recycled_buffer_costs_only_its_descriptor() {
        let config = Buffers { policy: BufferPolicy::Recycle, reset_ns: 5.0, ..Buffers::default() };
        let mut allocator = Allocator::new(&config, 256);
        (0..64).for_each(|_| assert_eq!(allocator.frame_taken(64), 0));
        assert_eq!(cost_of(&mut allocator, 64), 64 * 5_000);
        assert_eq!(allocator.page_trips, 0);
    }

    #[test]
    fn an_empty_fill_ring_gives_nothing_until_the_program_returns_a_buffer() {
        let config = Buffers { policy: BufferPolicy::FillRing, pool_buffers: 9, ..Buffers::default() };
        let mut ring = Allocator::new(&config, 8);
        assert!(ring.take().is_some());
        assert!(ring.take().is_none());
        ring.give_back(64);
        assert!(ring.take().is_some());
    }

    #[test]
    fn copybreak_copies_small_frames_and_reallocates_large_ones() {
        let config = Buffers {
            policy: BufferPolicy::Copybreak,
            copy_ns: 30.0,
            slab_ns: 70.0,
            reset_ns: 10.0,
            ..Buffers::default()
        };
        let mut allocator = Allocator::new(&config, 256);
        assert_eq!(allocator.frame_taken(64), 100_000);
        assert_eq!(allocator.take().map(BufferTime::total_ps), Some(10_000));
        assert_eq!(allocator.frame_taken(1518), 0);
        assert_eq!(allocator.take().map(BufferTime::total_ps), Some(80_000));
    }
}
