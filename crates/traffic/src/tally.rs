//! What a receiver's hot loop adds up: packets and bytes by stream, a train of packets at a time.

use port::Joined;
use wire::{PROBE_MAGIC, ProbeHeader, RETURNED_MAGIC, StreamTags};

use crate::publish::{RxPublished, RxSnapshot, STREAMS, StreamCount};

/// The kind of probes that a receiver counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probes {
    /// Probes from senders, with the receiver's tags.
    Sent(StreamTags),
    /// Probes returned by targets, with their tags.
    Returned,
}

impl Probes {
    /// What they begin with.
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Sent(_) => PROBE_MAGIC.to_be_bytes(),
            Self::Returned => RETURNED_MAGIC.to_be_bytes(),
        }
    }

    fn tags(self) -> StreamTags {
        match self {
            Self::Sent(tags) => tags,
            Self::Returned => StreamTags::ANY,
        }
    }
}

/// The hot loop's counters; classifies packets, independent of any port.
pub(crate) struct Tally {
    magic: [u8; 4],
    tags: StreamTags,
    total: RxSnapshot,
    streams: [StreamCount; STREAMS],
    touched: [u64; STREAMS / 64],
}

/// Packets of a batch that are not in the tally yet, consecutive probes of one stream, and all work per
/// packet: `make bench-workers` shows every additional instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Train {
    magic: [u8; 4],
    /// As packets carry it.
    tag: u16,
    /// Packets in the upper bits, payload bytes in the lower ones: one addition for both.
    count: u64,
    foreign: u64,
}

/// Bits for the payload bytes of a train, which is no longer than a batch.
const BYTES_BITS: u32 = 40;

impl Tally {
    pub(crate) fn new(probes: Probes) -> Self {
        Self {
            magic: probes.magic(),
            tags: probes.tags(),
            total: RxSnapshot::default(),
            streams: [StreamCount::default(); STREAMS],
            touched: [0; STREAMS / 64],
        }
    }

    /// An empty train.
    pub(crate) fn begin(&self, tag: u16) -> Train {
        Train { magic: self.magic, tag, count: 0, foreign: 0 }
    }

    /// Adds a payload to the train; returns its header if it is a probe.
    // Always inline: a call per packet costs as much as all the rest.
    #[inline(always)]
    pub(crate) fn add(&mut self, train: &mut Train, payload: &[u8]) -> Option<ProbeHeader> {
        let header = ProbeHeader::read_behind(train.magic, payload);
        let Some(header) =
            header.filter(|header| header.stream == train.tag || self.turn(train, header.stream))
        else {
            train.foreign += 1;
            return None;
        };
        train.count += 1 << BYTES_BITS | payload.len() as u64;
        Some(header)
    }

    /// Adds probes of a batch, for a stream with its own counters.
    pub(crate) fn add_many(&mut self, train: &mut Train, tag: u16, count: StreamCount) {
        if tag == train.tag || self.turn(train, tag) {
            train.count += count.packets << BYTES_BITS | count.payload_bytes;
        }
    }

    /// Starts a train of another stream, if that has its own counters.
    #[inline(never)]
    fn turn(&mut self, train: &mut Train, tag: u16) -> bool {
        let is_told_apart = usize::from(self.tags.stream(tag)) < STREAMS;
        if is_told_apart {
            self.settle(*train);
            *train = self.begin(tag);
        }
        is_told_apart
    }

    /// Adds a train's counts.
    #[inline(never)]
    pub(crate) fn settle(&mut self, Train { tag, count, foreign, .. }: Train) {
        let count =
            StreamCount { packets: count >> BYTES_BITS, payload_bytes: count & ((1 << BYTES_BITS) - 1) };
        self.total.foreign += foreign;
        if count.packets == 0 {
            return;
        }
        self.total.packets += count.packets;
        self.total.payload_bytes += count.payload_bytes;
        let stream = usize::from(self.tags.stream(tag));
        self.streams[stream] = self.streams[stream].plus(count);
        self.touched[stream / 64] |= 1 << (stream % 64);
    }

    /// All packets so far.
    #[inline(always)]
    pub(crate) fn total(&self) -> RxSnapshot {
        self.total
    }

    /// Packets lost so far, exactly.
    pub(crate) fn set_lost(&mut self, lost: u64) {
        self.total.lost = lost;
    }

    /// Buffers of merged datagrams so far.
    #[inline(always)]
    pub(crate) fn set_joined(&mut self, joined: Joined) {
        self.total.joined = joined;
    }

    /// Packets lost so far, at least.
    #[inline(always)]
    pub(crate) fn raise_lost(&mut self, lost: u64) {
        self.total.lost = self.total.lost.max(lost);
    }

    pub(crate) fn publish(&mut self, published: &RxPublished) {
        published.store(&self.total);
        for (word, touched) in self.touched.iter_mut().enumerate() {
            while *touched != 0 {
                let stream = word * 64 + touched.trailing_zeros() as usize;
                published.store_stream(stream, &self.streams[stream]);
                *touched &= *touched - 1;
            }
        }
    }
}
