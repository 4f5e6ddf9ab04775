//! Differences of machine and settings between runs, which may be the cause of an effect.

use std::collections::BTreeMap;

use measure::Origin;
use serde_json::{Value, json};

use super::comparison::{ConditionDifference, NamedRun};
use crate::value::plain;

/// All conditions that differ, by path. A simulated run differs from a measured one in its origin, and not separately in
/// each condition that a simulation lacks: the machine, and the arguments of a measurement.
pub(super) fn differences(runs: &[NamedRun]) -> Vec<ConditionDifference> {
    let simulated = runs.iter().filter(|named| named.run.start.origin == Origin::Model).count();
    let some_are_simulated = simulated > 0 && simulated < runs.len();
    let known: Vec<BTreeMap<String, String>> =
        runs.iter().map(|named| conditions(named, !some_are_simulated)).collect();
    let mut paths: Vec<&String> = known.iter().flat_map(BTreeMap::keys).collect();
    paths.sort();
    paths.dedup();
    let values = |path: &String| known.iter().map(|run| run.get(path).cloned()).collect::<Vec<_>>();
    paths
        .into_iter()
        .map(|path| ConditionDifference { condition: path.clone(), values: values(path) })
        .filter(|difference| difference.values.windows(2).any(|pair| pair[0] != pair[1]))
        .collect()
}

/// Everything about a run that is a condition and not a result.
fn conditions(named: &NamedRun, with_machine: bool) -> BTreeMap<String, String> {
    let start = &named.run.start;
    let mut engines = serde_json::Map::new();
    for trial in &named.run.end.trials {
        for (side, end) in [("tx", &trial.tx), ("rx", &trial.rx)] {
            engines.entry(format!("{side}.{}", end.label)).or_insert_with(|| json!(end));
        }
    }
    let mut all = json!({
        "version": start.version,
        "origin": start.origin,
        "engine": engines,
    });
    if with_machine {
        all["command"] = json!(start.command);
        all["machine"] = json!(start.machine);
        all["asked"] = json!(start.asked);
    }
    flat(&all)
}

/// Every plain value by its path.
pub(crate) fn flat(value: &Value) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    flatten("", value, &mut flat);
    flat
}

fn flatten(path: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    let below = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| flatten(&below(name), value, flat)),
        Value::Array(elements) if elements.iter().any(Value::is_object) => {
            elements.iter().enumerate().for_each(|(at, value)| flatten(&below(&at.to_string()), value, flat));
        }
        Value::Null => {}
        leaf => drop(flat.insert(path.to_string(), plain(leaf))),
    }
}
