//! The published JSON Schema.

use boon::{Compiler, Schemas};
use report::{RUN_SCHEMA, write_json};
use serde_json::{Value, json};

use crate::{
    golden::{assert_golden, blessing},
    samples,
};

const FILE: &str = "../../schema/linerate.run.1.schema.json";

fn generated() -> Value {
    let mut generated = schemars::schema_for!(measure::Run).to_value();
    generated["$id"] = json!("https://linerate.invalid/schema/linerate.run.1.schema.json");
    generated["title"] = json!("linerate.run/1");
    generated["properties"]["schema"]["const"] = json!(measure::SCHEMA);
    generated
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    assert_golden(FILE, &(serde_json::to_string_pretty(&generated()).unwrap() + "\n"));
}

#[test]
fn the_published_schema_comes_with_the_program() {
    assert!(blessing() || serde_json::from_str::<Value>(RUN_SCHEMA).unwrap() == generated());
}

fn errors(value: &Value) -> Option<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("run.json", generated()).unwrap();
    let schema = compiler.compile("run.json", &mut schemas).unwrap();
    schemas.validate(value, schema).err().map(|error| error.to_string())
}

#[test]
fn every_sample_is_valid() {
    for (name, run) in samples::all() {
        let mut out = Vec::new();
        write_json(&run, &mut out).unwrap();
        assert_eq!(errors(&serde_json::from_slice(&out).unwrap()), None, "{name}");
    }
}

#[test]
fn text_that_is_not_a_run_is_invalid() {
    let run = serde_json::to_value(samples::ladder()).unwrap();
    let broken = |change: fn(&mut Value)| {
        let mut run = run.clone();
        change(&mut run);
        errors(&run)
    };
    assert!(broken(|run| run["schema"] = json!("linerate.run/2")).is_some());
    assert!(broken(|run| run["end"]["trials"][0]["sent"] = json!(-1)).is_some());
    assert!(broken(|run| run["end"]["trials"][0]["ledger"]["unexplained"] = json!("0")).is_some());
    assert!(broken(|run| drop(run["end"].as_object_mut().unwrap().remove("skipped"))).is_some());
    assert!(broken(|_| ()).is_none());
}
