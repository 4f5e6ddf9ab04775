//! `linerate bench` in the lab: the record, the ledger, interruptions.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::support::{as_nobody, is_root, json, linerate, own_folder, run, signal, skip, wait, words};
use serde_json::{Value, json as value};

fn trials(run: &Value) -> &Vec<Value> {
    run["end"]["trials"].as_array().expect("trials are an array")
}

#[test]
fn the_whole_ladder_closes_its_ledger_in_every_trial() {
    let options = ["--duration", "200ms", "--trials", "2", "--no-scale", "--no-lossless"];
    let run = carried(&[&["bench"][..], &options].concat());
    assert_eq!(trials(&run).len(), 2 * run["end"]["pairs"].as_array().unwrap().len());
    every_trial_carries(&run, &options);
}

/// A run in the lab whose trials all close their ledgers.
fn carried(args: &[&str]) -> Value {
    let (_, run) = json(&[args, &["--no-save", "--json"]].concat());
    for trial in trials(&run) {
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        // A veth pair refuses frames that do not fit into its peer's ring.
        let lines = trial["ledger"]["lines"].as_array().unwrap().iter();
        let refused = lines.filter(|line| line["source"] == "lab-tx tx_dropped");
        let refused: u64 = refused.map(|line| line["packets"].as_u64().unwrap()).sum();
        let on_wire = trial["receipt"]["on_wire"].as_u64().unwrap();
        assert_eq!(on_wire + refused, trial["sent"].as_u64().unwrap(), "{trial:#}");
    }
    run
}

/// Asserts that every trial of every pair sends and delivers. A pair with an end that got no CPU time in a trial's window is
/// measured once more, with all its trials.
fn every_trial_carries(run: &Value, options: &[&str]) {
    let label = |trial: &Value, side: &str| trial[side]["label"].as_str().unwrap().to_owned();
    let pair = |trial: &Value| (label(trial, "tx"), label(trial, "rx"));
    let pairs: BTreeSet<_> = trials(run).iter().map(pair).collect();
    let each = trials(run).len() / pairs.len();
    for (tx, rx) in &pairs {
        testing::repeat(&format!("{tx} → {rx} needs CPU time at both ends"), |attempt| {
            let again = (attempt > 1)
                .then(|| carried(&[&["bench", "--tx", tx.as_str(), "--rx", rx.as_str()], options].concat()));
            let trials: Vec<&Value> = trials(again.as_ref().unwrap_or(run))
                .iter()
                .filter(|trial| pair(trial) == (tx.clone(), rx.clone()))
                .collect();
            assert_eq!(trials.len(), each, "trials of {tx} → {rx}");
            let starved = trials.iter().find(|trial| trial["sent"] == 0 || trial["delivered"] == 0);
            starved.map_or(Ok(()), |trial| {
                Err(format!("{} packets sent, {} delivered", trial["sent"], trial["delivered"]))
            })
        });
    }
}

#[test]
fn a_queueing_discipline_s_drops_are_in_the_ledger_to_the_packet() {
    if !is_root() {
        return skip("a process that is not root may not load the kernel's queueing disciplines");
    }
    let args = ["bench", "--tx", "udp", "--rx", "udp", "--qdisc", "tbf:1Mbps", "--payload", "1400"];
    // One socket's buffer holds less than the queue: its sender would wait instead.
    let options = [
        "--threads",
        "4",
        "--duration",
        "300ms",
        "--trials",
        "1",
        "--threaded-napi=off",
        "--no-save",
        "--json",
    ];
    let all = [&args[..], &options].concat();
    let (status, out, err) = run(&all);
    if status == 3 && err.contains("the queueing discipline tbf is not available here") {
        return skip("this kernel has no tbf");
    }
    let run: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{status}: {err}"));
    let trial = &trials(&run)[0];
    assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    let lines = trial["ledger"]["lines"].as_array().unwrap();
    let dropped =
        lines.iter().find(|line| line["place"] == "qdisc full").unwrap_or_else(|| panic!("{trial:#}"));
    assert!(dropped["packets"].as_u64().unwrap() > 0, "{trial:#}");
    assert_eq!(run["start"]["asked"]["lab"]["qdisc"]["tbf"]["bits_per_s"], 1_000_000);
}

#[test]
fn kinds_of_queueing_that_a_kernel_lacks_are_left_out_of_a_sweep() {
    if !is_root() {
        return skip("a process that is not root may not load the kernel's queueing disciplines");
    }
    let args = ["bench", "--tx", "udp", "--rx", "udp", "--sweep", "qdisc=pfifo_fast,fq,fq_codel,red"];
    let (_, run) =
        json(&[&args[..], &["--duration", "100ms", "--trials", "1", "--no-save", "--json"]].concat());
    let ran: BTreeSet<_> =
        trials(&run).iter().map(|trial| trial["parameters"]["qdisc"].to_string()).collect();
    let skipped: Vec<String> =
        run["end"]["skipped"].as_array().unwrap().iter().map(|one| one["engine"].to_string()).collect();
    assert!(ran.contains("\"pfifo_fast\""), "{run:#}");
    for kind in ["fq", "fq_codel", "red"] {
        let is_skipped = skipped.contains(&format!("\"qdisc {kind}\""));
        assert_ne!(ran.contains(&format!("\"{kind}\"")), is_skipped, "{kind}: {ran:?}, {skipped:?}");
    }
}

#[test]
fn a_disk_alone_a_network_alone_and_both_are_compared() {
    let args =
        ["bench", "disk", "--file-size", "8", "--duration", "100ms", "--trials", "1", "--no-save", "--json"];
    let (_, run) = json(&args);
    let points = run["end"]["points"].as_array().unwrap();
    let by =
        |point: &Value| format!("{}: {}", point["part"].as_str().unwrap(), point["by"].as_str().unwrap());
    assert_eq!(
        points.iter().map(by).collect::<Vec<_>>(),
        [
            "disk alone: read",
            "network alone: tcp",
            "both: tcp+file",
            "both: tcp+sendfile",
            "both: tcp+splice"
        ]
    );
    assert!(points.iter().all(|point| point["delivered_bps"].as_f64().unwrap() > 0.0), "{points:#?}");
    let answer = run["end"]["notes"][0].as_str().unwrap();
    assert!(answer.starts_with("The disk alone reads ") && answer.contains("bottleneck"), "{answer}");
    for trial in trials(&run) {
        let stream = &trial["stream"];
        assert_eq!(stream["sent_bytes"], stream["delivered_bytes"], "{trial:#}");
    }
    let short = ["bench", "--tx", "tcp+file", "--rx", "tcp", "--file", "/etc/hostname", "--no-save"];
    let (status, _, err) = crate::support::run(&short);
    assert!(status == 4 && err.contains("the file is shorter than a message"), "{status}: {err}");
}

#[test]
fn held_cpus_are_in_the_record_and_free_afterwards() {
    if !is_root() || !std::path::Path::new("/dev/cpu_dma_latency").exists() {
        return skip("holding CPUs needs root and /dev/cpu_dma_latency");
    }
    let args = [
        "bench",
        "--tx",
        "udp",
        "--rx",
        "udp",
        "--duration",
        "100ms",
        "--trials",
        "1",
        "--no-save",
        "--json",
    ];
    let limit = |more: &[&str]| {
        let (_, run) = json(&[&args[..], more].concat());
        run["start"]["machine"]["cpu_control"]["wake_up_limit_us"].clone()
    };
    assert_eq!(limit(&["--hold-cpu"]), 0);
    // The kernel lifts the limit when the process has ended, in whatever way.
    let mut killed =
        linerate(&["bench", "--tx", "udp", "--rx", "udp", "--duration", "30s", "--hold-cpu", "--no-save"]);
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let now = || std::fs::read("/dev/cpu_dma_latency").ok().filter(|bytes| bytes.len() >= 4);
    testing::wait_for("the limit", || now().is_some_and(|bytes| bytes[..4] == [0; 4]));
    killed.kill().unwrap();
    wait(&mut killed);
    assert_ne!(limit(&[]), 0);
}

#[test]
fn busy_polling_and_shared_memory_deliver_as_other_sockets_do() {
    if !is_root() {
        return skip("AF_XDP needs root");
    }
    let engines = ["bench", "--tx", "xsk+busypoll", "--rx", "xsk+sharedumem,xsk+busypoll+sharedumem"];
    let options = ["--queues", "2", "--duration", "150ms", "--trials", "1"];
    let run = carried(&[&engines[..], &options].concat());
    assert_eq!(trials(&run).len(), 2);
    every_trial_carries(&run, &options);
}

#[test]
fn every_kind_of_overload_is_explained_to_the_packet() {
    for args in [
        &["--threads", "3", "--rx-threads", "1", "--receive-buffer", "4096"][..],
        &["--threads", "2", "--rx", "udp+reuseport,udp+gro+reuseport", "--flows", "16"],
        &["--ipv6", "--threads", "2"],
        // The slowest sender and the fastest into every receiver.
        &["--tx", "udp,xdp", "--threaded-napi", "--threads", "2"],
        &["--tx", "udp,xdp", "--frame-size", "1518", "--receive-buffer", "10000"],
        &["--tx", "udp,xdp", "--frame-size", "imix", "--spin"],
        &["--tx", "udp,xdp", "--frame-size", "8000", "--queues", "1"],
        &["--tx", "udp,xdp", "--no-pin", "--payload", "16"],
    ] {
        let mut all = vec!["bench", "--duration", "150ms", "--trials", "1", "--no-save", "--json"];
        all.extend(args);
        let (_, run) = json(&all);
        assert!(!trials(&run).is_empty(), "{args:?}");
        for trial in trials(&run) {
            assert_eq!(trial["ledger"]["unexplained"], 0, "{args:?} {trial:#}");
        }
    }
}

#[test]
fn receiving_is_on_the_receiver_s_cpus_and_the_record_names_them() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("two sides need two CPUs");
    }
    let pair = |more: &[&str]| {
        let base =
            ["bench", "--tx=udp", "--rx=udp,xdp", "--trials=1", "--duration=50ms", "--no-save", "--json"];
        let (_, run) = json(&[&base, more].concat());
        trials(&run).iter().map(|trial| trial["rx"].clone()).collect::<Vec<Value>>()
    };
    for side in pair(&[]) {
        assert_eq!(side["options"]["threaded_napi"], true, "{side:#}");
        if is_root() {
            assert_eq!(side["options"]["napi_cpus"], side["cpus"], "the two CPUs are shared out: {side:#}");
        }
    }
    for side in pair(&["--threaded-napi=off"]) {
        assert_eq!(side["options"]["threaded_napi"], false, "{side:#}");
    }
    for side in pair(&["--no-pin"]) {
        assert_eq!(side["options"]["threaded_napi"], false, "the scheduler decides: {side:#}");
    }
}

#[test]
fn a_receiver_that_needs_no_cpu_leaves_all_cpus_to_the_senders() {
    if !is_root() {
        return skip("a receiver in XDP needs root");
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = format!("--threads={cpus}");
    let base = ["bench", "--tx=udp", "--rx=xdp", "--trials=1", "--duration=50ms", "--no-save", "--json"];
    let (_, run) = json(&[&base[..], &[threads.as_str()]].concat());
    let [trial] = &trials(&run)[..] else { panic!("{run:#}") };
    assert_eq!(trial["rx"]["options"]["threaded_napi"], false, "{trial:#}");
    if cpus > 1 {
        assert_eq!(trial["tx"]["cpus"].as_array().unwrap().len(), cpus, "{trial:#}");
    }
}

#[test]
fn the_best_pairs_run_over_all_cpus_and_are_saved_as_points() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return skip("scaling needs two CPUs");
    }
    let args = [
        "bench",
        "--tx=udp,packet",
        "--rx=udp",
        "--scale",
        "--trials=1",
        "--duration=60ms",
        "--no-save",
        "--json",
    ];
    let (_, run) = json(&args);
    let points = run["end"]["points"].as_array().unwrap();
    let threads: Vec<usize> =
        points.iter().map(|point| point["threads"].as_u64().unwrap() as usize).collect();
    assert_eq!((threads.first(), threads.last()), (Some(&1), Some(&cpus)), "{points:#?}");
    assert!(points.iter().all(|point| point["rx"] == "udp+reuseport" && point["efficiency_ratio"].is_f64()));
    assert_eq!(trials(&run).len(), 2 + points.len(), "the ladder's two and one a point");
    let sides: BTreeSet<&str> = run["end"]["capacities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["side"].as_str().unwrap())
        .collect();
    assert_eq!(sides, BTreeSet::from(["receiving", "sending"]));
}

#[test]
fn an_unavailable_engine_is_a_failure() {
    let (status, _, err) = run(&["bench", "--tx", "pktgen", "--rx", "udp", "--trials", "1", "--no-save"]);
    if std::path::Path::new("/proc/net/pktgen").exists() {
        return skip("this kernel has pktgen");
    }
    assert_eq!(status, 3, "{err}");
    assert!(err.contains("nothing was measured: pktgen (tx): "), "{err}");
}

#[test]
fn a_rate_is_held_or_reported_as_not_held() {
    let base = ["bench", "--tx", "udp", "--rx", "udp", "--trials", "1", "--no-save", "--json"];
    let with = |args: &[&str]| json(&[&base, args].concat());
    let (_, run) = with(&["--rate", "5kpps", "--duration", "1s"]);
    let receipt = &trials(&run)[0]["receipt"];
    assert_eq!(receipt["scheduled"], 5000, "the schedule does not depend on the machine's speed");
    let (status, run) = with(&["--rate", "1Gpps", "--duration", "100ms"]);
    let trial = &trials(&run)[0];
    assert_eq!(trial["receipt"]["kept_up"], false);
    assert_eq!(status, 1);
    let shortfall = trial["receipt"]["shortfall"].as_u64().unwrap();
    assert_eq!(shortfall + trial["sent"].as_u64().unwrap(), trial["receipt"]["scheduled"].as_u64().unwrap());
    assert_eq!(trial["ledger"]["unexplained"], 0, "the generator's shortfall is nobody's loss");
}

#[test]
fn a_plan_is_printed_and_nothing_else_done() {
    let (status, plan) = json(&["bench", "--dry-run", "--threads", "2", "--rate", "1Mpps"]);
    assert_eq!(status, 0);
    assert_eq!((&plan["tx_threads"], &plan["rate_pps"]), (&Value::from(2), &Value::from(1e6)));
    assert_eq!(plan["pairs"][0]["tx"]["engine"], "udp");
}

#[test]
fn a_plan_contains_every_option_of_its_engines() {
    let args = ["bench", "--dry-run", "--tx", "udp+gso,tcp", "--rx", "udp,tcp", "--send-buffer", "70001"];
    let more = ["--receive-buffer", "70002", "--busy-poll", "33", "--send-size", "4000"];
    let (status, plan) = json(&[&args[..], &more[..]].concat());
    assert_eq!(status, 0);
    let pairs = plan["pairs"].as_array().unwrap();
    let side = |pair: usize, side: &str| pairs[pair][side].clone();
    assert_eq!(
        side(0, "tx"),
        value!({"engine": "udp", "gso": true, "returns": false, "send_buffer_bytes": 70001})
    );
    assert_eq!(
        side(0, "rx"),
        value!({"engine": "udp", "gro": false, "reuse_port": false, "drop_counts": false,
            "receive_buffer_bytes": 70002, "busy_poll_micros": 33})
    );
    assert_eq!(
        side(1, "tx"),
        value!({"engine": "tcp", "send": "copy", "message_bytes": 4000, "send_buffer_bytes": 70001})
    );
    assert_eq!(
        side(1, "rx"),
        value!({"engine": "tcp", "truncate": false, "message_bytes": 4000, "receive_buffer_bytes": 70002})
    );
}

#[test]
fn the_command_line_overrides_a_scenario() {
    let path = own_folder().join("scenario.toml");
    std::fs::write(&path, "scenario = 1\n[bench]\ntx = \"udp\"\nrate = \"5kpps\"\nthreads = 2\n").unwrap();
    let (_, plan) = json(&["bench", path.to_str().unwrap(), "--rate", "7kpps", "--dry-run"]);
    assert_eq!((&plan["tx_threads"], &plan["rate_pps"]), (&Value::from(2), &Value::from(7000.0)));
    std::fs::write(&path, "scenario = 1\n[bench]\nthread = 2\n").unwrap();
    let (status, _, err) = run(&["bench", path.to_str().unwrap()]);
    assert_eq!(status, 2);
    assert!(err.contains("[bench]: unknown key 'thread': did you mean 'threads'?"), "{err}");
}

#[test]
fn a_built_in_scenario_runs_by_name_with_options_overridden() {
    let (status, plan) = json(&["bench", "pacing", "--dry-run", "--tx=xdp", "--rate", "5kpps"]);
    assert_eq!(status, 0);
    assert_eq!((&plan["trials"], &plan["rate_pps"]), (&Value::from(3), &Value::from(5000.0)));
    assert_eq!(plan["pairs"].as_array().unwrap().len(), 1, "its list of engines is replaced, not added to");
    assert_eq!(plan["pairs"][0]["tx"]["engine"], "xdp");
    assert_eq!(json(&["bench", "--dry-run", "pacing"]).1["rate_pps"], 1e5, "the name may come last");
}

#[test]
fn the_built_in_scenarios_are_described() {
    let (status, out, _) = run(&["bench", "list"]);
    assert_eq!(status, 0);
    assert!(out.contains("pacing: Pacing") && out.contains("rdr: Receive descriptor recycling"), "{out}");
    let (_, list) = json(&["bench", "list", "--json"]);
    assert!(list.as_array().unwrap().iter().all(|scenario| scenario["description"] != ""));
}

#[test]
fn a_stream_has_one_object_per_line_and_ends_as_the_run() {
    let args = [
        "bench",
        "--duration=150ms",
        "--trials=1",
        "--interval=50ms",
        "--no-lossless",
        "--json-stream",
        "--no-save",
    ];
    let (_, out, _) = run(&args);
    let lines: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    let text = out.lines().next().unwrap();
    assert!(text.contains("linerate.run/1"), "{text}");
    let read = report::read_json(&out).unwrap();
    assert!(!read.end.trials.is_empty() && !read.intervals.is_empty());
    assert!(lines.len() > 3);
}

#[test]
fn the_saved_run_is_complete_and_named() {
    let path = own_folder().join("saved.json");
    let file = path.to_str().unwrap();
    let args =
        ["bench", "--duration", "100ms", "--trials", "1", "--tx", "udp", "--rx", "udp", "--save", file];
    let (_, out, err) = run(&args);
    assert!(err.contains(&format!("saved: {file}")), "{err}");
    assert!(out.contains("udp") && out.contains("unexplained"), "{out}");
    let saved = report::read_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(saved.end.trials.len(), 1);
    assert!(!saved.start.machine.kernel.is_empty());
}

#[test]
fn one_interrupt_stops_and_reports_what_was_measured() {
    let args = ["bench", "--duration", "30s", "--trials", "1", "--json", "--no-save"];
    let mut child = linerate(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.starts_with("trial 1/"), "{line}");
    signal(&child, "INT");
    assert_eq!(wait(&mut child).code(), Some(1));
    let run: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(run["end"]["interrupted"], true);
    assert_eq!(trials(&run)[0]["ledger"]["unexplained"], 0);
}

#[test]
fn a_second_interrupt_ends_it_at_once() {
    let args = ["bench", "--duration", "30s", "--trials", "1", "--no-save"];
    let mut child = linerate(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    signal(&child, "STOP");
    signal(&child, "INT");
    signal(&child, "CONT");
    signal(&child, "INT");
    let status = wait(&mut child);
    let died = std::os::unix::process::ExitStatusExt::signal(&status);
    assert!(died == Some(2) || status.code() == Some(1), "{status}");
}

#[test]
fn without_root_the_ladder_runs_in_a_user_namespace() {
    if !is_root() {
        return skip("needs root to change its user");
    }
    let args = ["bench", "--duration", "100ms", "--trials", "1", "--json", "--no-save"];
    let (_, out, err) = words(as_nobody(linerate(&args)).output().unwrap());
    let run: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert!(!trials(&run).is_empty());
    for trial in trials(&run) {
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
    let notes = run["end"]["notes"].to_string();
    assert!(notes.contains("Ran without root, in a user namespace"), "{notes}");
}

#[test]
fn a_kill_at_any_moment_leaves_no_namespace_behind() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    println!("seed {seed}");
    let mut state = u64::from(seed);
    let mut seen = 0;
    for _ in 0..25 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let after = Duration::from_micros(state >> 46);
        let args = ["bench", "--duration", "5s", "--trials", "1", "--threads", "2", "--no-save"];
        let mut child = linerate(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        let mut namespaces = BTreeSet::new();
        while began.elapsed() < after {
            namespaces.extend(namespaces_of(&format!("/proc/{}/task", child.id())));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        namespaces.remove(&std::fs::read_link("/proc/self/ns/net").unwrap());
        seen += namespaces.len();
        let since = Instant::now();
        while !all_namespaces().is_disjoint(&namespaces) {
            assert!(since.elapsed() < Duration::from_secs(60), "{namespaces:?} outlived the process");
            std::thread::yield_now();
        }
    }
    assert!(seen > 0, "some kills hit a running lab");
    let names = std::fs::read_dir("/sys/class/net").unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("lab-")).count(), 0);
}

fn namespaces_of(tasks: &str) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    tasks.flat_map(|task| std::fs::read_link(task.path().join("ns/net"))).collect()
}

fn all_namespaces() -> BTreeSet<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.flat_map(|process| namespaces_of(&process.path().join("task").to_string_lossy())).collect()
}

#[test]
fn concurrent_runs_do_not_change_each_other_s_counts() {
    let start = || {
        let args =
            ["bench", "--duration=300ms", "--trials=1", "--no-scale", "--no-lossless", "--json", "--no-save"];
        linerate(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    for child in [start(), start()] {
        let run: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        for trial in trials(&run) {
            assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        }
    }
}

#[test]
fn the_single_rx_queue_scenario_measures_every_available_filter_under_both_floods() {
    if !is_root() {
        return skip("XDP programs need root");
    }
    testing::repeat("a flood, a service and a filter need CPU time in the same window", |_| {
        let args = ["bench", "single-rx-queue", "--duration", "200ms", "--no-save", "--json"];
        let (status, run) = json(&args);
        // The exit status reports a flood that the sender could not pace.
        let kept_up = trials(&run).iter().all(|trial| trial["receipt"]["kept_up"] == true);
        assert_eq!(status, i32::from(!kept_up), "{:#}", run["end"]["notes"]);
        check_rows(&run)
    });
}

/// Asserts that every row is a trial whose ledger adds up, with what the filter dropped as a line of its own.
fn check_ledgers(points: &[Value], trials: &Value) {
    let trials = trials.as_array().unwrap();
    assert_eq!(trials.len(), points.len());
    for (point, trial) in points.iter().zip(trials) {
        assert_eq!(trial["parameters"]["filter"], point["filter"]);
        assert_eq!(trial["parameters"]["flood"], point["flood"]);
        let ledger = &trial["ledger"];
        let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value} in {trial:#}"));
        let lines = ledger["lines"].as_array().unwrap();
        let lost: i64 = lines.iter().map(|line| number(&line["packets"])).sum();
        let explained = number(&ledger["delivered"]) + lost + number(&ledger["unexplained"]);
        assert_eq!(number(&ledger["sent"]), explained, "{trial:#}");
        assert_eq!(trial["receipt"]["handed"], ledger["sent"]);
        let filtered = lines.iter().find(|line| line["place"] == "dropped by the filter");
        let filters =
            point["filter"] != "none, the service reads all" && point["filtered_pps"].as_f64() > Some(0.0);
        assert!(!filters || filtered.is_some_and(|line| number(&line["packets"]) > 0), "{trial:#}");
        assert_eq!(ledger["unexplained"], 0, "{trial:#}");
    }
}

/// Asserts what is true of every row, and returns those without traffic: every flood sends, every service is served without
/// a flood, and every filter drops packets of one flood or the other.
fn check_rows(run: &Value) -> Result<(), String> {
    let (mut starved, mut idle, mut dropping) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let skipped: Vec<&Value> =
        run["end"]["skipped"].as_array().unwrap().iter().map(|skipped| &skipped["engine"]).collect();
    // The kernel may lack nftables, and the machine nft.
    assert!(skipped.iter().all(|engine| *engine == "nft at ingress"), "{skipped:?}");
    let points = run["end"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 15 - 2 * skipped.len());
    check_ledgers(points, &run["end"]["trials"]);
    for point in points {
        let number = |name: &str| point[name].as_f64().unwrap_or_else(|| panic!("{name} in {point}"));
        let flooded = point["flood"] != "none";
        let filter = point["filter"].as_str().unwrap();
        if flooded {
            let filters = if number("filtered_pps") > 0.0 { &mut dropping } else { &mut idle };
            filters.insert(filter);
        }
        let came = match flooded {
            true => number("flood_pps") > 0.0,
            false => number("valid_delivered_packets") > 0.0 && number("transfer_bps") > 0.0,
        };
        if !came {
            starved.push(format!("no traffic with {filter}, flood {}", point["flood"]));
        }
        assert!(flooded || number("flood_pps") == 0.0, "{point}");
        assert!(number("flood_pps") == 0.0 || number("filtered_pps") <= number("flood_pps") * 1.5, "{point}");
        assert!(number("valid_sent_packets") > 0.0, "{point}");
        assert_eq!(point["asked_pps"].is_null(), point["flood"] != "ten-times", "{point}");
        assert!((0.0..=1.0).contains(&number("valid_delivered_ratio")), "{point}");
        assert_eq!(point["flood_of_path_ratio"].is_null(), !flooded, "{point}");
        assert!(point["lost_packets_by_place"].is_object() && number("transfer_bps") >= 0.0, "{point}");
        // If the filter counts valid packets, no more pass than arrived, and no more arrived than were sent.
        let counts = !["none, the service reads all", "socket filter"].contains(&filter);
        assert_eq!(point["valid_arrived_packets"].is_u64(), counts, "{point}");
        if counts {
            let arrived = number("valid_arrived_packets");
            assert!(number("valid_delivered_packets") <= arrived, "{point}");
            assert!(arrived <= number("valid_sent_packets"), "{point}");
        }
    }
    assert_eq!(dropping.union(&idle).count(), 6 - skipped.len(), "{dropping:?} {idle:?}");
    starved.extend(idle.difference(&dropping).map(|filter| format!("{filter} dropped nothing")));
    let published: Vec<f64> = run["end"]["figures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|figure| figure["published"].as_f64().unwrap())
        .collect();
    assert_eq!(published, [5.84, 6.0, 5.84]);
    if starved.is_empty() { Ok(()) } else { Err(starved.join("; ")) }
}

#[test]
fn engines_that_cannot_send_large_packets_are_skipped_and_the_rest_runs() {
    if !is_root() {
        return skip("XDP needs root");
    }
    let large = ["bench", "--tx=udp", "--rx=xsk,udp", "--payload=8000", "--mtu=9000", "--trials=1"];
    let (status, run) = json(&[&large[..], &["--duration=100ms", "--no-save", "--json"]].concat());
    assert_eq!(status, 0, "{run:#}");
    let trials = run["end"]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 1, "{run:#}");
    assert_eq!((&trials[0]["rx"]["label"], &trials[0]["ledger"]["unexplained"]), (&"udp".into(), &0.into()));
    let left_out = &run["end"]["skipped"][0];
    assert_eq!(left_out["engine"], "udp → xsk");
    assert!(left_out["reason"].as_str().unwrap().contains("cannot attach XDP to lab-rx"), "{left_out}");
}

#[test]
fn unsegmented_messages_are_not_sent_to_receivers_that_count_frames() {
    let pairs = ["bench", "--tx=udp+gso", "--rx=udp,packet", "--offload=tso", "--dry-run"];
    let (_, plan) = json(&pairs);
    assert_eq!(plan["pairs"].as_array().unwrap().len(), 1, "{plan:#}");
    let skipped = plan["skipped"].as_array().unwrap();
    let reason = skipped.iter().find(|skipped| skipped["engine"] == "udp+gso → packet").unwrap();
    assert!(reason["reason"].as_str().unwrap().contains("packet sockets count frames"), "{reason}");
}
