//! Receive statistics: what `--stats` measures, on every engine.

use std::{path::PathBuf, process::Command};

use crate::support::{
    Recv, in_folder, is_root, json, json_of, linerate, linerate_first, own_folder, skip, words,
};
use serde_json::Value;

/// The only trial of a lab run that measures times.
fn trial(tx: &str, rx: &str, args: &[&str]) -> Value {
    trial_of(linerate(&trial_args(tx, rx, args)))
}

fn trial_args<'a>(tx: &'a str, rx: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["bench", "--tx", tx, "--rx", rx, "--trials", "1", "--stats", "time"];
    all.extend(["--receive-buffer", "8000000", "--no-save", "--json"]);
    all.extend(args);
    all
}

fn trial_of(command: Command) -> Value {
    let (_, run) = json_of(command);
    run["end"]["trials"][0].clone()
}

/// Packets that seem to arrive before they were sent. If the clock is read once per NAPI poll, those sent after the start of
/// the poll that takes them do; otherwise none.
fn before_sent(rx: &str, total: &Value) -> u64 {
    let before_sent = total["before_sent"].as_u64().unwrap();
    let by_poll = rx.starts_with("xdp") || rx.starts_with("xsk");
    let bound = if by_poll { 5 + total["packets"].as_u64().unwrap() / 100 } else { 0 };
    assert!(before_sent <= bound, "{rx} {total:#}");
    before_sent
}

#[test]
fn every_engine_measures_every_packet() {
    let mut receivers = vec!["udp", "udp+reuseport", "udp+gro", "uring", "uring+reuseport", "packet"];
    if is_root() {
        receivers.extend(["xsk", "xdp", "xdp+generic"]);
    } else {
        skip("AF_XDP and XDP need root");
    }
    for rx in receivers {
        for args in [&["--ipv6"][..], &["--probe-clock", "micros", "--threads", "2", "--flows", "4"]] {
            // At most what the smallest ring holds, however rarely its reader gets a CPU.
            let mut all = vec!["--rate", "5kpps", "--duration", "200ms"];
            all.extend(args);
            let trial = trial("udp", rx, &all);
            let statistics = &trial["statistics"];
            let total = &statistics["total"];
            assert_eq!(trial["ledger"]["lines"].as_array().map(Vec::len), Some(0), "{rx} {args:?} {trial}");
            assert_eq!(total["packets"], trial["delivered"], "{rx} {args:?} {statistics:#}");
            let delivered = trial["delivered"].as_u64().unwrap();
            let sequence = &statistics["sequence"];
            assert_eq!(
                (&sequence["lost"], &sequence["duplicates"]),
                (&Value::from(0), &Value::from(0)),
                "{rx} {args:?} {trial}"
            );
            assert_eq!(sequence["received"], delivered);
            let latency = &total["latency"];
            // Microseconds are truncated: a packet seems to have left a little earlier, never later.
            let before_sent = before_sent(rx, total);
            assert_eq!(latency["samples"], delivered - before_sent, "{rx} {args:?} {total:#}");
            let samples = |name: &str| total[name]["samples"].as_u64().unwrap();
            let readers = statistics["readers"].as_array().unwrap();
            let readers = readers.iter().filter(|reader| reader["packets"] != 0).count() as u64;
            assert_eq!(samples("inter_arrival"), delivered - readers);
            assert!(samples("jitter") < delivered && samples("flow_inter_arrival") < delivered);
            let p99 = latency["p99_ns"].as_u64().unwrap();
            assert!((1..2_000_000_000).contains(&p99), "{rx} {args:?}: {p99}");
            let timing = &statistics["timing"];
            // A debug build on a busy machine; 0 would mean that the cost was not measured.
            for cost in ["clock_read_ns", "measuring_ns", "measuring_together_ns"] {
                let ns = timing[cost].as_f64().unwrap_or_else(|| panic!("{rx} {cost}: {timing:#}"));
                assert!((0.5..100_000.0).contains(&ns), "{rx} {cost}: {timing:#}");
            }
            let resolution_ns = timing["clock_resolution_ns"].as_u64().unwrap();
            assert!((1..1_000_000).contains(&resolution_ns), "{rx} {timing:#}");
        }
    }
}

/// A receiver with its own runtime directory, and the output of commands that use it.
struct Asked {
    receiver: Option<Recv>,
    runtime: PathBuf,
}

impl Asked {
    fn start(name: &str, args: &[&str]) -> Self {
        let runtime = own_folder().join(name);
        std::fs::create_dir_all(&runtime).unwrap();
        let mut all = vec!["recv", "127.0.0.1:0", "--no-save", "--receive-buffer", "8000000"];
        all.extend(args);
        let receiver = Recv::listening(Self::with(linerate(&all), &runtime));
        Self { receiver: Some(receiver), runtime }
    }

    fn with(mut command: Command, runtime: &PathBuf) -> Command {
        command.env("XDG_RUNTIME_DIR", runtime);
        command
    }

    fn ask(&self, args: &[&str]) -> (i32, String, String) {
        words(Self::with(linerate(args), &self.runtime).output().unwrap())
    }

    fn send(&self, count: &str, args: &[&str]) {
        let target = self.address();
        let mut all = vec!["send", &target, "--no-save", "--json", "--rate", "20kpps", "--count", count];
        all.extend(args);
        let (_, run) = json(&all);
        assert_eq!(run["end"]["trials"][0]["delivered"].to_string(), count, "{run}");
    }
}

impl Asked {
    fn address(&self) -> String {
        self.receiver.as_ref().unwrap().address.to_string()
    }

    fn finish(mut self) -> (std::process::ExitStatus, String, String) {
        self.receiver.take().unwrap().finish()
    }
}

#[test]
fn a_running_receiver_is_asked_reset_and_stopped() {
    let asked = Asked::start("asked", &["--stats", "time", "--json"]);
    asked.send("3000", &[]);
    let status = |ask: &str| {
        let (status, out, err) = asked.ask(&["recv", ask, "--json"]);
        assert_eq!(status, 0, "{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    assert_eq!(status("status")["statistics"]["total"]["packets"], 3000);
    assert_eq!(status("reset")["statistics"]["total"]["packets"], 3000);
    asked.send("500", &["--probe-clock", "micros"]);
    let (_, human, _) = asked.ask(&["recv", "status"]);
    assert!(human.contains("Packets Rx: 500 ") && human.contains("Lost: 0 (0 %)"), "{human}");
    let (_, script, _) = asked.ask(&["recv", "status", "--display", "script"]);
    let columns: Vec<usize> = script.lines().map(|line| line.split(' ').count()).collect();
    assert_eq!((columns.len(), columns[1], columns[2]), (3, columns[0], columns[0]), "{script}");
    let stopped = status("stop");
    assert_eq!((&stopped["packets"], &stopped["dropped"]), (&Value::from(3500), &Value::from(0)));
    let (_, _, err) = asked.ask(&["recv", "status", "--pid", "1"]);
    assert!(err.contains("process 1 is not a receiver of this user"), "{err}");
}

#[test]
fn a_running_receiver_changes_what_it_measures() {
    let asked = Asked::start("set", &["--json"]);
    let status = || {
        let (status, out, err) = asked.ask(&["recv", "status", "--json"]);
        assert_eq!(status, 0, "{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    asked.send("300", &[]);
    assert_eq!(status()["statistics"], Value::Null, "nothing was requested");
    let (code, out, err) = asked.ask(&["recv", "set", "stats=time", "display=script"]);
    assert_eq!((code, &out[..]), (0, "stats=time display=script\n"), "{err}");
    asked.send("200", &[]);
    let now = status();
    assert_eq!(now["packets"], 500, "counters go on: {now}");
    assert_eq!(now["statistics"]["total"]["packets"], 200, "statistics began anew");
    assert_eq!(now["statistics"]["total"]["inter_arrival"]["samples"], 199);
    let (_, script, _) = asked.ask(&["recv", "status"]);
    assert!(script.starts_with("reader cpu queue packets "), "in the receiver's form: {script}");
    let (_, out, _) = asked.ask(&["recv", "set", "stats=none"]);
    assert_eq!(out, "stats=none display=script\n");
    assert_eq!(status()["statistics"], Value::Null);
    let (code, _, err) = asked.ask(&["recv", "set", "stats=all"]);
    assert!(code == 2 && err.contains("expected stats=none, counter, basic or time"), "{code}: {err}");
    let (code, _, err) = asked.ask(&["recv", "stop"]);
    assert_eq!(code, 0, "{err}");
    let (_, out, _) = asked.finish();
    let run: Value = serde_json::from_str(&out).unwrap();
    let notes = run["end"]["notes"].to_string();
    assert!(notes.contains("stats=time display=script after"), "{notes}");
}

#[test]
fn a_level_stays_while_a_sender_is_served() {
    let asked = Asked::start("served", &["--stats", "basic"]);
    let target = asked.address();
    let endless = ["send", &target, "--no-save", "--rate", "1kpps", "--duration", "60s"];
    let mut sender = linerate(&endless).spawn().unwrap();
    let packets = || {
        let (_, out, _) = asked.ask(&["recv", "status", "--json"]);
        serde_json::from_str::<Value>(&out).unwrap()["packets"].as_u64().unwrap()
    };
    testing::wait_for("packets", || packets() > 0);
    let (code, _, err) = asked.ask(&["recv", "set", "stats=time"]);
    assert!(
        code == 4 && err.contains("a sender is being served: wait until it has finished"),
        "{code}: {err}"
    );
    let (code, out, _) = asked.ask(&["recv", "set", "display=script"]);
    assert_eq!((code, &out[..]), (0, "stats=basic display=script\n"), "another form disturbs nobody");
    crate::support::signal(&sender, "INT");
    crate::support::wait(&mut sender);
}

#[test]
fn latency_is_shown_only_if_the_clocks_are_related() {
    for (clocks, expected) in
        [("auto", "same-host"), ("same-host", "same-host"), ("none", "none"), ("synchronised", "measured")]
    {
        let asked = Asked::start(clocks, &["--stats", "time", "--clocks", clocks]);
        asked.send("200", &[]);
        let (_, out, _) = asked.ask(&["recv", "status", "--json"]);
        let answer: Value = serde_json::from_str(&out).unwrap();
        let statistics = &answer["statistics"];
        // The result of a session is shown if it is precise enough.
        let refused = statistics["timing"]["latency_refused"].is_string();
        let is_shown = expected == "same-host" || expected == "measured" && !refused;
        assert_eq!(statistics["total"]["latency"].is_object(), is_shown, "{clocks}: {statistics:#}");
        assert_eq!(refused, !is_shown, "{clocks}: {statistics:#}");
        assert_eq!(statistics["total"]["jitter"]["samples"], 199, "{clocks}: needs no relation");
        let relation = &statistics["timing"]["clocks"];
        assert_eq!(relation, expected, "{clocks}");
    }
}

#[test]
fn synchronised_clocks_show_latency_only_if_their_bound_is_below_a_tenth_of_it() {
    // A slow reader with its own timestamps: most packets wait for milliseconds.
    let slow = ["--stamp", "loop", "--work", "500us"];
    let related = ["--stats", "time", "--clocks", "synchronised", "--clock-bound", "1us"];
    let args = [&slow[..], &related].concat();
    let asked = Asked::start("bound", &args);
    asked.send("200", &["--probe-clock", "micros"]);
    let (_, out, _) = asked.ask(&["recv", "status", "--json"]);
    let statistics = &serde_json::from_str::<Value>(&out).unwrap()["statistics"];
    let timing = &statistics["timing"];
    assert_eq!(
        (&timing["clocks"], &timing["clock_bound_ns"]),
        (&Value::from("synchronised"), &Value::from(1000))
    );
    assert_eq!(statistics["total"]["latency"]["samples"], 200, "{statistics:#}");
    let (_, human, _) = asked.ask(&["recv", "status"]);
    assert!(human.contains("\n    Clock error: up to 1000 ns\n"), "{human}");
    assert_eq!(timing["latency_refused"], Value::Null);
    // An hour is more than a tenth of any latency here.
    let asked = Asked::start("wide", &["--stats", "time", "--clocks", "synchronised", "--clock-bound", "1h"]);
    asked.send("200", &["--probe-clock", "micros"]);
    let (_, out, _) = asked.ask(&["recv", "status", "--json"]);
    let statistics = &serde_json::from_str::<Value>(&out).unwrap()["statistics"];
    assert_eq!(statistics["total"]["latency"], Value::Null, "{statistics:#}");
    let (_, human, _) = asked.ask(&["recv", "status"]);
    assert!(human.contains("No one-way latency: the clocks may differ by 3600000000000 ns"), "{human}");
}

/// Two ends of a veth pair. One follows the other's clock; both are this host's one clock, which PTP never sets here, so the
/// offset that it reports is its own error. The receiver listens at the follower's end.
#[test]
fn a_ptp_daemon_reports_the_offset_and_its_bound() {
    if !is_root() {
        return skip("namespaces need root");
    }
    if Command::new("ptp4l").arg("-v").output().is_err() {
        return skip("ptp4l is not installed (linuxptp)");
    }
    let script = "set -e; export XDG_RUNTIME_DIR=$1; ip link set lo up; unshare -n sleep 300 & far=$!; \
        while [ \"$(readlink /proc/$far/ns/net)\" = \"$(readlink /proc/self/ns/net)\" ]; do :; done; \
        trap 'kill $far $first $second' EXIT; ip link add near type veth peer name far netns $far; \
        there() { nsenter -t $far -n \"$@\"; }; \
        ip addr add 10.9.0.1/24 dev near; ip link set near up; there ip addr add 10.9.0.2/24 dev far; \
        there ip link set far up; there ip link set lo up; mkfifo $1/synced $1/said; \
        ptp='ptp4l -S -m --free_running=1 --logAnnounceInterval=-3 --announceReceiptTimeout=3 \
            --logSyncInterval=-4 --logMinDelayReqInterval=-4 --summary_interval=-4'; \
        nsenter -t $far -n $ptp -i far --uds_address=$1/first --priority1=10 >/dev/null 2>&1 & first=$!; \
        $ptp -i near --uds_address=$1/second --slaveOnly=1 >$1/synced 2>/dev/null & second=$!; \
        exec 6<$1/synced; while read -r line <&6; do case $line in *'path delay'*) break;; esac; done; \
        $0 recv 5432 --stats time --clocks synchronised --ptp4l $1/second --once --no-save --json \
            >$1/recv.json 2>$1/said & recv=$!; exec 7<$1/said; read -r line <&7; \
        there $0 send 10.9.0.1:5432 --probe-clock micros --count 200 --rate 2kpps --no-save --json >$1/send.json; \
        cat <&7 >&2; wait $recv";
    let folder = own_folder();
    let program = linerate(&[]);
    let mut shell = Command::new("unshare");
    in_folder(&mut shell, folder.clone()).args(["-n", "timeout", "240", "bash", "-c", script]);
    let (_, out, err) = words(shell.arg(program.get_program()).arg(&folder).output().unwrap());
    let received = std::fs::read_to_string(folder.join("recv.json")).unwrap_or_default();
    let run: Value = serde_json::from_str(&received).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let statistics = &run["end"]["statistics"];
    let timing = &statistics["timing"];
    let known_by = timing["clocks_known_by"].as_str().unwrap();
    assert!(known_by.contains("according to ptp4l, the wall clock is "), "{known_by}");
    assert_eq!(timing["clocks"], "synchronised");
    let offset_ns = timing["clock_offset_ns"].as_i64().unwrap_or_else(|| panic!("{timing:#}"));
    let bound_ns = timing["clock_bound_ns"].as_u64().unwrap();
    assert!(bound_ns > offset_ns.unsigned_abs(), "the delay is part of it: {timing:#}");
    // At most what a socket's buffer holds: a receiver that is short of CPU time loses none.
    let latency = &statistics["total"]["latency"];
    let refused = timing["latency_refused"].as_str();
    assert!(refused.is_some() || latency["samples"] == 200, "{statistics:#}");
    assert_eq!(latency.is_null(), refused.is_some(), "shown, or refused in words: {statistics:#}");
    assert!(latency.is_null() || latency["p50_ns"].as_u64().unwrap() > 10 * bound_ns, "{statistics:#}");
}

#[test]
fn a_stopped_receiver_prints_saves_and_plots_what_it_measured() {
    let page = own_folder().join("reception.html");
    let plot = page.to_str().unwrap();
    let asked = Asked::start("plot", &["--stats", "time", "--once", "--json", "--plot", plot]);
    let target = asked.address();
    json(&["send", &target, "--no-save", "--json", "--rate", "20kpps", "--count", "400"]);
    let (status, out, err) = asked.finish();
    assert!(status.success(), "{err}");
    let run: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(run["end"]["statistics"]["total"]["packets"], 400);
    assert!(std::fs::read_to_string(&page).unwrap().contains("Latency"), "the page shows it");
}

/// The round trips that a sender measured, with as many packets as its socket holds, and the receiver's final output.
fn reflected(receiver: Recv, send: &[&str]) -> (Value, Value) {
    let target = receiver.address.to_string();
    let mut all =
        vec!["send", &target, "--reflect", "--no-save", "--json", "--count", "200", "--rate", "2kpps"];
    all.extend(send);
    let (status, run) = json(&all);
    assert!(status <= 1, "a busy machine may be late, no more: {run}");
    let (status, out, err) = receiver.finish();
    assert!(status.success(), "{err}");
    (run["end"]["trials"][0].clone(), serde_json::from_str(&out).unwrap())
}

#[test]
fn round_trips_need_no_related_clocks() {
    for send in
        [&[][..], &["--threads", "2", "--flows", "5", "--frame-size", "200"], &["--probe-clock", "micros"]]
    {
        for recv in [&[][..], &["--stats", "time", "--clocks", "none"], &["--gro"]] {
            let mut all = vec!["--reflect", "--once", "--json", "--receive-buffer", "8000000"];
            all.extend(recv);
            let (trial, receiver) = reflected(Recv::start(&all), send);
            let trips = &trial["round_trips"];
            let count = |value: &Value| value.as_u64().unwrap();
            assert_eq!(trial["delivered"], 200, "{trial:#}");
            assert_eq!((count(&trips["returned"]), count(&trips["missing"])), (200, 0), "{recv:?} {trips:#}");
            let times = &trips["round_trip"];
            assert_eq!(times["samples"], 200, "{recv:?} {send:?} {trips:#}");
            let (least, most) = (count(&times["min_ns"]), count(&times["max_ns"]));
            assert!(least <= most && most < 60_000_000_000, "{times:#}");
            assert_eq!(trips["rx_stamp"], "kernel");
            let notes = receiver["end"]["notes"].to_string();
            assert!(notes.contains("200 packets sent back"), "{notes}");
            if recv.contains(&"--stats") {
                let statistics = &receiver["end"]["statistics"];
                assert_eq!(statistics["total"]["latency"], Value::Null, "one way is refused");
                assert_eq!(statistics["timing"]["clocks"], "none");
            }
        }
    }
}

#[test]
fn a_receiver_without_reflect_refuses_and_names_the_option() {
    let receiver = Recv::start(&[]);
    let target = receiver.address.to_string();
    let (status, _, err) = words(linerate(&["send", &target, "--reflect", "--count", "1"]).output().unwrap());
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("refused: this receiver sends no packets back: start it with --reflect"), "{err}");
}

/// A receiver with this engine in a namespace returns 200 probes over a veth pair; returns what both ends reported, and
/// their messages.
fn reflected_over_a_veth(engine: &str, gro: &str) -> (Result<(Value, Value), String>, String) {
    let script = "set -e; export XDG_RUNTIME_DIR=$1; ip link set lo up; unshare -n sleep 300 & far=$!; \
        while [ \"$(readlink /proc/$far/ns/net)\" = \"$(readlink /proc/self/ns/net)\" ]; do :; done; \
        trap 'kill $far' EXIT; ip link add near type veth peer name far; ip link set far netns $far; \
        there() { nsenter -t $far -n \"$@\"; }; \
        ip addr add 10.9.0.1/24 dev near; ip link set near up; there ip addr add 10.9.0.2/24 dev far; \
        there ip link set far up; there ip link set lo up; $0 nic apply near --set feature.rx-gro=$3; mkfifo $1/said; \
        there $0 recv 5432 --engine $2 --device far --reflect --stats time --once --no-save --json \
            >$1/recv.json 2>$1/said & recv=$!; exec 7<$1/said; read -r line <&7; \
        $0 send 10.9.0.2:5432 --reflect --count 200 --rate 2kpps --no-save --json >$1/send.json || true; \
        cat <&7 >&2; wait $recv";
    let folder = own_folder().join(format!("{engine}-{gro}"));
    std::fs::create_dir_all(&folder).unwrap();
    let program = linerate(&[]);
    let mut shell = Command::new("unshare");
    in_folder(&mut shell, folder.clone()).args(["-n", "bash", "-c", script]).arg(program.get_program());
    let (status, out, err) = words(shell.arg(&folder).args([engine, gro]).output().unwrap());
    let said = format!("{engine}: {status} {out}{err}");
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        serde_json::from_str::<Value>(&text).map_err(|error| format!("{name}: {error}"))
    };
    let both = read("send.json").and_then(|sent| Ok((sent, read("recv.json")?)));
    (both, said)
}

#[test]
fn engines_below_the_sockets_return_packets_too() {
    if !is_root() {
        return skip("XDP and namespaces need root");
    }
    for engine in ["packet", "xsk", "xdp", "xdp+generic"] {
        let (both, said) = reflected_over_a_veth(engine, "on");
        let (sent, received) = both.unwrap_or_else(|error| panic!("{error}: {said}"));
        let trial = &sent["end"]["trials"][0];
        let trips = &trial["round_trips"];
        assert_eq!(
            (&trips["returned"], &trips["missing"]),
            (&Value::from(200), &Value::from(0)),
            "{said} {trial:#}"
        );
        assert_eq!(trips["round_trip"]["samples"], 200, "{engine} {trial:#}");
        let statistics = &received["end"]["statistics"];
        assert_eq!(statistics["total"]["packets"], 200, "{engine}");
        assert_eq!(
            statistics["total"]["latency"],
            Value::Null,
            "{engine}: another host's clock is not known"
        );
        let notes = received["end"]["notes"].to_string();
        assert!(notes.contains("200 packets sent back"), "{engine} {notes}");
    }
}

#[test]
fn a_veth_whose_other_end_takes_nothing_from_xdp_is_reported() {
    if !is_root() {
        return skip("XDP and namespaces need root");
    }
    let (_, said) = reflected_over_a_veth("xdp", "off");
    assert!(said.contains("no frame sent by XDP on far arrives: its peer has no receive rings"), "{said}");
}

#[test]
fn counters_alone_have_a_statistics_block_on_every_engine() {
    let mut receivers = vec!["udp", "uring", "packet"];
    if is_root() {
        receivers.extend(["xsk", "xdp"]);
    } else {
        skip("AF_XDP and XDP need root");
    }
    for rx in receivers {
        testing::repeat(&format!("udp → {rx} needs CPU time"), |_| match counted(rx) {
            0 => Err("no packets".to_owned()),
            packets => Ok(packets),
        });
    }
}

/// Asserts the counters of a trial, and returns their number of packets.
fn counted(rx: &str) -> u64 {
    let args =
        ["bench", "--tx", "udp", "--rx", rx, "--trials", "1", "--stats", "counter", "--no-save", "--json"];
    let load = ["--receive-buffer", "8000000", "--rate", "20kpps", "--duration", "200ms"];
    let (_, run) = json(&[&args[..], &load].concat());
    let trial = &run["end"]["trials"][0];
    let statistics = &trial["statistics"];
    let total = &statistics["total"];
    assert_eq!(
        (&statistics["level"], &total["packets"]),
        (&Value::from("counter"), &trial["delivered"]),
        "{rx}"
    );
    let packets = total["packets"].as_u64().unwrap();
    assert_eq!(total["frame_bytes"], packets * 64, "{rx} {statistics:#}");
    assert_eq!(total["payload_bytes"], packets * 18, "{rx}");
    assert_eq!((&total["work_time_ns"], &total["inter_arrival"]), (&Value::Null, &Value::Null), "{rx}");
    packets
}

#[test]
fn every_timestamp_source_measures_every_packet_and_is_reported() {
    if !is_root() {
        return skip("XDP needs root");
    }
    // A flood, in which most packets leave and arrive together, and single packets.
    for (tx, load) in
        [("xdp", &["--duration", "100ms"][..]), ("udp", &["--rate", "20kpps", "--duration", "200ms"])]
    {
        for (rx, stamp) in
            [("xdp", "poll"), ("xdp", "program"), ("xsk", "poll"), ("xsk", "program"), ("xsk", "loop")]
        {
            let mut args = load.to_vec();
            // The default timestamp source is the poll.
            args.extend(["--stamp", stamp].iter().filter(|_| stamp != "poll"));
            testing::repeat(&format!("{tx} → {rx} --stamp {stamp} needs CPU time"), |_| {
                let packets = stamped(tx, rx, stamp, &args);
                if packets > 1000 { Ok(()) } else { Err(format!("{packets} packets, not more than 1000")) }
            });
        }
    }
}

/// The lab has no card, so no packet has its timestamp: each engine that requests it reports that.
#[test]
fn packets_that_no_card_stamped_are_counted_as_such() {
    if !is_root() {
        return skip("XDP needs root");
    }
    for rx in ["udp", "uring", "packet", "xsk"] {
        let trial = trial("udp", rx, &["--rate", "5kpps", "--duration", "200ms", "--stamp", "card"]);
        let (statistics, delivered) = (&trial["statistics"], &trial["delivered"]);
        let timing = &statistics["timing"];
        assert_ne!(*delivered, 0, "{rx}: {trial:#}");
        assert_eq!(
            (&timing["rx_stamp"], &timing["unstamped"]),
            (&"card".into(), delivered),
            "{rx}: {trial:#}"
        );
        assert_eq!((&timing["clocks"], &statistics["total"]["latency"]), (&"none".into(), &Value::Null));
        assert_eq!(statistics["total"]["packets"], *delivered, "{rx}: {trial:#}");
    }
}

/// Asserts the statistics of a trial, and returns their number of packets.
fn stamped(tx: &str, rx: &str, stamp: &str, args: &[&str]) -> u64 {
    let trial = trial(tx, rx, args);
    let (statistics, delivered) = (&trial["statistics"], trial["delivered"].as_u64().unwrap());
    let total = &statistics["total"];
    assert_eq!(total["packets"], delivered, "{tx} {rx} {stamp}: {statistics:#}");
    if delivered > 0 {
        let readers = statistics["readers"].as_array().unwrap();
        let readers = readers.iter().filter(|reader| reader["packets"] != 0).count() as u64;
        let samples = |name: &str| total[name]["samples"].as_u64().unwrap();
        let before_sent = if stamp == "poll" { before_sent(rx, total) } else { 0 };
        assert_eq!(samples("latency"), delivered - before_sent, "{tx} {rx} {stamp}: {total:#}");
        assert_eq!(samples("inter_arrival"), delivered - readers, "{tx} {rx} {stamp}: {total:#}");
        assert_eq!(statistics["sequence"]["received"], delivered, "{tx} {rx} {stamp}");
        let timing = &statistics["timing"];
        assert_eq!((&timing["rx_stamp"], &timing["unstamped"]), (&stamp.into(), &0.into()));
    }
    delivered
}

/// The tolerance of percentiles: for the median a share of the mean gap, for the 90th percentile a share of itself, for the
/// 99th twice as much.
const BOUND: f64 = 0.3;

/// The expected gaps of a schedule.
struct Pattern {
    departures: &'static str,
    /// Percentiles as multiples of the mean gap.
    p50: f64,
    p90: f64,
    p99: f64,
}

#[test]
fn a_known_schedule_arrives_unchanged() {
    if !is_root() {
        return skip("XDP needs root");
    }
    // Exponential gaps: the p-th percentile is -ln(1 - p) of the mean. In bursts of 4, three gaps are nearly zero.
    let patterns = [
        Pattern { departures: "constant", p50: 1.0, p90: 1.0, p99: 1.0 },
        Pattern { departures: "poisson", p50: 0.693, p90: 2.303, p99: 4.605 },
        Pattern { departures: "burst:4", p50: 0.0, p90: 4.0, p99: 4.0 },
    ];
    for Pattern { departures, p50, p90, p99 } in patterns {
        // 500 packets per second: 2 ms apart, far more than a wakeup takes. A hypervisor disturbs some gaps.
        // The sending thread has real-time priority and receives its own packets: threads of NAPI would wait for other
        // work on the machine.
        let args = ["--rate", "500pps", "--duration", "600ms", "--threaded-napi=off"];
        let more = ["--departures", departures, "--batch-size", "1"];
        let args = [&args[..], if departures == "burst:4" { &more[..2] } else { &more[..] }].concat();
        let distance = || {
            let trial = trial_of(linerate_first(&trial_args("udp", "xdp", &args)));
            let gaps = &trial["statistics"]["total"]["inter_arrival"];
            let mean = gaps["mean_ns"].as_f64().unwrap();
            let packets = trial["delivered"].as_f64().unwrap();
            // The mean is the work time over the number of gaps, regardless of the scheduler.
            let work = trial["statistics"]["total"]["work_time_ns"].as_f64().unwrap();
            assert!((mean * (packets - 1.0) / work - 1.0).abs() < 1e-6, "{departures} {gaps:#}");
            let off = |name: &str, expected: f64| (gaps[name].as_f64().unwrap() / 2e6 - expected).abs();
            off("p50_ns", p50).max(off("p90_ns", p90) / p90).max(off("p99_ns", p99) / p99 / 2.0)
        };
        testing::repeat(&format!("{departures} departures need the CPU on time"), |_| {
            let off = distance();
            if off < BOUND { Ok(()) } else { Err(format!("percentiles are off by {off:.2}, bound {BOUND}")) }
        });
    }
}

#[test]
fn a_driver_without_timestamps_is_reported_with_a_remedy() {
    if !is_root() {
        return skip("XDP needs root");
    }
    let args = ["recv", "--engine", "xsk", "--device", "lo", "--duration", "100ms", "--no-save"];
    let stamps = ["--stats", "time", "--stamp", "card"];
    let (status, out, err) = words(linerate(&[&args[..], &stamps].concat()).output().unwrap());
    assert_eq!((status, out.as_str()), (4, ""), "{err}");
    assert!(
        err.contains("error: passing the card's timestamps to an XDP program is not supported by lo"),
        "{err}"
    );
    assert!(err.contains("hint:  use --stamp poll"), "{err}");
}

#[test]
fn a_driver_without_xdp_is_reported_with_a_remedy() {
    if !is_root() {
        return skip("XDP needs root");
    }
    let args = ["recv", "--engine", "xdp", "--device", "lo", "--duration", "100ms", "--no-save"];
    let (status, _, err) = words(linerate(&args).output().unwrap());
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("native XDP is not supported by lo"), "{err}");
    assert!(err.contains("hint:  this driver does not support XDP; --engine xdp+generic works"), "{err}");
}
