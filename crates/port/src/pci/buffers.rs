//! Buffer policies: which buffer a receive descriptor gets after its frame was read. The three differ in cost.

use std::{
    hint::black_box,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use sys::pci::{Buffer, RxRing};

/// How a receive descriptor gets its next buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buffers {
    /// Free buffer and metadata, and allocate both anew: what drivers did at the time of the RDR paper.
    Realloc,
    /// The same buffer again: the paper's receive descriptor recycling.
    #[default]
    Recycle,
    /// Another one from the worker's cache, as in the kernel's `page_pool`.
    Pool,
}

impl Buffers {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Realloc, Self::Recycle, Self::Pool];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Realloc => "realloc",
            Self::Recycle => "recycle",
            Self::Pool => "pool",
        }
    }

    /// Buffers that a ring of this size needs beyond those in its slots.
    pub fn spare(self, slots: u32) -> usize {
        match self {
            Self::Recycle => 0,
            Self::Realloc | Self::Pool => (slots as usize).min(CACHED),
        }
    }
}

impl FromStr for Buffers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| "expected realloc, recycle or pool".into())
    }
}

/// The most buffers in a pool's cache: the kernel's size (`PP_ALLOC_CACHE_SIZE`).
const CACHED: usize = 128;

/// Metadata of a packet: as large as `struct sk_buff` on 64-bit machines.
#[repr(align(64))]
struct Metadata {
    length: u64,
    #[expect(dead_code, reason = "zeroed for each packet, as the kernel does")]
    rest: [u64; 28],
}

impl Metadata {
    const EMPTY: Self = Self { length: 0, rest: [0; 28] };
}

/// Returns the next slot of a ring to the card.
pub(super) trait Refill {
    /// After its frame was read.
    fn refill(&mut self, ring: &mut RxRing);
}

/// The length of the frame in the next slot, as reported by the card.
fn length(ring: &RxRing) -> u64 {
    ring.done(0).map_or(0, |done| done.length.into())
}

/// The same buffer again.
pub(super) struct Recycle;

impl Refill for Recycle {
    #[inline]
    fn refill(&mut self, ring: &mut RxRing) {
        ring.recycle();
    }
}

/// One worker's own cache of buffers and metadata: no lock, no new mappings.
pub(super) struct Pool {
    cache: Vec<Buffer>,
    #[expect(
        clippy::vec_box,
        reason = "each packet's metadata is a separate allocation, because the policies differ in that"
    )]
    metadata: Vec<Box<Metadata>>,
}

impl Pool {
    pub(super) fn new(spare: Vec<Buffer>) -> Self {
        let metadata = spare.iter().map(|_| Box::new(Metadata::EMPTY)).collect();
        Self { cache: spare, metadata }
    }
}

impl Refill for Pool {
    #[inline]
    fn refill(&mut self, ring: &mut RxRing) {
        let (Some(buffer), Some(mut metadata)) = (self.cache.pop(), self.metadata.pop()) else {
            return ring.recycle();
        };
        *metadata = Metadata { length: length(ring), ..Metadata::EMPTY };
        let filled = ring.replace(buffer);
        black_box(&metadata);
        self.metadata.push(metadata);
        self.cache.push(filled);
    }
}

/// A general allocator: buffers from a shared list, metadata from the heap.
pub(super) struct Realloc {
    heap: Mutex<Vec<Buffer>>,
    /// Of the packet in each slot, allocated with its buffer.
    #[expect(
        clippy::vec_box,
        reason = "each packet's metadata is a separate allocation, because the policies differ in that"
    )]
    slots: Vec<Box<Metadata>>,
    next: usize,
}

impl Realloc {
    pub(super) fn new(spare: Vec<Buffer>, slots: u32) -> Self {
        let slots = (0..slots).map(|_| Box::new(Metadata::EMPTY)).collect();
        Self { heap: Mutex::new(spare), slots, next: 0 }
    }

    fn allocate(&self) -> Option<Buffer> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn free(&self, buffer: Buffer) {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

impl Refill for Realloc {
    #[inline]
    fn refill(&mut self, ring: &mut RxRing) {
        let Some(buffer) = self.allocate() else { return ring.recycle() };
        let mut filled_metadata = std::mem::replace(&mut self.slots[self.next], Box::new(Metadata::EMPTY));
        self.next = if self.next + 1 == self.slots.len() { 0 } else { self.next + 1 };
        filled_metadata.length = length(ring);
        let filled = ring.replace(buffer);
        drop(black_box(filled_metadata));
        self.free(filled);
    }
}

/// One of the three.
pub(super) enum Policy {
    Recycle(Recycle),
    Pool(Pool),
    Realloc(Realloc),
}

impl Policy {
    pub(super) fn new(buffers: Buffers, spare: Vec<Buffer>, slots: u32) -> Self {
        match buffers {
            Buffers::Recycle => Self::Recycle(Recycle),
            Buffers::Pool => Self::Pool(Pool::new(spare)),
            Buffers::Realloc => Self::Realloc(Realloc::new(spare, slots)),
        }
    }
}
