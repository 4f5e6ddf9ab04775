//! Strangers can affect only their own trials at a receiver.

use std::{
    collections::BTreeMap,
    fs,
    net::UdpSocket,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use crate::support::{Recv, is_root, json, linerate, signal, skip, words};
use measure::{Cost, Endpoint, Histogram, Ledger, Receipt, Trial};
use serde_json::{Value, json as document};
use session::{Guest, Offer, PROTOCOL};
use wire::ProbeHeader;

const ROOM: [&str; 2] = ["--receive-buffer", "8000000"];

fn offer() -> Offer {
    Offer {
        protocol: PROTOCOL,
        version: "test".into(),
        streams: 1,
        payload_bytes: 18,
        rate_pps: None,
        duration_s: Some(60.0),
        count: None,
        reflect: false,
        profile: false,
        receiver: None,
        witness: false,
        kept: None,
    }
}

/// A trial of no packets.
fn nothing_sent() -> Trial {
    Trial {
        trial: 1,
        tx: Endpoint {
            options: BTreeMap::from([("x".into(), document!("y".repeat(900)))]),
            ..Endpoint::default()
        },
        rx: Endpoint::default(),
        frame_size_bytes: 64,
        payload_bytes: 18,
        asked_pps: None,
        parameters: BTreeMap::new(),
        duration_s: 0.0,
        sent: 0,
        sent_pps: 0.0,
        delivered: 0,
        delivered_pps: 0.0,
        loss_ratio: 0.0,
        tx_cost: Cost::default(),
        rx_cost: Cost::default(),
        cpus: Vec::new(),
        queues: None,
        ledger: Ledger::close(0, 0, Vec::new()),
        receipt: Receipt::judge(None, 0, 0, 0.0, &Histogram::new()),
        statistics: None,
        round_trips: None,
        stream: None,
        interrupted: false,
        profile: None,
        wire: None,
        ..Trial::default()
    }
}

#[test]
fn a_forged_summary_does_not_end_a_receiver_that_waits_for_one_trial() {
    let mut receiver = Recv::start(&["--once", "--json", ROOM[0], ROOM[1]]);
    let (mut guest, _) = Guest::join(receiver.address, &offer()).unwrap();
    assert_eq!(guest.finish(0).unwrap().delivered, 0);
    guest.summarise(&Trial { sent: 10u64.pow(15), ..nothing_sent() });
    let said = receiver.wait_for("summary is invalid");
    assert!(said.contains("it claims 1000000000000000 packets sent, but the session has 0"), "{said}");
    let target = receiver.address.to_string();
    let (_, run) = json(&["send", &target, "--count", "200", "--rate", "5kpps", "--no-save", "--json"]);
    assert_eq!(run["end"]["trials"][0]["delivered"], 200);
    let (status, out, err) = receiver.finish();
    assert!(status.success(), "{err}");
    let run: Value = serde_json::from_str(&out).unwrap();
    let trials = run["end"]["trials"].as_array().unwrap();
    assert_eq!((trials.len(), &trials[0]["sent"]), (1, &Value::from(200)));
}

#[test]
fn the_record_keeps_a_limited_number_of_trials() {
    const TRIALS: u32 = 300;
    let receiver = Recv::start(&["--json"]);
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while next.fetch_add(1, Relaxed) < TRIALS {
                    let (mut guest, _) = Guest::join(receiver.address, &offer()).unwrap();
                    guest.finish(0).unwrap();
                    guest.summarise(&nothing_sent());
                }
            });
        }
    });
    // The receiver reports this last trial after all others.
    signal(&receiver.child, "INT");
    let (status, out, err) = receiver.finish();
    assert!(status.success(), "{err}");
    let end = serde_json::from_str::<Value>(&out).unwrap()["end"].clone();
    assert_eq!(err.matches(" finished").count(), TRIALS as usize);
    assert_eq!(end["trials"].as_array().unwrap().len(), 256);
    let notes = end["notes"].to_string();
    assert!(notes.contains("The record holds the first 256 trials; 44 later ones are not in it."), "{notes}");
}

#[test]
fn datagrams_with_guessed_tags_are_foreign() {
    let receiver = Recv::start(&["--json", ROOM[0], ROOM[1]]);
    let target = receiver.address.to_string();
    let is_over = AtomicBool::new(false);
    let (forged, run) = std::thread::scope(|scope| {
        let forging = scope.spawn(|| {
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut payload = [0; 18];
            let mut forged = 0u64;
            while !is_over.load(Relaxed) {
                // Guesses 1 to 255: tags used to be only those, and the first sender had the first.
                for stream in 1..=4 {
                    ProbeHeader { sequence: 0, raw_time: 0, stream }.write(&mut payload);
                    stranger.send_to(&payload, receiver.address).unwrap();
                    forged += 1;
                }
                std::thread::park_timeout(std::time::Duration::from_millis(2));
            }
            forged
        });
        let sent = json(&["send", &target, "--count", "2000", "--rate", "2kpps", "--no-save", "--json"]);
        is_over.store(true, Relaxed);
        (forging.join().unwrap(), sent.1)
    });
    let trial = &run["end"]["trials"][0];
    assert_eq!((&trial["sent"], &trial["delivered"]), (&Value::from(2000), &Value::from(2000)), "{trial:#}");
    signal(&receiver.child, "INT");
    let (_, out, err) = receiver.finish();
    let notes = serde_json::from_str::<Value>(&out).unwrap()["end"]["notes"].to_string();
    let said =
        format!("{} packets received in total, {forged} of them not from linerate or pktgen", forged + 2000);
    assert!(notes.contains(&said), "{notes} {forged} {err}");
}

#[test]
fn senders_from_elsewhere_need_permission() {
    if !is_root() {
        return skip("namespaces need root");
    }
    // 203.0.113.0/24 is reserved for documentation, and not a private network.
    const SCRIPT: &str = "set -e; ip link set lo up; ip addr add 203.0.113.7/32 dev lo; folder=$(mktemp -d); \
        mkfifo $folder/said; $0 recv 0.0.0.0:5432 --duration 60s --no-save \"$@\" 2>$folder/said >/dev/null & recv=$!; \
        exec 7<$folder/said; rm -r $folder; read -r line <&7; status=0; \
        $0 send 203.0.113.7:5432 --count 100 --rate 10kpps --no-save --json || status=$?; \
        kill -INT $recv; cat <&7 >&2; wait $recv; exit $status";
    let sent = |allow: &[&str]| {
        let program = linerate(&[]);
        let mut shell = Command::new("unshare");
        shell.args(["-n", "bash", "-c", SCRIPT]).arg(program.get_program()).args(allow);
        words(shell.output().unwrap())
    };
    let reason = "203.0.113.7 is not a private, link-local, loopback or benchmarking address: start it with --allow 203.0.113.7";
    let (status, out, err) = sent(&[]);
    assert_eq!((status, out.as_str()), (4, ""), "{err}");
    assert!(err.contains(&format!("error: the receiver at 203.0.113.7:5432 refused: {reason}")), "{err}");
    let at_the_receiver = err.lines().any(|line| line.starts_with("203.0.113.7:") && line.ends_with(reason));
    assert!(at_the_receiver, "{err}");
    let (status, _, err) = sent(&["--allow", "10.0.0.0/8"]);
    assert_eq!(status, 4, "{err}");
    assert!(
        err.contains("it does not allow the network of 203.0.113.7: start it with --allow 203.0.113.7"),
        "{err}"
    );
    let (status, out, err) = sent(&["--allow", "10.0.0.0/8", "--allow", "203.0.113.0/24"]);
    assert!(status <= 1, "a busy machine may be late, no more: {err}");
    let run: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(run["end"]["trials"][0]["delivered"], 100, "{err}");
    let (status, _, err) = words(linerate(&["recv", "--allow", "lan"]).output().unwrap());
    assert_eq!(status, 2, "{err}");
    assert!(
        err.contains("'lan' is not a network: expected for example 192.0.2.0/24 or 2001:db8::/32"),
        "{err}"
    );
}

#[test]
fn a_receiver_keeps_only_the_privileges_that_its_plan_shows() {
    let (status, plan) = json(&["recv", "--dry-run"]);
    assert_eq!(status, 0);
    let names = plan["privileges"]["capabilities"].as_array().unwrap();
    assert!(names.contains(&"CAP_NET_RAW".into()) && !names.contains(&"CAP_SYS_ADMIN".into()), "{names:?}");
    assert!(plan["privileges"]["refused_calls"].as_array().unwrap().contains(&"execve".into()));
    // Numbers of capabilities(7): bind service, net admin, net raw, ipc lock, sys nice, syslog, perfmon, bpf.
    let kept = [10, 12, 13, 14, 23, 34, 38, 39];
    assert_eq!(names.len(), kept.len());
    let kept: u64 = kept.iter().map(|number| 1u64 << number).sum();

    let receiver = Recv::start(&[]);
    let tasks = fs::read_dir(format!("/proc/{}/task", receiver.child.id())).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let statuses: Vec<String> = statuses.collect();
    assert!(statuses.len() > 1, "{statuses:?}");
    for status in statuses {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        for set in ["CapEff:", "CapPrm:"] {
            assert_eq!(u64::from_str_radix(field(set), 16).unwrap() & !kept, 0, "{status}");
        }
        assert_eq!((field("CapInh:"), field("CapAmb:")), ("0000000000000000", "0000000000000000"));
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"), "{status}");
    }
}
