//! The one snapshot that all views are written over.

use std::collections::VecDeque;

use serde::Serialize;

/// What a running command shows at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Snapshot {
    /// The command: `bench`, `send`, `ledger` ...
    pub command: String,
    /// What distinguishes this run from others: its start.
    pub run: String,
    /// Interfaces that it is about.
    pub interfaces: Vec<String>,
    /// What is going on, in a line: `trial 3/75  udp → packet`.
    pub title: String,
    /// How far it is.
    pub phase: Phase,
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// Share of the work that is done, 0..=1, where it has an end.
    pub done_ratio: Option<f64>,
    /// Seconds that the rest will take, where that can be estimated.
    pub left_s: Option<f64>,
    /// The answer so far, in a sentence; may be empty.
    pub verdict: String,
    /// Seconds since the counters were read.
    pub age_s: f64,
    /// Rates, where packets are sent or counted.
    pub traffic: Option<Traffic>,
    /// Where packets went.
    pub waterfall: Option<Waterfall>,
    /// Pairs or settings that are measured one after the other.
    pub grid: Option<Grid>,
    /// Queues of an interface and the CPUs that serve them.
    pub queues: Vec<Queue>,
    /// CPUs.
    pub cpus: Vec<Cpu>,
    /// What has no shape of its own.
    pub tables: Vec<Table>,
    /// The last lines that the command printed.
    pub messages: Vec<String>,
    /// What the views cost.
    pub own: Own,
    /// CPUs of the workers, where views do not run.
    #[serde(skip)]
    pub worker_cpus: Vec<u32>,
    /// Metrics.
    #[serde(skip)]
    pub families: Vec<Family>,
}

/// How far a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Nothing has begun.
    #[default]
    Waiting,
    /// Packets are sent, or counters watched.
    Running,
    /// All is sent, and what is in flight is waited for.
    Draining,
    /// It is over.
    Ended,
}

impl Phase {
    /// The word that views show.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
    }
}

/// What was asked, sent, on the wire and delivered.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Traffic {
    /// The rates, in the order a packet meets them.
    pub rates: Vec<Rate>,
    /// Lateness of departures and whether the rate was held, in words, and of which trial; may be empty.
    pub receipt: String,
    /// Rates before.
    pub history: History,
}

/// A packet rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Rate {
    /// What is counted: `asked`, `sent`, `on the wire`, `delivered`.
    pub name: String,
    /// Packets per second; `None` where nobody knows yet.
    pub pps: Option<f64>,
    /// What the number is of where it is not of now, or instead of one: `maximum`, `last trial`.
    pub note: String,
}

/// Rates over time, the newest last.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct History {
    /// The rates' names.
    pub names: Vec<String>,
    /// Seconds since the start, and a rate for each name.
    pub points: VecDeque<(f64, Vec<f64>)>,
}

impl History {
    /// Points that are kept.
    const MOST: usize = 240;
    /// Seconds between two points.
    const STEP_S: f64 = 0.25;

    /// Adds a point, unless the last one was just now.
    pub fn add(&mut self, at_s: f64, rates: Vec<f64>) {
        if self.points.back().is_some_and(|(last, _)| at_s - last < Self::STEP_S) {
            return;
        }
        if self.points.len() >= Self::MOST {
            self.points.pop_front();
        }
        self.points.push_back((at_s, rates));
    }
}

/// Where packets went: what came in, less every place of loss, is what came out and what is unexplained.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Waterfall {
    /// Whose: `trial 3`, `eth0`.
    pub of: String,
    /// The first row's name and packets: `sent`.
    pub from: (String, u64),
    /// Places of loss, in the order a packet meets them.
    pub places: Vec<Place>,
    /// The last row: `delivered`; `None` where nobody counts what arrives.
    pub to: Option<(String, u64)>,
    /// Why there is no last row, where there is none.
    pub to_unknown: String,
    /// What the places do not explain: in flight while it is provisional.
    pub residual: i64,
    /// Whether packets may still be in flight.
    pub provisional: bool,
}

/// A place of loss.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Packets.
    pub packets: u64,
    /// Packets per second, where that is known.
    pub pps: Option<f64>,
    /// The counter.
    pub source: String,
    /// What helps; may be empty.
    pub remedy: String,
    /// Whether its packets are lost, and not copies or repetitions.
    pub is_loss: bool,
}

/// Measurements by row and column.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Grid {
    /// What the rows and columns are: `sender`, `receiver`.
    pub axes: (String, String),
    /// Names of rows.
    pub rows: Vec<String>,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Cells that are known.
    pub cells: Vec<Cell>,
}

/// A measurement that is done, running or coming.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Cell {
    /// Index of its row.
    pub row: usize,
    /// Index of its column.
    pub column: usize,
    /// How far it is.
    pub state: CellState,
    /// Median of delivered packets per second so far.
    pub pps: Option<f64>,
    /// Largest less smallest, divided by the median; of several trials.
    pub spread_ratio: Option<f64>,
    /// Lost share of the packets sent.
    pub loss_ratio: f64,
    /// Trials done.
    pub trials: u32,
}

/// How far a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CellState {
    /// It has not begun.
    #[default]
    Waiting,
    /// A trial of it is running.
    Running,
    /// Some trials are done.
    Measured,
    /// Its ledger did not close, or it could not be run.
    Failed,
}

/// A receive queue, its interrupt and its CPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Queue {
    /// `rx-0`.
    pub name: String,
    /// Packets per second.
    pub pps: f64,
    /// Packets dropped per second.
    pub drop_pps: f64,
    /// Interrupts per second, where an interrupt is known to be this queue's.
    pub interrupts_per_s: Option<f64>,
    /// The CPU that takes the interrupt.
    pub cpu: Option<u32>,
}

/// A CPU's time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Share of time that it was busy, 0..=1.
    pub busy: f64,
    /// Share of time in software interrupts.
    pub softirq: f64,
    /// Packets per second that its receive softirq took, where that is known.
    pub pps: Option<f64>,
}

/// Rows of words.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// What the views cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Own {
    /// CPU time of the views' threads, as a share of one CPU.
    pub cpu_ratio: f64,
    /// Snapshots that were published.
    pub published: u64,
    /// Snapshots that the terminal or a browser missed.
    pub missed: u64,
    /// Browsers that look.
    pub clients: u32,
}

/// A family of metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name without the prefix `linerate_` and without `_total`; ends in its base unit.
    pub name: String,
    /// What it counts, in a sentence.
    pub help: String,
    /// What may happen to its values.
    pub kind: FamilyKind,
    /// Labels and value of each series.
    pub samples: Vec<(Vec<(String, String)>, f64)>,
}

/// What may happen to a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// They only grow.
    Counter,
    /// They go up and down.
    Gauge,
}

impl Family {
    /// A counter without series.
    pub fn counter(name: &str, help: &str) -> Self {
        Self { name: name.into(), help: help.into(), kind: FamilyKind::Counter, samples: Vec::new() }
    }

    /// A gauge without series.
    pub fn gauge(name: &str, help: &str) -> Self {
        Self { kind: FamilyKind::Gauge, ..Self::counter(name, help) }
    }

    /// The same with one more series.
    #[must_use]
    pub fn with(mut self, labels: &[(&str, &str)], value: f64) -> Self {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.samples.push((labels.collect(), value));
        self
    }
}
