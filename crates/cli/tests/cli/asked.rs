//! Repeated status requests to a receiver during traffic change nothing about a trial.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::support::{is_root, linerate, skip, words};
use serde_json::Value;

/// Packets of a trial that lasts a second and a half at [`RATE`].
const COUNT: u64 = 3000;
const RATE: &str = "2kpps";
/// Below the timeout for workers that do not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// A receiver with this engine in a namespace, and a sender at the other end of a veth pair; prints `ready` and `sent`.
const SCRIPT: &str = "set -e; export XDG_RUNTIME_DIR=$1; ip link set lo up; unshare -n sleep 300 & far=$!; \
    while [ \"$(readlink /proc/$far/ns/net)\" = \"$(readlink /proc/self/ns/net)\" ]; do :; done; \
    trap 'kill $far' EXIT; ip link add near type veth peer name far; ip link set far netns $far; \
    there() { nsenter -t $far -n \"$@\"; }; \
    ip addr add 10.9.0.1/24 dev near; ip link set near up; there ip addr add 10.9.0.2/24 dev far; \
    there ip link set far up; there ip link set lo up; \
    $0 nic apply near --set feature.rx-gro=on >&2; \
    mkfifo $1/said; folder=$1; count=$2; rate=$3; shift 3; \
    there $0 recv 5432 --duration 120s --no-save --json \"$@\" >$folder/recv.json 2>$folder/said & recv=$!; \
    exec 7<$folder/said; read -r line <&7; echo ready; \
    $0 send 10.9.0.2:5432 --count $count --rate $rate --no-save --json >$folder/send.json || true; \
    echo sent; cat <&7 >&2; wait $recv";

/// What both ends printed, and the packets that the statistics counted before each reset.
struct Seen {
    sent: Value,
    received: Value,
    before_resets: u64,
    resets: u64,
}

fn ask(folder: &Path, ask: &str) -> (i32, String, String) {
    let mut command = linerate(&["recv", ask, "--json"]);
    words(command.env("XDG_RUNTIME_DIR", folder).output().unwrap())
}

fn answer(folder: &Path, what: &str) -> Value {
    let since = Instant::now();
    let (status, out, err) = ask(folder, what);
    assert!(since.elapsed() < ANSWER_WITHIN, "{what} took {:?}", since.elapsed());
    assert_eq!(status, 0, "{what}: {err}");
    serde_json::from_str(&out).unwrap()
}

fn asked_all_the_time(name: &str, recv: &[&str]) -> Seen {
    let folder: PathBuf = std::env::temp_dir().join(format!("linerate-asked-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = linerate(&[]);
    let mut shell = Command::new("unshare");
    shell
        .env("XDG_STATE_HOME", folder.join("state"))
        .args(["-n", "bash", "-c", SCRIPT])
        .arg(program.get_program());
    shell.arg(&folder).args([&COUNT.to_string(), RATE]).args(recv);
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    testing::wait_for("the control socket", || ask(&folder, "status").0 == 0);
    let is_sent = AtomicBool::new(false);
    let (mut before_resets, mut resets) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let line = said.next();
            is_sent.store(true, Relaxed);
            assert_eq!(line.unwrap().unwrap(), "sent");
        });
        while !is_sent.load(Relaxed) {
            answer(&folder, "status");
            let reset = answer(&folder, "reset");
            before_resets += reset["statistics"]["total"]["packets"].as_u64().unwrap_or(0);
            resets += 1;
        }
    });
    answer(&folder, "stop");
    let status = shell.wait().unwrap();
    assert!(status.success(), "{name}: {status}");
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    };
    let (sent, received) = (read("send.json"), read("recv.json"));
    std::fs::remove_dir_all(&folder).ok();
    Seen { sent, received, before_resets, resets }
}

#[test]
fn status_and_reset_during_traffic_change_no_trial() {
    if !is_root() {
        return skip("XDP and namespaces need root");
    }
    for engine in ["udp", "packet", "xsk", "xdp"] {
        for stats in [None, Some("counter"), Some("time")] {
            let mut recv = vec!["--engine", engine];
            if engine == "udp" {
                recv.extend(["--receive-buffer", "8000000"]);
            } else {
                recv.extend(["--device", "far"]);
            }
            recv.extend(stats.iter().flat_map(|level| ["--stats", level]));
            let seen = asked_all_the_time(&format!("{engine}-{}", stats.unwrap_or("none")), &recv);
            let trial = &seen.sent["end"]["trials"][0];
            let count = Value::from(COUNT);
            assert_eq!((&trial["sent"], &trial["delivered"]), (&count, &count), "{recv:?} {trial:#}");
            assert_eq!(trial["ledger"]["unexplained"], 0, "{recv:?} {trial:#}");
            assert_eq!(seen.received["end"]["trials"][0]["delivered"], count, "{recv:?}");
            assert!(seen.resets > 0, "{recv:?}");
            if stats.is_some() {
                let last = &seen.received["end"]["statistics"]["total"]["packets"];
                assert_eq!(seen.before_resets + last.as_u64().unwrap(), COUNT, "{recv:?}");
            }
        }
    }
}
