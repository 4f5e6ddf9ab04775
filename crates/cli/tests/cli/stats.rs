//! Receive statistics: what `--stats` measures, on every engine.

use crate::support::{is_root, json, skip};
use serde_json::Value;

/// The only trial of a lab run that measures times.
fn trial(tx: &str, rx: &str, args: &[&str]) -> Value {
    let mut all = vec!["bench", "--tx", tx, "--rx", rx, "--trials", "1", "--stats", "time"];
    all.extend(["--receive-buffer", "8000000", "--no-save", "--json"]);
    all.extend(args);
    let (_, run) = json(&all);
    run["end"]["trials"][0].clone()
}

#[test]
fn every_engine_measures_every_packet() {
    let mut receivers = vec!["udp", "udp+reuseport", "udp+gro", "packet"];
    if is_root() {
        receivers.push("xsk");
    } else {
        skip("AF_XDP needs root");
    }
    for rx in receivers {
        for args in [&["--ipv6"][..], &["--probe-clock", "micros", "--threads", "2", "--flows", "4"]] {
            let mut all = vec!["--rate", "20kpps", "--duration", "200ms"];
            all.extend(args);
            let trial = trial("udp", rx, &all);
            let statistics = &trial["statistics"];
            let total = &statistics["total"];
            assert_eq!(trial["ledger"]["lines"].as_array().map(Vec::len), Some(0), "{rx} {args:?} {trial}");
            assert_eq!(total["packets"], trial["delivered"], "{rx} {args:?} {statistics:#}");
            let delivered = trial["delivered"].as_u64().unwrap();
            let sequence = &statistics["sequence"];
            assert_eq!((&sequence["lost"], &sequence["duplicates"]), (&Value::from(0), &Value::from(0)));
            assert_eq!(sequence["received"], delivered);
            let latency = &total["latency"];
            // Microseconds are cut: a packet seems to have left a little earlier, never later.
            assert_eq!(latency["samples"], delivered, "{rx} {args:?} {total:#}");
            let samples = |name: &str| total[name]["samples"].as_u64().unwrap();
            let readers = statistics["readers"].as_array().unwrap();
            let readers = readers.iter().filter(|reader| reader["packets"] != 0).count() as u64;
            assert_eq!(samples("inter_arrival"), delivered - readers);
            assert!(samples("jitter") < delivered && samples("flow_inter_arrival") < delivered);
            let p99 = latency["p99_ns"].as_u64().unwrap();
            assert!((1..2_000_000_000).contains(&p99), "{rx} {args:?}: {p99}");
        }
    }
}
