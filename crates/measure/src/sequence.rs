//! Follows a stream's sequence numbers: lost, reordered, duplicate, late. Memory is fixed.
//!
//! Numbers are 32 bits wide and wrap. The send time classifies a packet behind the highest number: a sender that
//! restarted has a later clock than its newest packet before, an overtaken packet does not.

use runs::Runs;

mod runs;
mod spans;

pub use spans::{CountedSequence, SequenceCounts, SequenceSummary};
use spans::{ORIGIN, Span};

/// Follows the numbers of one stream as seen by one reader.
///
/// A packet more than [`SequenceTracker::WINDOW`] behind is `late`: the window no longer knows whether it came before. A
/// number more than [`SequenceTracker::JUMP`] ahead counts only once its neighbour follows; until then it is a stray.
#[derive(Debug, Clone)]
pub struct SequenceTracker {
    counts: SequenceCounts,
    span: Span,
    /// The number after the highest.
    next: u64,
    /// Packets of this span, including duplicates and late ones.
    arrivals: u64,
    first_sent: u64,
    /// Send time of the packet with the highest number.
    newest_sent: u64,
    /// A bit for each number of the window: set when it arrived, cleared when it was skipped.
    seen: [u64; WORDS],
    rises: Runs,
    stray: Option<u32>,
}

/// The classification of a packet's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// The first packet, or the one after the highest number, or one further ahead.
    Ahead,
    /// The first packet of a restarted sender.
    Restart,
    /// Overtaken; `extent` packets came between it and the first that overtook it, itself included (RFC 4737, 4.2.2).
    Reordered {
        /// The extent in packets.
        extent: u64,
    },
    /// A duplicate.
    Duplicate,
    /// Too far behind to classify.
    Late,
    /// Too far ahead to be plausible.
    Stray,
}

const WORDS: usize = SequenceTracker::WINDOW as usize / 64;
/// The greatest distance of a follower that confirms a stray.
const NEIGHBOURS: u32 = 64;

impl Default for SequenceTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl SequenceTracker {
    /// How far behind the highest number duplicates are recognised.
    pub const WINDOW: u64 = 4096;
    /// The largest gap that is accepted without confirmation.
    pub const JUMP: u32 = spans::JUMP;

    /// Nothing seen; less than 2 KiB.
    pub fn new() -> Self {
        Self {
            counts: SequenceCounts::default(),
            span: Span::default(),
            next: 0,
            arrivals: 0,
            first_sent: 0,
            newest_sent: 0,
            seen: [0; WORDS],
            rises: Runs::new(),
            stray: None,
        }
    }

    /// Records the next packet: its number, when it was sent by its sender's clock (0: not known), and when it arrived.
    #[inline]
    pub fn observe(&mut self, number: u32, sent: u64, arrived_ns: u64) -> Placed {
        let ahead = number.wrapping_sub(self.next as u32);
        if ahead == 0 && self.arrivals > 0 {
            let at = self.next;
            self.next += 1;
            self.accept(at, sent, arrived_ns);
            self.rises.extend(at, self.arrivals);
            self.arrivals += 1;
            return Placed::Ahead;
        }
        self.place(number, ahead, sent, arrived_ns)
    }

    /// Records `count` more packets, numbered from the highest number on, all sent and received at these times.
    ///
    /// # Panics
    /// When no packet was recorded before.
    pub fn observe_following(&mut self, count: u64, sent: u64, arrived_ns: u64) {
        assert!(self.arrivals > 0, "they follow a packet");
        let Some(last) = count.checked_sub(1) else { return };
        let (from, last) = (self.next, self.next + last);
        self.remember(from.max((last + 1).saturating_sub(Self::WINDOW)), last);
        self.next = last + 1;
        self.accept(last, sent, arrived_ns);
        self.span.distinct += last - from;
        self.rises.extend_by(from, self.arrivals, count);
        self.arrivals += count;
    }

    #[cold]
    fn place(&mut self, number: u32, ahead: u32, sent: u64, arrived_ns: u64) -> Placed {
        if self.arrivals == 0 {
            self.begin(number, sent, arrived_ns);
            return Placed::Ahead;
        }
        let follows_stray =
            self.stray.take().is_some_and(|stray| (1..=NEIGHBOURS).contains(&number.wrapping_sub(stray)));
        if (ahead as i32) > 0 {
            if ahead > Self::JUMP && !follows_stray {
                self.stray = Some(number);
                self.counts.strays += 1;
                return Placed::Stray;
            }
            let at = self.next + u64::from(ahead);
            self.forget(self.next, at);
            self.next = at + 1;
            self.accept(at, sent, arrived_ns);
            self.rises.extend(at, self.arrivals);
            self.arrivals += 1;
            return Placed::Ahead;
        }
        let behind = u64::from(ahead.wrapping_neg());
        let is_later = sent > self.newest_sent && self.newest_sent > 0;
        // A sender whose clock restarted, or that sends no times, is accepted at its second packet.
        let is_of_before = sent < self.first_sent || sent == 0;
        if is_later || behind > Self::WINDOW && follows_stray && is_of_before {
            self.close();
            self.begin(number, sent, arrived_ns);
            return Placed::Restart;
        }
        self.behind(number, behind, arrived_ns)
    }

    /// A packet `behind` the number after the highest.
    fn behind(&mut self, number: u32, behind: u64, arrived_ns: u64) -> Placed {
        let at = self.next.saturating_sub(behind);
        self.arrivals += 1;
        if behind > Self::WINDOW {
            self.stray = Some(number);
            self.counts.late += 1;
            // A number before the very first one was not missing.
            if at >= self.span.first {
                self.span.distinct += 1;
            }
            return Placed::Late;
        }
        let (word, bit) = place_of(at);
        if self.seen[word] & bit != 0 {
            self.counts.duplicates += 1;
            return Placed::Duplicate;
        }
        self.seen[word] |= bit;
        self.span.first = self.span.first.min(at);
        self.span.distinct += 1;
        self.span.last_ns = arrived_ns;
        let (extent, is_least) = self.rises.extent(at, self.arrivals - 1);
        self.counts.reordered += 1;
        self.counts.extent_sum += extent;
        self.counts.extent_max = self.counts.extent_max.max(extent);
        self.counts.extents_at_least += u64::from(is_least);
        Placed::Reordered { extent }
    }

    fn begin(&mut self, number: u32, sent: u64, arrived_ns: u64) {
        let at = ORIGIN + u64::from(number);
        self.span = Span { first: at, end: at + 1, distinct: 0, first_ns: arrived_ns, last_ns: arrived_ns };
        self.next = at + 1;
        self.arrivals = 0;
        self.first_sent = sent;
        self.seen = [0; WORDS];
        self.rises = Runs::new();
        self.stray = None;
        self.accept(at, sent, arrived_ns);
        self.rises.extend(at, 0);
        self.arrivals = 1;
    }

    /// The highest number so far.
    #[inline]
    fn accept(&mut self, at: u64, sent: u64, arrived_ns: u64) {
        let (word, bit) = place_of(at);
        self.seen[word] |= bit;
        self.span.distinct += 1;
        self.span.end = at + 1;
        self.span.last_ns = arrived_ns;
        self.newest_sent = sent;
    }

    /// Clears the bits of skipped numbers.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= Self::WINDOW {
            self.seen = [0; WORDS];
            return;
        }
        for (word, mask) in masks(from, to) {
            self.seen[word] &= !mask;
        }
    }

    /// Sets the bits of received numbers; fewer than the window holds.
    fn remember(&mut self, from: u64, to: u64) {
        for (word, mask) in masks(from, to) {
            self.seen[word] |= mask;
        }
    }

    fn close(&mut self) {
        self.counts.restarts += 1;
        self.counts.push(self.span);
    }

    /// The counts so far, which can be merged with those of other readers.
    pub fn counts(&self) -> SequenceCounts {
        let mut counts = self.counts.clone();
        if self.arrivals > 0 {
            counts.push(self.span);
        }
        counts
    }
}

#[inline]
fn place_of(at: u64) -> (usize, u64) {
    ((at % SequenceTracker::WINDOW) as usize / 64, 1 << (at % 64))
}

/// The words and bits of a window's worth of numbers at most.
fn masks(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let bits = (64 - at % 64).min(to.checked_sub(at).filter(|left| *left > 0)?);
        let mask = u64::MAX >> (64 - bits) << (at % 64);
        let word = place_of(at).0;
        at += bits;
        Some((word, mask))
    })
}

#[cfg(test)]
mod tests;
