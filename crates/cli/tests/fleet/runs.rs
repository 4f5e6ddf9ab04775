//! Successful runs: totals add up, records have one schema, nothing is left behind.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    Process, Up, agent, fleet_run, in_host, linerate, run, server_program, whole, with_files,
};

const SMALL: &str = "rate = \"3kpps\"\nduration = \"1s\"\n";

/// All names in an object, including nested objects.
fn names(value: &Value, above: &str, all: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{above}.{name}");
        names(value, &path, all);
        all.insert(path);
    }
}

#[test]
fn a_fleet_of_one_gives_the_record_that_bench_peer_gives() {
    let Some(up) = Up::start(2, &[]) else { return };
    let (status, record, err) = fleet_run(&up.url, SMALL, &[]);
    assert!(status <= 1, "a busy machine may be late, no more: {err}");
    let trial = &record["end"]["trials"][0];
    whole(trial, 3000, &err);
    let fleet = &record["end"]["fleet"];
    assert_eq!(fleet["trials"][0]["hosts"][0]["trial"], *trial);
    // The same with bench --peer between the same two hosts, without the fleet.
    let program = env!("CARGO_BIN_EXE_linerate");
    let mut receiver =
        Process::start(with_files(in_host(&up, "a2", &[program, "recv", "198.18.0.2:0", "--no-save"])));
    let line = receiver.wait_for("listening on UDP ");
    let target = line.strip_prefix("listening on UDP ").unwrap().split(',').next().unwrap();
    let args = [program, "bench", "--peer", target, "--tx", "udp", "--rx", "udp", "--trials", "1", "--json"];
    let args = [&args[..], &["--no-save", "--rate", "3kpps", "--duration", "1s"]].concat();
    let output = with_files(in_host(&up, "a1", &args)).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let peer: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    let [(ours, our_names), (theirs, their_names)] = [&record, &peer].map(|record| {
        let trial = &record["end"]["trials"][0];
        let mut all = BTreeSet::new();
        names(trial, "trial", &mut all);
        names(&record["start"]["machine"], "machine", &mut all);
        // The coordinator is in another network namespace, with other cards.
        all.retain(|name| !name.starts_with("machine.cpu_control.interrupt_cpus"));
        (trial, all)
    });
    assert_eq!(our_names, their_names);
    // What does not depend on the machine's mood is equal, too.
    for path in [
        "trial",
        "tx/engine",
        "tx/label",
        "tx/threads",
        "tx/options",
        "rx/engine",
        "rx/label",
        "rx/threads",
        "frame_size_bytes",
        "payload_bytes",
        "asked_pps",
        "parameters",
        "receipt/scheduled",
        "ledger/unexplained",
        "wire/left_source",
        "wire/seen_source",
    ] {
        let at = |trial: &Value| trial.pointer(&format!("/{path}")).cloned();
        assert_eq!(at(ours), at(theirs), "{path}");
    }
    let places = |trial: &Value| {
        let lines = trial["ledger"]["lines"].as_array().unwrap().clone();
        let place = |line: &Value| (line["place"].to_string(), line["host"].to_string());
        lines.iter().filter(|line| line["packets"] != 0).map(place).collect::<BTreeSet<_>>()
    };
    // A machine with others on it may lose packets at either run, but not at a place that the other would not name.
    let only_here: Vec<_> = places(ours).symmetric_difference(&places(theirs)).cloned().collect();
    assert!(only_here.iter().all(|(place, _)| place.contains("receive-buffer")), "{only_here:?}");
}

#[test]
fn many_senders_add_up_and_every_ledger_closes() {
    let Some(up) = Up::start(4, &["--receivers", "1"]) else { return };
    let text = format!("{SMALL}trials = 2\n[senders.weights]\na1 = 2.0");
    let (status, record, err) = fleet_run(&up.url, &text, &[]);
    assert!(status <= 1, "{err}");
    let fleet = &record["end"]["fleet"];
    for (trial, part) in
        record["end"]["trials"].as_array().unwrap().iter().zip(fleet["trials"].as_array().unwrap())
    {
        whole(trial, 3000, &err);
        let hosts = part["hosts"].as_array().unwrap();
        assert_eq!(hosts.len(), 4);
        let due = |host: &Value| host["trial"]["receipt"]["scheduled"].as_u64();
        let each: Vec<u64> = hosts.iter().filter_map(due).collect();
        assert_eq!(each, [1500, 750, 750], "shares by weight");
        for host in hosts {
            assert_eq!(host["ledger"]["unexplained"], 0, "{host:#}");
        }
        assert!(part["common_window_s"].as_f64().unwrap() > 0.1);
        let bound = part["start_bound_ns"].as_u64().unwrap();
        assert!(bound > 0, "clocks are never known exactly");
    }
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/linerate.run.1.schema.json");
    let mut schemas = boon::Schemas::new();
    let run_schema = boon::Compiler::new().compile(schema.to_str().unwrap(), &mut schemas).unwrap();
    schemas.validate(&record, run_schema).unwrap_or_else(|error| panic!("{error}"));
    // The stored results give the same record.
    let name = fleet["run"].as_str().unwrap();
    let (_, out, err) = run(&["fleet", "collect", name, "--nats", &up.url, "--json", "--no-save"]);
    let collected: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!(collected["end"]["trials"], record["end"]["trials"]);
    assert_eq!(collected["end"]["fleet"], *fleet);
    assert_eq!(collected["start"], record["start"]);
}

#[test]
fn status_shows_the_agents_and_ctrl_c_leaves_nothing() {
    let Some(up) = Up::start(3, &[]) else { return };
    let (status, out, err) = run(&["fleet", "status", "--nats", &up.url, "--json", "--wait", "3s"]);
    assert_eq!(status, 0, "{err}");
    let agents: Value = serde_json::from_str(&out).unwrap();
    let names: Vec<&str> =
        agents.as_array().unwrap().iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
    assert_eq!(names, ["a1", "a2", "a3"]);
    let first = &agents[0];
    assert_eq!((&first["address"], &first["mtu_bytes"]), (&"198.18.0.1".into(), &1500.into()));
    assert!(first["clock_bound_ns"].as_u64().is_some_and(|bound| bound > 0), "{first:#}");
    let (_, text, _) = run(&["fleet", "status", "--nats", &up.url, "--wait", "3s"]);
    assert!(text.contains("3 agents") && text.contains("role=receiver"), "{text}");
    assert_eq!(text.matches("engines: tx udp, ").count(), 3, "{text}");
    let processes: Vec<u32> = up.agents.iter().map(|(_, process)| *process).collect();
    let folder = testing::own_folder();
    drop(up);
    for process in processes {
        let is_there = Path::new(&format!("/proc/{process}")).exists();
        assert!(!is_there, "process {process} is left");
    }
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|file| file.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("linerate-fleet-")), "{left:?}");
}

#[test]
fn nothing_starts_if_a_row_of_the_table_is_red() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let _receiver = agent(&nats.url(), "r", "receiver", &[]);
    let mut sender = agent(&nats.url(), "s", "sender", &["--max-rate", "1kpps"]);
    let (status, record, err) = fleet_run(&nats.url(), "rate = \"2kpps\"\nduration = \"1s\"", &[]);
    assert_eq!((status, record), (4, Value::Null), "{err}");
    assert!(
        err.contains("RED  s") && err.contains("owner's rate") && err.contains("nothing was started"),
        "{err}"
    );
    let (status, _, err) =
        fleet_run(&nats.url(), "duration = \"1s\"\n[senders]\nselect = { role = \"boss\" }", &[]);
    assert_eq!(status, 4);
    assert!(err.contains("no agent has the labels role=boss"), "{err}");
    let (status, _, err) = fleet_run(&nats.url(), "rate = \"500pps\"\nduration = \"500ms\"", &[]);
    assert!(status <= 1, "{err}");
    sender.wait_for("sent ");
}

#[test]
fn nothing_starts_where_a_path_is_too_narrow_for_the_packets() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let Some(hosts) = testing::Hosts::join() else { return };
    hosts.ip(&hosts.a, "route replace 198.18.0.0/24 dev va mtu lock 1280");
    let agent = |name: &str, role: &str, address: &str, host: &sys::netns::NetNs| {
        let path = format!("/proc/{}/fd/{}", std::process::id(), host.as_fd().as_raw_fd());
        let (label, url) = (format!("role={role}"), nats.url());
        let args = ["agent", "--nats", &url, "--name", name, "--label", &label, "--netns", &path];
        let mut process = Process::start(linerate(&[&args[..], &["--address", address]].concat()));
        process.wait_for("is ready");
        process
    };
    let _receiver = agent("r", "receiver", "198.18.0.2", &hosts.b);
    let _sender = agent("s", "sender", "198.18.0.1", &hosts.a);
    let plan = |frame: u32| format!("rate = \"500pps\"\nduration = \"300ms\"\nframe-size = {frame}\n");
    let (status, record, err) = fleet_run(&nats.url(), &plan(1299), &[]);
    assert_eq!((status, record), (4, Value::Null), "{err}");
    let row = err.lines().find(|line| line.contains("path to r")).unwrap_or_else(|| panic!("{err}"));
    assert!(row.contains("RED") && row.contains("1280 bytes by va"), "{row}");
    let (status, _, err) = fleet_run(&nats.url(), &plan(1298), &[]);
    assert!(status <= 1, "{err}");
}

#[test]
fn a_search_over_the_fleet_finds_its_throughput_and_collect_finds_it_again() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let url = nats.url();
    let _agents = [
        agent(&url, "r", "receiver", &[]),
        agent(&url, "s1", "sender", &["--max-rate", "3kpps"]),
        agent(&url, "s2", "sender", &["--max-rate", "3kpps"]),
    ];
    let search = "[search]\nloss-ratio = [\"0\"]\nmin-load = \"500pps\"\nmax-load = \"4kpps\"\nwidth = \"30%\"\n\
                  initial-duration = \"100ms\"\nfinal-duration = \"200ms\"\nduration-sum = \"400ms\"\n\
                  [senders]\ncount = 2\n";
    let (status, record, err) = fleet_run(&url, search, &["--name", "ndr"]);
    assert!(status <= 1, "{err}");
    let trials = record["end"]["trials"].as_array().unwrap();
    let found = &record["end"]["throughput"][0];
    let goal = &found["goals"][0];
    assert_eq!(goal["goal"], "NDR", "{goal:#}");
    let of_goal: Vec<usize> =
        goal["trials"].as_array().unwrap().iter().map(|index| index.as_u64().unwrap() as usize).collect();
    assert!(trials.len() >= 2 && !of_goal.contains(&0), "the warm-up is not part of the search: {goal:#}");
    if let Some(lower) = goal["lower_pps"].as_f64() {
        assert!((500.0..=4000.0).contains(&lower), "{goal:#}");
        let at_it = of_goal.iter().filter(|at| trials[**at]["asked_pps"].as_f64() == Some(lower));
        assert!(at_it.count() >= 1, "{goal:#}");
    }
    for (trial, part) in trials.iter().zip(record["end"]["fleet"]["trials"].as_array().unwrap()) {
        let shares: Vec<Option<f64>> = part["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|host| host["trial"]["asked_pps"].as_f64())
            .collect();
        let asked = trial["asked_pps"].as_f64().unwrap();
        assert_eq!(shares.iter().flatten().sum::<f64>(), asked, "{shares:?}");
    }
    let (_, out, err) = run(&["fleet", "collect", "ndr", "--nats", &url, "--json", "--no-save"]);
    let collected: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!(collected["end"]["throughput"], record["end"]["throughput"]);
    // Without a highest load the warm-up needs the maximum rate, which the owners do not allow.
    let (status, _, err) = fleet_run(&url, "[search]\n", &[]);
    assert_eq!(status, 4);
    assert!(err.contains("owner's rate"), "{err}");
}

#[test]
fn a_ramp_is_a_trial_at_each_step() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let url = nats.url();
    let _agents = [agent(&url, "r", "receiver", &[]), agent(&url, "s", "sender", &[])];
    let plan = "rate = { from = \"500pps\", to = \"1500pps\", steps = 3 }\nduration = \"200ms\"\n";
    let (status, record, err) = fleet_run(&url, plan, &[]);
    assert!(status <= 1, "{err}");
    let trials = record["end"]["trials"].as_array().unwrap();
    let asked: Vec<f64> = trials.iter().map(|trial| trial["asked_pps"].as_f64().unwrap()).collect();
    assert_eq!(asked, [500.0, 1000.0, 1500.0]);
    for (trial, due) in trials.iter().zip([100, 200, 300]) {
        whole(trial, due, &err);
    }
}

#[test]
fn packet_sizes_are_swept_and_a_runs_name_is_taken_once() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let url = nats.url();
    let _agents = [agent(&url, "r", "receiver", &[]), agent(&url, "s", "sender", &[])];
    let plan = "rate = \"500pps\"\nduration = \"200ms\"\nframe-size = [128, 512]\n";
    let (status, record, err) = fleet_run(&url, plan, &["--name", "sizes"]);
    assert!(status <= 1, "{err}");
    let trials = record["end"]["trials"].as_array().unwrap();
    let sizes: Vec<u64> = trials.iter().map(|trial| trial["frame_size_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [128, 512]);
    trials.iter().for_each(|trial| whole(trial, 100, &err));
    assert_eq!(record["end"]["pairs"].as_array().unwrap().len(), 2, "sizes are not repeats of each other");
    // Results of two runs under one name would be merged.
    let (status, again, err) = fleet_run(&url, plan, &["--name", "sizes"]);
    assert_eq!((status, again), (4, Value::Null), "{err}");
    assert!(err.contains("the server already has a run sizes"), "{err}");
    let (_, out, err) = run(&["fleet", "collect", "sizes", "--nats", &url, "--json", "--no-save"]);
    let collected: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!(collected["end"]["trials"], record["end"]["trials"]);
}

#[test]
fn a_host_without_an_agent_is_sent_to_only_if_the_owners_file_names_it() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let url = nats.url();
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    service.set_nonblocking(true).unwrap();
    let plan = format!(
        "rate = \"500pps\"\nduration = \"400ms\"\n[senders]\nwithout-agents = [\"{}\"]\n",
        service.local_addr().unwrap()
    );
    let closed = agent(&url, "s", "sender", &[]);
    let (status, record, err) = fleet_run(&url, &plan, &[]);
    assert_eq!((status, record), (4, Value::Null), "{err}");
    assert!(err.contains("owner's consent") && err.contains("127.0.0.1 without an agent"), "{err}");
    assert!(service.recv(&mut [0; 2048]).is_err(), "no packet was sent");
    drop(closed);
    let limits = testing::own_folder().join("limits.toml");
    std::fs::write(&limits, "allow-without-agent = [\"127.0.0.0/8\"]\n").unwrap();
    let _open = agent(&url, "s", "sender", &["--limits", limits.to_str().unwrap()]);
    let (status, record, err) = fleet_run(&url, &plan, &["--name", "unseen"]);
    assert!(status <= 1, "{err}");
    let trial = &record["end"]["trials"][0];
    let sent = trial["sent"].as_u64().unwrap();
    assert_eq!(sent + trial["receipt"]["shortfall"].as_u64().unwrap(), 200, "{trial:#}");
    // Nobody reports what arrived, and the record does not claim to know.
    assert_eq!(trial["rx"]["label"], "unobserved");
    assert_eq!(trial["ledger"]["lines"][0]["place"], "unobserved", "{trial:#}");
    assert_eq!(trial["ledger"]["unexplained"], 0);
    let mut arrived = 0;
    while service.recv(&mut [0; 2048]).is_ok() {
        arrived += 1;
    }
    assert!(arrived > 0 && arrived <= sent, "{arrived} of {sent}");
    let (_, out, err) = run(&["fleet", "collect", "unseen", "--nats", &url, "--json", "--no-save"]);
    let collected: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!(collected["end"]["trials"], record["end"]["trials"]);
}

/// The page of metrics behind `metrics at URL`.
fn metrics(line: &str) -> String {
    let (_, url) = line.split_once("http://").unwrap();
    let (address, path) = url.trim().split_once('/').unwrap_or((url.trim(), ""));
    let path = if path.is_empty() { "metrics" } else { path };
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// The value of a series whose labels contain this text.
fn series(page: &str, name: &str, label: &str) -> Option<f64> {
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    page.lines().find(is_it)?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn agents_and_runs_have_metrics_and_lines_name_run_and_incarnation() {
    let Some(nats) = crate::support::Nats::start("") else { return };
    let url = nats.url();
    let _receiver = agent(&url, "r", "receiver", &[]);
    let args = ["agent", "--nats", &url, "--name", "s", "--label", "role=sender", "--address", "127.0.0.1"];
    let mut sender = Process::start(linerate(&[&args[..], &["--prometheus", "0"]].concat()));
    let page = sender.wait_for("metrics at ");
    let ready = sender.wait_for("is ready, incarnation ");
    let (_, incarnation) = ready.split_once("is ready, incarnation ").unwrap();
    let file = crate::support::plan("rate = \"1kpps\"\nduration = \"4s\"\n");
    let args = ["fleet", "run", &file, "--name", "seen", "--nats", &url, "--no-save", "--prometheus", "0"];
    let mut coordinator = Process::start(linerate(&args));
    let live = coordinator.wait_for("metrics at ");
    let line = sender.wait_for("starts in ");
    assert!(
        line.contains(&format!("run seen trial 1 attempt 1 incarnation {incarnation}: starts in")),
        "{line}"
    );
    // The agent's own samples reach the coordinator's view while it sends.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let sent = series(&metrics(&live), "linerate_rate_packets_per_second", "at=\"sent\"");
        if sent.is_some_and(|pps| pps > 100.0) {
            break;
        }
        assert!(Instant::now() < until, "no sample came: {}", metrics(&live));
    }
    sender.wait_for("sent ");
    let (status, words) = coordinator.finish();
    assert!(status <= 1, "{words}");
    testing::wait_for("the agent's metrics", || {
        series(&metrics(&page), "linerate_agent_attempts_ended_total", "outcome=\"complete\"") == Some(1.0)
    });
    let after = metrics(&page);
    let sent = series(&after, "linerate_agent_sent_packets_total", incarnation);
    assert!(sent.is_some_and(|packets| packets > 0.0 && packets <= 4000.0), "{after}");
    assert_eq!(series(&after, "linerate_agent_connected_ratio", "agent=\"s\""), Some(1.0), "{after}");
}

#[test]
fn a_plan_with_problems_is_refused_with_all_of_them() {
    let file = crate::support::plan("rate = \"10\"\n[senders]\nengine = \"dpdk\"\n");
    let (status, _, err) = run(&["fleet", "run", &file, "--no-save"]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("rate") && err.contains("dpdk"), "{err}");
    let (status, _, err) = run(&["fleet", "status", "--nats", "nats://127.0.0.1:1"]);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("cannot reach the NATS server at nats://127.0.0.1:1"), "{err}");
    if server_program().is_some() {
        let (status, _, err) = run(&["fleet", "get-server"]);
        assert_eq!(status, 0, "{err}");
    }
}
