//! CSV, read back by a separate reader.

use report::write_csv;

use crate::{golden::assert_golden, samples};

fn csv(run: &measure::Run) -> String {
    let mut out = Vec::new();
    write_csv(run, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Fields of a line according to RFC 4180.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().unwrap();
        match (character, quoted) {
            ('"', true) if characters.peek() == Some(&'"') => field.push(characters.next().unwrap()),
            ('"', _) => quoted = !quoted,
            (',', false) => fields.push(String::new()),
            (other, _) => field.push(other),
        }
    }
    assert!(!quoted, "an open quote: {line}");
    fields
}

#[test]
fn one_row_per_trial_and_as_many_fields_as_names() {
    for (name, run) in samples::all() {
        let csv = csv(&run);
        let names = fields(csv.lines().next().unwrap());
        let rows: Vec<_> = csv.lines().skip(1).map(fields).collect();
        let wanted = if run.end.trials.is_empty() { run.end.points.len() } else { run.end.trials.len() };
        assert_eq!(rows.len(), wanted, "{name}");
        assert!(rows.iter().all(|row| row.len() == names.len()), "{name}");
    }
}

#[test]
fn figures_are_those_of_the_record() {
    let run = samples::ladder();
    let csv = csv(&run);
    let names = fields(csv.lines().next().unwrap());
    let at = |name: &str| names.iter().position(|known| known == name).unwrap();
    for (row, trial) in csv.lines().skip(1).map(fields).zip(&run.end.trials) {
        assert_eq!(row[at("delivered")], trial.delivered.to_string());
        assert_eq!(row[at("delivered_pps")].parse::<f64>().unwrap(), trial.delivered_pps);
        assert_eq!(row[at("asked_pps")], "");
        let lost: u64 = names
            .iter()
            .zip(&row)
            .filter(|(n, _)| n.starts_with("lost_") && n.ends_with("_packets"))
            .map(|(_, v)| v.parse::<u64>().unwrap())
            .sum();
        assert_eq!(lost as i64 + trial.ledger.unexplained, (trial.sent - trial.delivered) as i64);
    }
}

#[test]
fn points_and_trials_equal_their_goldens() {
    assert_golden("tests/golden/paced.csv", &csv(&samples::paced()));
    assert_golden("tests/golden/counted.csv", &csv(&samples::counted()));
    assert_golden("tests/golden/model.csv", &csv(&samples::model()));
}

#[test]
fn a_hostile_name_is_one_field_and_no_formula() {
    let csv = csv(&samples::hostile());
    for row in csv.lines().skip(1).map(fields) {
        assert!(row.iter().all(|field| !field.starts_with('=')));
        assert!(row.iter().any(|field| field.contains("onerror")));
    }
}
