//! The start of a record: the plan, the time, the machine.

use std::collections::BTreeMap;

use measure::{Machine, Origin, Start};
use serde::Serialize;
use serde_json::Value;

use crate::quiet;

/// The start of a command's record, with every field of its plan by name.
pub(crate) fn opening(command: &str, origin: Origin, plan: &impl Serialize) -> Start {
    let asked = match serde_json::to_value(plan) {
        Ok(Value::Object(asked)) => asked.into_iter().collect(),
        _ => BTreeMap::new(),
    };
    Start {
        command: command.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        origin,
        machine: Machine { quiet: quiet::latest(), ..bench::read_machine() },
        asked,
    }
}
