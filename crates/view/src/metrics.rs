//! A snapshot as metrics: the OpenMetrics text format, or Prometheus' older one for clients that do not accept it.

use std::fmt::Write;

use crate::snapshot::{Family, FamilyKind, Snapshot};

/// The form of a page of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Form {
    /// The form for a request with this `Accept` header.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    /// Its media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of a snapshot. Every series has the run, and the interface unless it names one itself.
pub fn metrics(snapshot: &Snapshot, form: Form) -> String {
    let mut text = String::new();
    let interfaces = snapshot.interfaces.join(",");
    let common = [("run", snapshot.run.as_str()), ("interface", interfaces.as_str())];
    for family in of_every_command(snapshot).iter().chain(&snapshot.families) {
        write_family(family, &common, form, &mut text).expect("a string takes everything");
    }
    if form == Form::OpenMetrics {
        text += "# EOF\n";
    }
    text
}

fn of_every_command(snapshot: &Snapshot) -> Vec<Family> {
    let mut rates = Family::gauge("rate_packets_per_second", "Packets per second by where they are counted.");
    for rate in snapshot.traffic.iter().flat_map(|traffic| &traffic.rates) {
        if let Some(pps) = rate.pps {
            rates = rates.with(&[("at", &rate.name)], pps);
        }
    }
    let own = &snapshot.own;
    vec![
        Family::gauge("run_info", "What is running; the value is always 1.")
            .with(&[("command", &snapshot.command), ("phase", snapshot.phase.word())], 1.0),
        Family::gauge("run_elapsed_seconds", "Time since the start.").with(&[], snapshot.elapsed_s),
        Family::gauge("run_done_ratio", "Share of the work that is done; 0 where it has no end.")
            .with(&[], snapshot.done_ratio.unwrap_or(0.0)),
        rates,
        Family::gauge("view_cpu_ratio", "CPU time of the live views, as a share of one CPU.")
            .with(&[], own.cpu_ratio),
        Family::counter("view_missed_snapshots", "Snapshots that a terminal or browser was too slow for.")
            .with(&[], own.missed as f64),
    ]
}

fn write_family(family: &Family, common: &[(&str, &str)], form: Form, out: &mut String) -> std::fmt::Result {
    let name = format!("linerate_{}", family.name);
    let is_counter = family.kind == FamilyKind::Counter;
    let series = if is_counter { format!("{name}_total") } else { name.clone() };
    let described = if form == Form::Text { &series } else { &name };
    let kind = if is_counter { "counter" } else { "gauge" };
    writeln!(out, "# HELP {described} {}", family.help.replace('\\', "\\\\").replace('\n', "\\n"))?;
    writeln!(out, "# TYPE {described} {kind}")?;
    for (labels, value) in &family.samples {
        let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let others = common.iter().copied().filter(|(name, _)| labels.iter().all(|(own, _)| own != name));
        let all: Vec<String> =
            others.chain(own).map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        writeln!(out, "{series}{{{}}} {value}", all.join(","))?;
    }
    Ok(())
}

/// A label's value, in quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
