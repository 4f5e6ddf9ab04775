//! The capacity of each side, how it grows with threads, and the sentences about it.

use measure::{Capacity, CapacitySide, Layer, Run};

use crate::{
    number::{self, RateUnit},
    table::{Cell, Column, Table},
};

/// Two columns of capacities: every sender, every receiver.
pub(crate) fn table(run: &Run) -> Table {
    let sending = of_ladder(run, CapacitySide::Sending);
    let receiving = of_ladder(run, CapacitySide::Receiving);
    if sending.is_empty() && receiving.is_empty() {
        return Table::default();
    }
    let both = || sending.iter().chain(&receiving);
    let unit = RateUnit::of(both().map(|found| found.pps));
    let rows = sending.len().max(receiving.len());
    let words = |of: &[&Capacity]| -> Vec<Cell> {
        (0..rows).map(|row| Cell::words(of.get(row).map_or("", |found| &found.label))).collect()
    };
    let rates = |of: &[&Capacity], rate: &dyn Fn(&Capacity) -> Option<f64>| -> Vec<Cell> {
        let cell = |found: &&Capacity| Cell::figure(rate(found), |pps| unit.figure(pps));
        (0..rows).map(|row| of.get(row).map_or_else(|| Cell::words(""), cell)).collect()
    };
    // With one CPU per side, a rate is a rate per core.
    let is_whole = |of: &[&Capacity]| of.iter().all(|found| found.pps_per_cpu >= 0.99 * found.pps);
    let mut table = Table::titled("Capacities, one thread per side");
    table.push(Column::words("sending", words(&sending)));
    table.push(Column::figures("rate", unit.name(), rates(&sending, &|found| Some(found.pps))));
    if !is_whole(&sending) {
        table.push(Column::figures(
            "per core",
            unit.name(),
            rates(&sending, &|found| Some(found.pps_per_cpu)),
        ));
    }
    table.push(Column::words("  receiving", words(&receiving).into_iter().map(indented)));
    table.push(Column::figures("most", unit.name(), rates(&receiving, &|found| Some(found.pps))));
    if !is_whole(&receiving) {
        table.push(Column::figures(
            "per core",
            unit.name(),
            rates(&receiving, &|found| Some(found.pps_per_cpu)),
        ));
    }
    table.push(Column::figures("flooded", unit.name(), rates(&receiving, &|found| found.flooded_pps)));
    let no_loss = receiving.iter().map(|found| {
        let at_least = if found.is_lossless_bound { ">" } else { "" };
        Cell::figure(found.lossless_pps, |pps| format!("{at_least}{}", unit.figure(pps)))
    });
    let no_loss = no_loss.chain(std::iter::repeat_with(|| Cell::words(""))).take(rows);
    table.push(Column::figures("no loss", unit.name(), no_loss));
    if let Some(threads) = most_threads(run) {
        let at_most = |found: &Capacity| with_all(run, found).map(|scaled| scaled.pps);
        table.push(Column::figures(&format!("{threads} threads"), unit.name(), rates(&receiving, &at_most)));
    }
    let dropping = sending.iter().all(|found| found.layer == Layer::Kernel);
    let towards = if dropping {
        "towards a receiver that drops in XDP"
    } else {
        "towards the receiver that slows it least"
    };
    let per_core = if is_whole(&sending) && is_whole(&receiving) {
        "Each side ran on one core."
    } else {
        "per core: per CPU that the side kept busy."
    };
    let is_searched = receiving.iter().any(|found| found.lossless_pps.is_some());
    let no_loss = if is_searched { "; no loss: the highest rate without loss in short trials" } else { "" };
    table.legend = format!(
        "sending: handed over {towards}; most: delivered from the best sender; flooded: delivered from the fastest \
         sender{no_loss}. {per_core}"
    );
    table
}

/// Rates against threads: one row per pair, with bars relative to the row's largest.
pub(crate) fn scaling(run: &Run) -> Table {
    let all: Vec<&Capacity> =
        run.end.capacities.iter().filter(|found| found.efficiency_ratio.is_some()).collect();
    let mut threads: Vec<u32> = all.iter().map(|found| found.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut rows: Vec<Vec<&Capacity>> = Vec::new();
    for found in all {
        match rows.iter_mut().find(|row| row[0].label == found.label) {
            Some(row) => row.push(found),
            None => rows.push(vec![found]),
        }
    }
    let unit = RateUnit::of(rows.iter().flatten().map(|found| found.pps));
    let at =
        |row: &[&Capacity], threads: u32| row.iter().find(|found| found.threads == threads).copied().cloned();
    let mut table = Table::titled("Scaling: delivered rate by threads per side");
    table.push(Column::words(
        "pair",
        rows.iter().map(|row| Cell::words(format!("{} → {}", row[0].with, row[0].label))),
    ));
    for threads in threads.iter().copied() {
        let title = if threads == 1 { "1 thread".into() } else { threads.to_string() };
        let cells = rows
            .iter()
            .map(|row| Cell::figure(at(row, threads).map(|found| found.pps), |pps| unit.figure(pps)));
        table.push(Column::figures(&title, unit.name(), cells));
        let largest = |row: &[&Capacity]| row.iter().map(|found| found.pps).fold(0.0, f64::max);
        let bars = rows
            .iter()
            .map(|row| Cell::words(bar(at(row, threads).map_or(0.0, |found| found.pps), largest(row))));
        table.push(Column::words("", bars));
    }
    let last = threads.last().copied().unwrap_or(1);
    let efficiency = rows.iter().map(|row| {
        Cell::figure(at(row, last).and_then(|found| found.efficiency_ratio), |ratio| {
            format!("{:.0}", ratio * 100.0)
        })
    });
    table.push(Column::figures("per CPU", "%", efficiency));
    let cpus = rows.iter().map(|row| Cell::words(cpus_in_words(row)));
    table.push(Column::words("CPUs", cpus).gives_way(1));
    table.legend = format!(
        "per CPU: rate per used CPU with {last} threads, relative to one thread. CPUs: CPUs that both sides used."
    );
    table
}

/// The rates of applications with and without sockets, and of the kernel itself: one sentence each.
pub(crate) fn verdict(run: &Run) -> Option<String> {
    let receiving = of_ladder(run, CapacitySide::Receiving);
    if receiving.len() < 2 {
        return None;
    }
    let best = |layer: Layer| {
        let of = receiving.iter().filter(|found| found.layer == layer);
        of.max_by(|a, b| a.pps.total_cmp(&b.pps)).copied()
    };
    let layers = [
        (Layer::Sockets, "Through sockets, an application receives"),
        (Layer::PastSockets, "Bypassing the socket layer, it receives"),
        (Layer::Kernel, "In XDP, the kernel drops"),
    ];
    let sentences: Vec<String> =
        layers.into_iter().filter_map(|(layer, begin)| Some(sentence(run, begin, best(layer)?))).collect();
    Some(sentences.join(" "))
}

fn sentence(run: &Run, begin: &str, found: &Capacity) -> String {
    let mut words = format!("{begin} {} per core ({})", number::rate(found.pps_per_cpu), found.label);
    if let Some(pps) = found.lossless_pps {
        let at_least = if found.is_lossless_bound { "at least " } else { "" };
        words += &format!(", {at_least}{} without loss", number::rate(pps));
    }
    if let Some(scaled) = with_all(run, found) {
        words += &format!(", {} on {} CPUs", number::rate(scaled.pps), scaled.cpus_used);
    }
    words += "; ";
    let loss = number::percent(found.loss_ratio);
    words += &match (&found.limited_by, found.loss_ratio > 0.0) {
        (Some(limit), true) => format!("{loss} % lost, limited by {limit}"),
        (Some(limit), false) => format!("nothing lost, limited by {limit}"),
        (None, true) => format!("{loss} % lost"),
        (None, false) => "nothing lost".into(),
    };
    words + "."
}

/// One thread per side, in the order of the ladder.
fn of_ladder(run: &Run, side: CapacitySide) -> Vec<&Capacity> {
    run.end.capacities.iter().filter(|found| found.side == side && found.efficiency_ratio.is_none()).collect()
}

/// The same receiver with the most threads tried.
fn with_all<'r>(run: &'r Run, of: &Capacity) -> Option<&'r Capacity> {
    let scaled = run.end.capacities.iter().filter(|found| found.scales.as_deref() == Some(&of.label));
    scaled.filter(|found| found.threads > 1).max_by_key(|found| found.threads)
}

fn most_threads(run: &Run) -> Option<u32> {
    let scaled = run.end.capacities.iter().filter(|found| found.efficiency_ratio.is_some());
    scaled.map(|found| found.threads).max().filter(|threads| *threads > 1)
}

fn cpus_in_words(row: &[&Capacity]) -> String {
    row.iter().map(|found| found.cpus_used.to_string()).collect::<Vec<_>>().join(", ")
}

fn indented(cell: Cell) -> Cell {
    Cell { text: if cell.text.is_empty() { cell.text } else { format!("  {}", cell.text) }, ..cell }
}

/// Widest bar, in characters.
const BAR: f64 = 8.0;

/// A bar in eighths of a character.
fn bar(value: f64, of: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = if of > 0.0 { (value / of * BAR * 8.0).round() as usize } else { 0 };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_shares_of_the_largest() {
        assert_eq!(bar(1.0, 1.0), "████████");
        assert_eq!(bar(0.5, 1.0), "████");
        assert_eq!(bar(0.53, 1.0), "████▎");
        assert_eq!((bar(0.0, 1.0), bar(1.0, 0.0)), (String::new(), String::new()));
    }
}
