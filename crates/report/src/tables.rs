//! The tables of a run, as text, Markdown and HTML show them: ladder, ledgers, rate receipts, points.

use std::collections::BTreeSet;

use measure::{Ledger, LedgerLine, PairSummary, Point, Trial};
use serde_json::Value;

use crate::{
    figures::{self, FIGURES, Figure, Unit, View},
    ladder::{Rung, Varying, threads},
    number::{self, RateUnit},
    points::{self, Axes},
    table::{Cell, Column, Table},
    value::{plain, rounded},
};

/// One row per pair; medians over its trials.
pub(crate) fn ladder(rungs: &[Rung]) -> Table {
    let varying = Varying::among(rungs.iter().map(|rung| &rung.pair));
    let pairs = || rungs.iter().map(|rung| &rung.pair);
    let unit = RateUnit::of(
        pairs().flat_map(|p| [p.asked_pps.unwrap_or(0.0), p.sent_pps.median, p.delivered_pps.median]),
    );
    let pps = |value: f64| Cell::figure(value, |v| unit.figure(v));
    let offered = |asked: Option<f64>| asked.map_or_else(|| Cell::words("max"), pps);

    let mut table = Table::titled(ladder_title(rungs));
    table.push(Column::words("sender", pairs().map(|pair| Cell::words(&pair.tx))));
    table.push(Column::words("receiver", pairs().map(|pair| Cell::words(&pair.rx))));
    for parameter in told_parameters(rungs) {
        let value = |pair: &PairSummary| pair.parameters.get(parameter).map_or("-".into(), plain);
        table.push(Column::words(&points::in_words(parameter), pairs().map(|pair| Cell::words(value(pair)))));
    }
    if varying.frame_size {
        table.push(Column::figures(
            "frame",
            "B",
            pairs().map(|pair| Cell::count(pair.frame_size_bytes.into())),
        ));
    }
    if varying.threads {
        table.push(Column::words("threads", pairs().map(|pair| Cell::words(threads(pair)))));
    }
    table.push(Column::figures("offered", unit.name(), pairs().map(|pair| offered(pair.asked_pps))));
    let medians =
        |figure: &Figure| figure.column_of(rungs.iter().map(|rung| rung.median(|t| figure.number(t))), unit);
    figures::of_view(View::LadderRates).for_each(|figure| table.push(medians(figure)));
    // One trial has no spread and no agreement.
    let is_repeated = |rung: &Rung| rung.trials.len() > 1;
    let spread = rungs.iter().map(|rung| {
        let ratio = Some(rung.pair.delivered_pps.spread_ratio).filter(|_| is_repeated(rung));
        Cell::figure(ratio, number::percent)
    });
    table.push(Column::figures("spread", "%", spread).gives_way(1));
    figures::of_view(View::LadderCosts).for_each(|figure| table.push(medians(figure)));
    table.push(Column::figures("CPU", "u/s/i %", rungs.iter().map(cpu_use)).gives_way(4));
    table.push(Column::words("held", rungs.iter().map(held)));
    let agree = |rung: &Rung| if is_repeated(rung) { Cell::yes(rung.pair.agrees) } else { Cell::words("-") };
    table.push(Column::words("agree", rungs.iter().map(agree)));
    let held = if pairs().any(|pair| pair.asked_pps.is_some()) {
        "held: the generator kept the offered load. "
    } else {
        ""
    };
    let counted = if table.columns.iter().any(|column| column.unit == Unit::CyclesEach.heading(unit)) {
        " cyc, ins, miss: cycles, instructions and cache misses of the worker threads."
    } else {
        ""
    };
    let agree = if rungs.iter().any(is_repeated) {
        "agree: delivered differs by at most 10 % between trials; spread: largest minus smallest, relative to the median. "
    } else {
        ""
    };
    table.legend = format!(
        "{held}{agree}ns: CPU time of the worker threads.{counted} CPU u/s/i: user, system, hard and soft interrupts, over all CPUs \
        together."
    );
    table
}

/// Columns of parameters.
const MOST_TOLD: usize = 2;

/// Parameters that tell rows apart and have no column of their own.
fn told_parameters<'r>(rungs: &'r [Rung]) -> Vec<&'r str> {
    const OWN_COLUMN: [&str; 4] = ["rate", "threads", "frame_size", "step"];
    let all: BTreeSet<&str> =
        rungs.iter().flat_map(|rung| rung.pair.parameters.keys()).map(String::as_str).collect();
    let varies = |name: &&str| {
        let mut values = rungs.iter().map(|rung| rung.pair.parameters.get(*name));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let told: Vec<&str> = all.into_iter().filter(|name| !OWN_COLUMN.contains(name)).filter(varies).collect();
    // More would push the results off the screen; pairs' names have all of them.
    if told.len() > MOST_TOLD { Vec::new() } else { told }
}

/// Properties that all pairs share.
pub(crate) fn ladder_title(rungs: &[Rung]) -> String {
    let varying = Varying::among(rungs.iter().map(|rung| &rung.pair));
    let mut parts = Vec::new();
    if let Some(rung) = rungs.first() {
        let payload = rung.trials.first().map_or(0, |trial| trial.payload_bytes);
        if !varying.frame_size {
            parts.push(format!("{}-byte frames ({payload} bytes of payload)", rung.pair.frame_size_bytes));
        }
        if !varying.threads {
            parts.push(threads(&rung.pair));
        }
    }
    match rungs.iter().map(|rung| rung.trials.len()).max() {
        Some(0 | 1) | None => {}
        Some(most) => parts.push(format!("medians of {most} trials")),
    }
    if parts.is_empty() { "Ladder".into() } else { format!("Ladder: {}", parts.join(", ")) }
}

/// At the maximum rate no rate is held.
fn held(rung: &Rung) -> Cell {
    if rung.pair.asked_pps.is_some() { Cell::yes(rung.kept_up()) } else { Cell::words("-") }
}

fn cpu_use(rung: &Rung) -> Cell {
    let shown = |cpu: crate::ladder::CpuUse| {
        format!("{:.0}/{:.0}/{:.0}", cpu.user * 100.0, cpu.system * 100.0, cpu.interrupts * 100.0)
    };
    Cell::words(rung.cpu_use().map_or_else(|| "-".into(), shown))
}

/// Where the packets of each pair went, all its trials together.
pub(crate) fn ledgers<'r, 'l: 'r>(rungs: impl IntoIterator<Item = &'r Rung<'l>>) -> Table {
    let mut rows: Vec<LedgerRow> = Vec::new();
    for rung in rungs {
        let entries = entries(&rung.ledger());
        let names = std::iter::once(rung.name.clone()).chain(std::iter::repeat(String::new()));
        rows.extend(entries.into_iter().zip(names).map(|(entry, pair)| LedgerRow { pair, ..entry }));
    }
    let mut table = Table::titled("Where the packets went (all trials of a pair together)");
    table.push(Column::words("pair", rows.iter().map(|row| Cell::words(&row.pair))));
    table.push(Column::words("place", rows.iter().map(|row| Cell::words(&row.place))));
    let packets = rows.iter().map(|row| {
        let cell = Cell::figure(row.packets as f64, |_| number::signed_count(row.packets));
        cell.bad_if(row.place == UNEXPLAINED && row.packets != 0)
    });
    table.push(Column::figures("packets", "", packets));
    table.push(Column::figures(
        "share",
        "% of sent",
        rows.iter().map(|row| Cell::figure(row.share, number::percent)),
    ));
    // The number is in packets, converted from the counter's unit.
    table.push(Column::words("counts", rows.iter().map(|row| Cell::words(row.unit))).gives_way(2));
    table.push(Column::words("counter", rows.iter().map(|row| Cell::words(&row.source))).gives_way(1));
    table
}

/// The name of the residual in every output.
pub(crate) const UNEXPLAINED: &str = "unexplained";

struct LedgerRow {
    pair: String,
    place: String,
    packets: i64,
    share: Option<f64>,
    unit: &'static str,
    source: String,
}

fn entries(ledger: &Ledger) -> Vec<LedgerRow> {
    let row = |place: &str, packets: i64, unit: &'static str, source: &str| LedgerRow {
        pair: String::new(),
        place: place.into(),
        packets,
        share: (ledger.sent > 0).then(|| packets as f64 / ledger.sent as f64),
        unit,
        source: source.into(),
    };
    let packets = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut rows = vec![row("sent", packets(ledger.sent), "", "")];
    let lost = |line: &LedgerLine| {
        row(&format!("- {}", line.whereabouts()), packets(line.packets), line.unit.name(), &line.source)
    };
    rows.extend(ledger.lines.iter().filter(|line| line.packets > 0).map(lost));
    rows.push(row(UNEXPLAINED, ledger.unexplained, "", ""));
    if ledger.unknown_because().is_none() {
        rows.push(row("delivered", packets(ledger.delivered), "", ""));
    }
    rows
}

/// The remedies, each place once.
pub(crate) fn remedies(rungs: &[Rung]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let ledgers: Vec<Ledger> = rungs.iter().map(Rung::ledger).collect();
    let lines = ledgers.iter().flat_map(|ledger| &ledger.lines).filter(|line| line.packets > 0);
    lines
        .filter_map(|line| line.remedy.as_ref().map(|remedy| format!("{}: {remedy}", line.whereabouts())))
        .filter(|remedy| seen.insert(remedy.clone()))
        .collect()
}

/// One row per trial with a requested rate; no rows without one.
pub(crate) fn receipts(rungs: &[Rung]) -> Table {
    let paced: Vec<(&str, &Trial)> = rungs
        .iter()
        .flat_map(|rung| rung.trials.iter().map(|trial| (rung.name.as_str(), *trial)))
        .filter(|(_, trial)| trial.receipt.asked_pps.is_some())
        .collect();
    let trials: Vec<&Trial> = paced.iter().map(|(_, trial)| *trial).collect();
    let rates = |trial: &&Trial| [trial.receipt.asked_pps.unwrap_or(0.0), trial.receipt.handed_pps];
    let unit = RateUnit::of(trials.iter().flat_map(rates));

    let mut table = Table::titled("Rate receipts");
    table.push(Column::words("pair", paced.iter().map(|(name, _)| Cell::words(*name))));
    table.push(Column::figures("trial", "", paced.iter().map(|(_, t)| Cell::count(t.trial.into()))));
    figures::of_view(View::Receipts).for_each(|figure| table.push(figure.column_of_trials(&trials, unit)));
    table.push(Column::words("held", trials.iter().map(|t| Cell::yes(t.receipt.kept_up))));
    table.legend =
        "Columns without a unit are packets. short: due but never handed over (the generator was too slow). \
        late: behind the schedule. gap: longest time between two batches."
            .into();
    table
}

/// A table of points for each step of a scenario, or one.
pub(crate) fn points_by_step(points: &[Point], most: usize) -> Vec<Table> {
    let steps = points::by_step(points).into_iter().map(|(step, points)| {
        let mut table = self::points(&points, most);
        if let Some(step) = step {
            table.title = format!("Points of step {step}");
        }
        table
    });
    steps.collect()
}

/// The points of a sweep or model, at most `most` of them, parameters before results.
pub(crate) fn points(points: &[Point], most: usize) -> Table {
    let axes = points::axes(points);
    let shown = &points[..points.len().min(most)];
    let mut table = Table::titled("Points");
    for name in &axes.series {
        table.push(Column::words(name, shown.iter().map(|point| cell(point.values.get(name)))));
    }
    let results = axes.results.iter().flat_map(|result| Axes::with_ends(points, result));
    for (at, name) in axes.x.iter().cloned().chain(results).enumerate() {
        let column = Column::figures(&name, "", shown.iter().map(|point| cell(point.values.get(&name))));
        table.push(column.gives_way(at.min(255) as u8));
    }
    if shown.len() < points.len() {
        let more = number::count((points.len() - shown.len()) as u64);
        table.legend = format!("{more} more points are in the JSON and CSV.");
    }
    table
}

fn cell(value: Option<&Value>) -> Cell {
    match value {
        None | Some(Value::Null) => Cell::figure(None, number::plain),
        Some(Value::Number(figure)) => Cell::figure(figure.as_f64(), number::plain),
        Some(other) => Cell::words(rounded(other)),
    }
}

/// One result of a sweep with its parameters.
pub(crate) fn points_of(points: &[Point], axes: &Axes, result: &str) -> Table {
    let mut table = Table::titled(result);
    for name in axes.series.iter().chain(&axes.x) {
        table.push(Column::words(name, points.iter().map(|point| cell(point.values.get(name)))));
    }
    for name in Axes::with_ends(points, result) {
        table.push(Column::figures(&name, "", points.iter().map(|point| cell(point.values.get(&name)))));
    }
    table
}

/// Every trial with the record's own names and values.
pub(crate) fn trials(trials: &[Trial]) -> Table {
    let mut table = Table::titled("Trials");
    for figure in FIGURES.iter().filter(|figure| !figure.name.is_empty()) {
        let cells = trials.iter().map(|trial| match (figure.of)(trial) {
            None => Cell::figure(None, number::plain),
            Some(quantity) => Cell { value: quantity.number(), ..Cell::words(quantity.exact()) },
        });
        table.push(Column::figures(figure.name, "", cells));
    }
    table
}
