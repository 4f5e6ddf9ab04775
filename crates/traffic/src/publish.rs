//! The published state of a running worker: relaxed counters that it alone writes, once per batch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use port::Joined;

/// The most streams that a receiver distinguishes; tags beyond it count as foreign.
pub const STREAMS: usize = 256;

/// A sender's counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxSnapshot {
    /// Packets that the kernel or ring accepted.
    pub packets: u64,
    /// UDP payload bytes of those packets, as far as filled.
    pub payload_bytes: u64,
    /// ICMP errors returned.
    pub refused: u64,
    /// Calls that the kernel refused.
    pub turned_away: u64,
}

/// A receiver's counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxSnapshot {
    /// Packets with a probe header.
    pub packets: u64,
    /// UDP payload bytes of those packets.
    pub payload_bytes: u64,
    /// Other packets.
    pub foreign: u64,
    /// Packets that the sockets or rings have lost, as far as known.
    pub lost: u64,
    /// Buffers of merged datagrams; none if the kernel merges none.
    pub joined: Joined,
}

/// A receiver's counters for one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCount {
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes.
    pub payload_bytes: u64,
}

// 128, not 64: x86 prefetches lines in pairs, so two workers' counters must not be neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct TxPublished {
    packets: AtomicU64,
    payload_bytes: AtomicU64,
    refused: AtomicU64,
    turned_away: AtomicU64,
}

impl TxPublished {
    #[inline]
    pub(crate) fn store(&self, tally: &TxSnapshot) {
        self.packets.store(tally.packets, Relaxed);
        self.payload_bytes.store(tally.payload_bytes, Relaxed);
        self.refused.store(tally.refused, Relaxed);
        self.turned_away.store(tally.turned_away, Relaxed);
    }

    pub(crate) fn load(&self) -> TxSnapshot {
        TxSnapshot {
            packets: self.packets.load(Relaxed),
            payload_bytes: self.payload_bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
            turned_away: self.turned_away.load(Relaxed),
        }
    }
}

#[repr(align(128))]
pub(crate) struct RxPublished {
    packets: AtomicU64,
    payload_bytes: AtomicU64,
    foreign: AtomicU64,
    lost: AtomicU64,
    joined: [AtomicU64; 4],
    streams: [(AtomicU64, AtomicU64); STREAMS],
}

impl Default for RxPublished {
    fn default() -> Self {
        Self {
            packets: AtomicU64::default(),
            payload_bytes: AtomicU64::default(),
            foreign: AtomicU64::default(),
            lost: AtomicU64::default(),
            joined: Default::default(),
            streams: std::array::from_fn(|_| Default::default()),
        }
    }
}

impl RxPublished {
    #[inline]
    pub(crate) fn store(&self, tally: &RxSnapshot) {
        self.packets.store(tally.packets, Relaxed);
        self.payload_bytes.store(tally.payload_bytes, Relaxed);
        self.foreign.store(tally.foreign, Relaxed);
        self.lost.store(tally.lost, Relaxed);
        if tally.joined.buffers > 0 {
            let Joined { buffers, datagrams, fewest, most } = tally.joined;
            let values = [buffers, datagrams, fewest, most];
            self.joined.iter().zip(values).for_each(|(joined, value)| joined.store(value, Relaxed));
        }
    }

    #[inline]
    pub(crate) fn store_stream(&self, stream: usize, count: &StreamCount) {
        self.streams[stream].0.store(count.packets, Relaxed);
        self.streams[stream].1.store(count.payload_bytes, Relaxed);
    }

    pub(crate) fn load(&self) -> RxSnapshot {
        RxSnapshot {
            packets: self.packets.load(Relaxed),
            payload_bytes: self.payload_bytes.load(Relaxed),
            foreign: self.foreign.load(Relaxed),
            lost: self.lost.load(Relaxed),
            joined: {
                let [buffers, datagrams, fewest, most] =
                    std::array::from_fn(|index| self.joined[index].load(Relaxed));
                Joined { buffers, datagrams, fewest, most }
            },
        }
    }

    pub(crate) fn load_stream(&self, stream: usize) -> StreamCount {
        let (packets, bytes) = &self.streams[stream];
        StreamCount { packets: packets.load(Relaxed), payload_bytes: bytes.load(Relaxed) }
    }
}

impl TxSnapshot {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            refused: self.refused + other.refused,
            turned_away: self.turned_away + other.turned_away,
        }
    }
}

impl RxSnapshot {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            foreign: self.foreign + other.foreign,
            lost: self.lost + other.lost,
            joined: self.joined.plus(other.joined),
        }
    }
}

impl StreamCount {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            payload_bytes: self.payload_bytes + other.payload_bytes,
        }
    }
}
