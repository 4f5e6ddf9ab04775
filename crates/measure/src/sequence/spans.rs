//! Merges what several readers saw of one stream.

use serde::{Deserialize, Serialize};

/// Where numbers start, so that some lie before the first.
pub(super) const ORIGIN: u64 = 1 << 32;
/// The largest gap that is accepted without confirmation.
pub(super) const JUMP: u32 = 1 << 20;

/// What one reader counted; made by [`SequenceTracker::counts`](super::SequenceTracker::counts).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    spans: Vec<Span>,
    /// Evicted spans: their number, missing numbers and packets.
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
    /// Distinct numbers received.
    pub(super) distinct: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// Loss and order from the sequence numbers of a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SequenceSummary {
    /// Distinct numbers received.
    pub received: u64,
    /// Numbers between the lowest and the highest that were not received; `null` when the numbers of several senders seem
    /// to be mixed.
    pub lost: Option<u64>,
    /// Share of the numbers not received, 0..=1.
    pub lost_ratio: Option<f64>,
    /// Packets received after one with a higher number (RFC 4737, 3.3), within one queue or socket.
    pub reordered: u64,
    /// Mean reordering extent in packets (RFC 4737, 4.2): packets received since the first one that overtook it.
    pub reorder_extent_mean_packets: Option<f64>,
    /// Largest reordering extent in packets.
    pub reorder_extent_max_packets: Option<u64>,
    /// Reordered packets whose extent may be larger than counted: the packet that overtook them is no longer known.
    pub reorder_extents_at_least: u64,
    /// Duplicates within the last 4096 numbers.
    pub duplicates: u64,
    /// Packets behind by more than 4096 numbers: either reordered or duplicate.
    pub late: u64,
    /// Packets with an implausible number: too far ahead, and without a neighbour.
    pub strays: u64,
    /// How often the sender restarted.
    pub restarts: u64,
}

/// Counts of one stream from elsewhere, for example a BPF program; fields as in [`SequenceSummary`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountedSequence {
    /// The lowest number since the sender's last start.
    pub first: u32,
    /// Numbers from the lowest to the highest since then, both included.
    pub span: u64,
    /// Distinct numbers of those that were received.
    pub distinct: u64,
    /// Arrival of the first and the last of them, in nanoseconds.
    pub arrived_ns: [u64; 2],
    /// Restarts of the sender, and numbers received and missing before the last one.
    pub restarts: u64,
    /// Numbers received before the last start.
    pub distinct_before: u64,
    /// Numbers that were missing before the last start.
    pub lost_before: u64,
    /// Packets after one with a higher number.
    pub reordered: u64,
    /// Sum of their extents.
    pub extent_sum: u64,
    /// The largest of their extents.
    pub extent_max: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets too far behind to classify.
    pub late: u64,
    /// Packets too far ahead to be plausible.
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

/// The most spans kept separately.
const MOST_SPANS: usize = 8;
/// With fewer packets per start than this, the numbers are attributed to several senders.
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
    /// the same time, or the numbers continue where a flow moved to another reader.
    fn goes_on_in(&self, later: &Self) -> bool {
        const OVERTAKEN: u64 = 64;
        let goes_on = later.first + OVERTAKEN >= self.end
            && later.first >= self.first
            && later.first <= self.end + u64::from(JUMP);
        let joined = self.joined(later);
        later.first_ns <= self.last_ns || goes_on && joined.distinct <= joined.end - joined.first
    }
}

/// A sender's start, as seen by several readers.
struct Start {
    span: Span,
    readers: Vec<usize>,
}

/// Groups readers' spans by the sender's start: each reader separates its own spans, and shares starts with others.
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
    /// Merges the counts of several readers of one stream; `None` when all are empty.
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
        // Another reader may have seen what one reader evicted.
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
