//! Comparisons and histories as text, JSON and Markdown.

use std::io::{self, Write};

use measure::{Conclusion, Effect, EffectScale, Summary};
use serde::Serialize;

use super::{
    comparison::{Comparison, Gate, Metric, MetricComparison},
    history::{History, HistorySeries},
};
use crate::{
    escape, markdown,
    number::{self, RateUnit},
    style::{Style, Tone},
    table::{Cell, Column, Table},
    text::{paragraph, write_table},
};

/// Writes conditions that differ, then effects and verdicts, then the conclusion.
pub fn write_comparison_text(comparison: &Comparison, style: Style, out: &mut impl Write) -> io::Result<()> {
    paragraph(&title(comparison), "", style, out)?;
    paragraph(&conditions_sentence(comparison), "", style, out)?;
    for table in [conditions(comparison), effects(comparison)] {
        if table.rows() > 0 {
            writeln!(out)?;
            write_table(&table, style, out)?;
        }
    }
    if !comparison.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &comparison.notes {
        paragraph(note, "! ", style, out)?;
    }
    writeln!(out)?;
    paragraph(conclusion(comparison.gate), "", style, out)
}

/// Writes the same as Markdown.
pub fn write_comparison_markdown(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# {}\n", escape::markdown(&title(comparison)))?;
    writeln!(out, "**{}**\n", escape::markdown(conclusion(comparison.gate)))?;
    writeln!(out, "{}", escape::markdown(&conditions_sentence(comparison)))?;
    markdown::write_table(&conditions(comparison), out)?;
    markdown::write_table(&effects(comparison), out)?;
    if !comparison.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &comparison.notes {
        writeln!(out, "- {}", escape::markdown(note))?;
    }
    Ok(())
}

/// Writes the comparison as its plain data.
pub fn write_comparison_json(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    write_json(comparison, out)
}

/// Writes the changes of level, then the runs of each pair.
pub fn write_history_text(history: &History, style: Style, out: &mut impl Write) -> io::Result<()> {
    paragraph(&history_sentence(history), "", style, out)?;
    for table in history_tables(history).iter().filter(|table| table.rows() > 0) {
        writeln!(out)?;
        write_table(table, style, out)?;
    }
    Ok(())
}

/// Writes the same as Markdown.
pub fn write_history_markdown(history: &History, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# {}", escape::markdown(&history_sentence(history)))?;
    history_tables(history).iter().try_for_each(|table| markdown::write_table(table, out))
}

/// Writes the history as its plain data.
pub fn write_history_json(history: &History, out: &mut impl Write) -> io::Result<()> {
    write_json(history, out)
}

fn write_json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

fn title(comparison: &Comparison) -> String {
    format!("{} compared with {}", comparison.others.join(", "), comparison.baseline)
}

fn conditions_sentence(comparison: &Comparison) -> String {
    match comparison.conditions.len() {
        0 => "All recorded conditions are the same.".into(),
        1 => "One condition differs and may be the cause of an effect: repeat one run with the other run's condition.".into(),
        n => format!(
            "{n} conditions differ and may be the cause of an effect: repeat one run with the other run's conditions."
        ),
    }
}

fn conditions(comparison: &Comparison) -> Table {
    let differences = &comparison.conditions;
    let mut table = Table::titled("Different conditions");
    table.push(Column::words("condition", differences.iter().map(|d| Cell::words(&d.condition))));
    let runs = std::iter::once(&comparison.baseline).chain(&comparison.others);
    for (at, run) in runs.enumerate() {
        let value = |values: &[Option<String>]| Cell::words(values[at].clone().unwrap_or_else(|| "-".into()));
        table.push(Column::words(run, differences.iter().map(|d| value(&d.values))));
    }
    table
}

fn effects(comparison: &Comparison) -> Table {
    let metrics = &comparison.metrics;
    let mut table = Table::titled("What changed");
    if comparison.others.len() > 1 {
        table.push(Column::words("run", metrics.iter().map(|m| Cell::words(&m.run))));
    }
    table.push(Column::words("pair", metrics.iter().map(|m| Cell::words(&m.pair))));
    table.push(Column::words("metric", metrics.iter().map(|m| Cell::words(m.metric.name()))));
    let side = |of: fn(&MetricComparison) -> f64| {
        metrics.iter().map(move |m| Cell::figure(of(m), |value| m.metric.shown(value)))
    };
    table.push(Column::figures("baseline", "mean", side(|m| m.baseline_centre)));
    table.push(Column::figures("other", "mean", side(|m| m.other_centre)));
    let trials = metrics.iter().map(|m| Cell::words(format!("{}+{}", m.baseline.trials, m.other.trials)));
    table.push(Column::figures("trials", "", trials).gives_way(1));
    let effect =
        |m: &MetricComparison| Cell::figure(m.effect.map(|effect| effect.estimate), |value| shown(m, value));
    table.push(Column::figures("effect", "", metrics.iter().map(effect)));
    table.push(Column::words("interval", metrics.iter().map(|m| Cell::words(interval(m)))));
    table.push(Column::words("verdict", metrics.iter().map(|m| verdict(m.verdict))));
    let options = &comparison.options;
    table.legend = format!(
        "Means of rates and times are geometric. The intervals of a metric contain the true effects of all its pairs {} % of the \
        time. Effects below {} % are ignored \
        (loss: half a percentage point, lateness: {} %).",
        number::tick(options.confidence * 100.0),
        number::tick(options.matters_ratio * 100.0),
        number::tick(options.matters_ratio * 500.0),
    );
    table
}

impl Metric {
    /// The metric in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeliveredPps => "delivered",
            Self::SentPps => "sent",
            Self::LossRatio => "loss",
            Self::TxNsPerPacket => "sending cost",
            Self::RxNsPerPacket => "receiving cost",
            Self::LatenessP99Ns => "lateness p99",
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::DeliveredPps | Self::SentPps => number::rate(value),
            Self::LossRatio => format!("{} %", number::percent(value)),
            Self::TxNsPerPacket | Self::RxNsPerPacket => format!("{}/pkt", number::nanos(value)),
            Self::LatenessP99Ns => number::nanos(value),
        }
    }
}

/// Larger relative changes are cut off: few trials that differ give intervals of many orders of magnitude.
const LARGEST_CHANGE: f64 = 10.0;

/// A ratio as per cent; a difference of shares in percentage points, of another metric in its unit.
fn shown(metric: &MetricComparison, value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    match metric.effect.map(|effect| effect.scale) {
        Some(EffectScale::Difference) if metric.metric == Metric::LossRatio => {
            format!("{:+.2} pp", (value * 100.0).clamp(-100.0, 100.0))
        }
        Some(EffectScale::Difference) => format!("{sign}{}", number::plain(value)),
        _ if value > LARGEST_CHANGE => format!("> {}", number::change(LARGEST_CHANGE)),
        _ => number::change(value),
    }
}

fn interval(metric: &MetricComparison) -> String {
    let between = |effect: Effect| format!("{} to {}", shown(metric, effect.low), shown(metric, effect.high));
    metric.effect.map_or_else(|| "-".into(), between)
}

fn verdict(verdict: Conclusion) -> Cell {
    let (text, tone) = match verdict {
        Conclusion::Better => ("better".into(), Tone::Good),
        Conclusion::Worse => ("WORSE".into(), Tone::Bad),
        Conclusion::NoDifference => ("no difference shown".into(), Tone::Plain),
        Conclusion::TooNoisy => ("too noisy".into(), Tone::Plain),
        Conclusion::NeedsTrials { more: 1 } => ("needs 1 more trial".into(), Tone::Plain),
        Conclusion::NeedsTrials { more } => (format!("needs {more} more trials"), Tone::Plain),
    };
    Cell { text, value: None, tone }
}

fn conclusion(gate: Gate) -> &'static str {
    match gate {
        Gate::Passed => "No pair delivers less than before.",
        Gate::Regressed => "At least one pair delivers less than before.",
        Gate::Undecided => "No pair is proven to deliver less, and at least one is undecided.",
        Gate::NothingCompared => {
            "Nothing could be compared: no pair ran with the same settings in both runs."
        }
    }
}

fn history_sentence(history: &History) -> String {
    let found = match history.series.iter().map(|series| series.changes.len()).sum() {
        0 => "No change of level was found".to_string(),
        1 => "One change of level was found".into(),
        n => format!("{} changes of level were found", number::count(n as u64)),
    };
    let alarms = number::tick((1.0 - history.confidence) * 100.0);
    let newest = match history.series.iter().filter(|s| s.has_regressed(history.matters_ratio)).count() {
        0 => String::new(),
        1 => " One pair's newest level is worse than the one before.".into(),
        n => format!(" The newest level of {} pairs is worse than the one before.", number::count(n as u64)),
    };
    format!("{found}; series without a change show one {alarms} % of the time.{newest}")
}

fn history_tables(history: &History) -> Vec<Table> {
    let changes: Vec<_> = history
        .series
        .iter()
        .flat_map(|series| series.changes.iter().map(move |change| (series, change)))
        .collect();
    let mut table = Table::titled("Changes of level");
    table.push(Column::words("pair", changes.iter().map(|(series, _)| Cell::words(&series.pair))));
    table.push(Column::words("since", changes.iter().map(|(s, c)| Cell::words(&s.points[c.at].started_at))));
    table.push(Column::words("run", changes.iter().map(|(s, c)| Cell::words(&s.points[c.at].run))));
    table.push(Column::figures(
        "before",
        "",
        changes.iter().map(|(_, c)| Cell::figure(c.before, number::rate)),
    ));
    table.push(Column::figures(
        "after",
        "",
        changes.iter().map(|(_, c)| Cell::figure(c.after, number::rate)),
    ));
    let ratio = |before: f64, after: f64| (before > 0.0).then(|| after / before - 1.0);
    let effect = changes
        .iter()
        .map(|(_, c)| Cell::figure(ratio(c.before, c.after), number::change).bad_if(c.after < c.before));
    table.push(Column::figures("effect", "", effect));
    table.push(Column::figures("p", "", changes.iter().map(|(_, c)| Cell::figure(c.p, number::tick))));
    let runs = history.series.iter().map(runs);
    std::iter::once(table).chain(runs).collect()
}

fn runs(series: &HistorySeries) -> Table {
    let unit = RateUnit::of(series.points.iter().map(|point| point.summary.median));
    let figure = |of: fn(&Summary) -> f64| {
        series.points.iter().map(move |point| Cell::figure(of(&point.summary), |value| unit.figure(value)))
    };
    let mut table = Table::titled(format!("{}, {}", series.pair, series.metric.name()));
    table.push(Column::words("started", series.points.iter().map(|point| Cell::words(&point.started_at))));
    table.push(Column::words("run", series.points.iter().map(|point| Cell::words(&point.run))));
    table.push(Column::figures("median", unit.name(), figure(|summary| summary.median)));
    table.push(Column::figures("least", unit.name(), figure(|summary| summary.min)).gives_way(1));
    table.push(Column::figures("most", unit.name(), figure(|summary| summary.max)).gives_way(1));
    let marks = (0..series.points.len()).map(|at| {
        let changed = series.changes.iter().any(|change| change.at == at);
        Cell::words(if changed { "changed" } else { "" })
    });
    table.push(Column::words("level", marks));
    table
}
