//! Both sides of a trial in its record: engine, label, and every setting.

use std::collections::BTreeMap;

use measure::Endpoint;
use serde_json::{Value, json};
use traffic::{RxSpec, RxTraffic, TxSpec};

/// The sending side.
pub fn tx_endpoint(spec: &TxSpec, threads: usize, cpus: &[u32], batch_size: usize, flows: usize) -> Endpoint {
    let options = [("batch_size", json!(batch_size)), ("flows", json!(flows))];
    Endpoint {
        engine: spec.name().into(),
        label: spec.to_string(),
        threads: threads as u32,
        cpus: cpus.to_vec(),
        options: with_settings(spec.settings(), options),
    }
}

/// The receiving side.
pub fn rx_endpoint(spec: &RxSpec, traffic: &RxTraffic, cpus: &[u32]) -> Endpoint {
    let options = [("batch_size", json!(traffic.batch_size)), ("spin", json!(traffic.spin))];
    let work = (traffic.work_ns > 0).then(|| ("work_ns", json!(traffic.work_ns)));
    Endpoint {
        engine: spec.name().into(),
        label: spec.to_string(),
        threads: traffic.workers as u32,
        cpus: cpus.to_vec(),
        options: with_settings(spec.settings(), options.into_iter().chain(work)),
    }
}

fn with_settings<'n>(
    settings: Value,
    options: impl IntoIterator<Item = (&'n str, Value)>,
) -> BTreeMap<String, Value> {
    let settings = if let Value::Object(settings) = settings { settings } else { serde_json::Map::new() };
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value));
    settings.into_iter().chain(options).collect()
}
