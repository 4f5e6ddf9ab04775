//! `linerate bench --peers`: third-party generators in linerate's table and ledger.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{is_root, json, linerate, skip};

const INSTALLED: [&str; 3] = ["iperf3", "sockperf", "trafgen"];

fn are_installed() -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let has = |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    INSTALLED.iter().all(has)
}

#[test]
fn every_packet_of_a_peer_is_accounted_for() {
    if !is_root() || !are_installed() {
        return skip("needs root, iperf3, sockperf and trafgen");
    }
    let peers = format!("--peers={}", INSTALLED.join(","));
    let args = [
        "bench",
        "--tx",
        "udp",
        "--rx",
        "udp",
        "--trials",
        "1",
        "--duration",
        "300ms",
        "--no-save",
        "--json",
    ];
    let (status, run) = json(&[&args[..], &[&peers]].concat());
    assert_eq!(status, 0, "{run:#}");
    let rows: Vec<(&str, &str)> = run["end"]["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trial| {
            assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
            assert!(trial["delivered"].as_u64().unwrap() > 0, "{trial:#}");
            (trial["tx"]["label"].as_str().unwrap(), trial["rx"]["label"].as_str().unwrap())
        })
        .collect();
    let expected = [
        ("udp", "udp"),
        ("iperf3", "iperf3"),
        ("sockperf", "udp"),
        ("sockperf", "sockperf"),
        ("trafgen", "udp"),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_missing_peer_is_skipped_and_its_package_named() {
    let (_, plan) = json(&["bench", "--peers=netperf", "--dry-run"]);
    let missing = Command::new("netperf").arg("-V").output().is_err();
    let left_out = plan["skipped"].as_array().unwrap().iter().any(|skipped| {
        skipped["engine"] == "netperf (tx)"
            && skipped["reason"].as_str().is_some_and(|reason| {
                reason.ends_with("is not installed (Debian: netperf, section non-free)")
            })
    });
    assert_eq!(left_out, missing, "{plan:#}");
}

#[test]
fn a_killed_bench_takes_its_peers_down() {
    if !is_root() || !are_installed() {
        return skip("needs root, iperf3, sockperf and trafgen");
    }
    let args = ["bench", "--tx", "udp", "--rx", "udp", "--peers=trafgen", "--trials", "1", "--no-save"];
    let mut bench = linerate(&args)
        .args(["--duration", "2s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let trafgens = || descendants(bench.id()).into_iter().filter(|pid| name(*pid) == "trafgen").collect();
    // trafgen sends from a child process.
    let both: Vec<u32> = within_a_minute(|| Some(trafgens()).filter(|found: &Vec<u32>| found.len() == 2));
    bench.kill().unwrap();
    bench.wait().unwrap();
    within_a_minute(|| both.iter().all(|pid| name(*pid) != "trafgen").then_some(()));
}

fn within_a_minute<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "the deadline passed");
        std::thread::yield_now();
    }
}

/// The name of a process, empty after its end.
fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().into()
}

fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children: Vec<u32> = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
        .collect();
    children.iter().copied().chain(children.iter().flat_map(|child| descendants(*child))).collect()
}
