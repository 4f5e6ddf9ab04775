//! The bus trace of Figures 5 and 7 as data: what crossed the bus when, and the two regimes in it.

use measure::{Lane, Level, Mark, Timeline, View};
use serde::Serialize;

use super::{
    machine::{rdr_machine, traced},
    point::RdrError,
};
use crate::{
    outcome::{Outcome, TransactionKind},
    stages::buffers::BufferPolicy,
};

/// What crossed the bus, on a time axis in clocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BusTrace {
    /// The buffer policy of the driver.
    pub policy: BufferPolicy,
    /// Nanoseconds of a clock.
    pub clock_ns: f64,
    /// Clocks covered.
    pub length_clk: f64,
    /// Frames, write-backs, fetches of descriptors, and the driver's writes to the tail.
    pub events: Vec<BusEvent>,
    /// Bytes in the packet buffer, each from its clock on.
    pub levels: Vec<(f64, u64)>,
    /// Bytes that the packet buffer holds.
    pub buffer_bytes: u64,
    /// What the trace shows.
    pub regimes: Regimes,
}

/// One transaction, in clocks of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BusEvent {
    /// What crossed.
    pub kind: TransactionKind,
    /// When it began.
    pub start_clk: f64,
    /// How long it held the bus; 0 for a write to the tail.
    pub length_clk: f64,
}

/// The smooth and the stumble regime, measured from the trace as the paper reads them off.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regimes {
    /// When the first large gap begins: the end of the smooth regime.
    pub smooth_clk: f64,
    /// Mean distance of frames, start to start, in the smooth regime.
    pub smooth_spacing_clk: f64,
    /// Most frequent gap between frames in the smooth regime, end to start.
    pub smooth_gap_clk: f64,
    /// Least gap between two transactions: how the card catches up.
    pub least_gap_clk: f64,
    /// From a group's last frame to its write-back, with the bus free.
    pub write_back_delay_clk: f64,
    /// Frames between two fetches of descriptors in the smooth regime.
    pub frames_per_fetch: f64,
    /// Bus reads of one such fetch.
    pub reads_per_fetch: f64,
    /// Gaps without a frame of at least 1000 CLK: start and length.
    pub gaps_clk: Vec<(f64, f64)>,
    /// Median of those gaps.
    pub stumble_gap_clk: f64,
    /// Frames per microsecond from the first such gap to the trace's end.
    pub stumble_frames_per_us: f64,
    /// The most bytes per second over any 16 transactions in a row.
    pub peak_bytes_per_s: f64,
}

/// A gap without frames from this length on belongs to the stumble regime.
const LARGE_GAP_CLK: f64 = 1000.0;
/// Clocks between two recorded levels of the packet buffer.
const LEVEL_EVERY_CLK: f64 = 50.0;
/// Bytes of a smallest frame, and of four descriptors.
const TRANSFER_BYTES: f64 = 64.0;

impl BusTrace {
    /// Simulates the traced machine with a driver of this policy.
    ///
    /// # Errors
    /// [`RdrError::Machine`] when the machine cannot be simulated.
    pub fn simulate(policy: BufferPolicy) -> Result<Self, RdrError> {
        Ok(Self::of(policy, &traced(policy)?))
    }

    pub(super) fn of(policy: BufferPolicy, outcome: &Outcome) -> Self {
        let clk = |ps: u64| ps as f64 / outcome.clock_ps as f64;
        let mut events: Vec<BusEvent> = outcome
            .trace
            .iter()
            .map(|t| BusEvent { kind: t.kind, start_clk: clk(t.start_ps), length_clk: clk(t.length_ps) })
            .collect();
        events.sort_by(|a, b| a.start_clk.total_cmp(&b.start_clk));
        let clock_ns = outcome.clock_ps as f64 / 1e3;
        let length_clk = outcome.duration_s * 1e9 / clock_ns;
        let early: Vec<BusEvent> = events.iter().copied().filter(|e| e.start_clk < PICTURE_CLK).collect();
        let regimes = Regimes::of(&early, clock_ns, PICTURE_CLK.min(length_clk));
        let mut levels: Vec<(f64, u64)> = Vec::new();
        for level in &outcome.levels {
            let at = clk(level.at_ps);
            // the first of each interval is enough for a chart
            if levels.last().is_none_or(|last| at >= last.0 + LEVEL_EVERY_CLK) {
                levels.push((at, level.bytes));
            }
        }
        let buffer_bytes = rdr_machine(policy, 1).packet_buffer.bytes;
        Self { policy, clock_ns, length_clk, events, levels, buffer_bytes, regimes }
    }
}

/// Where the paper's trace changes from the smooth regime to the stumble regime (Figures 5 and 7).
const PUBLISHED_SMOOTH_CLK: f64 = 14_500.0;
/// The part of the trace that Figure 5 shows and that defines the regimes; the rest shows the packet buffer filling.
const PICTURE_CLK: f64 = 40_000.0;
/// What Figure 7 shows: a fetch of descriptors among frames, and where the smooth regime ends.
const DETAILS_CLK: [(&str, f64, f64); 2] = [
    ("the smooth regime: frames, write-backs, a fetch", 2_000.0, 5_000.0),
    ("from the smooth regime to the stumble regime", 13_500.0, 19_500.0),
];

impl BusTrace {
    /// The trace for the record, with the views of Figures 5 and 7.
    pub fn timeline(&self) -> Timeline {
        let lane = |name: &str, kind| Lane {
            name: name.into(),
            events: self
                .events
                .iter()
                .filter(|e| e.kind == kind)
                .map(|e| (e.start_clk, e.length_clk))
                .collect(),
        };
        // the paper's trace is of the driver that reallocates
        let is_published = self.policy != BufferPolicy::Recycle;
        let policy = if is_published { "reallocating" } else { "recycling" };
        let [five, seven] = if is_published { ["Figure 5, ", "Figure 7, "] } else { [""; 2] };
        let whole = View { title: format!("{five}the two regimes"), from: 0.0, to: PICTURE_CLK };
        let long = View { title: "until the packet buffer is full".into(), from: 0.0, to: self.length_clk };
        let details =
            DETAILS_CLK.map(|(title, from, to)| View { title: format!("{seven}{title}"), from, to });
        let published = Mark { name: "end of the smooth regime, published".into(), at: PUBLISHED_SMOOTH_CLK };
        let here = Mark { name: "end of the smooth regime, here".into(), at: self.regimes.smooth_clk };
        Timeline {
            title: format!("The bus with a driver {policy} buffers"),
            unit: "CLK".into(),
            lanes: vec![
                lane("frames", TransactionKind::Frame),
                lane("write-backs", TransactionKind::WriteBack),
                lane("fetches", TransactionKind::Fetch),
                lane("tail writes", TransactionKind::Tail),
                lane("STOP#", TransactionKind::Stop),
            ],
            levels: vec![Level {
                name: "packet buffer".into(),
                unit: "bytes".into(),
                most: self.buffer_bytes as f64,
                points: self.levels.iter().map(|(at, bytes)| (*at, *bytes as f64)).collect(),
            }],
            marks: is_published.then_some(published).into_iter().chain([here]).collect(),
            views: std::iter::once(whole).chain(details).chain([long]).collect(),
        }
    }

    /// How often the card ended a read of descriptors early, in the whole trace.
    pub fn stops(&self) -> usize {
        self.events.iter().filter(|e| e.kind == TransactionKind::Stop).count()
    }

    /// The first 40 000 clocks as a text axis, `columns` characters of `column_clk` clocks to a row: frames in the column (`+`
    /// for more than nine), `w` for a write-back, `f` for a fetch, `.` for silence; where the driver moves the
    /// tail, `T`; where the card ends a read of descriptors early, `S`.
    pub fn axis(&self, columns: usize, column_clk: f64) -> Vec<String> {
        let count = (PICTURE_CLK.min(self.length_clk) / column_clk).ceil() as usize;
        let mut cells = vec![Cell::default(); count];
        for event in self.events.iter().filter(|event| event.start_clk < PICTURE_CLK) {
            let at = ((event.start_clk / column_clk) as usize).min(count - 1);
            let cell = &mut cells[at];
            match event.kind {
                TransactionKind::Frame => cell.frames += 1,
                TransactionKind::WriteBack => cell.write_back = true,
                TransactionKind::Fetch => cell.fetch = true,
                TransactionKind::Tail => cell.tail = true,
                TransactionKind::Stop => cell.stop = true,
            }
        }
        let marks: Vec<char> = cells.iter().map(Cell::mark).collect();
        marks.chunks(columns.max(1)).map(|row| row.iter().collect()).collect()
    }
}

impl BusTrace {
    /// How full the packet buffer is at the beginning of each column, in tenths: `0` to `9`, `F` when full to less than a
    /// frame.
    pub fn level_axis(&self, columns: usize, column_clk: f64) -> Vec<String> {
        let count = (self.length_clk / column_clk).ceil() as usize;
        let mark = |at: usize| {
            let from = at as f64 * column_clk;
            let after = self.levels.partition_point(|level| level.0 <= from);
            let bytes = after.checked_sub(1).map_or(0, |last| self.levels[last].1);
            if bytes + 64 > self.buffer_bytes {
                return 'F';
            }
            char::from_digit((bytes * 10 / self.buffer_bytes) as u32, 10).unwrap_or('9')
        };
        let marks: Vec<char> = (0..count).map(mark).collect();
        marks.chunks(columns.max(1)).map(|row| row.iter().collect()).collect()
    }
}

/// What began within one column of the axis.
#[derive(Debug, Clone, Default)]
struct Cell {
    frames: u32,
    write_back: bool,
    fetch: bool,
    tail: bool,
    stop: bool,
}

impl Cell {
    fn mark(&self) -> char {
        match self.frames {
            _ if self.tail => 'T',
            _ if self.stop => 'S',
            0 if self.fetch => 'f',
            0 if self.write_back => 'w',
            0 => '.',
            frames => char::from_digit(frames, 10).unwrap_or('+'),
        }
    }
}

impl BusEvent {
    fn end_clk(&self) -> f64 {
        self.start_clk + self.length_clk
    }
}

impl Regimes {
    fn of(events: &[BusEvent], clock_ns: f64, length_clk: f64) -> Self {
        let of_kind = |kind| events.iter().filter(move |e| e.kind == kind).copied();
        let frames: Vec<BusEvent> = of_kind(TransactionKind::Frame).collect();
        let gaps_clk: Vec<(f64, f64)> = frames
            .windows(2)
            .map(|pair| (pair[0].end_clk(), pair[1].start_clk - pair[0].end_clk()))
            .filter(|gap| gap.1 >= LARGE_GAP_CLK)
            .collect();
        let smooth_clk = gaps_clk.first().map_or(length_clk, |gap| gap.0);
        let smooth: Vec<BusEvent> = frames.iter().copied().filter(|f| f.start_clk < smooth_clk).collect();
        let stumbled = frames.len() - smooth.len();
        let stumble_us = (length_clk - smooth_clk) * clock_ns / 1e3;
        let gap_lengths: Vec<f64> = gaps_clk.iter().map(|gap| gap.1).collect();
        let smooth_gaps: Vec<f64> =
            smooth.windows(2).map(|pair| pair[1].start_clk - pair[0].end_clk()).collect();
        let fetches: Vec<BusEvent> =
            of_kind(TransactionKind::Fetch).filter(|f| f.start_clk < smooth_clk).collect();
        // the reads of one fetch follow each other without a frame between
        let mut bursts: Vec<(f64, f64)> = Vec::new();
        for (n, fetch) in fetches.iter().enumerate() {
            match bursts.last_mut() {
                Some(burst) if fetch.start_clk - fetches[n - 1].end_clk() <= 16.0 => burst.1 += 1.0,
                _ => bursts.push((fetch.start_clk, 1.0)),
            }
        }
        let between = bursts.windows(2).map(|pair| {
            frames.iter().filter(|f| f.start_clk >= pair[0].0 && f.start_clk < pair[1].0).count() as f64
        });
        let transactions: Vec<BusEvent> = events.iter().copied().filter(|e| e.length_clk > 0.0).collect();
        let least_gap_clk = transactions
            .windows(2)
            .map(|pair| pair[1].start_clk - pair[0].end_clk())
            .fold(f64::INFINITY, f64::min);
        let peak_bytes_per_clk = transactions
            .windows(17)
            .filter(|w| w[..16].iter().all(|e| e.kind != TransactionKind::Fetch))
            .map(|w| 16.0 * TRANSFER_BYTES / (w[16].start_clk - w[0].start_clk))
            .fold(0.0, f64::max);
        let delays: Vec<f64> = of_kind(TransactionKind::WriteBack)
            .filter_map(|w| {
                let last = frames.iter().rev().find(|f| f.end_clk() <= w.start_clk)?;
                Some(w.start_clk - last.end_clk())
            })
            .collect();
        Self {
            smooth_clk,
            smooth_spacing_clk: smooth.last().map_or(0.0, |last| last.start_clk - smooth[0].start_clk)
                / (smooth.len().max(2) - 1) as f64,
            smooth_gap_clk: median(&smooth_gaps),
            least_gap_clk,
            write_back_delay_clk: median(&delays),
            frames_per_fetch: median(&between.collect::<Vec<_>>()),
            reads_per_fetch: median(&bursts.iter().map(|burst| burst.1).collect::<Vec<_>>()),
            stumble_gap_clk: median(&gap_lengths),
            gaps_clk,
            stumble_frames_per_us: if stumble_us > 0.0 { stumbled as f64 / stumble_us } else { 0.0 },
            peak_bytes_per_s: peak_bytes_per_clk * 1e9 / clock_ns,
        }
    }
}

fn median(values: &[f64]) -> f64 {
    measure::median(values).unwrap_or(0.0)
}
