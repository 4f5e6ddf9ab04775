//! Rules for many hosts: in waves, validated, undone.

use std::{
    fs,
    path::Path,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use serde_json::Value;
use testing::own_folder;

use crate::{
    proxy::Proxy,
    support::{Process, Up, in_host, linerate, run, signal, with_files},
};

const MAY_DIVERT: [&str; 3] = ["--", "--divert", "eth0"];

/// A file of rules.
fn rules(text: &str) -> String {
    let file = own_folder().join("rules.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn divert(up: &Up, args: &[&str]) -> (i32, String, String) {
    run(&[&["fleet", "divert"], args, &["--nats", &up.url]].concat())
}

/// The agents as `status --json` shows them, by name.
fn status(up: &Up) -> Vec<Value> {
    let (code, out, err) = divert(up, &["status", "--json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

fn outcome(up: &Up, agent: &str) -> String {
    let all = status(up);
    let one = all.iter().find(|one| one["agent"] == agent).unwrap();
    one["state"]["outcome"].as_str().unwrap_or("none").to_owned()
}

/// What an XDP program is called on an agent's interface, if there is one.
fn program(up: &Up, agent: &str) -> Option<String> {
    let output = in_host(up, agent, &["ip", "-j", "link", "show", "eth0"]).output().unwrap();
    let links: Value = serde_json::from_slice(&output.stdout).unwrap();
    links[0]["xdp"]["prog"]["name"].as_str().map(str::to_owned)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn rules_go_out_in_waves_and_undo_returns_to_the_former_ones() {
    let Some(up) = Up::start(3, &MAY_DIVERT) else { return };
    let first = rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, out, err) = divert(&up, &["apply", &first, "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("canary a1 is well with revision 1"), "{err}");
    assert!(err.contains("agent a2 is well with revision 2"), "{err}");
    assert!(out.contains("udp and dst port 7000: drop all"), "{out}");
    assert_eq!(program(&up, "a1").as_deref(), Some("divert"));
    assert_eq!(program(&up, "a2").as_deref(), Some("divert"));
    assert_eq!(program(&up, "a3"), None, "it has another label");

    // Other rules are read by the same process: there is no gap.
    let second = rules("match = \"udp and dst port 7001\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &second, "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = divert(&up, &["undo", "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("a1: the rules before, well"), "{err}");
    assert!(out.contains("udp and dst port 7000") && !out.contains("7001"), "{out}");

    let (code, _, err) = divert(&up, &["undo", "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("a1: no rules, off"), "there are none behind the first: {err}");
    assert_eq!(program(&up, "a1"), None);
    let (code, _, err) = divert(&up, &["undo", "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("no rules to undo"), "{err}");

    // Every revision in order: two roll-outs and two undos.
    let (code, out, err) = divert(&up, &["history", "--json"]);
    assert_eq!(code, 0, "{err}");
    let all: Value = serde_json::from_str(&out).unwrap();
    let of_a1 = all.as_array().unwrap().iter().filter(|one| one["agent"] == "a1");
    let matches: Vec<Option<&str>> = of_a1.map(|one| one["rules"]["match"].as_str()).collect();
    let (first, second) = (Some("udp and dst port 7000"), Some("udp and dst port 7001"));
    assert_eq!(matches, [first, second, first, None]);
    let (_, out, _) = divert(&up, &["history"]);
    assert!(out.contains(", undo)") && out.contains("no rules"), "{out}");
}

#[test]
fn an_undo_reaches_all_agents_at_once_and_those_that_come_back() {
    let Some(up) = Up::start(4, &["--receivers", "1", "--", "--divert", "eth0"]) else { return };
    let file = rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &file]);
    assert_eq!(code, 0, "{err}");
    let frozen = up.agent("a2");
    signal(frozen, "STOP");
    let (code, _, err) = divert(&up, &["undo"]);
    signal(frozen, "CONT");
    assert_eq!(code, 0, "{err}");
    for agent in ["a1", "a3", "a4"] {
        assert!(err.contains(&format!("{agent}: no rules, off")), "{err}");
    }
    assert!(err.contains("a2: no rules, once it answers again"), "{err}");
    wait_until("the agent that was away keeps its rules", || program(&up, "a2").is_none());
}

#[test]
fn rules_that_an_agent_refuses_reach_no_kernel_and_no_other_agent() {
    let Some(up) = Up::start(3, &MAY_DIVERT) else { return };
    let good = rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &good, "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    let bad = rules("match = \"udp and dst prt 7000\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &bad]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("agent a1 refused the rules"), "{err}");
    assert!(err.contains("prt"), "the agent's reason is shown: {err}");
    assert!(err.contains("a1 has its former rules again"), "only the canary ever had them: {err}");
    let all = status(&up);
    assert_eq!(all[0]["rules"]["match"], "udp and dst port 7000");
    assert_eq!(all[0]["state"]["outcome"], "well", "{}", all[0]);
    assert_eq!(all[2]["revision"], 0, "the others were never asked");
}

#[test]
fn rules_end_with_their_lease_and_with_their_agent() {
    let Some(up) = Up::start(2, &MAY_DIVERT) else { return };
    let short =
        rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nlease = \"3s\"\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &short, "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    wait_until("the lease never ends", || outcome(&up, "a1") == "undone");
    assert_eq!(program(&up, "a1"), None);
    let (_, out, _) = divert(&up, &["status"]);
    assert!(out.contains("the lease is over"), "{out}");

    let long = rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &long, "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(program(&up, "a1").as_deref(), Some("divert"));
    let mut space = in_host(&up, "a1", &["ip", "-j", "link", "show", "eth0"]);
    signal(up.agent("a1"), "KILL");
    wait_until("the rules outlive their agent", || {
        let links: Value = serde_json::from_slice(&space.output().unwrap().stdout).unwrap();
        links[0]["xdp"].is_null()
    });
}

#[test]
fn an_agent_undoes_rules_that_silence_its_host() {
    let Some(up) = Up::start(2, &MAY_DIVERT) else { return };
    let program = env!("CARGO_BIN_EXE_linerate");
    // The service of the host a1 answers each request.
    let serve = [program, "recv", "198.18.0.1:7000", "--reflect", "--no-save", "--duration", "60s"];
    let mut service = Process::start(with_files(in_host(&up, "a1", &serve)));
    service.wait_for("listening on UDP");
    let ask = [
        program,
        "send",
        "198.18.0.1:7000",
        "--reflect",
        "--rate",
        "200pps",
        "--duration",
        "50s",
        "--no-save",
    ];
    let _clients = Process::start(with_files(in_host(&up, "a2", &ask)));
    service.wait_for("joins");
    std::thread::sleep(Duration::from_secs(5));
    let harmless = rules("match = \"udp and dst port 7001\"\nrules = [\"drop all\"]\nsettle = \"2s\"\n");
    let (code, _, err) = divert(&up, &["apply", &harmless, "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    let harmful = rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nsettle = \"2s\"\n");
    let (code, _, err) = divert(&up, &["apply", &harmful, "--to", "role=sender"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("agent a1 undid the rules: the host sent 2"), "{err}");
    assert!(err.contains("the rules of revision 1 are in force again"), "{err}");
    let all = status(&up);
    assert_eq!(all[0]["rules"]["match"], "udp and dst port 7001", "{}", all[0]);
}

#[test]
fn rules_that_changed_since_they_were_read_are_not_overwritten() {
    let Some(up) = Up::start(2, &MAY_DIVERT) else { return };
    let (_, port) = up.url.rsplit_once(':').unwrap();
    let proxy = Proxy::start(port.parse().unwrap(), 0);
    proxy.hold(Some("$KV.linerate-divert.a1"));
    let text =
        |port: u32| format!("match = \"udp and dst port {port}\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let file = rules(&text(7000));
    let args = ["fleet", "divert", "apply", &file, "--to", "role=sender", "--nats", &proxy.url()];
    let slow = Process::start(linerate(&args));
    wait_until("the first user never writes", || proxy.counts.held.load(Relaxed) > 0);
    let (code, _, err) = divert(&up, &["apply", &rules(&text(7001)), "--to", "role=sender"]);
    assert_eq!(code, 0, "{err}");
    proxy.hold(None);
    let (code, words) = slow.finish();
    assert_eq!(code, 4, "{words}");
    assert!(words.contains("the rules of agent a1 changed meanwhile"), "{words}");
    let all = status(&up);
    assert_eq!(all[0]["rules"]["match"], "udp and dst port 7001", "{}", all[0]);
}

#[test]
fn sets_of_networks_go_to_the_agents_with_the_rules() {
    let Some(up) = Up::start(2, &MAY_DIVERT) else { return };
    let file = rules("match = \"udp\"\nrules = [\"drop src set bad\"]\nsettle = \"1s\"\n");
    let set = own_folder().join("bad.txt");
    fs::write(&set, "203.0.113.0/24\n198.51.100.7\n").unwrap();
    let named = format!("bad={}", set.display());
    let apply = ["apply", &file, "--to", "role=sender"];
    let (code, _, err) = divert(&up, &apply);
    assert_eq!(code, 1, "without the set: {err}");
    let (code, _, err) = divert(&up, &[&apply[..], &["--set", &named]].concat());
    assert_eq!(code, 0, "{err}");
    assert_eq!(program(&up, "a1").as_deref(), Some("divert"));
    // A running diversion reads a changed set again; after a mistake it keeps the former one.
    fs::write(&set, "203.0.113.0/24\n").unwrap();
    let (code, _, err) = divert(&up, &[&apply[..], &["--set", &named]].concat());
    assert_eq!(code, 0, "{err}");
    fs::write(&set, "203.0.113.0/240\n").unwrap();
    let (code, _, err) = divert(&up, &[&apply[..], &["--set", &named]].concat());
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("agent a1 refused the rules") && err.contains("203.0.113.0/240"), "{err}");
    assert_eq!(status(&up)[0]["rules"]["sets"]["bad"], "203.0.113.0/24\n");
}

#[test]
fn an_agent_without_consent_takes_no_rules() {
    let Some(up) = Up::start(2, &[]) else { return };
    let wrong = rules("match = \"udp\"\nrules = []\n");
    let (code, _, err) = divert(&up, &["apply", &wrong]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("must have at least one rule"), "{err}");
    let missing = Path::new("/nonexistent/rules.toml").to_str().unwrap();
    let (code, _, err) = divert(&up, &["apply", missing]);
    assert_eq!(code, 4, "{err}");
    let good = rules("match = \"udp and dst port 7000\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n");
    let (code, _, err) = divert(&up, &["apply", &good, "--to", "role=sender"]);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("no agent") && err.contains("--divert"), "{err}");
}
