//! Receive statistics: what `--stats` measures, on every engine.

use std::{path::PathBuf, process::Command};

use crate::support::{Recv, is_root, json, linerate, skip, words};
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
        receivers.extend(["xsk", "xdp", "xdp+generic"]);
    } else {
        skip("AF_XDP and XDP need root");
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

/// A receiver with a runtime directory of the test's own, and what a command with the same says.
struct Asked {
    receiver: Option<Recv>,
    runtime: PathBuf,
}

impl Asked {
    fn start(name: &str, args: &[&str]) -> Self {
        let runtime = std::env::temp_dir().join(format!("linerate-stats-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&runtime).unwrap();
        let mut all = vec!["recv", "127.0.0.1:0", "--no-save", "--receive-buffer", "8000000"];
        all.extend(args);
        let receiver = Recv::listening(Self::with(linerate(&all), &runtime));
        Self { receiver: Some(receiver), runtime }
    }

    fn with(mut command: Command, runtime: &PathBuf) -> Command {
        command.env("XDG_RUNTIME_DIR", runtime);
        command
    }

    fn ask(&self, args: &[&str]) -> (i32, String, String) {
        words(Self::with(linerate(args), &self.runtime).output().unwrap())
    }

    fn send(&self, count: &str, args: &[&str]) {
        let target = self.address();
        let mut all = vec!["send", &target, "--no-save", "--json", "--rate", "20kpps", "--count", count];
        all.extend(args);
        let (_, run) = json(&all);
        assert_eq!(run["end"]["trials"][0]["delivered"].to_string(), count, "{run}");
    }
}

impl Asked {
    fn address(&self) -> String {
        self.receiver.as_ref().unwrap().address.to_string()
    }

    fn finish(mut self) -> (std::process::ExitStatus, String, String) {
        self.receiver.take().unwrap().finish()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.runtime).ok();
    }
}

#[test]
fn a_running_receiver_is_asked_reset_and_stopped() {
    let asked = Asked::start("asked", &["--stats", "time", "--json"]);
    asked.send("3000", &[]);
    let status = |ask: &str| {
        let (status, out, err) = asked.ask(&["recv", ask, "--json"]);
        assert_eq!(status, 0, "{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    assert_eq!(status("status")["statistics"]["total"]["packets"], 3000);
    assert_eq!(status("reset")["statistics"]["total"]["packets"], 3000);
    asked.send("500", &["--probe-clock", "micros"]);
    let (_, human, _) = asked.ask(&["recv", "status"]);
    assert!(human.contains("Packets Rx: 500 ") && human.contains("Lost: 0 (0 %)"), "{human}");
    let (_, script, _) = asked.ask(&["recv", "status", "--display", "script"]);
    let columns: Vec<usize> = script.lines().map(|line| line.split(' ').count()).collect();
    assert_eq!((columns.len(), columns[1], columns[2]), (3, columns[0], columns[0]), "{script}");
    let stopped = status("stop");
    assert_eq!((&stopped["packets"], &stopped["dropped"]), (&Value::from(3500), &Value::from(0)));
    let (_, _, err) = asked.ask(&["recv", "status", "--pid", "1"]);
    assert!(err.contains("process 1 is no receiver of this user"), "{err}");
}

#[test]
fn latency_is_shown_where_the_clocks_are_related_and_refused_where_not() {
    for (clocks, is_shown) in [("auto", true), ("same-host", true), ("none", false), ("synchronised", false)]
    {
        let asked = Asked::start(clocks, &["--stats", "time", "--clocks", clocks]);
        asked.send("200", &[]);
        let (_, out, _) = asked.ask(&["recv", "status", "--json"]);
        let answer: Value = serde_json::from_str(&out).unwrap();
        let statistics = &answer["statistics"];
        assert_eq!(statistics["total"]["latency"].is_object(), is_shown, "{clocks}: {statistics:#}");
        assert_eq!(statistics["total"]["jitter"]["samples"], 199, "{clocks}: needs no relation");
        let relation = &statistics["timing"]["clocks"];
        assert_eq!(relation, if is_shown { "same-host" } else { "none" }, "{clocks}");
    }
}

#[test]
fn a_stopped_receiver_prints_saves_and_plots_what_it_measured() {
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("reception.html");
    let plot = page.to_str().unwrap();
    let asked = Asked::start("plot", &["--stats", "time", "--once", "--json", "--plot", plot]);
    let target = asked.address();
    json(&["send", &target, "--no-save", "--json", "--rate", "20kpps", "--count", "400"]);
    let (status, out, err) = asked.finish();
    assert!(status.success(), "{err}");
    let run: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(run["end"]["statistics"]["total"]["packets"], 400);
    assert!(std::fs::read_to_string(&page).unwrap().contains("Latency"), "the page shows it");
}
