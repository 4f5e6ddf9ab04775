//! `linerate send` and `linerate recv` as a pair over loopback.

use std::net::UdpSocket;

use crate::support::{Recv, json, linerate, own_folder, run, signal, wait};
use serde_json::Value;

/// A buffer for all packets of a test, however rarely the receiver gets a CPU.
const ROOM: [&str; 2] = ["--receive-buffer", "32000000"];

fn send(receiver: &Recv, args: &[&str]) -> (i32, Value) {
    let target = receiver.address.to_string();
    let mut all = vec!["send", target.as_str(), "--no-save", "--json"];
    all.extend(args);
    json(&all)
}

#[test]
fn both_ends_report_the_same_counts() {
    let receiver = Recv::start(&["--once", "--json", ROOM[0], ROOM[1]]);
    let (status, run) = send(&receiver, &["--count", "5000", "--rate", "20kpps"]);
    assert!(status <= 1, "a busy machine may be late, no more: {run}");
    let sender = &run["end"]["trials"][0];
    assert_eq!(sender["sent"], 5000);
    assert_eq!(sender["delivered"], 5000);
    assert_eq!(sender["ledger"]["unexplained"], 0);
    assert_eq!(sender["receipt"]["scheduled"], 5000);
    assert_eq!(sender["payload_bytes"], 18);
    assert_eq!(run["schema"], "linerate.run/1");
    let (status, out, err) = receiver.finish();
    assert!(status.success(), "{err}");
    let theirs: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(&theirs["end"]["trials"][0], sender);
}

#[test]
fn ipv6_many_threads_flows_and_gso_deliver_every_packet() {
    for (listen, args) in [
        ("[::1]:0", vec!["--threads", "3", "--flows", "7"]),
        ("127.0.0.1:0", vec!["--gso", "--frame-size", "300"]),
        ("[::1]:0", vec!["--gso"]),
        ("127.0.0.1:0", vec!["--engine", "uring", "--flows", "8", "--frame-size", "imix"]),
        ("[::1]:0", vec!["--engine", "uring+sqpoll", "--threads", "2"]),
        ("127.0.0.1:0", vec!["--frame-size", "imix"]),
        ("127.0.0.1:0", vec!["--payload", "16"]),
        ("127.0.0.1:0", vec!["--departures", "burst:16"]),
        ("127.0.0.1:0", vec!["--departures", "poisson", "--probe-clock", "micros"]),
    ] {
        for switches in
            [vec![], vec!["--gro"], vec!["--reuseport", "--threads", "2"], vec!["--engine", "uring"]]
        {
            let mut all = vec!["recv", listen, "--once", "--no-save"];
            all.extend(&switches);
            all.extend(ROOM);
            let receiver = Recv::listening(linerate(&all));
            let mut args = args.clone();
            args.extend(["--count", "3000", "--rate", "30kpps"]);
            let (status, run) = send(&receiver, &args);
            let trial = &run["end"]["trials"][0];
            assert_eq!(trial["sent"], 3000, "{args:?} {switches:?} {run}");
            assert_eq!(trial["delivered"], 3000, "{args:?} {switches:?} {run}");
            assert!(status <= 1, "a busy machine may be late, no more");
        }
    }
}

#[test]
fn several_targets_have_a_thread_each_and_one_ledger() {
    let (one, two) = (Recv::start(&ROOM), Recv::start(&ROOM));
    let (a, b) = (one.address.to_string(), two.address.to_string());
    let (_, run) = json(&["send", &a, &b, "--count", "1000", "--rate", "10kpps", "--json", "--no-save"]);
    let trial = &run["end"]["trials"][0];
    assert_eq!((&trial["sent"], &trial["delivered"]), (&Value::from(1000), &Value::from(1000)));
    assert_eq!(trial["tx"]["threads"], 2);
}

#[test]
fn a_receiver_serves_senders_concurrently_and_in_sequence() {
    let receiver = Recv::start(&ROOM);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| send(&receiver, &["--count", "2000", "--rate", "5kpps", "--threads", "2"]).1)
            })
            .collect();
        for run in runs {
            let run = run.join().unwrap();
            assert_eq!(run["end"]["trials"][0]["delivered"], 2000, "{run}");
        }
    });
    let (_, run) = send(&receiver, &["--count", "100", "--rate", "5kpps"]);
    assert_eq!(run["end"]["trials"][0]["delivered"], 100);
}

#[test]
fn a_receiver_that_refuses_is_not_sent_to() {
    let mut receiver = Recv::start(&[]);
    let target = receiver.address.to_string();
    let args = ["send", &target, "--payload", "16", "--duration", "60s", "--rate", "1kpps", "--no-save"];
    let mut first = linerate(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
    receiver.wait_for("joins");
    let (status, out, err) = run(&["send", &target, "--payload", "16", "--no-save"]);
    assert_eq!((status, out.as_str()), (4, ""), "{err}");
    assert!(
        err.contains(&format!("the receiver at {target} refused: another sender uses payloads below 18")),
        "{err}"
    );
    signal(&first, "TERM");
    assert_eq!(wait(&mut first).code(), Some(1));
}

#[test]
fn losing_the_receiver_stops_the_sender_with_partial_results() {
    let mut receiver = Recv::start(&[]);
    let target = receiver.address.to_string();
    let args = ["send", &target, "--duration", "60s", "--rate", "1kpps", "--no-save", "--json"];
    let mut sender = linerate(&args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    receiver.wait_for("joins");
    signal(&receiver.child, "KILL");
    let status = wait(&mut sender);
    let output = sender.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(err.contains("went away: the peer closed the control connection"), "{err}");
    assert!(err.contains("hint:  results up to that point are shown above"), "{err}");
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trial = &run["end"]["trials"][0];
    assert_eq!(trial["interrupted"], true);
    assert_eq!(trial["ledger"]["unexplained"], 0, "what was not reported is unobserved: {trial}");
    assert_eq!((&trial["delivered"], &trial["loss_ratio"]), (&Value::Null, &Value::Null), "{trial}");
}

#[test]
fn an_interrupted_sender_reports() {
    let mut receiver = Recv::start(&["--once", ROOM[0], ROOM[1]]);
    let target = receiver.address.to_string();
    let args = ["send", &target, "--duration", "60s", "--rate", "1kpps", "--no-save", "--json"];
    let mut sender = linerate(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
    receiver.wait_for("joins");
    signal(&sender, "INT");
    assert_eq!(wait(&mut sender).code(), Some(1));
    let run: Value = serde_json::from_slice(&sender.wait_with_output().unwrap().stdout).unwrap();
    let trial = &run["end"]["trials"][0];
    assert_eq!((trial["interrupted"].as_bool(), &trial["sent"]), (Some(true), &trial["delivered"]));
}

#[test]
fn without_a_handshake_delivery_is_unknown() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = sink.local_addr().unwrap().to_string();
    let (status, run) = json(&["send", &target, "--no-handshake", "-n", "10", "--json", "--no-save"]);
    assert_eq!(status, 0);
    let trial = &run["end"]["trials"][0];
    assert_eq!(trial["ledger"]["lines"][0]["place"], "unobserved");
    assert_eq!(
        (&trial["sent"], &trial["delivered"], &trial["loss_ratio"]),
        (&10.into(), &Value::Null, &Value::Null)
    );
}

#[test]
fn max_loss_decides_the_exit_status() {
    let receiver = Recv::start(&["--receive-buffer", "2000"]);
    let (status, run) = send(&receiver, &["--count", "50000", "--max-loss", "0"]);
    let lost = run["end"]["trials"][0]["loss_ratio"].as_f64().unwrap();
    assert!(lost > 0.0, "a buffer of one packet under a flood loses some");
    assert_eq!(status, 1);
    let (status, _) = send(&receiver, &["--count", "50000", "--max-loss", "100%"]);
    assert_eq!(status, 0);
}

#[test]
fn a_preview_contains_the_requested_frames() {
    let path = own_folder().join("preview.pcap");
    let file = path.to_str().unwrap();
    let (status, _, err) = run(&[
        "send",
        "--write-pcap",
        file,
        "-n",
        "100",
        "--src-port",
        "1024-1123",
        "--dst-addr",
        "198.51.100.7",
        "--frame-size",
        "128",
        "--vlan",
        "42",
    ]);
    assert_eq!(status, 0, "{err}");
    let mut pcap = wire::PcapReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut ports = Vec::new();
    while let Some(captured) = pcap.next_frame().unwrap() {
        let frame = wire::UdpFrame::parse(captured.bytes).unwrap();
        frame.verify_checksums().unwrap();
        assert_eq!(captured.bytes.len(), 124);
        ports.push(frame.flow().src_port);
    }
    assert_eq!(ports, (1024..1124).collect::<Vec<u16>>());
}
