//! Faults: of agents, the coordinator, the server and clocks.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    proxy::{Counts, Faults, Proxy},
    support::{Nats, Process, Up, agent, fleet_run, linerate, plan, run, signal, whole},
};

#[test]
fn a_frozen_agent_voids_the_trial_which_is_repeated() {
    let Some(mut up) = Up::start(3, &["--receivers", "1"]) else { return };
    let file = plan("rate = \"2kpps\"\nduration = \"4s\"\n");
    let mut command = linerate(&["fleet", "run", &file, "--nats", &up.url, "--save"]);
    let saved = testing::own_folder().join("run.json");
    command.arg(&saved);
    let mut coordinator = Process::start(command);
    coordinator.wait_for("trial 1/1");
    until_it_sends(&mut up, "a2");
    let frozen = up.agent("a2");
    signal(frozen, "STOP");
    std::thread::sleep(Duration::from_secs(5));
    signal(frozen, "CONT");
    let (status, words) = coordinator.finish();
    assert!(status <= 1, "{words}");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&saved).unwrap()).unwrap();
    whole(&record["end"]["trials"][0], 8000, &words);
    let voided = &record["end"]["fleet"]["voided"][0];
    assert!(voided["reason"].as_str().is_some_and(|reason| reason.contains("a2")), "{voided} {words}");
}

#[test]
fn a_killed_agent_is_named_and_can_be_tolerated() {
    let Some(mut up) = Up::start(4, &["--receivers", "1"]) else { return };
    let file = plan("rate = \"3kpps\"\nduration = \"4s\"\nattempts = 1\n");
    let saved = testing::own_folder().join("run.json");
    let mut command = linerate(&["fleet", "run", &file, "--nats", &up.url, "--tolerate", "1", "--save"]);
    command.arg(&saved);
    let mut coordinator = Process::start(command);
    coordinator.wait_for("trial 1/1");
    until_it_sends(&mut up, "a3");
    signal(up.agent("a3"), "KILL");
    let (status, words) = coordinator.finish();
    assert_eq!(status, 1, "a partial result is no success: {words}");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&saved).unwrap()).unwrap();
    let part = &record["end"]["fleet"]["trials"][0];
    assert_eq!(part["missing"], serde_json::json!(["a3"]), "{words}");
    // The results of two of three senders.
    whole(&record["end"]["trials"][0], 8000, &words);
    let bounds = part["loss_ratio_bounds"].as_array().unwrap();
    assert!(bounds[0].as_f64() <= bounds[1].as_f64(), "{bounds:?}");
    // The third sender is missing: a run that needs it fails and names it.
    let (status, _, err) = fleet_run(&up.url, "rate = \"1kpps\"\nduration = \"500ms\"", &[]);
    assert!(status <= 1, "{err}");
}

/// Waits until an agent is in the middle of its trial.
fn until_it_sends(up: &mut Up, name: &str) {
    let line = loop {
        let line = up.process.wait_for("starts in ");
        if line.starts_with(&format!("{name}: ")) {
            break line;
        }
    };
    let (_, ms) = line.split_once("starts in ").unwrap();
    let ms: u64 = ms.split(' ').next().unwrap().parse().unwrap();
    std::thread::sleep(Duration::from_millis(ms + 500));
}

#[test]
fn a_dead_coordinator_loses_no_result() {
    let Some(nats) = Nats::start("") else { return };
    let _receiver = agent(&nats.url(), "r", "receiver", &[]);
    let mut sender = agent(&nats.url(), "s", "sender", &[]);
    let file = plan("rate = \"1kpps\"\nduration = \"2s\"\n");
    let command = linerate(&["fleet", "run", &file, "--name", "orphan", "--nats", &nats.url(), "--no-save"]);
    let coordinator = Process::start(command);
    sender.wait_for("starts in");
    std::thread::sleep(Duration::from_secs(1));
    coordinator.signal("KILL");
    sender.wait_for("sent ");
    let collect = || run(&["fleet", "collect", "orphan", "--nats", &nats.url(), "--json", "--no-save"]);
    let began = Instant::now();
    let record = loop {
        let (_, out, err) = collect();
        let record: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
        if record["end"]["trials"][0].is_object() {
            break record;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{record:#}");
    };
    whole(&record["end"]["trials"][0], 2000, "collected");
    let (status, _, err) = run(&["fleet", "collect", "nobody", "--nats", &nats.url(), "--no-save"]);
    assert_eq!(status, 4);
    assert!(err.contains("the server has no run nobody"), "{err}");
}

#[test]
fn without_its_coordinator_a_sender_stops_when_the_lease_ends() {
    let Some(nats) = Nats::start("") else { return };
    let _receiver = agent(&nats.url(), "r", "receiver", &[]);
    let mut sender = agent(&nats.url(), "s", "sender", &[]);
    let file = plan("rate = \"1kpps\"\nduration = \"60s\"\nlease = \"5s\"\n");
    let command = linerate(&["fleet", "run", &file, "--nats", &nats.url(), "--no-save"]);
    let coordinator = Process::start(command);
    sender.wait_for("starts in");
    std::thread::sleep(Duration::from_secs(1));
    coordinator.signal("KILL");
    let dead = Instant::now();
    let line = sender.wait_for("ended early");
    assert!(line.contains("the coordinator's lease ended"), "{line}");
    assert!(dead.elapsed() < Duration::from_secs(50), "the trial did not end: {:?}", dead.elapsed());
}

#[test]
fn a_sender_stops_within_two_seconds_of_losing_the_server_and_recovers() {
    let Some(mut nats) = Nats::start("") else { return };
    let _receiver = agent(&nats.url(), "r", "receiver", &[]);
    let mut sender = agent(&nats.url(), "s", "sender", &[]);
    let file = plan("rate = \"1kpps\"\nduration = \"6s\"\n");
    let saved = testing::own_folder().join("run.json");
    let mut command = linerate(&["fleet", "run", &file, "--nats", &nats.url(), "--save"]);
    command.arg(&saved);
    let mut coordinator = Process::start(command);
    sender.wait_for("starts in");
    std::thread::sleep(Duration::from_secs(1));
    nats.kill();
    let lost = Instant::now();
    let line = sender.wait_for("ended early");
    assert!(line.contains("heard nothing from the server"), "{line}");
    // The rest is the delay from a stopped sender to its last message, which a busy machine prolongs.
    assert!(lost.elapsed() < Duration::from_secs(20), "{:?}", lost.elapsed());
    nats.again();
    coordinator.wait_for("void:");
    let (status, words) = coordinator.finish();
    assert!(status <= 1, "{words}");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&saved).unwrap()).unwrap();
    whole(&record["end"]["trials"][0], 6000, &words);
}

#[test]
fn agents_with_wrong_and_drifting_clocks_start_together() {
    let Some(nats) = Nats::start("") else { return };
    let _receiver = agent(&nats.url(), "r", "receiver", &[]);
    let _right = agent(&nats.url(), "s1", "sender", &[]);
    let _wrong = agent(&nats.url(), "s2", "sender", &["--clock-skew", "10s,50"]);
    let text = "rate = \"2kpps\"\nduration = \"1s\"\nmost-start-error = \"1s\"";
    let (status, record, err) = fleet_run(&nats.url(), text, &[]);
    assert!(status <= 1, "{err}");
    whole(&record["end"]["trials"][0], 2000, &err);
    let part = &record["end"]["fleet"]["trials"][0];
    let ahead: Vec<i64> =
        part["hosts"].as_array().unwrap().iter().filter_map(|host| host["clock_ahead_ns"].as_i64()).collect();
    let bound = part["start_bound_ns"].as_u64().unwrap();
    // One machine, one clock: the difference is the configured one, plus 50 ppm of the time since the start.
    let apart = (ahead[1] - ahead[0]).unsigned_abs();
    assert!(apart > 10_000_000_000 - bound, "{ahead:?}");
    assert!(part["start_spread_ns"].as_u64().unwrap() < 1_000_000_000, "{part:#}");
}

#[test]
fn lost_repeated_and_late_messages_leave_no_run_hanging_and_none_silently_wrong() {
    const RUNS: u32 = 3;
    let Some(nats) = Nats::start("") else { return };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let proxy = Proxy::start(nats.port, seed);
    let url = proxy.url();
    let _receiver = agent(&url, "r", "receiver", &[]);
    let _senders =
        [agent(&url, "s1", "sender", &[]), agent(&url, "s2", "sender", &["--clock-skew", "10s,50"])];
    proxy.set(Faults { lost: 0.005, repeated: 0.1, delayed: 0.2, most_delay_ms: 20 });
    let mut complete = 0;
    for number in 0..RUNS {
        let began = Instant::now();
        let text =
            "rate = \"2kpps\"\nduration = \"1s\"\nattempts = 5\n[senders]\ncount = 2\n[receivers]\ncount = 1";
        let (status, record, err) = fleet_run(&url, text, &[]);
        println!("run {number}: status {status} after {:.1?}", began.elapsed());
        match record["end"]["trials"].as_array() {
            Some(trials) if trials.len() == 1 => {
                complete += 1;
                whole(&trials[0], 2000, &err);
                assert_eq!(record["end"]["fleet"]["trials"][0]["hosts"].as_array().unwrap().len(), 3);
            }
            _ => assert!(matches!(status, 1 | 4) && err.contains("error:"), "{status}: {err}"),
        }
    }
    let Counts { passed, lost, repeated, delayed, .. } = &*proxy.counts;
    println!("messages: {passed:?} passed, {lost:?} lost, {repeated:?} repeated, {delayed:?} delayed");
    assert!(complete > 0, "no run survives these faults");
    assert!(repeated.load(Relaxed) > 0 && delayed.load(Relaxed) > 0);
}

#[test]
fn a_name_belongs_to_one_agent() {
    let Some(nats) = Nats::start("") else { return };
    let _first = agent(&nats.url(), "twin", "sender", &[]);
    let (status, _, err) = run(&["agent", "--nats", &nats.url(), "--name", "twin", "--address", "127.0.0.1"]);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("another agent is named twin"), "{err}");
}
