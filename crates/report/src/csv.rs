//! A run as CSV (RFC 4180, UTF-8, a header line): tidy, one row per trial, columns named as in the JSON.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use measure::{Point, Run, Trial};
use serde_json::Value;

use crate::{
    escape,
    figures::{FIGURES, Quantity},
    value::plain,
};

/// Writes one row per trial, or one row per point for a run with only points.
///
/// The first columns are a sweep's parameters, the last ones the ledger's places as `lost_<place>_packets`; a place without
/// losses in a trial is 0. What was not measured is an empty field.
pub fn write_csv(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.end.trials.is_empty() && !run.end.points.is_empty() {
        return write_points_csv(&run.end.points, out);
    }
    let places: BTreeSet<&str> =
        run.end.trials.iter().flat_map(|trial| &trial.ledger.lines).map(|line| line.place.as_str()).collect();
    let parameters: BTreeSet<&str> =
        run.end.trials.iter().flat_map(|trial| trial.parameters.keys()).map(String::as_str).collect();
    let lost_at = places.iter().map(|place| format!("lost_{}_packets", in_one_word(place)));
    let names =
        ["started_at", "command", "kernel", "cpu_model"].into_iter().chain(columns().map(|(name, _)| name));
    let asked = parameters.iter().map(|name| in_one_word(name));
    write_row(asked.chain(names.map(String::from)).chain(lost_at), out)?;

    let (start, machine) = (&run.start, &run.start.machine);
    let of_run = [&start.started_at, &start.command, &machine.kernel, &machine.cpu_model]
        .map(|text| escape::csv(text));
    for trial in &run.end.trials {
        let of_trial = columns().map(|(_, of)| of(trial).as_ref().map_or_else(String::new, field));
        let asked = parameters.iter().map(|name| match trial.parameters.get(*name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => escape::csv(&plain(other)),
        });
        let lost = places.iter().map(|place| lost_at_place(trial, place).to_string());
        write_row(asked.chain(of_run.iter().cloned()).chain(of_trial).chain(lost), out)?;
    }
    Ok(())
}

/// Writes one row per point, its parameters and results as columns in alphabetical order.
pub fn write_points_csv(points: &[Point], out: &mut impl Write) -> io::Result<()> {
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.values.keys()).collect();
    write_row(names.iter().map(|name| escape::csv(name)), out)?;
    for point in points {
        let fields = names.iter().map(|name| match point.values.get(*name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => escape::csv(&plain(other)),
        });
        write_row(fields, out)?;
    }
    Ok(())
}

/// The columns of a trial: their names, and what they hold.
fn columns() -> impl Iterator<Item = (&'static str, fn(&Trial) -> Option<Quantity>)> {
    FIGURES.iter().filter_map(|figure| Some((figure.column?, figure.of)))
}

/// A name as a column's: small letters, digits and `_`.
fn in_one_word(name: &str) -> String {
    let words =
        name.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}

fn field(quantity: &Quantity) -> String {
    match quantity {
        Quantity::Words(words) => escape::csv(words),
        exact => exact.exact(),
    }
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
    // RFC 4180 ends lines with CR LF; every reader accepts LF, and so do line tools
    writeln!(out, "{}", fields.collect::<Vec<_>>().join(","))
}
