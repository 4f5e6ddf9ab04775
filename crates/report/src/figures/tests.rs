use std::collections::{BTreeMap, BTreeSet};

use measure::Cost;
use serde_json::{Map, Value, json};

use super::*;

/// Numbers of a trial that are not figures: how their paths begin, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cpus[]", "one row per CPU: the ladder has their mean, pages have each"),
    ("queues.", "one row per queue: pages and text have a table of queues"),
    ("ledger.lines[]", "one row per place: CSV has one column per place, the others a ledger"),
    ("ledger.sent", "the same number is `sent`"),
    ("ledger.delivered", "the same number is `delivered`"),
    ("statistics.", "by reader, sender and flow: the reception's own views"),
    ("round_trips.sequence.", "what the returning numbers showed: JSON has it"),
    ("round_trips.round_trip.samples", "each packet that came back is a sample"),
    ("round_trips.round_trip.std_dev_ns", "a trial's summary has it"),
    ("round_trips.round_trip.variance_ns2", "JSON has it"),
    ("round_trips.round_trip.p9999_ns", "JSON has it"),
    ("round_trips.jitter.", "a trial's summary has it"),
    ("round_trips.send_times", "a property of the measurement: JSON has it"),
    ("clocks.", "a property of the measurement: JSON has it, and the receiver's text beside its latency"),
    ("round_trips.clock_", "a property of the measurement: JSON has it"),
    ("profile.", "by stage, function and stack: the profile's own views"),
    ("instructions.stages[]", "one row per stage: counted instructions have tables of their own"),
    ("instructions.functions[]", "one row per function: likewise"),
    ("instructions.stacks[]", "one row per stack: likewise"),
    ("ring.refills_timed", "how large a sample is: JSON has it"),
    ("ring.trace.", "poll by poll: pages draw it, --trace writes it"),
    ("tx.cpus[]", "a list: one column has all"),
    ("rx.cpus[]", "a list: one column has all"),
];

/// A trial with a value for every member of its schema, all numbers different, and the numbers by path.
struct Everything {
    definitions: Value,
    numbers: BTreeMap<String, u64>,
}

impl Everything {
    fn trial() -> (Trial, BTreeMap<String, u64>) {
        let schema = schemars::schema_for!(Trial).to_value();
        let mut everything = Self { definitions: schema["$defs"].clone(), numbers: BTreeMap::new() };
        let record = everything.value(&schema, "");
        (serde_json::from_value(record).expect("a trial"), everything.numbers)
    }

    fn value(&mut self, schema: &Value, path: &str) -> Value {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap();
            let definition = self.definitions[name].clone();
            return self.value(&definition, path);
        }
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
            return first.clone();
        }
        let choices = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
        if let Some(choices) = choices {
            let known = choices.iter().find(|choice| choice["type"] != "null").unwrap().clone();
            return self.value(&known, path);
        }
        let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
        match kinds.iter().find_map(|kind| kind.as_str().filter(|kind| *kind != "null")) {
            Some("object") => {
                let members = schema["properties"].as_object().cloned().unwrap_or_default();
                let at = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
                let members = members.iter().map(|(name, of)| (name.clone(), self.value(of, &at(name))));
                Value::Object(members.collect::<Map<_, _>>())
            }
            // A tuple.
            Some("array") if schema["prefixItems"].is_array() => {
                let items = schema["prefixItems"].as_array().into_iter().flatten().enumerate();
                items.map(|(number, item)| self.value(item, &format!("{path}[{number}]"))).collect()
            }
            Some("array") => json!([self.value(&schema["items"], &format!("{path}[]"))]),
            Some("boolean") => json!(true),
            Some("string") => json!(""),
            Some("integer" | "number") => {
                let number = 1001 + self.numbers.len() as u64;
                self.numbers.insert(path.into(), number);
                json!(number)
            }
            other => panic!("{path}: a schema of {other:?}: {schema}"),
        }
    }
}

fn is_elsewhere(path: &str) -> bool {
    ELSEWHERE.iter().any(|(begin, _)| path.starts_with(begin))
}

#[test]
fn every_number_of_a_trial_is_a_figure_or_has_a_reason_not_to_be() {
    let (trial, numbers) = Everything::trial();
    assert!(numbers.len() > 100, "{numbers:?}");
    let figures = || FIGURES.iter().filter(|figure| !figure.name.is_empty());
    for (path, number) in &numbers {
        let rows: Vec<&Figure> = figures().filter(|figure| figure.name == path).collect();
        match (rows.as_slice(), is_elsewhere(path)) {
            ([], true) => {}
            ([row], false) => assert_eq!(row.number(&trial), Some(*number as f64), "{path}"),
            ([], false) => panic!("{path} has no row in FIGURES, and no reason in ELSEWHERE"),
            _ => panic!("{path}: one row, or a reason"),
        }
    }
    for (begin, why) in ELSEWHERE {
        assert!(numbers.keys().any(|path| path.starts_with(begin)), "no number begins with {begin} ({why})");
    }
}

#[test]
fn a_figure_has_its_name_in_the_record() {
    let (trial, _) = Everything::trial();
    let record = serde_json::to_value(&trial).unwrap();
    for figure in FIGURES.iter().filter(|figure| !figure.name.is_empty()) {
        let found = figure.name.split('.').try_fold(&record, |value, member| value.get(member));
        let found = found.unwrap_or_else(|| panic!("the record has no {}", figure.name));
        assert!((figure.of)(&trial).is_some(), "{} has no value where the record has one", figure.name);
        let is_list = found.is_array();
        assert!(is_list || !found.is_null(), "{}", figure.name);
    }
}

#[test]
fn no_two_figures_share_a_column_or_a_name() {
    let all = |of: fn(&Figure) -> Option<&'static str>| {
        let names: Vec<&str> = FIGURES.iter().filter_map(of).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    };
    all(|figure| figure.column);
    all(|figure| Some(figure.name).filter(|name| !name.is_empty()));
}

#[test]
fn hardware_counters_are_in_every_output() {
    let (mut trial, _) = Everything::trial();
    let [cycles, instructions, misses] = ["cycles", "instructions", "cache_misses"].map(|what| {
        FIGURES.iter().filter(|f| f.name.ends_with(&format!("_cost.{what}_per_packet"))).collect::<Vec<_>>()
    });
    assert_eq!([cycles.len(), instructions.len(), misses.len()], [2, 2, 2]);
    for row in cycles.iter().chain(&instructions).chain(&misses) {
        assert!(row.column.is_some() && row.table.is_some() && row.line.is_some(), "{}", row.name);
    }
    let cost = Cost {
        ns_per_packet: Some(850.0),
        cycles_per_packet: Some(2040.4),
        instructions_per_packet: Some(3100.25),
        cache_misses_per_packet: Some(1.26),
        ..Cost::default()
    };
    (trial.tx_cost, trial.rx_cost) = (cost.clone(), cost);
    assert_eq!(
        in_words(SendingCost, &trial).join(", "),
        "850 ns per packet, 2,040 cycles per packet, 3100.2 instructions per packet, 1.3 cache misses per packet"
    );
}
