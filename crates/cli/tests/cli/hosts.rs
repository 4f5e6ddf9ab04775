//! Senders and receivers on two hosts with a switch between them, each a network namespace.

use serde_json::Value;
use testing::{Hosts, in_namespace};

use crate::support::{Recv, json_of, linerate, signal, words};

/// A buffer for all packets of a test, however rarely the receiver gets a CPU.
const ROOM: [&str; 2] = ["--receive-buffer", "32000000"];

/// A receiver on host B.
pub(crate) fn receiver(hosts: &Hosts, args: &[&str]) -> Recv {
    let mut all = vec!["recv", "--no-save"];
    all.extend(args);
    let mut command = linerate(&all);
    in_namespace(&mut command, &hosts.b);
    Recv::listening(command)
}

/// Runs a sender on host A; returns its status and record.
pub(crate) fn send(hosts: &Hosts, args: &[&str]) -> (i32, Value) {
    let mut all = vec!["send", "--no-save", "--json"];
    all.extend(args);
    let mut command = linerate(&all);
    in_namespace(&mut command, &hosts.a);
    json_of(command)
}

/// Runs a sender on host A that fails; returns its status and messages.
pub(crate) fn refused(hosts: &Hosts, args: &[&str]) -> (i32, String) {
    let mut all = vec!["send", "--no-save"];
    all.extend(args);
    let mut command = linerate(&all);
    let (status, _, err) = words(in_namespace(&mut command, &hosts.a).output().unwrap());
    (status, err)
}

#[test]
fn whole_frames_reach_a_receiver_on_another_host() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.give_switch_rings();
    let _receiver = receiver(&hosts, &ROOM);
    for engine in ["packet", "packet+qdisc", "xsk", "xdp", "udp", "uring"] {
        for target in ["198.18.0.2", "fd18::2"] {
            let args = [target, "--engine", engine, "--threads", "2", "--count", "2000", "--rate", "20kpps"];
            let (status, run) = send(&hosts, &args);
            let trial = &run["end"]["trials"][0];
            assert!(status <= 1, "a busy machine may be late, no more: {engine} {run}");
            assert_eq!(
                (&trial["sent"], &trial["delivered"]),
                (&2000.into(), &2000.into()),
                "{engine} {target} {run}"
            );
            assert_eq!(trial["ledger"]["unexplained"], 0, "{engine} {target}");
        }
    }
}

#[test]
fn link_local_receivers_are_reached_through_their_interface() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.ip(&hosts.b, "address add fe80::b/64 dev vb nodad");
    hosts.ip(&hosts.a, "address add fe80::a/64 dev va nodad");
    let _receiver = receiver(&hosts, &ROOM);
    for engine in ["udp", "packet"] {
        let (_, run) =
            send(&hosts, &["fe80::b%va", "--engine", engine, "--count", "500", "--rate", "20kpps"]);
        let trial = &run["end"]["trials"][0];
        assert_eq!((&trial["sent"], &trial["delivered"]), (&500.into(), &500.into()), "{engine} {run}");
    }
}

#[test]
fn frames_without_a_path_are_refused_before_anything_is_sent() {
    let Some(hosts) = Hosts::join() else { return };
    for (args, said, hint) in [
        (["203.0.113.1", "--engine", "packet"], "no route to 203.0.113.1", "ip route get 203.0.113.1"),
        (["198.18.0.1", "--engine", "xsk"], "198.18.0.1 is an address of this host", "--engine udp"),
        (
            ["198.18.0.9", "--engine", "packet"],
            "198.18.0.9 does not answer on va",
            "ip neigh show 198.18.0.9",
        ),
    ] {
        let (status, err) = refused(&hosts, &args);
        assert_eq!(status, 4, "{err}");
        assert!(err.contains(said) && err.contains(hint), "{args:?}: {err}");
    }
    let (status, err) = refused(&hosts, &["198.18.0.2", "--engine", "packet", "--frame-size", "1519"]);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("IP packets of 1501 bytes are larger than the MTU 1500"), "{err}");
    let (status, err) = refused(&hosts, &["198.18.0.2", "--engine", "packet", "--dst-addr", "198.18.0.7"]);
    assert_eq!(status, 2, "{err}");
    assert!(
        err.contains("cannot set --dst-addr: packets go from this host to the receiver that consented"),
        "{err}"
    );
}

/// Why an engine was skipped.
fn skipped<'r>(run: &'r Value, engine: &str) -> &'r str {
    let all = run["end"]["skipped"].as_array().unwrap_or_else(|| panic!("engines are skipped: {run:#}"));
    let reason = all.iter().find(|skipped| skipped["engine"] == engine).map(|skipped| &skipped["reason"]);
    reason.and_then(Value::as_str).unwrap_or_else(|| panic!("{engine} is skipped: {all:#?}"))
}

/// Runs a command with a record on host A.
fn recorded(hosts: &Hosts, args: &[&str]) -> (i32, Value) {
    let mut command = linerate(args);
    in_namespace(&mut command, &hosts.a);
    json_of(command)
}

#[test]
fn a_receiver_opens_the_engine_that_a_sender_requests() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.give_switch_rings();
    let mut receiver = receiver(&hosts, &["--allow-attach", "--json", ROOM[0], ROOM[1]]);
    let mut theirs = Vec::new();
    for rx in ["udp+reuseport", "uring", "packet", "xsk", "xdp", "xdp+generic", "udp"] {
        let args = ["198.18.0.2", "--rx", rx, "--count", "1000", "--rate", "20kpps"];
        let (_, run) = send(&hosts, &args);
        let trial = &run["end"]["trials"][0];
        assert_eq!((&trial["sent"], &trial["delivered"]), (&1000.into(), &1000.into()), "{rx} {run:#}");
        assert_eq!(trial["rx"]["label"], rx);
        assert_eq!(trial["ledger"]["unexplained"], 0, "{rx} {trial:#}");
        assert_eq!(
            (&trial["wire"]["left"], &trial["wire"]["seen"]),
            (&1000.into(), &1000.into()),
            "{rx} {trial:#}"
        );
        receiver.wait_for("finished");
        theirs.push(trial.clone());
    }
    signal(&receiver.child, "INT");
    let (_, out, _) = receiver.finish();
    let record: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(record["end"]["trials"].as_array(), Some(&theirs), "both ends have the same trials");
}

#[test]
fn what_a_receiver_does_not_allow_is_refused_with_its_reason() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver(&hosts, &["--allow-engines", "packet,xdp", "--max-rate", "10kpps"]);
    for (args, said) in [
        (["--rx", "uring", "--rate", "1kpps"], "does not allow the engine uring (recv --allow-engines)"),
        (
            ["--rx", "xdp", "--rate", "1kpps"],
            "does not allow xdp to attach a program to its interface (recv --allow-attach)",
        ),
        (["--rx", "packet", "--rate", "20kpps"], "allows at most 10000 packets per second: lower --rate"),
    ] {
        let mut all = vec!["198.18.0.2"];
        all.extend(args);
        let (status, err) = refused(&hosts, &all);
        assert_eq!(status, 4, "{err}");
        assert!(err.contains("the receiver at 198.18.0.2:4321 refused: ") && err.contains(said), "{err}");
    }
    let (_, run) = send(&hosts, &["198.18.0.2", "--rx", "packet", "--rate", "5kpps", "--count", "100"]);
    assert_eq!(run["end"]["trials"][0]["delivered"], 100, "{run}");
}

#[test]
fn the_ladder_towards_a_peer_has_every_pair_or_the_reason_why_not() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.give_switch_rings();
    let _receiver = receiver(&hosts, &ROOM);
    let args = ["bench", "--peer", "198.18.0.2", "--trials", "1", "--duration", "50ms", "--rate", "5kpps"];
    let args = [&args[..], &["--no-save", "--json"]].concat();
    let (_, run) = recorded(&hosts, &args);
    for rx in ["xsk (rx)", "xdp (rx)"] {
        assert!(skipped(&run, rx).contains("(recv --allow-attach)"), "{run:#}");
    }
    assert!(!skipped(&run, "pktgen (tx)").is_empty());
    let trials = run["end"]["trials"].as_array().unwrap();
    let label = |trial: &Value, side: &str| trial[side]["label"].as_str().unwrap().to_owned();
    let pairs: Vec<(String, String)> =
        trials.iter().map(|trial| (label(trial, "tx"), label(trial, "rx"))).collect();
    for tx in ["udp", "uring", "packet", "xsk", "xdp"] {
        for rx in ["udp", "udp+gro", "uring", "packet"] {
            assert!(pairs.contains(&(tx.into(), rx.into())), "{tx} → {rx}: {pairs:?}");
        }
    }
    for trial in trials {
        assert_eq!(trial["sent"], trial["delivered"], "{trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
}

#[test]
fn an_engine_that_sends_nothing_is_left_out_and_the_ladder_goes_on() {
    let Some(hosts) = Hosts::join() else { return };
    // The switch's port has no rings, which this host learns from its first frame.
    let _receiver = receiver(&hosts, &ROOM);
    let args = ["bench", "--peer", "198.18.0.2", "--tx", "xdp,udp", "--rx", "udp", "--trials", "1"];
    let args = [&args[..], &["--duration", "50ms", "--rate", "5kpps", "--no-save", "--json"]].concat();
    let (status, run) = recorded(&hosts, &args);
    assert!(status <= 1, "a busy machine may be late, no more: {run:#}");
    assert!(skipped(&run, "xdp (tx)").contains("its peer has no receive rings"), "{run:#}");
    let [trial] = &run["end"]["trials"].as_array().unwrap()[..] else { panic!("one trial: {run:#}") };
    assert_eq!((&trial["tx"]["label"], &trial["sent"]), (&"udp".into(), &trial["delivered"]), "{trial:#}");
}

#[test]
fn a_search_towards_a_peer_needs_no_profile_of_it() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver(&hosts, &ROOM);
    let args = ["tune", "--peer", "198.18.0.2", "--goal", "rx", "--only", "gso", "--duration", "50ms"];
    let args = [&args[..], &["--budget", "6s", "--no-save", "--json"]].concat();
    let (status, run) = recorded(&hosts, &args);
    assert_eq!(status, 0, "{:#}", run["end"]["notes"]);
    assert!(run["end"]["best"]["delivered_pps"].as_f64().unwrap() > 0.0, "{run:#}");
}

#[test]
fn both_directions_are_measured_separately_and_at_once() {
    let Some(hosts) = Hosts::join() else { return };
    let mut receiver = receiver(&hosts, &["--json", ROOM[0], ROOM[1]]);
    let args = [
        "bench",
        "--peer",
        "198.18.0.2",
        "--both-ways",
        "--tx",
        "udp,packet",
        "--rx",
        "udp",
        "--trials",
        "1",
    ];
    let args = [&args[..], &["--duration", "100ms", "--rate", "5kpps", "--no-save", "--json"]].concat();
    let (_, run) = recorded(&hosts, &args);
    let trials = run["end"]["trials"].as_array().unwrap();
    let told = |trial: &Value| {
        let words = [&trial["tx"]["label"], &trial["parameters"]["direction"]];
        words.map(|words| words.as_str().unwrap_or_default().to_owned())
    };
    let told: Vec<_> = trials.iter().map(told).collect();
    let directions =
        ["to the peer", "from the peer", "to the peer, both at once", "from the peer, both at once"];
    let all = ["udp", "packet"]
        .iter()
        .flat_map(|tx| directions.iter().map(move |way| [tx.to_string(), way.to_string()]));
    assert_eq!(told, all.collect::<Vec<_>>(), "{run:#}");
    for trial in trials {
        assert!(trial["sent"].as_u64().unwrap() > 0);
        assert_eq!(trial["sent"], trial["delivered"], "{trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        assert_eq!(
            (&trial["wire"]["left"], &trial["wire"]["seen"]),
            (&trial["sent"], &trial["sent"]),
            "{trial:#}"
        );
    }
    receiver.wait_for("requested packets and received them");
    signal(&receiver.child, "INT");
    let (_, out, _) = receiver.finish();
    let record: Value = serde_json::from_str(&out).unwrap();
    let theirs = record["end"]["trials"].as_array().unwrap();
    assert_eq!(theirs.len(), trials.len());
    for ours in trials {
        let is_same =
            |other: &&Value| (&other["sent"], &other["duration_s"]) == (&ours["sent"], &ours["duration_s"]);
        assert_eq!(theirs.iter().filter(is_same).count(), 1, "{ours:#}");
    }
}
