//! Counted instructions per packet against a baseline: a gate without statistics, because noise is negligible.

use std::io::{self, Write};

use measure::{FunctionChange, Instructions, Trial, median};
use serde::Serialize;

use super::comparison::{Gate, NamedRun, whole_pairs};
use crate::{
    escape, instructions,
    ladder::Varying,
    markdown, number,
    style::Style,
    table::{Cell, Column, Table},
    text::{paragraph, write_table},
};

/// The name and version of the comparison's JSON.
pub const INSTRUCTION_COMPARISON_SCHEMA: &str = "linerate.instruction-comparison/1";

/// Functions whose instructions per packet differ by less are left out.
const LEAST_CHANGE: f64 = 0.5;

/// Instructions per packet of runs against those of the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstructionComparison {
    /// Always [`INSTRUCTION_COMPARISON_SCHEMA`].
    pub schema: &'static str,
    /// The first run.
    pub baseline: String,
    /// The others.
    pub others: Vec<String>,
    /// A smaller relative change is ignored.
    pub matters_ratio: f64,
    /// Each thread of each pair that both runs have.
    pub pairs: Vec<InstructionChange>,
    /// Parts that are not compared, and why.
    pub notes: Vec<String>,
    /// Whether any costs more.
    pub gate: Gate,
    /// Functions that explain the changes, by run and pair.
    #[serde(skip)]
    functions: Vec<(String, Vec<FunctionChange>)>,
}

/// One thread's instructions per packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstructionChange {
    /// The run compared with the baseline.
    pub run: String,
    /// The pair.
    pub pair: String,
    /// `sender`, with all softirqs where they were counted apart, or `receiver`.
    pub thread: &'static str,
    /// Instructions per packet of the baseline, median over its trials.
    pub before: f64,
    /// Of the other run.
    pub after: f64,
    /// `after / before - 1`.
    pub change_ratio: f64,
    /// Whether it grew by a relevant amount.
    pub is_worse: bool,
}

/// The source of a thread's cost.
type OfThread = fn(&Trial) -> Option<f64>;

const THREADS: [(&str, OfThread); 2] = [
    ("sender", |trial| by_parts(trial).or(trial.tx_cost.instructions_per_packet)),
    ("receiver", |trial| trial.rx_cost.instructions_per_packet),
];

/// A sender with all softirqs: the thread that softirqs interrupt varies from run to run, their instructions per packet do
/// not.
fn by_parts(trial: &Trial) -> Option<f64> {
    let counts = trial.instructions.as_ref()?;
    Some(counts.sender_user_per_packet? + counts.sender_kernel_per_packet? + counts.softirq_per_packet?)
}

/// Compares every other run with the first; trials that ended early are left out.
pub fn compare_instructions(
    baseline: NamedRun,
    others: &[NamedRun],
    matters_ratio: f64,
) -> InstructionComparison {
    let (mut pairs, mut notes, mut functions) = (Vec::new(), Vec::new(), Vec::new());
    let ours = whole_pairs(baseline.run);
    for other in others {
        let theirs = whole_pairs(other.run);
        let varying = Varying::among(ours.iter().chain(&theirs).map(|(pair, _)| pair));
        for (pair, before) in &ours {
            let name = varying.name(pair);
            let Some((_, after)) = theirs.iter().find(|(their, _)| their.matches(pair)) else {
                notes.push(format!("{name} is in {} only.", baseline.name));
                continue;
            };
            for (thread, of) in THREADS {
                let of = |trials: &[&Trial]| {
                    median(&trials.iter().filter_map(|trial| of(trial)).collect::<Vec<_>>())
                };
                let Some((before, after)) = of(before).zip(of(after)).filter(|(before, _)| *before > 0.0)
                else {
                    continue;
                };
                let change_ratio = after / before - 1.0;
                pairs.push(InstructionChange {
                    run: other.name.into(),
                    pair: name.clone(),
                    thread,
                    before,
                    after,
                    change_ratio,
                    // Not by the ratio: 6834 / 6800 - 1 is a little less than 0.005.
                    is_worse: after - before >= matters_ratio * before,
                });
            }
            if let Some((before, after)) = counted(before).zip(counted(after)) {
                let title = format!("{name}, from {} to {}", baseline.name, other.name);
                functions.push((title, Instructions::changes(before, after, LEAST_CHANGE)));
            }
        }
        for (pair, _) in theirs.iter().filter(|(their, _)| !ours.iter().any(|(pair, _)| pair.matches(their)))
        {
            notes.push(format!("{} is in {} only.", varying.name(pair), other.name));
        }
    }
    let gate = match pairs.as_slice() {
        [] => Gate::NothingCompared,
        pairs if pairs.iter().any(|pair| pair.is_worse) => Gate::Regressed,
        _ => Gate::Passed,
    };
    InstructionComparison {
        schema: INSTRUCTION_COMPARISON_SCHEMA,
        baseline: baseline.name.into(),
        others: others.iter().map(|other| other.name.into()).collect(),
        matters_ratio,
        pairs,
        notes,
        gate,
        functions,
    }
}

fn counted<'t>(trials: &[&'t Trial]) -> Option<&'t Instructions> {
    trials.iter().find_map(|trial| trial.instructions.as_ref())
}

/// Writes the changes of threads, then of functions, then the conclusion.
pub fn write_instruction_comparison_text(
    comparison: &InstructionComparison,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    for table in tables(comparison) {
        write_table(&table, style, out)?;
        writeln!(out)?;
    }
    for note in &comparison.notes {
        paragraph(note, "! ", style, out)?;
    }
    paragraph(conclusion(comparison.gate), "", style, out)
}

/// Writes the same as Markdown.
pub fn write_instruction_comparison_markdown(
    comparison: &InstructionComparison,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "**{}**", conclusion(comparison.gate))?;
    tables(comparison).iter().try_for_each(|table| markdown::write_table(table, out))?;
    for note in &comparison.notes {
        writeln!(out, "\n- {}", escape::markdown(note))?;
    }
    Ok(())
}

/// Writes the comparison as its plain data.
pub fn write_instruction_comparison_json(
    comparison: &InstructionComparison,
    out: &mut impl Write,
) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, comparison)?;
    writeln!(out)
}

fn tables(comparison: &InstructionComparison) -> Vec<Table> {
    let changes = &comparison.pairs;
    let mut table = Table::titled("Instructions per packet");
    if comparison.others.len() > 1 {
        table.push(Column::words("run", changes.iter().map(|change| Cell::words(&change.run))));
    }
    table.push(Column::words("pair", changes.iter().map(|change| Cell::words(&change.pair))));
    table.push(Column::words("thread", changes.iter().map(|change| Cell::words(change.thread))));
    let figure = |value: f64| Cell::figure(value, |value| format!("{value:.1}"));
    table.push(Column::figures("baseline", "ins/pkt", changes.iter().map(|change| figure(change.before))));
    table.push(Column::figures("other", "ins/pkt", changes.iter().map(|change| figure(change.after))));
    let change = |change: &InstructionChange| {
        let percent = |ratio: f64| format!("{:+.2} %", ratio * 100.0);
        Cell::figure(change.change_ratio, percent).bad_if(change.is_worse)
    };
    table.push(Column::figures("change", "", changes.iter().map(change)));
    let percent = number::tick(comparison.matters_ratio * 100.0);
    table.legend = format!("Medians of the trials. An increase below {percent} % is ignored.");
    let functions = comparison.functions.iter();
    let functions = functions.map(|(title, changes)| instructions::changes(title.clone(), changes));
    std::iter::once(table).chain(functions).filter(|table| table.rows() > 0).collect()
}

fn conclusion(gate: Gate) -> &'static str {
    match gate {
        Gate::Passed => "No thread takes more instructions per packet than before.",
        Gate::Regressed => "At least one thread takes more instructions per packet than before.",
        Gate::Undecided | Gate::NothingCompared => {
            "Nothing could be compared: no pair with counted instructions ran with the same settings in both runs."
        }
    }
}
