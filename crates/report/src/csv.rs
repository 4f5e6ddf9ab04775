//! A run as CSV (RFC 4180, UTF-8, a header line): tidy, one row a trial, columns named as in the JSON.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use measure::{Cost, Endpoint, Lateness, Point, Run, Trial};
use serde_json::Value;

use crate::{escape, tables};

/// Writes one row a trial, or one row a point for a run of points alone.
///
/// The last columns are the ledger's places as `lost: <place>`; a place without losses in a trial is 0. What
/// was not measured is an empty field.
pub fn write_csv(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.end.trials.is_empty() && !run.end.points.is_empty() {
        return write_points_csv(&run.end.points, out);
    }
    let places: BTreeSet<&str> =
        run.end.trials.iter().flat_map(|trial| &trial.ledger.lines).map(|line| line.place.as_str()).collect();
    let lost_at = places.iter().map(|place| escape::csv(&format!("lost: {place}")));
    let names = ["started_at", "command", "kernel", "cpu_model"]
        .into_iter()
        .chain(COLUMNS.iter().map(|(name, _)| *name));
    write_row(names.map(String::from).chain(lost_at), out)?;

    let (start, machine) = (&run.start, &run.start.machine);
    let of_run = [&start.started_at, &start.command, &machine.kernel, &machine.cpu_model]
        .map(|text| escape::csv(text));
    for trial in &run.end.trials {
        let of_trial = COLUMNS.iter().map(|(_, field)| field(trial));
        let lost = places.iter().map(|place| lost_at_place(trial, place).to_string());
        write_row(of_run.iter().cloned().chain(of_trial).chain(lost), out)?;
    }
    Ok(())
}

/// Writes one row a point, its parameters and results as columns in alphabetical order.
pub fn write_points_csv(points: &[Point], out: &mut impl Write) -> io::Result<()> {
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.values.keys()).collect();
    write_row(names.iter().map(|name| escape::csv(name)), out)?;
    for point in points {
        let fields = names.iter().map(|name| match point.values.get(*name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => escape::csv(&tables::plain(other)),
        });
        write_row(fields, out)?;
    }
    Ok(())
}

type Field = fn(&Trial) -> String;

const COLUMNS: &[(&str, Field)] = &[
    ("trial", |t| t.trial.to_string()),
    ("tx_engine", |t| escape::csv(&t.tx.engine)),
    ("tx_label", |t| escape::csv(&t.tx.label)),
    ("tx_threads", |t| t.tx.threads.to_string()),
    ("tx_cpus", |t| cpus(&t.tx)),
    ("rx_engine", |t| escape::csv(&t.rx.engine)),
    ("rx_label", |t| escape::csv(&t.rx.label)),
    ("rx_threads", |t| t.rx.threads.to_string()),
    ("rx_cpus", |t| cpus(&t.rx)),
    ("frame_size_bytes", |t| t.frame_size_bytes.to_string()),
    ("payload_bytes", |t| t.payload_bytes.to_string()),
    ("asked_pps", |t| known(t.asked_pps)),
    ("duration_s", |t| t.duration_s.to_string()),
    ("sent", |t| t.sent.to_string()),
    ("sent_pps", |t| t.sent_pps.to_string()),
    ("delivered", |t| t.delivered.to_string()),
    ("delivered_pps", |t| t.delivered_pps.to_string()),
    ("loss_ratio", |t| t.loss_ratio.to_string()),
    ("unexplained", |t| t.ledger.unexplained.to_string()),
    ("scheduled", |t| t.receipt.scheduled.to_string()),
    ("handed", |t| t.receipt.handed.to_string()),
    ("handed_pps", |t| t.receipt.handed_pps.to_string()),
    ("on_wire", |t| known(t.receipt.on_wire)),
    ("shortfall", |t| t.receipt.shortfall.to_string()),
    ("kept_up", |t| t.receipt.kept_up.to_string()),
    ("lateness_p50_ns", |t| late(t, |l| l.p50_ns)),
    ("lateness_p90_ns", |t| late(t, |l| l.p90_ns)),
    ("lateness_p99_ns", |t| late(t, |l| l.p99_ns)),
    ("lateness_p999_ns", |t| late(t, |l| l.p999_ns)),
    ("lateness_max_ns", |t| late(t, |l| l.max_ns)),
    ("largest_gap_ns", |t| t.receipt.largest_gap_ns.to_string()),
    ("tx_user_s", |t| t.tx_cost.user_s.to_string()),
    ("tx_system_s", |t| t.tx_cost.system_s.to_string()),
    ("tx_ns_per_packet", |t| ns(&t.tx_cost)),
    ("tx_cycles_per_packet", |t| known(t.tx_cost.cycles_per_packet)),
    ("rx_user_s", |t| t.rx_cost.user_s.to_string()),
    ("rx_system_s", |t| t.rx_cost.system_s.to_string()),
    ("rx_ns_per_packet", |t| ns(&t.rx_cost)),
    ("rx_cycles_per_packet", |t| known(t.rx_cost.cycles_per_packet)),
    ("interrupted", |t| t.interrupted.to_string()),
];

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn ns(cost: &Cost) -> String {
    known(cost.ns_per_packet)
}

fn late(trial: &Trial, percentile: fn(&Lateness) -> u64) -> String {
    known(trial.receipt.lateness.as_ref().map(percentile))
}

fn cpus(end: &Endpoint) -> String {
    end.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn lost_at_place(trial: &Trial, place: &str) -> u64 {
    trial
        .ledger
        .lines
        .iter()
        .filter(|line| line.place == place)
        .fold(0, |sum, line| sum.saturating_add(line.packets))
}

fn write_row(fields: impl Iterator<Item = String>, out: &mut impl Write) -> io::Result<()> {
    // RFC 4180 ends lines with CR LF; every reader takes LF, and so do line tools
    writeln!(out, "{}", fields.collect::<Vec<_>>().join(","))
}
