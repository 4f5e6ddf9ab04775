//! A run as CSV (RFC 4180, UTF-8, a header line): tidy, one row per trial, columns named as in the JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use measure::{Point, Run, Trial};
use serde_json::Value;

use crate::{
    escape,
    figures::{FIGURES, Quantity},
    points,
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
        let asked = parameters.iter().map(|name| trial.parameters.get(*name).map_or_else(String::new, one));
        let lost = places.iter().map(|place| lost_at_place(trial, place).to_string());
        write_row(asked.chain(of_run.iter().cloned()).chain(of_trial).chain(lost), out)?;
    }
    Ok(())
}

/// Writes one row per point: parameters, then results; what a value contains has columns of its own, `lost_packets_by_place_ring`.
pub fn write_points_csv(points: &[Point], out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<BTreeMap<(usize, String), &Value>> = {
        let axes = points::axes(points);
        let parameters: Vec<&String> = axes.series.iter().chain(&axes.x).collect();
        let rank =
            |name: &String| parameters.iter().position(|known| *known == name).unwrap_or(parameters.len());
        points
            .iter()
            .map(|point| {
                let mut fields = BTreeMap::new();
                for (name, value) in &point.values {
                    flatten(rank(name), in_one_word(name), value, &mut fields);
                }
                fields
            })
            .collect()
    };
    let names: BTreeSet<&(usize, String)> = rows.iter().flat_map(BTreeMap::keys).collect();
    write_row(names.iter().map(|(_, name)| escape::csv(name)), out)?;
    for row in &rows {
        write_row(names.iter().map(|name| row.get(*name).map_or_else(String::new, |value| one(value))), out)?;
    }
    Ok(())
}

/// The plain values in a value, each under its own name.
fn flatten<'v>(
    rank: usize,
    name: String,
    value: &'v Value,
    fields: &mut BTreeMap<(usize, String), &'v Value>,
) {
    match value {
        Value::Array(values) => {
            let parts = values.iter().enumerate();
            parts.for_each(|(at, value)| flatten(rank, format!("{name}_{at}"), value, fields));
        }
        Value::Object(values) => {
            let parts = values.iter();
            parts.for_each(|(part, value)| {
                flatten(rank, format!("{name}_{}", in_one_word(part)), value, fields)
            });
        }
        value => drop(fields.insert((rank, name), value)),
    }
}

/// A plain value as a field; nothing for what was not measured.
fn one(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Number(number) => number.to_string(),
        other => escape::csv(&plain(other)),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn points_have_parameters_first_and_a_column_for_each_plain_value() {
        let point = |filter: &str, busy: [f64; 2], lost: Value| {
            let values = [
                ("filter", json!(filter)),
                ("busy ratio", json!(busy)),
                ("a_pps", json!(1.5)),
                ("lost", lost),
            ];
            Point { values: values.map(|(name, value)| (name.to_owned(), value)).into() }
        };
        let points =
            [point("nft, ingress", [0.5, 1.0], json!({})), point("XDP", [0.0, 1.0], json!({"RX ring": 3}))];
        let mut csv = Vec::new();
        write_points_csv(&points, &mut csv).unwrap();
        let wanted = "filter,a_pps,busy_ratio_0,busy_ratio_1,lost_rx_ring\n\
                      \"nft, ingress\",1.5,0.5,1.0,\nXDP,1.5,0.0,1.0,3\n";
        assert_eq!(String::from_utf8(csv).unwrap(), wanted);
    }
}
