//! The results of throughput searches, as tables and in a sentence; and published figures next to measured ones.

use std::collections::BTreeSet;

use measure::{Figure, GoalResult, Throughput, ThroughputLimit};

use crate::{
    number::{self, RateUnit},
    table::{Cell, Column, Table},
};

/// One row per goal: the bounds of its throughput, and what limits it.
pub(crate) fn goals(found: &[Throughput]) -> Table {
    let rows: Vec<(&Throughput, &GoalResult)> =
        found.iter().flat_map(|found| found.goals.iter().map(move |goal| (found, goal))).collect();
    let goals = || rows.iter().map(|(_, goal)| *goal);
    let unit = RateUnit::of(goals().flat_map(|goal| [goal.lower_pps, goal.upper_pps]).flatten());
    let pps = |value: Option<f64>| Cell::figure(value, |pps| unit.figure(pps));
    let share = |value: Option<f64>| Cell::figure(value, number::percent);
    let mut table = Table::titled("Throughput (RFC 2544, MLRsearch)");
    table.push(Column::words("sender", rows.iter().map(|(found, _)| Cell::words(&found.tx))));
    table.push(Column::words("receiver", rows.iter().map(|(found, _)| Cell::words(&found.rx))));
    if found.iter().any(|found| !parameters(found).is_empty()) {
        table.push(Column::words("at", rows.iter().map(|(found, _)| Cell::words(parameters(found)))));
    }
    table.push(Column::figures(
        "frame",
        "B",
        rows.iter().map(|(found, _)| Cell::count(found.frame_size_bytes.into())),
    ));
    table.push(Column::words("goal", goals().map(|goal| Cell::words(&goal.goal))));
    table.push(Column::figures("throughput", unit.name(), goals().map(|goal| pps(goal.lower_pps))));
    table.push(Column::figures("too high", unit.name(), goals().map(|goal| pps(goal.upper_pps))));
    let forwarded = goals().map(|goal| pps(goal.conditional_throughput_pps));
    table.push(Column::figures("forwarded", unit.name(), forwarded).gives_way(3));
    table.push(Column::words("limited by", goals().map(|goal| Cell::words(limit(goal)))));
    let kinds =
        |of: fn(&measure::LossKinds) -> f64| goals().map(move |goal| share(goal.at_upper.as_ref().map(of)));
    table.push(Column::figures("short", "%", kinds(|kinds| kinds.shortfall_ratio)).gives_way(6));
    table.push(Column::figures("before socket", "%", kinds(|kinds| kinds.receive_loss_ratio)).gives_way(5));
    table.push(Column::figures("at socket", "%", kinds(|kinds| kinds.socket_loss_ratio)).gives_way(4));
    table.legend = "throughput: the highest load that met the goal (relevant lower bound); too high: the lowest that \
        did not (relevant upper bound); forwarded: conditional throughput at the lower bound. short, before socket, at \
        socket: the generator's shortfall, and losses by kind, at the upper bound."
        .into();
    table
}

/// The limit of a result, as text.
pub(crate) fn limit(goal: &GoalResult) -> String {
    match (goal.limit, &goal.bound_by) {
        (ThroughputLimit::Loss | ThroughputLimit::MinLoad, Some(bound)) => bound.place.to_string(),
        (ThroughputLimit::Loss, None) => "loss".into(),
        (ThroughputLimit::Generator, _) => "the generator".into(),
        (ThroughputLimit::MaxLoad, _) => "the highest load tried".into(),
        (ThroughputLimit::MinLoad, None) => "loss at the lowest load".into(),
        (ThroughputLimit::Unfinished, _) => "unfinished".into(),
    }
}

fn parameters(found: &Throughput) -> String {
    let word =
        |(name, value): (&String, &serde_json::Value)| format!("{name}={}", crate::value::plain(value));
    // The frame size has its own column, and few steps of a scenario search.
    let said = |(name, value): &(&String, &serde_json::Value)| {
        *name == "step" || *name == "frame_size" && value.as_u64() == Some(found.frame_size_bytes.into())
    };
    found.parameters.iter().filter(|one| !said(one)).map(word).collect::<Vec<_>>().join(", ")
}

/// The pair, its frame size and the swept parameters.
pub(crate) fn name(found: &Throughput) -> String {
    let parameters = parameters(found);
    let at = if parameters.is_empty() { String::new() } else { format!(", {parameters}") };
    format!("{} → {}, {} B{at}", found.tx, found.rx, found.frame_size_bytes)
}

/// Latency at shares of the throughput found.
pub(crate) fn latency(found: &[Throughput]) -> Table {
    let rows: Vec<(String, &measure::LatencyAt)> =
        found.iter().flat_map(|found| found.latency.iter().map(|at| (name(found), at))).collect();
    let unit = RateUnit::of(rows.iter().map(|(_, at)| at.load_pps));
    let micros = |of: fn(&measure::NanosSummary) -> f64| {
        let cells = rows
            .iter()
            .map(|(_, at)| Cell::figure(at.latency.as_ref().map(of), |ns| format!("{:.1}", ns / 1e3)));
        cells.collect::<Vec<_>>()
    };
    let mut table = Table::titled("Latency at shares of the throughput");
    table.push(Column::words("pair", rows.iter().map(|(name, _)| Cell::words(name))));
    table.push(Column::figures(
        "load",
        "%",
        rows.iter().map(|(_, at)| Cell::figure(at.share_ratio, number::percent)),
    ));
    let load = rows.iter().map(|(_, at)| Cell::figure(at.load_pps, |pps| unit.figure(pps)));
    table.push(Column::figures("load", unit.name(), load));
    table.push(Column::figures("least", "µs", micros(|latency| latency.min_ns as f64)).gives_way(2));
    table.push(Column::figures("mean", "µs", micros(|latency| latency.mean_ns)).gives_way(1));
    table.push(Column::figures("p50", "µs", micros(|latency| latency.p50_ns as f64)));
    table.push(Column::figures("p90", "µs", micros(|latency| latency.p90_ns as f64)));
    table.push(Column::figures("p99", "µs", micros(|latency| latency.p99_ns as f64)));
    table.push(Column::figures("p99.9", "µs", micros(|latency| latency.p999_ns as f64)));
    table.push(Column::figures("max", "µs", micros(|latency| latency.max_ns as f64)));
    table
}

/// Lost share against offered load (RFC 2544, 26.3).
pub(crate) fn frame_loss(found: &[Throughput]) -> Table {
    let rows: Vec<(String, &measure::LossAt)> =
        found.iter().flat_map(|found| found.frame_loss.iter().map(|point| (name(found), point))).collect();
    let unit = RateUnit::of(rows.iter().map(|(_, point)| point.load_pps));
    let mut table = Table::titled("Frame loss rate (RFC 2544, 26.3)");
    table.push(Column::words("pair", rows.iter().map(|(name, _)| Cell::words(name))));
    let pps = |of: fn(&measure::LossAt) -> f64| {
        rows.iter().map(move |(_, point)| Cell::figure(of(point), |pps| unit.figure(pps))).collect::<Vec<_>>()
    };
    table.push(Column::figures("requested", unit.name(), pps(|point| point.load_pps)));
    table.push(Column::figures("offered", unit.name(), pps(|point| point.offered_pps)));
    let loss = rows.iter().map(|(_, point)| Cell::figure(point.loss_ratio, number::percent));
    table.push(Column::figures("loss", "%", loss));
    table
}

/// The longest lossless bursts (RFC 2544, 26.4; RFC 9004).
pub(crate) fn back_to_back(found: &[Throughput]) -> Table {
    let rows: Vec<(String, &measure::BurstResult)> =
        found.iter().filter_map(|found| Some((name(found), found.back_to_back.as_ref()?))).collect();
    let bursts = || rows.iter().map(|(_, burst)| *burst);
    let unit = RateUnit::of(bursts().map(|burst| burst.burst_pps));
    let whole = |packets: f64| number::count(packets.round() as u64);
    let mut table = Table::titled("Back-to-back (RFC 2544, 26.4)");
    table.push(Column::words("pair", rows.iter().map(|(name, _)| Cell::words(name))));
    table.push(Column::figures("repeats", "", bursts().map(|burst| Cell::count(burst.packets.len() as u64))));
    table.push(Column::figures(
        "mean",
        "packets",
        bursts().map(|burst| Cell::figure(burst.mean_packets, whole)),
    ));
    let least = bursts().map(|burst| Cell::count(burst.packets.iter().copied().min().unwrap_or(0)));
    table.push(Column::figures("least", "packets", least));
    let most = bursts().map(|burst| Cell::count(burst.packets.iter().copied().max().unwrap_or(0)));
    table.push(Column::figures("most", "packets", most));
    let rate = bursts().map(|burst| Cell::figure(burst.burst_pps, |pps| unit.figure(pps)));
    table.push(Column::figures("burst rate", unit.name(), rate));
    let time = bursts().map(|burst| Cell::figure(burst.buffer_time_s, |s| format!("{:.2}", s * 1e3)));
    table.push(Column::figures("buffer", "ms", time));
    table.push(Column::words(
        "at limit",
        bursts().map(|burst| Cell::words(if burst.at_limit { "yes" } else { "no" })),
    ));
    table.legend =
        "Bursts at the generator's maximum rate. buffer: the time to fill it, less what left it \
        meanwhile (RFC 9004). at limit: the longest burst tried lost nothing, so that the true value may be larger."
            .into();
    table
}

/// Published figures next to this run's.
pub(crate) fn figures(figures: &[Figure]) -> Table {
    let mut table = Table::titled("Published and measured here");
    table.push(Column::words("figure", figures.iter().map(|figure| Cell::words(&figure.figure))));
    table.push(Column::words("unit", figures.iter().map(|figure| Cell::words(&figure.unit))));
    let column = |of: fn(&Figure) -> Option<f64>| {
        figures.iter().map(move |figure| Cell::figure(of(figure), number::significant))
    };
    table.push(Column::figures("published", "", column(|figure| figure.published)));
    if figures.iter().any(|figure| figure.derived.is_some()) {
        table.push(Column::figures("derived", "", column(|figure| figure.derived)));
    }
    table.push(Column::figures("here", "", column(|figure| figure.measured)));
    let ratio = |figure: &Figure| figure.ratio().filter(|_| !figure.given);
    table.push(Column::figures(
        "ratio",
        "",
        figures.iter().map(|f| Cell::figure(ratio(f), |r| format!("{r:.2}"))),
    ));
    table
        .push(Column::words("measured at", figures.iter().map(|f| Cell::words(counterpart(f)))).gives_way(1));
    // One publication's conditions are the same for most of its figures.
    let conditions: BTreeSet<&str> = figures.iter().map(|figure| figure.conditions.as_str()).collect();
    let common = conditions.first().filter(|only| conditions.len() == 1 && !only.is_empty());
    if common.is_none() && figures.iter().any(|figure| !figure.conditions.is_empty()) {
        table
            .push(Column::words(CONDITIONS, figures.iter().map(|f| Cell::words(&f.conditions))).gives_way(3));
    }
    table.push(Column::words("where", figures.iter().map(|f| Cell::words(&f.place))).gives_way(2));
    let derived: BTreeSet<&str> =
        figures.iter().map(|figure| figure.derived_from.as_str()).filter(|from| !from.is_empty()).collect();
    if !derived.is_empty() {
        let derived: Vec<&str> = derived.into_iter().collect();
        table.legend =
            format!("derived: computed from {}, not printed in the publication.", derived.join("; from "));
    }
    if let Some(common) = common {
        let gap = if table.legend.is_empty() { "" } else { " " };
        table.legend = format!("{}{gap}published: {common}.", table.legend);
    }
    table
}

/// The title of the column of published figures' conditions.
const CONDITIONS: &str = "its conditions";

/// The table without that column, whose long cells would make every row high; and that column with the rows' names.
pub(crate) fn without_conditions(mut table: Table) -> (Table, Option<Table>) {
    let Some(at) = table.columns.iter().position(|column| column.title == CONDITIONS) else {
        return (table, None);
    };
    let column = table.columns.remove(at);
    let mut conditions = Table::titled("Conditions of the published figures");
    let names = table.columns.iter().take(1).flat_map(|names| names.cells.iter().cloned());
    conditions.push(Column::words("figure", names));
    conditions.push(column);
    (table, Some(conditions))
}

/// This run's value next to the published one, or the reason why there is none.
fn counterpart(figure: &Figure) -> String {
    match figure.no_counterpart.as_str() {
        "" => figure.measured_at.clone(),
        why => format!("no counterpart here: {why}"),
    }
}

/// The searches in one sentence.
pub(crate) fn verdict(found: &[Throughput]) -> Option<String> {
    let said = |found: &Throughput, goal: &GoalResult| {
        let rate = goal.lower_pps.map_or_else(|| "met at no load".into(), number::rate);
        format!("{}: {} {rate}, limited by {}", name(found), goal.goal, limit(goal))
    };
    let strictest: Vec<(&Throughput, &GoalResult)> =
        found.iter().filter_map(|found| Some((found, found.goals.last()?))).collect();
    match strictest.as_slice() {
        [] => None,
        [(only, _)] => {
            let goals = only.goals.iter().rev().map(|goal| said(only, goal));
            Some(format!("{}.", goals.collect::<Vec<_>>().join("; ")))
        }
        several => {
            let rate = |goal: &GoalResult| goal.lower_pps.unwrap_or(0.0);
            let (best, goal) = several.iter().max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)))?;
            Some(format!("Of {} searches, the highest throughput is {}.", several.len(), said(best, goal)))
        }
    }
}
