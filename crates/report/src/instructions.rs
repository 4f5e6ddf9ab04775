//! The tables of counted instructions: by pair, by stage, by function, and what differs between variants of a pair.

use measure::{FunctionChange, FunctionInstructions, Instructions, Run, Side, Stage};

use crate::{
    figures::{self, FIGURES, View},
    ladder::Rung,
    number::{self, RateUnit},
    table::{Cell, Column, Table},
};

/// The most functions of a pair in a terminal; the record has more.
const MOST_FUNCTIONS: usize = 12;
/// Smaller differences in instructions per packet are not shown.
const LEAST_CHANGE: f64 = 0.5;
/// The most differences shown per pair.
const MOST_CHANGES: usize = 15;

/// Whether the run's instructions were counted.
pub(crate) fn is_counted(run: &Run) -> bool {
    run.end.trials.iter().any(|trial| trial.instructions.is_some())
}

/// All tables, in the order in which they are read.
pub(crate) fn tables(rungs: &[Rung]) -> Vec<Table> {
    let mut tables = vec![by_pair(rungs), stages(rungs)];
    tables.extend(differences(rungs));
    tables.push(functions(rungs));
    tables.retain(|table| table.rows() > 0);
    tables
}

/// The pair with the fewest instructions, in one sentence.
pub(crate) fn verdict(rungs: &[Rung]) -> Option<String> {
    let sending = |rung: &Rung| rung.median(|trial| trial.tx_cost.instructions_per_packet);
    let known = || rungs.iter().filter_map(|rung| Some((rung, sending(rung)?)));
    let (least, instructions) = known().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let name = &least.name;
    Some(match known().count() {
        1 => {
            format!("{name} executed {} instructions per packet in the sending thread.", tenth(instructions))
        }
        n => format!(
            "Of {n} combinations, {name} executed the fewest instructions per packet in the sending thread: {}.",
            tenth(instructions)
        ),
    })
}

/// With one decimal, and thousands separated.
fn tenth(value: f64) -> String {
    let tenths = (value.abs() * 10.0).round() as u64;
    let sign = if value < 0.0 && tenths > 0 { "-" } else { "" };
    format!("{sign}{}.{}", number::count(tenths / 10), tenths % 10)
}

/// One row per pair; medians over its trials.
pub(crate) fn by_pair(rungs: &[Rung]) -> Table {
    let mut table = Table::titled("Instructions per packet");
    table.push(Column::words("pair", rungs.iter().map(|rung| Cell::words(&rung.name))));
    let threads = |name: &str| {
        let figure = FIGURES.iter().find(|figure| figure.name == name);
        let figure = figure.expect("the record has it: a test compares the names");
        rungs.iter().map(|rung| Cell::figure(rung.median(|t| figure.number(t)), tenth)).collect::<Vec<_>>()
    };
    table.push(Column::figures("sender", "thread", threads("tx_cost.instructions_per_packet")));
    table.push(Column::figures("receiver", "thread", threads("rx_cost.instructions_per_packet")));
    for figure in figures::of_view(View::Instructions) {
        let values = rungs.iter().map(|rung| rung.median(|trial| figure.number(trial)));
        table.push(figure.column_of(values, RateUnit::of([])));
    }
    table.legend = "thread: everything in the sending or receiving thread, including softirqs and interrupts on top of it. \
        The other columns do not overlap: threads in user space and in the kernel, softirqs, interrupts up to them, all other \
        threads. \
        Receivers' figures are per packet delivered, all others per packet sent. A string instruction (rep movsb) counts once; \
        strings: the bytes that they wrote. No caches, memory stalls, parallel CPUs or device time: instructions rank code, \
        not machines."
        .into();
    table
}

/// A rung's counts: those of its first trial, each being exact.
fn counted<'r>(rung: &'r Rung) -> Option<&'r Instructions> {
    rung.trials.iter().find_map(|trial| trial.instructions.as_ref())
}

/// One row per pair and stage, one column per side.
fn stages(rungs: &[Rung]) -> Table {
    let mut rows: Vec<(&str, Stage, &Instructions)> = Vec::new();
    for rung in rungs {
        let Some(counts) = counted(rung) else { continue };
        let mut stages: Vec<Stage> =
            counts.stages.iter().filter(|s| is_of_packets(s.side)).map(|s| s.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let names = std::iter::once(rung.name.as_str()).chain(std::iter::repeat(""));
        rows.extend(names.zip(stages).map(|(name, stage)| (name, stage, counts)));
    }
    let of = |counts: &Instructions, stage: Stage, side: Side| {
        counts
            .stages
            .iter()
            .find(|found| (found.stage, found.side) == (stage, side))
            .map(|found| found.per_packet)
    };
    let mut table = Table::titled("Instructions per packet by stage");
    table.push(Column::words("pair", rows.iter().map(|(name, ..)| Cell::words(*name))));
    table.push(Column::words("stage", rows.iter().map(|(_, stage, _)| Cell::words(stage.name()))));
    for side in [Side::Sender, Side::Softirq, Side::Receiver] {
        let cells = rows.iter().map(|(_, stage, counts)| Cell::figure(of(counts, *stage, side), tenth));
        table.push(Column::figures(side.name(), "ins/pkt", cells.collect::<Vec<_>>()));
    }
    let bytes = |counts: &Instructions, stage: Stage| {
        let of_stage = counts.stages.iter().filter(|found| found.stage == stage && is_of_packets(found.side));
        Some(of_stage.map(|found| found.string_bytes_per_packet).sum::<f64>()).filter(|bytes| *bytes >= 0.05)
    };
    let cells = rows.iter().map(|(_, stage, counts)| Cell::figure(bytes(counts, *stage), tenth));
    table.push(Column::figures("strings", "B/pkt", cells.collect::<Vec<_>>()));
    table
}

fn is_of_packets(side: Side) -> bool {
    !matches!(side, Side::Interrupts | Side::Other)
}

/// The functions of each pair with the most instructions.
fn functions(rungs: &[Rung]) -> Table {
    let mut rows: Vec<(&str, &FunctionInstructions)> = Vec::new();
    for rung in rungs {
        let Some(counts) = counted(rung) else { continue };
        let names = std::iter::once(rung.name.as_str()).chain(std::iter::repeat(""));
        let most =
            counts.functions.iter().filter(|function| is_of_packets(function.side)).take(MOST_FUNCTIONS);
        rows.extend(names.zip(most));
    }
    let mut table = Table::titled("Functions with the most instructions");
    table.push(Column::words("pair", rows.iter().map(|(name, _)| Cell::words(*name))));
    table.push(Column::words("function", rows.iter().map(|(_, function)| Cell::words(&function.function))));
    table.push(Column::words("side", rows.iter().map(|(_, function)| Cell::words(function.side.name()))));
    table.push(Column::words("stage", rows.iter().map(|(_, function)| Cell::words(function.stage.name()))));
    table.push(Column::figures(
        "own",
        "ins/pkt",
        rows.iter().map(|(_, f)| Cell::figure(f.per_packet, tenth)),
    ));
    let bytes = |f: &FunctionInstructions| Some(f.string_bytes_per_packet).filter(|bytes| *bytes >= 0.05);
    table.push(Column::figures("strings", "B/pkt", rows.iter().map(|(_, f)| Cell::figure(bytes(f), tenth))));
    table
}

/// Between the first variant of a pair (kernel, or another swept parameter) and each other one.
fn differences(rungs: &[Rung]) -> Vec<Table> {
    let mut tables = Vec::new();
    for (at, rung) in rungs.iter().enumerate() {
        let same = |other: &&Rung| (&other.pair.tx, &other.pair.rx) == (&rung.pair.tx, &rung.pair.rx);
        let Some(first) = rungs[..at].iter().find(same) else { continue };
        let Some((before, after)) = counted(first).zip(counted(rung)) else { continue };
        let title = format!("From {} to {}", first.name, rung.name);
        tables.push(changes(title, &Instructions::changes(before, after, LEAST_CHANGE)));
    }
    tables
}

/// Functions whose instructions differ.
pub(crate) fn changes(title: String, changes: &[FunctionChange]) -> Table {
    let shown = || changes.iter().take(MOST_CHANGES);
    let mut table = Table::titled(title);
    table.push(Column::words("function", shown().map(|change| Cell::words(&change.function))));
    table.push(Column::words("side", shown().map(|change| Cell::words(change.side.name()))));
    table.push(Column::figures(
        "before",
        "ins/pkt",
        shown().map(|change| Cell::figure(change.before, tenth)),
    ));
    table.push(Column::figures("after", "ins/pkt", shown().map(|change| Cell::figure(change.after, tenth))));
    let growth = |change: &FunctionChange| {
        let sign = if change.growth() > 0.0 { "+" } else { "" };
        Cell::figure(change.growth(), |growth| format!("{sign}{}", tenth(growth)))
    };
    table.push(Column::figures("change", "ins/pkt", shown().map(growth)));
    let rest = changes.len().saturating_sub(MOST_CHANGES);
    if rest > 0 {
        let sum = changes.iter().skip(MOST_CHANGES).map(FunctionChange::growth).sum();
        table.legend = format!("{rest} more functions differ, by {} together.", tenth(sum));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_a_tenth_and_their_thousands_apart() {
        assert_eq!(
            [tenth(8408.25), tenth(0.04), tenth(-286.8), tenth(-0.31)].join(" "),
            "8,408.3 0.0 -286.8 -0.3"
        );
    }
}
