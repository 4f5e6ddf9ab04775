//! What several readers saw of one stream, put together.

use serde::{Deserialize, Serialize};

/// Where numbers start, so that some lie before the first.
pub(super) const ORIGIN: u64 = 1 << 32;
/// The largest number of packets that may be missing in a row before they are believed to be.
pub(super) const JUMP: u32 = 1 << 20;

/// What one reader counted; made by [`SequenceTracker::counts`](super::SequenceTracker::counts).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    spans: Vec<Span>,
    /// Spans that gave way to newer ones, what was missing in them, and their packets.
    forgotten: u64,
    forgotten_lost: u64,
    forgotten_distinct: u64,
    pub(super) duplicates: u64,
    pub(super) reordered: u64,
    pub(super) extent_sum: u64,
    pub(super) extent_max: u64,
    pub(super) extents_at_least: u64,
    pub(super) late: u64,
    pub(super) strays: u64,
    pub(super) restarts: u64,
}

/// The numbers from a sender's start to its next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    /// The lowest number.
    pub(super) first: u64,
    /// The number after the highest.
    pub(super) end: u64,
    /// Numbers that came, each counted once.
    pub(super) distinct: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// What the sequence numbers of a stream told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SequenceSummary {
    /// Numbers that came, each counted once.
    pub received: u64,
    /// Numbers between the lowest and the highest that did not come; `null` when the numbers of several senders seem
    /// to be mixed.
    pub lost: Option<u64>,
    /// Share of the numbers that did not come, 0..=1.
    pub lost_ratio: Option<f64>,
    /// Packets that came after one with a higher number (RFC 4737, 3.3), within one queue or socket.
    pub reordered: u64,
    /// Mean reordering extent in packets (RFC 4737, 4.2): how many packets after the first that overtook it.
    pub reorder_extent_mean_packets: Option<f64>,
    /// Largest reordering extent in packets.
    pub reorder_extent_max_packets: Option<u64>,
    /// Reordered packets whose extent may be larger than counted: what overtook them was too long ago.
    pub reorder_extents_at_least: u64,
    /// Packets with a number that had come before, within the last 4096 numbers.
    pub duplicates: u64,
    /// Packets behind by more than 4096 numbers: reordered or duplicate, nobody can tell.
    pub late: u64,
    /// Packets with a number so far ahead, and without a neighbour, that it was not believed.
    pub strays: u64,
    /// Times that the sender started again.
    pub restarts: u64,
}

/// What somebody else counted of one stream, a program in the kernel say; as [`SequenceSummary`] has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountedSequence {
    /// The lowest number since the sender last started.
    pub first: u32,
    /// Numbers from the lowest to the highest since then, both included.
    pub span: u64,
    /// Numbers of those that came, each counted once.
    pub distinct: u64,
    /// When the first and the last of them came, in nanoseconds.
    pub arrived_ns: [u64; 2],
    /// Times the sender started again, and what came and was missing before the last time.
    pub restarts: u64,
    /// Numbers that came before the last start.
    pub distinct_before: u64,
    /// Numbers that were missing before the last start.
    pub lost_before: u64,
    /// Packets after one with a higher number.
    pub reordered: u64,
    /// Sum of their extents.
    pub extent_sum: u64,
    /// The largest of their extents.
    pub extent_max: u64,
    /// Packets with a number that had come before.
    pub duplicates: u64,
    /// Packets too far behind to know.
    pub late: u64,
    /// Packets too far ahead to be believed.
    pub strays: u64,
}

impl From<CountedSequence> for SequenceCounts {
    fn from(counted: CountedSequence) -> Self {
        let first = ORIGIN + u64::from(counted.first);
        let [first_ns, last_ns] = counted.arrived_ns;
        let span = Span { first, end: first + counted.span, distinct: counted.distinct, first_ns, last_ns };
        Self {
            spans: if counted.span > 0 { vec![span] } else { Vec::new() },
            forgotten: counted.restarts,
            forgotten_lost: counted.lost_before,
            forgotten_distinct: counted.distinct_before,
            duplicates: counted.duplicates,
            reordered: counted.reordered,
            extent_sum: counted.extent_sum,
            extent_max: counted.extent_max,
            extents_at_least: 0,
            late: counted.late,
            strays: counted.strays,
            restarts: counted.restarts,
        }
    }
}

/// Spans that are remembered apart.
const MOST_SPANS: usize = 8;
/// Packets a start, below which the numbers are taken for those of several senders.
const LEAST_A_START: u64 = 16;

impl SequenceCounts {
    /// Takes the newest span.
    pub(super) fn push(&mut self, span: Span) {
        if self.spans.len() >= MOST_SPANS {
            let oldest = self.spans.remove(0);
            self.forgotten += 1;
            self.forgotten_lost += oldest.lost();
            self.forgotten_distinct += oldest.distinct;
        }
        self.spans.push(span);
    }

    #[cfg(test)]
    pub(super) fn spans_kept(&self) -> usize {
        self.spans.len()
    }
}

impl Span {
    fn lost(&self) -> u64 {
        (self.end - self.first).saturating_sub(self.distinct)
    }

    /// Both as one.
    fn joined(&self, other: &Self) -> Self {
        Self {
            first: self.first.min(other.first),
            end: self.end.max(other.end),
            distinct: self.distinct + other.distinct,
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }

    /// Whether another reader's span, which begins later, belongs to the same start of the sender: both were read at
    /// the same time, or the numbers go on where a flow went over.
    fn goes_on_in(&self, later: &Self) -> bool {
        const OVERTAKEN: u64 = 64;
        let goes_on = later.first + OVERTAKEN >= self.end
            && later.first >= self.first
            && later.first <= self.end + u64::from(JUMP);
        let joined = self.joined(later);
        later.first_ns <= self.last_ns || goes_on && joined.distinct <= joined.end - joined.first
    }
}

/// A sender's start, as several readers saw it.
struct Start {
    span: Span,
    readers: Vec<usize>,
}

/// The senders' starts behind readers' spans: each reader tells its own apart, and shares each with others.
fn starts(readers: &[SequenceCounts]) -> Vec<Span> {
    let each = readers.iter().enumerate();
    let mut spans: Vec<(usize, Span)> =
        each.flat_map(|(reader, counts)| counts.spans.iter().map(move |span| (reader, *span))).collect();
    spans.sort_by_key(|(reader, span)| (span.first_ns, span.first, *reader));
    let mut starts: Vec<Start> = Vec::new();
    for (reader, span) in spans {
        match starts.last_mut() {
            Some(start) if !start.readers.contains(&reader) && start.span.goes_on_in(&span) => {
                start.span = start.span.joined(&span);
                start.readers.push(reader);
            }
            _ => starts.push(Start { span, readers: vec![reader] }),
        }
    }
    starts.into_iter().map(|start| start.span).collect()
}

impl SequenceSummary {
    /// Puts together what several readers saw of one stream; `None` when none saw any.
    pub fn of(readers: &[SequenceCounts]) -> Option<Self> {
        let starts = starts(readers);
        if starts.is_empty() {
            return None;
        }
        let sum = |part: fn(&SequenceCounts) -> u64| readers.iter().map(part).sum::<u64>();
        let forgotten = sum(|reader| reader.forgotten);
        let received =
            starts.iter().map(|start| start.distinct).sum::<u64>() + sum(|reader| reader.forgotten_distinct);
        let lost = starts.iter().map(Span::lost).sum::<u64>() + sum(|reader| reader.forgotten_lost);
        let restarts = starts.len() as u64 - 1 + forgotten;
        let is_mixed = restarts >= MOST_SPANS as u64 && received / (restarts + 1) < LEAST_A_START;
        // What one reader of several forgot, another may have seen.
        let is_known = !is_mixed && (forgotten == 0 || readers.len() == 1);
        let reordered = sum(|reader| reader.reordered);
        Some(Self {
            received,
            lost: is_known.then_some(lost),
            lost_ratio: is_known.then(|| lost as f64 / (lost + received).max(1) as f64),
            reordered,
            reorder_extent_mean_packets: (reordered > 0)
                .then(|| sum(|reader| reader.extent_sum) as f64 / reordered as f64),
            reorder_extent_max_packets: readers
                .iter()
                .map(|reader| reader.extent_max)
                .max()
                .filter(|_| reordered > 0),
            reorder_extents_at_least: sum(|reader| reader.extents_at_least),
            duplicates: sum(|reader| reader.duplicates),
            late: sum(|reader| reader.late),
            strays: sum(|reader| reader.strays),
            restarts,
        })
    }

    /// Several streams together.
    pub fn total(streams: &[Self]) -> Option<Self> {
        if streams.is_empty() {
            return None;
        }
        let sum = |part: fn(&Self) -> u64| streams.iter().map(part).sum::<u64>();
        let received = sum(|stream| stream.received);
        let lost = streams.iter().map(|stream| stream.lost).sum::<Option<u64>>();
        let reordered = sum(|stream| stream.reordered);
        let extents = streams
            .iter()
            .filter_map(|stream| Some(stream.reorder_extent_mean_packets? * stream.reordered as f64))
            .sum::<f64>();
        Some(Self {
            received,
            lost,
            lost_ratio: lost.map(|lost| lost as f64 / (lost + received).max(1) as f64),
            reordered,
            reorder_extent_mean_packets: (reordered > 0).then(|| extents / reordered as f64),
            reorder_extent_max_packets: streams.iter().filter_map(|s| s.reorder_extent_max_packets).max(),
            reorder_extents_at_least: sum(|stream| stream.reorder_extents_at_least),
            duplicates: sum(|stream| stream.duplicates),
            late: sum(|stream| stream.late),
            strays: sum(|stream| stream.strays),
            restarts: sum(|stream| stream.restarts),
        })
    }
}
