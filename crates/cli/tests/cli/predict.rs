//! A flood in the lab calibrates the model, and its predictions are compared with measurements: counts, not speeds.

use serde_json::Value;

use crate::support::{is_root, json, run, skip};

#[test]
fn a_flood_of_the_lab_calibrates_predictions_that_compare_takes() {
    if !is_root() {
        return skip("an XDP sender needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (flood, predicted, measured) = (path("flood.json"), path("predicted.json"), path("measured.json"));
    let bench =
        ["bench", "--tx", "xdp", "--rx", "udp,packet,xsk,xdp", "--trials", "1", "--duration", "200ms"];
    let (status, _, words) = run(&[&bench[..], &["--save", &flood]].concat());
    assert!(status <= 1, "{words}");

    // A veth pair counts packets by queue if NAPI polls them, as with frames for XDP.
    let flooded: Value = serde_json::from_slice(&std::fs::read(&flood).unwrap()).unwrap();
    for trial in each(&flooded, "trials").iter().filter(|trial| trial["rx"]["engine"] != "xdp") {
        let queued: u64 =
            each_of(&trial["queues"], "rx").iter().map(|queue| queue["packets"].as_u64().unwrap()).sum();
        let delivered = trial["delivered"].as_u64().unwrap();
        assert!(
            queued >= delivered,
            "{queued} packets in queues, {delivered} delivered: {:#}",
            trial["queues"]
        );
    }

    let (_, model) =
        json(&["model", "--from", &flood, "--load", "2kpps,0.5x,2x", "--json", "--save", &predicted]);
    let (trials, points) = (each(&model, "trials"), each(&model, "points"));
    assert_eq!((trials.len(), points.len()), (4 * 3, 4 * 3));
    for (trial, point) in trials.iter().zip(points) {
        let number = |name: &str| trial[name].as_u64().unwrap();
        let lost: u64 =
            each_of(&trial["ledger"], "lines").iter().map(|line| line["packets"].as_u64().unwrap()).sum();
        assert_eq!(number("sent"), number("delivered") + lost, "{trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0);
        assert_eq!((&trial["tx"]["label"], &trial["rx"]["label"]), (&point["tx"], &point["rx"]));
        let free_pps = point["loss_free_pps"].as_f64().unwrap();
        let offered_pps = point["asked_pps"].as_f64().unwrap();
        assert!(free_pps > 4000.0, "{point:#}");
        if offered_pps < 0.6 * free_pps {
            assert_eq!(lost, 0, "below the loss-free rate: {point:#}");
            assert_eq!(trial["receipt"]["kept_up"], true);
        } else {
            let short = trial["receipt"]["kept_up"] == false;
            assert!(short || lost > 0, "twice the loss-free rate is too much for one of the two: {point:#}");
        }
    }

    let (status, _, words) = run(&[&bench[..], &["--rate", "2kpps", "--save", &measured]].concat());
    assert!(status <= 1, "{words}");
    let (status, text, words) = run(&["compare", &measured, &predicted]);
    assert!(status <= 1, "{words}");
    for engine in ["udp", "packet", "xsk", "xdp"] {
        let pair = format!("xdp → {engine}, at 2.0 kpps ");
        let is_compared = |line: &str| line.starts_with(&pair) && line.contains(" delivered ");
        assert!(text.lines().any(is_compared), "{engine}: {text}");
    }

    let plan = [
        "model",
        "plan",
        "--flood",
        "10Mpps",
        "--set",
        "flow_sets=10",
        "--set",
        "queues=4",
        "--from",
        &flood,
    ];
    let (status, text, words) = run(&[&plan[..], &["--no-save"]].concat());
    assert_eq!(status, 0, "{words}");
    for part in ["10.000 Mpps of 64-byte frames in 100000 flows", "needed: ", "first bottleneck: cores"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let (_, planned) = json(&[&plan[..], &["--json", "--no-save"]].concat());
    let queue_pps = planned["start"]["asked"]["queue_pps"].as_f64().unwrap();
    assert!(queue_pps > 4e3 && queue_pps != 10e6, "measured, not the default of 10 Mpps: {queue_pps}");

    let only_xdp = path("only-xdp.json");
    let (status, _, words) = run(&[
        "bench",
        "--tx",
        "xdp",
        "--rx",
        "xdp",
        "--trials",
        "1",
        "--duration",
        "100ms",
        "--save",
        &only_xdp,
    ]);
    assert!(status <= 1, "{words}");
    let (status, _, words) = run(&["model", "plan", "--from", &only_xdp]);
    assert_eq!(status, 4, "{words}");
    assert!(words.contains("no receiver of that run shows a queue's rate"), "{words}");
}

#[test]
fn a_receiver_with_work_per_packet_receives_fewer() {
    if !is_root() {
        return skip("the program of xdp needs root");
    }
    // 1 s of work for what arrives in 200 ms; the XDP program runs on the sender's CPU, so that less is sent.
    for (engine, rate, work, seconds) in [
        ("udp", "50kpps", "100us", 100e-6),
        ("packet", "50kpps", "100us", 100e-6),
        ("xdp", "500kpps", "10us", 10e-6),
    ] {
        let bench = [
            "bench",
            "--tx",
            "packet",
            "--trials=1",
            "--duration=200ms",
            "--no-save",
            "--json",
            "--rx",
            engine,
        ];
        let (_, run) = json(&[&bench[..], &["--rate", rate, "--work", work]].concat());
        let trial = &each(&run, "trials")[0];
        let worked_s = trial["delivered"].as_f64().unwrap() * seconds;
        let took_s = run["end"]["duration_s"].as_f64().unwrap();
        assert!(0.0 < worked_s && worked_s <= took_s, "{engine}: {worked_s} s of work in {took_s} s");
        assert_eq!(trial["rx"]["options"]["work_ns"], (seconds * 1e9) as u64, "{engine}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{engine}: {:#}", trial["ledger"]);
    }
}

fn each<'v>(run: &'v Value, name: &str) -> &'v Vec<Value> {
    each_of(&run["end"], name)
}

fn each_of<'v>(value: &'v Value, name: &str) -> &'v Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value:#}"))
}
