//! Records of each released version, as that version wrote them: they can be read and reported for ever. A folder for
//! each version; its files never change.

use std::{collections::BTreeSet, fs, path::PathBuf};

use report::{Style, read_json, write_csv, write_html, write_json, write_markdown, write_text};
use serde_json::Value;

use crate::golden::assert_golden;

/// Path below the crate, and text.
fn records() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let entries = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries(root.join("tests/records")).flat_map(entries);
    let is_record = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "json");
    let mut records: Vec<_> = files
        .filter(is_record)
        .map(|file| {
            (file.strip_prefix(&root).unwrap().display().to_string(), fs::read_to_string(&file).unwrap())
        })
        .collect();
    records.sort();
    records
}

#[test]
fn records_of_released_versions_are_read_whole() {
    let records = records();
    let current = concat!("tests/records/", env!("CARGO_PKG_VERSION"), "/");
    assert!(records.iter().any(|(path, _)| path.starts_with(current)), "records of this version");
    for (path, text) in records {
        let old: Value = serde_json::from_str(&text).unwrap();
        let run = read_json(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let trials = old["end"]["trials"].as_array().unwrap();
        assert_eq!(run.end.trials.len(), trials.len(), "{path}");
        for (trial, old) in run.end.trials.iter().zip(trials) {
            let trial = serde_json::to_value(trial).unwrap();
            for field in ["sent", "delivered"] {
                assert_eq!(trial[field], old[field], "{path}: {field}");
            }
            let total = |trial: &Value| -> u64 {
                let lines = trial["ledger"]["lines"].as_array().into_iter().flatten();
                lines.map(|line| line["packets"].as_u64().unwrap()).sum()
            };
            assert_eq!(total(&trial), total(old), "{path}");
        }
        assert_eq!(run.intervals.len(), old["intervals"].as_array().unwrap().len(), "{path}");
        assert_eq!(run.end.points.len(), old["end"]["points"].as_array().map_or(0, Vec::len), "{path}");

        let mut out = Vec::new();
        write_text(&run, Style::default(), &mut out).unwrap();
        write_markdown(&run, &mut out).unwrap();
        write_csv(&run, &mut out).unwrap();
        write_html(&run, &mut out).unwrap();
        let mut json = Vec::new();
        write_json(&run, &mut json).unwrap();
        let again = read_json(std::str::from_utf8(&json).unwrap()).unwrap();
        assert_eq!(
            serde_json::to_value(&again.end).unwrap(),
            serde_json::to_value(&run.end).unwrap(),
            "{path}"
        );
    }
}

/// Earlier formats of the same schema lack fields that came later: what may be absent stays optional.
#[test]
fn fields_without_which_a_record_is_refused_are_known() {
    for (path, text) in records() {
        let record: Value = serde_json::from_str(&text).unwrap();
        let mut places = Vec::new();
        fields(&record, &mut Vec::new(), &mut places);
        let mut required = BTreeSet::new();
        for place in places {
            // One element of a list stands for the others.
            let name = place.iter().map(Step::name).collect::<Vec<_>>().join(".");
            if required.contains(&name) {
                continue;
            }
            let mut shorter = record.clone();
            remove(&mut shorter, &place);
            if read_json(&shorter.to_string()).is_err() {
                required.insert(name);
            }
        }
        let required: String = required.into_iter().map(|name| name + "\n").collect();
        assert_golden(&path.replace(".json", ".required"), &required);
    }
}

#[derive(Clone)]
enum Step {
    Field(String),
    Element(usize),
}

impl Step {
    fn name(&self) -> &str {
        match self {
            Self::Field(name) => name,
            Self::Element(_) => "[]",
        }
    }
}

fn fields(value: &Value, at: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    let mut visit = |step: Step, child: &Value| {
        let is_field = matches!(step, Step::Field(_));
        at.push(step);
        if is_field {
            found.push(at.clone());
        }
        fields(child, at, found);
        at.pop();
    };
    match value {
        Value::Object(children) => {
            children.iter().for_each(|(name, child)| visit(Step::Field(name.clone()), child));
        }
        Value::Array(children) => {
            children.iter().take(2).enumerate().for_each(|(index, child)| visit(Step::Element(index), child));
        }
        _ => {}
    }
}

fn remove(record: &mut Value, place: &[Step]) {
    let (Step::Field(last), path) = place.split_last().unwrap() else { return };
    let holder = path.iter().fold(record, |value, step| match step {
        Step::Field(name) => &mut value[name.as_str()],
        Step::Element(index) => &mut value[*index],
    });
    holder.as_object_mut().unwrap().remove(last);
}
