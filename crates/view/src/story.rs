//! A run as it goes: what happens to it, live or from a record, becomes snapshots.

use std::collections::BTreeMap;

use measure::{Ledger, LossPlace, Place as LedgerPlace, Receipt, Start, Trial};
use report::words;

use crate::snapshot::{Cell, CellState, Family, Grid, Phase, Place, Rate, Snapshot, Traffic, Waterfall};

/// Without a receiver that reports.
const NOBODY_REPORTS: &str = "delivered: no receiver reports it";

/// Packets of trials that are done, for metrics.
#[derive(Debug, Default)]
struct Totals {
    sent: u64,
    delivered: u64,
    trials: u64,
    lost: BTreeMap<String, u64>,
    unexplained: i64,
}

/// The story of one run.
#[derive(Debug)]
pub struct Story {
    snapshot: Snapshot,
    began_s: f64,
    /// Trials that had begun when the first one was, of a run that goes on with an earlier one.
    first_index: Option<u32>,
    title: String,
    ahead: Ahead,
    seen: Seen,
    seen_at_s: f64,
    totals: Totals,
    /// Delivered rates by cell.
    rates: BTreeMap<(usize, usize), Vec<f64>>,
    last: Option<(u32, Receipt)>,
    /// A receiver knows no sender.
    counts_only_received: bool,
}

/// A trial that is about to begin.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ahead {
    /// Its number from 0.
    pub index: u32,
    /// Of how many, where that is known.
    pub of: Option<u32>,
    /// The sender's label.
    pub tx: String,
    /// The receiver's label.
    pub rx: String,
    /// The sweep's parameters or the load, in words; may be empty.
    pub what: String,
    /// The requested packets per second; `None` is the maximum or not known.
    pub asked_pps: Option<f64>,
    /// CPUs that workers are pinned to.
    pub worker_cpus: Vec<u32>,
}

/// Counters of a running trial.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seen {
    /// Share of the trial's time that is over.
    pub done_ratio: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered, where a receiver reports.
    pub delivered: Option<u64>,
    /// Packets that the receiving sockets or rings have dropped, where they tell.
    pub rx_dropped: Option<u64>,
    /// Packets per second sent since the last look.
    pub sent_pps: f64,
    /// Packets per second delivered since the last look.
    pub delivered_pps: f64,
}

impl Story {
    /// A run that has begun.
    pub fn new(start: &Start, now_s: f64) -> Self {
        let snapshot = Snapshot {
            command: start.command.clone(),
            run: start.started_at.clone(),
            interfaces: start.machine.interfaces.iter().map(|nic| nic.name.clone()).collect(),
            traffic: Some(Traffic::default()),
            ..Snapshot::default()
        };
        Self {
            snapshot,
            began_s: now_s,
            first_index: None,
            title: String::new(),
            ahead: Ahead::default(),
            seen: Seen::default(),
            seen_at_s: now_s,
            totals: Totals::default(),
            rates: BTreeMap::new(),
            last: None,
            counts_only_received: start.command == "recv",
        }
    }

    /// A trial begins.
    pub fn trial_begins(&mut self, ahead: Ahead, now_s: f64) {
        let number = ahead.index + 1;
        let number = ahead.of.map_or_else(|| number.to_string(), |of| format!("{number}/{of}"));
        self.title = format!("trial {number}  {} → {}", ahead.tx, ahead.rx);
        if !ahead.what.is_empty() {
            self.title += &format!("  {}", ahead.what);
        }
        self.first_index.get_or_insert(ahead.index);
        self.ahead = ahead;
        self.snapshot.phase = Phase::Running;
        self.snapshot.worker_cpus.clone_from(&self.ahead.worker_cpus);
        (self.seen, self.seen_at_s) = (Seen::default(), now_s);
        self.settle_cells();
        let (row, column, _) = self.cell_of_trial();
        self.cell(row, column).state = CellState::Running;
        self.provisional();
    }

    /// Counters were read.
    pub fn looks(&mut self, seen: Seen, now_s: f64) {
        (self.seen, self.seen_at_s) = (seen, now_s);
        self.snapshot.phase = if seen.done_ratio >= 1.0 { Phase::Draining } else { Phase::Running };
        self.provisional();
        let (sent, delivered) = (seen.sent_pps, seen.delivered_pps);
        if let Some(Traffic { history, .. }) = &mut self.snapshot.traffic {
            history.names = match self.counts_only_received {
                true => vec!["received".into()],
                false => vec!["sent".into(), "delivered".into()],
            };
            let rates = if self.counts_only_received { vec![delivered] } else { vec![sent, delivered] };
            history.add(now_s - self.began_s, rates);
        }
    }

    /// A trial is complete.
    pub fn trial_ends(&mut self, trial: &Trial, now_s: f64) {
        self.seen_at_s = now_s;
        self.snapshot.phase = Phase::Waiting;
        let index = self.ahead.index;
        self.snapshot.waterfall = Some(waterfall(&trial.ledger, format!("trial {}", index + 1), false));
        self.last = Some((index, trial.receipt.clone()));
        self.totals.add(trial);
        self.seen = Seen { sent_pps: trial.sent_pps, delivered_pps: trial.delivered_pps, ..Seen::default() };
        self.settle_cells();
        let (row, column, counts) = self.cell_of_trial();
        if !counts {
            return;
        }
        let rates = self.rates.entry((row, column)).or_default();
        rates.push(trial.delivered_pps);
        let (median, spread) = (measure::median(rates).unwrap_or(0.0), spread(rates));
        let (trials, is_closed) = (rates.len() as u32, trial.ledger.is_closed());
        let cell = self.cell(row, column);
        *cell = Cell {
            row,
            column,
            state: if is_closed { CellState::Measured } else { CellState::Failed },
            pps: Some(median),
            spread_ratio: spread,
            loss_ratio: trial.loss_ratio,
            trials,
        };
        self.say_verdict();
    }

    /// A trial of a receiver, whose packets are among those that were looked at.
    pub fn adds(&mut self, trial: &Trial) {
        self.totals.add(trial);
    }

    /// What else a command shows.
    pub fn with(&mut self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.snapshot);
    }

    /// It is over, and this is the answer.
    pub fn ends(&mut self, verdict: String) {
        self.snapshot.phase = Phase::Ended;
        self.settle_cells();
        match verdict.is_empty() {
            true => self.snapshot.verdict = self.snapshot.verdict.replacen("Best so far", "Best", 1),
            false => self.snapshot.verdict = verdict,
        }
    }

    /// What it shows now.
    pub fn snapshot(&self, now_s: f64) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        if !self.title.is_empty() {
            snapshot.title.clone_from(&self.title);
        }
        snapshot.elapsed_s = (now_s - self.began_s).max(0.0);
        snapshot.age_s = (now_s - self.seen_at_s).max(0.0);
        let begun = f64::from(self.ahead.index);
        let finished = begun + if snapshot.phase == Phase::Waiting { 1.0 } else { self.seen.done_ratio };
        if let Some(of) = self.ahead.of {
            let ratio = finished / f64::from(of.max(1));
            snapshot.done_ratio = Some(ratio.clamp(0.0, 1.0));
            snapshot.left_s = self.left_s(snapshot.elapsed_s, of);
        }
        if snapshot.phase == Phase::Ended {
            (snapshot.done_ratio, snapshot.left_s) = (Some(1.0), None);
        }
        if let Some(traffic) = &mut snapshot.traffic {
            (traffic.rates, traffic.receipt) = (self.rates_now(), self.receipt());
        }
        // A single pair needs no grid.
        snapshot.grid = snapshot.grid.filter(|_| self.ahead.of != Some(1));
        snapshot.families = self.families();
        snapshot
    }

    /// How long the trials to come will take, if they take as long as those before.
    fn left_s(&self, elapsed_s: f64, of: u32) -> Option<f64> {
        const FEWEST: f64 = 3.0;
        let done = f64::from(self.ahead.index.saturating_sub(self.first_index.unwrap_or(0)));
        let left = f64::from(of.saturating_sub(self.ahead.index));
        (done >= FEWEST).then(|| elapsed_s * left / done)
    }

    fn rates_now(&self) -> Vec<Rate> {
        let seen = &self.seen;
        let rate = |name: &str, pps, note: &str| Rate { name: name.into(), pps, note: note.into() };
        if self.counts_only_received {
            return vec![rate("received", Some(seen.delivered_pps), "")];
        }
        let is_running = matches!(self.snapshot.phase, Phase::Running | Phase::Draining);
        let asked_note = if self.ahead.asked_pps.is_none() { "as fast as it can" } else { "" };
        let knows = !is_running || seen.delivered.is_some() || seen.sent == 0;
        let last = self.last.as_ref();
        let wire = last.and_then(|(_, receipt)| {
            let seconds = receipt.handed as f64 / receipt.handed_pps.max(1e-9);
            receipt.on_wire.map(|packets| packets as f64 / seconds.max(1e-9))
        });
        let of_last = last.map_or_else(String::new, |(index, _)| format!("of trial {}", index + 1));
        vec![
            rate("asked", self.ahead.asked_pps, asked_note),
            rate("sent", Some(seen.sent_pps), ""),
            rate("on the wire", wire, if wire.is_some() { &of_last } else { "known when a trial ends" }),
            rate(
                "delivered",
                knows.then_some(seen.delivered_pps),
                if knows { "" } else { "no receiver reports it" },
            ),
        ]
    }

    /// Lateness and whether the rate was held, of the last trial that ended.
    fn receipt(&self) -> String {
        let Some((index, receipt)) = &self.last else { return String::new() };
        let held = if receipt.kept_up { "rate held" } else { "rate not held" };
        let late = receipt.lateness.as_ref().map(|late| {
            let [p50, p99, max] = [late.p50_ns, late.p99_ns, late.max_ns].map(|ns| words::nanos(ns as f64));
            format!("late by {p50} (median), {p99} (99 %), {max} (most); ")
        });
        format!("trial {}: {}{held}", index + 1, late.unwrap_or_default())
    }

    /// The ledger while packets may be in flight.
    fn provisional(&mut self) {
        let Seen { sent, delivered, rx_dropped, .. } = self.seen;
        let dropped = rx_dropped.filter(|packets| *packets > 0).map(|packets| Place {
            name: "receiving socket or ring".into(),
            packets,
            source: "the receiver's own count".into(),
            is_loss: true,
            ..Place::default()
        });
        let dropped_packets = dropped.as_ref().map_or(0, |place| place.packets);
        let sent = if self.counts_only_received { delivered.unwrap_or(0) + dropped_packets } else { sent };
        let first = if self.counts_only_received { "arrived" } else { "sent" };
        let last = if self.counts_only_received { "received" } else { "delivered" };
        self.snapshot.waterfall = Some(Waterfall {
            of: match self.title.is_empty() {
                true => "this run".into(),
                false => format!("trial {}", self.ahead.index + 1),
            },
            from: (first.into(), sent),
            residual: delivered
                .map_or(0, |delivered| sent as i64 - delivered as i64 - dropped_packets as i64),
            places: dropped.into_iter().collect(),
            to: delivered.map(|delivered| (last.into(), delivered)),
            to_unknown: NOBODY_REPORTS.into(),
            provisional: true,
        });
    }

    /// A trial of one that was running has ended, or could not be run.
    fn settle_cells(&mut self) {
        let cells = self.snapshot.grid.iter_mut().flat_map(|grid| &mut grid.cells);
        for cell in cells.filter(|cell| cell.state == CellState::Running) {
            cell.state = if cell.pps.is_some() { CellState::Measured } else { CellState::Failed };
        }
    }

    /// Row and column of the trial that is ahead: senders by receivers, or settings by pairs; and whether its rate counts
    /// there. What follows a ladder, such as a search, is seen in the ladder's cell, and its rates are not.
    fn cell_of_trial(&mut self) -> (usize, usize, bool) {
        let Ahead { tx, rx, what, .. } = &self.ahead;
        let is_ladder = |grid: &Grid| grid.axes.0 == "sender";
        let follows = !what.is_empty() && self.snapshot.grid.as_ref().is_some_and(is_ladder);
        let ((row, row_axis), (column, column_axis)) = match what.is_empty() || follows {
            true => ((tx.clone(), "sender"), (rx.clone(), "receiver")),
            false => ((what.clone(), "setting"), (format!("{tx} → {rx}"), "pair")),
        };
        let grid = self
            .snapshot
            .grid
            .get_or_insert_with(|| Grid { axes: (row_axis.into(), column_axis.into()), ..Grid::default() });
        (index_of(&mut grid.rows, row), index_of(&mut grid.columns, column), !follows)
    }

    fn cell(&mut self, row: usize, column: usize) -> &mut Cell {
        let grid = self.snapshot.grid.get_or_insert_with(Grid::default);
        let at = grid.cells.iter().position(|cell| (cell.row, cell.column) == (row, column));
        let at = at.unwrap_or_else(|| {
            grid.cells.push(Cell { row, column, ..Cell::default() });
            grid.cells.len() - 1
        });
        &mut grid.cells[at]
    }

    fn say_verdict(&mut self) {
        let Some(grid) = &self.snapshot.grid else { return };
        let best = grid
            .cells
            .iter()
            .filter(|cell| cell.pps.is_some())
            .max_by(|a, b| a.pps.unwrap_or(0.0).total_cmp(&b.pps.unwrap_or(0.0)));
        let Some(best) = best else { return };
        let (row, column) = (&grid.rows[best.row], &grid.columns[best.column]);
        let rate = words::rate(best.pps.unwrap_or(0.0));
        self.snapshot.verdict = format!("Best so far: {rate} delivered, {row} → {column}.");
        if grid.axes.0 != "sender" {
            self.snapshot.verdict = format!("Best so far: {rate} delivered, {column} at {row}.");
        }
    }

    fn families(&self) -> Vec<Family> {
        let totals = &self.totals;
        let is_running = matches!(self.snapshot.phase, Phase::Running | Phase::Draining);
        let seen = (self.seen.sent, self.seen.delivered.unwrap_or(0));
        let (sent, delivered) = match (self.counts_only_received, is_running) {
            (true, _) => (totals.sent, seen.1),
            (false, true) => (totals.sent + seen.0, totals.delivered + seen.1),
            (false, false) => (totals.sent, totals.delivered),
        };
        let mut lost = Family::counter(
            "lost_packets",
            "Packets lost by place, of trials that are done; docs/ledger.md.",
        );
        for place in LedgerPlace::ALL {
            lost =
                lost.with(&[("place", place.id())], totals.lost.get(place.id()).copied().unwrap_or(0) as f64);
        }
        for (place, packets) in &totals.lost {
            if !LedgerPlace::ALL.iter().any(|known| known.id() == place) {
                lost = lost.with(&[("place", place)], *packets as f64);
            }
        }
        vec![
            Family::counter("sent_packets", "Packets sent.").with(&[], sent as f64),
            Family::counter("delivered_packets", "Packets delivered.").with(&[], delivered as f64),
            lost,
            Family::gauge("unexplained_packets", "Packets that no place explains, of trials that are done.")
                .with(&[], totals.unexplained as f64),
            Family::counter("trials", "Trials that are done.").with(&[], totals.trials as f64),
        ]
    }
}

impl Totals {
    fn add(&mut self, trial: &Trial) {
        self.sent += trial.sent;
        self.delivered += trial.delivered;
        self.trials += 1;
        self.unexplained += trial.ledger.unexplained;
        for line in &trial.ledger.lines {
            *self.lost.entry(id(&line.place).to_owned()).or_default() += line.packets;
        }
    }
}

fn id(place: &LossPlace) -> &str {
    place.known().map_or(place.as_str(), |known| known.id())
}

/// A ledger as a waterfall.
pub(crate) fn waterfall(ledger: &Ledger, of: String, provisional: bool) -> Waterfall {
    let lines = ledger.lines.iter().filter(|line| line.packets > 0);
    Waterfall {
        of,
        from: ("sent".into(), ledger.sent),
        places: lines
            .map(|line| Place {
                name: line.whereabouts(),
                packets: line.packets,
                pps: None,
                source: line.source.clone(),
                remedy: line.remedy.clone().unwrap_or_default(),
                is_loss: true,
            })
            .collect(),
        to: ledger.unknown_because().is_none().then(|| ("delivered".into(), ledger.delivered)),
        to_unknown: NOBODY_REPORTS.into(),
        residual: ledger.unexplained,
        provisional,
    }
}

/// Largest less smallest, divided by the median; of two values or more.
fn spread(rates: &[f64]) -> Option<f64> {
    let median = measure::median(rates).filter(|median| *median > 0.0)?;
    let (least, most) =
        rates.iter().fold((f64::INFINITY, 0.0f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    (rates.len() > 1).then(|| (most - least) / median)
}

fn index_of(names: &mut Vec<String>, name: String) -> usize {
    names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

#[cfg(test)]
pub(crate) mod tests;
