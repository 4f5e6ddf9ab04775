//! iperf3's shape, against the members that iperf3 3.12 wrote for a UDP and a TCP test (`iperf3-3.12-*.keys`; of
//! TCP without the names of congestion controls and the default segment size).

use std::collections::BTreeMap;

use report::write_iperf3;
use serde_json::{Deserializer, Value};

use crate::samples;

fn tests(run: &measure::Run) -> Vec<Value> {
    let mut out = Vec::new();
    write_iperf3(run, &mut out).unwrap();
    Deserializer::from_slice(&out).into_iter().map(Result::unwrap).collect()
}

/// Paths of all leaves and their types.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Object(members) => {
            for (name, value) in members {
                leaves(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, value, found);
            }
            return;
        }
        Value::Array(elements) => {
            elements.iter().for_each(|value| leaves(&format!("{path}[]"), value, found));
            return;
        }
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    };
    found.insert(path.into(), kind);
}

#[test]
fn every_member_that_iperf3_writes_is_there_with_its_type() {
    for (name, run) in samples::all() {
        for test in tests(&run) {
            let mut found = BTreeMap::new();
            leaves("", &test, &mut found);
            let keys = match test["start"]["test_start"]["protocol"].as_str() {
                Some("TCP") => include_str!("iperf3-3.12-tcp.keys"),
                _ => include_str!("iperf3-3.12-udp.keys"),
            };
            for line in keys.lines() {
                let (path, kind) = line.split_once(' ').unwrap();
                let ours = found.get(path).copied();
                assert!(ours == Some(kind) || ours == Some("null"), "{name}: {path} is {ours:?}, not {kind}");
            }
        }
    }
}

#[test]
fn figures_are_those_of_the_record() {
    let run = samples::paced();
    let tests = tests(&run);
    assert_eq!(tests.len(), run.end.trials.len());
    for (test, trial) in tests.iter().zip(&run.end.trials) {
        let (sent, received) = (&test["end"]["sum_sent"], &test["end"]["sum_received"]);
        assert_eq!(sent["packets"], trial.sent);
        assert_eq!(sent["lost_packets"], trial.ledger.lost());
        assert_eq!(sent["bytes"], trial.sent * u64::from(trial.payload_bytes));
        assert_eq!(received["bytes"], trial.delivered * u64::from(trial.payload_bytes));
        let bits = trial.delivered_pps * f64::from(trial.payload_bytes) * 8.0;
        assert!((received["bits_per_second"].as_f64().unwrap() - bits).abs() < 1e-6 * bits);
        let ticks = test["intervals"].as_array().unwrap();
        let packets: u64 = ticks.iter().map(|tick| tick["sum"]["packets"].as_u64().unwrap()).sum();
        assert_eq!(packets, trial.sent);
    }
    assert_eq!(tests[0]["start"]["timestamp"]["timesecs"], 1_777_863_721);
    assert_eq!(tests[0]["start"]["target_bitrate"], 10_000.0 * 18.0 * 8.0);
}

#[test]
fn the_bytes_of_a_stream_are_those_transferred() {
    let run = samples::stream();
    let (test, moved) = (&tests(&run)[0], run.end.trials[0].stream.as_ref().unwrap());
    assert_eq!(test["start"]["test_start"]["protocol"], "TCP");
    assert_eq!(test["end"]["sum_sent"]["bytes"], moved.sent_bytes);
    assert_eq!(test["end"]["sum_sent"]["retransmits"], moved.retransmitted_segments);
    assert_eq!(test["end"]["sum_received"]["bytes"], moved.delivered_bytes);
}

#[test]
fn what_was_not_measured_is_null() {
    let test = &tests(&samples::send())[0];
    assert!(test["end"]["sum"]["jitter_ms"].is_null());
    assert!(test["end"]["streams"][0]["udp"]["out_of_order"].is_null());
}
