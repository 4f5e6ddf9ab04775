//! `linerate tune`: its output and record, and that it restores the machine however it ends.

use std::{
    fs,
    process::{Child, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{is_root, json, linerate, own_folder, run, signal, skip, wait};

const SHORT: [&str; 4] = ["tune", "--duration=50ms", "--budget=8s", "--no-pin"];

/// Serialises tests: the machine's settings and the journal of its loopback interface are shared.
static MACHINE: Mutex<()> = Mutex::new(());
const BUDGET: &str = "/proc/sys/net/core/netdev_budget";

fn budget() -> String {
    fs::read_to_string(BUDGET).unwrap().trim().to_owned()
}

/// A running search of one setting of the machine, after it has changed that setting.
fn changing(file: &str) -> Option<(Child, String)> {
    if !is_root() || fs::OpenOptions::new().write(true).open(BUDGET).is_err() {
        skip("needs root, in the machine's own network namespace");
        return None;
    }
    let before = budget();
    let save = format!("--save={file}");
    let args = [&SHORT[..], &["--only=sysctl.netdev-budget", &save, "--json"]].concat();
    let mut child = linerate(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while budget() == before {
        assert!(since.elapsed() < Duration::from_secs(60), "no trial changed {BUDGET}");
        assert!(child.try_wait().unwrap().is_none(), "the command ended before it changed {BUDGET}");
        thread::sleep(Duration::from_millis(1));
    }
    Some((child, before))
}

#[test]
fn the_space_is_printed_with_values_risks_and_how_each_is_undone() {
    let (status, out, err) = run(&["tune", "--dry-run", "--never=sysctl"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    for text in [
        "udp → udp: ",
        "tx+gso: off | on\n    send up to 64 datagrams",
        "    risk: ",
        "    undone: part of the run's own sockets",
        "\nExcluded\n",
        "ring.rx: the interface does not support it",
        "sysctl.netdev-max-backlog: excluded by --never",
    ] {
        assert!(out.contains(text) || !is_root() && text.contains("sysctl"), "'{text}' is missing: {out}");
    }
    let (_, plan) = json(&["tune", "--dry-run", "--json", "--only=gso", "--threads=2"]);
    assert_eq!(plan["knobs"][0]["name"], "tx+gso");
    assert_eq!(plan["options"][0], serde_json::json!(["threads", "2"]));
}

#[test]
fn each_trial_offers_the_given_rate_and_so_does_the_scenario() {
    let args = ["tune", "--duration=20ms", "--budget=400ms", "--no-pin", "--rate=5kpps", "--only=batch-size"];
    let (status, run) = json(&[&args[..], &["--no-save", "--json"]].concat());
    assert!(status <= 1, "{run:#}");
    let trials = run["end"]["trials"].as_array().unwrap();
    assert!(!trials.is_empty() && trials.iter().all(|trial| trial["asked_pps"] == 5000.0), "{trials:#?}");
    let scenario = run["end"]["tuning"]["artefacts"]["scenario"].as_str().unwrap();
    assert!(scenario.contains("rate = \"5kpps\""), "{scenario}");
}

#[test]
fn a_search_records_the_baseline_the_best_steps_and_what_did_not_help() {
    let args = [&SHORT[..], &["--only=gso,gro,batch-size", "--no-save", "--json"]].concat();
    let (status, run) = json(&args);
    assert_eq!(status, 0, "{:#}", run["end"]["notes"]);
    let end = &run["end"];
    for point in ["baseline", "best"] {
        let point = &end[point];
        assert!(point["delivered_pps"].as_f64().unwrap() > 0.0, "{point:#}");
        let settings = point["settings"].as_object().unwrap();
        assert_eq!(settings.keys().collect::<Vec<_>>(), ["batch-size", "rx+gro", "tx+gso"]);
        let trials = point["trials"].as_u64().unwrap();
        assert_eq!(point["interval"].is_object(), trials > 1, "{point:#}");
    }
    assert_eq!(end["baseline"]["settings"]["tx+gso"], "off");
    // A value is part of a step or refused.
    let steps = end["steps"].as_array().unwrap();
    let taken: usize = steps.iter().map(|step| step["settings"].as_object().unwrap().len()).sum();
    let empty = Vec::new();
    let rejected = end["rejected"].as_array().unwrap_or(&empty);
    assert_eq!(taken + rejected.len(), 4, "{end:#}");
    for step in steps {
        let effect = &step["effect"];
        assert!(
            effect["low"].as_f64() <= effect["estimate"].as_f64()
                && !step["undone"].as_str().unwrap().is_empty()
        );
    }
    let trials = end["trials"].as_array().unwrap();
    for trial in trials {
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
    let history = end["tuning"]["history"].as_array().unwrap();
    assert!(history.iter().all(|attempt| (attempt["trial"].as_u64().unwrap() as usize) < trials.len()));
    let scenario = end["tuning"]["artefacts"]["scenario"].as_str().unwrap();
    let label = if end["best"]["settings"]["tx+gso"] == "on" { "tx = \"udp+gso\"" } else { "tx = \"udp\"" };
    assert!(scenario.contains(label), "{scenario}");
    // It measures the best settings again.
    let file = own_folder().join("found.toml");
    fs::write(&file, scenario).unwrap();
    let again = ["bench", file.to_str().unwrap(), "--trials=1", "--duration=50ms", "--no-save", "--json"];
    let (_, again) = json(&again);
    assert_eq!(again["end"]["trials"][0]["tx"]["label"], label.trim_start_matches("tx = ").trim_matches('"'));
}

#[test]
fn an_interrupted_search_restores_everything_and_can_be_resumed() {
    let _alone = MACHINE.lock();
    let file = own_folder().join("stopped.json");
    let Some((mut child, before)) = changing(file.to_str().unwrap()) else { return };
    signal(&child, "INT");
    assert_eq!(wait(&mut child).code(), Some(1));
    assert_eq!(budget(), before);
    let run: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&run["end"]["interrupted"], &run["end"]["tuning"]["end"]), (&true.into(), &"stopped".into()));
    let known = run["end"]["tuning"]["history"].as_array().unwrap().len();
    let (status, more) = json(&["tune", "--resume", file.to_str().unwrap(), "--no-save", "--json"]);
    assert_eq!(status, 0, "{:#}", more["end"]["notes"]);
    let history = more["end"]["tuning"]["history"].as_array().unwrap();
    assert_eq!(&history[..known], &run["end"]["tuning"]["history"].as_array().unwrap()[..]);
    assert!(history.len() > known && more["end"]["interrupted"] == false);
    assert_eq!(budget(), before);
}

#[test]
fn the_changes_of_a_killed_search_are_undone_by_restore_or_resume() {
    let _alone = MACHINE.lock();
    let file = own_folder().join("killed.json");
    let Some((mut child, before)) = changing(file.to_str().unwrap()) else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    let changed = budget();
    assert_ne!(changed, before, "a kill leaves it");
    let (status, out, err) =
        run(&["tune", "--only=sysctl.netdev-budget", "--budget=6s", "--duration=50ms", "--no-save"]);
    assert_eq!((status, out.as_str()), (4, ""), "{err}");
    assert!(
        err.contains("ended without undoing its changes of lo\nhint:  linerate nic restore lo --killed"),
        "{err}"
    );
    let (status, out, err) = run(&["nic", "restore", "lo"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains(&format!("sysctl.net.core.netdev_budget: {changed} -> {before}")), "{out}");
    assert_eq!(budget(), before);

    let Some((mut child, before)) = changing(file.to_str().unwrap()) else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    let partial = format!("{}.partial", file.display());
    let (status, out, err) = run(&["tune", "--resume", &partial, "--json"]);
    assert_eq!(status, 0, "{err}");
    assert!(
        err.contains("restored lo sysctl.net.core.netdev_budget") && err.contains("resuming after"),
        "{err}"
    );
    assert!(out.contains("\"history\""));
    assert_eq!(budget(), before);
}
