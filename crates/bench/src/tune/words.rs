//! Values by number, and the same as names and texts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::knob::Knob;

/// All values by name.
pub(super) fn all(knobs: &[Knob], values: &[usize]) -> BTreeMap<String, String> {
    let named = knobs.iter().zip(values);
    named.map(|(knob, value)| (knob.name.clone(), knob.values[*value].shown.clone())).collect()
}

/// The values that differ from the original ones.
pub(super) fn changed(knobs: &[Knob], values: &[usize]) -> BTreeMap<String, String> {
    let named = knobs.iter().zip(values).filter(|(_, value)| **value > 0);
    named.map(|(knob, value)| (knob.name.clone(), knob.values[*value].shown.clone())).collect()
}

/// The same in one line.
pub(super) fn in_words(knobs: &[Knob], values: &[usize]) -> String {
    let words: Vec<String> =
        changed(knobs, values).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    if words.is_empty() { "the original settings".into() } else { words.join(" ") }
}

/// A trial's parameters.
pub(super) fn parameters(knobs: &[Knob], values: &[usize], phase: &str) -> BTreeMap<String, Value> {
    let changed = changed(knobs, values).into_iter().map(|(name, value)| (name, json!(value)));
    let phase = (phase != PROVE).then(|| (PHASE.to_owned(), json!(phase)));
    changed.chain(phase).collect()
}

/// The parameter with the purpose of a trial; trials of a proof have none, because they are compared with each other.
pub(super) const PHASE: &str = "phase";
/// The phase of the proof.
pub(super) const PROVE: &str = "prove";

/// Values by number from a trial's parameters; `None` when these knobs do not have them.
pub(super) fn values(knobs: &[Knob], parameters: &BTreeMap<String, Value>) -> Option<Vec<usize>> {
    let known = |name: &String| name == PHASE || knobs.iter().any(|knob| knob.name == *name);
    if !parameters.keys().all(known) {
        return None;
    }
    let place = |knob: &Knob| match parameters.get(&knob.name) {
        None => Some(0),
        Some(value) => knob.values.iter().position(|known| Some(known.shown.as_str()) == value.as_str()),
    };
    knobs.iter().map(place).collect()
}
