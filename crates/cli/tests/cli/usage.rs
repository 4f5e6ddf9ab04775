//! Wrong usage and a refusing environment: the error, the hint, the exit status; nothing half started.

use std::net::{TcpListener, UdpSocket};

use crate::support::{Recv, is_root, linerate, run, skip, wait, words};

/// Arguments, exit status, and what standard error must say.
const REFUSED: &[(&[&str], i32, &[&str])] = &[
    (&["bench", "--rate", "10m"], 2, &["rate '10m' has no unit", "10Mpps for packets"]),
    (&["bench", "--rate", "10Mpp"], 2, &["unknown unit 'Mpp'"]),
    (&["bench", "--rate", "50%"], 2, &["a rate in % needs a link speed"]),
    (&["bench", "--frame-size", "63"], 2, &["frame size 63 is out of range: from 64"]),
    (&["bench", "--frame-size", "70000"], 2, &["out of range"]),
    (&["bench", "--frame-size", "64", "--ipv6"], 2, &["the probe header needs 16: the smallest is 82"]),
    (&["bench", "--payload", "15"], 2, &["payload 15 is out of range: from 16"]),
    (&["bench", "--frame-size", "64", "--payload", "18"], 2, &["cannot be used with"]),
    (&["bench", "--duration", "10"], 2, &["'10' is not a duration: write for example 500ms"]),
    (&["bench", "--duration", "0s"], 2, &["a trial of no time measures nothing", "hint:  try --duration 1s"]),
    (&["bench", "--trials", "0"], 2, &["0 is not in 1..="]),
    (&["bench", "--tx", "dpdk"], 2, &["there is no sending engine 'dpdk'"]),
    (&["bench", "--rx", "udp+gso"], 2, &["the receiving engine 'udp' has no switch 'gso'"]),
    (&["bench", "--departures", "uniform"], 2, &["write constant, poisson or burst:N"]),
    (
        &["bench", "--tx-cpus", "999"],
        4,
        &["CPU 999 is absent or not allowed here", "hint:  this process may use CPUs"],
    ),
    (&["bench", "--interface", "eth9"], 2, &["--peer"]),
    (
        &["bench", "--peer", "127.0.0.1:1", "--trials", "1"],
        4,
        &["no receiver answers at 127.0.0.1:1: Connection refused", "hint:  start linerate recv there"],
    ),
    (
        &["bench", "--save", "/nonexistent/run.json"],
        4,
        &["cannot write /nonexistent/run.json: No such file or directory", "hint:  give another file"],
    ),
    (&["bench", "--save", "/"], 4, &["cannot write /: is a directory"]),
    (&["bench", "--json", "--json-stream"], 2, &["cannot be used with"]),
    (&["bench", "--max-loss", "2"], 2, &["'2' is not a share: write for example 0.001 or 0.1%"]),
    (&["send"], 2, &["<TARGET>"]),
    (
        &["send", "8.8.8.8", "--no-handshake"],
        4,
        &["8.8.8.8 may belong to somebody else", "hint:  run linerate recv there"],
    ),
    (&["send", "224.0.0.1", "--no-handshake"], 4, &["224.0.0.1 may belong to somebody else"]),
    (&["send", "127.0.0.1", "--i-am-allowed-to-send-there"], 2, &["--no-handshake"]),
    (&["send", "127.0.0.1:0"], 2, &["has port 0"]),
    (&["send", "not a host"], 2, &["is no address and no known host"]),
    (&["send", "127.0.0.1:1"], 4, &["no receiver answers at 127.0.0.1:1"]),
    (
        &["send", "127.0.0.1", "--bind", "192.0.2.77", "--no-handshake"],
        4,
        &["cannot bind UDP 192.0.2.77:0", "hint:  --bind takes an address of this host"],
    ),
    (
        &["send", "127.0.0.1", "--interface", "nope0", "--no-handshake"],
        4,
        &["cannot use interface nope0: No such device", "hint:  ip link lists"],
    ),
    (&["send", "127.0.0.1", "[::1]:4321", "--no-handshake"], 2, &["of different IP versions", "in two runs"]),
    (
        &["send", "127.0.0.1", "127.0.0.2", "--threads", "1", "--no-handshake"],
        2,
        &["2 targets need as many threads"],
    ),
    (
        &["send", "127.0.0.1", "--gso", "--frame-size", "imix", "--no-handshake"],
        2,
        &["--gso needs payloads of one size"],
    ),
    (&["send", "127.0.0.1", "--vlan", "7", "--no-handshake"], 2, &["the engine udp cannot set --vlan"]),
    (&["send", "127.0.0.1", "--count", "0"], 2, &["0 is not in 1.."]),
    (&["send", "--write-pcap", "/tmp/x.pcap"], 2, &["--count"]),
    (&["send", "--write-pcap", "/nonexistent/x.pcap", "-n", "1"], 4, &["cannot write /nonexistent/x.pcap"]),
    (
        &["recv", "192.0.2.77"],
        4,
        &["cannot bind UDP 192.0.2.77:4321", "hint:  listen on an address of this host"],
    ),
    (&["recv", "nowhere"], 2, &["'nowhere' is no address to listen on"]),
    (&["recv", "--threads", "0"], 2, &["0 is not in 1..=255"]),
    (&["recv", "--cpus", "3-1"], 2, &["'3-1' is not a list of CPUs"]),
    (
        &["bench", "/nonexistent.toml"],
        4,
        &["cannot read /nonexistent.toml", "hint:  a scenario is a TOML file"],
    ),
    (
        &["bench", "/etc/passwd"],
        2,
        &["/etc/passwd: not a scenario file", "hint:  it begins with: scenario = 1"],
    ),
    (&["compare", "one.json"], 2, &["one run alone cannot be compared"]),
    (&["compare", "/nope", "/nope"], 4, &["cannot read /nope", "hint:  give a run that linerate saved"]),
    (&["compare", "--confidence", "2", "/nope", "/nope"], 2, &["confidence 2 is out of range"]),
    (&["compare", "--history", "/nonexistent"], 4, &["there is no run in /nonexistent"]),
    (&["report", "/etc/passwd"], 4, &["/etc/passwd: cannot read line 1 of the run"]),
    (&["probe", "lo"], 2, &["probing attaches XDP programs to lo", "hint:  add --try"]),
    (&["probe", "nope0", "--try"], 4, &["cannot use nope0"]),
    (&["model", "--preset", "nope"], 2, &["no preset is called 'nope'", "hint:  linerate model --list"]),
    (&["model", "--set", "ring=0"], 2, &["ring.descriptors: 0 is not between 1"]),
    (&["model", "--set", "ring"], 2, &["'ring' sets nothing", "hint:  write --set NAME=VALUE"]),
    (&["model", "--from", "/nope"], 4, &["cannot read /nope"]),
    (&["bench", "rdr", "--payload", "10"], 2, &["a payload of 10 bytes fits no frame of the experiment"]),
    (&["frobnicate"], 2, &["unrecognized subcommand"]),
];

#[test]
fn what_is_wrong_is_said_with_a_hint_and_the_right_status() {
    for (args, status, texts) in REFUSED {
        let (got, out, err) = run(args);
        assert_eq!(got, *status, "{args:?}: {err}");
        assert_eq!(out, "", "{args:?} prints nothing before it starts");
        for text in *texts {
            assert!(err.contains(text), "{args:?} must say '{text}': {err}");
        }
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let (status, _, err) = run(&["bench", "--frame-size", "63", "--duration", "0s", "--tx-cpus", "999"]);
    assert_eq!(status, 2);
    for text in ["frame size 63", "a trial of no time", "CPU 999"] {
        assert!(err.contains(text), "{text}: {err}");
    }
}

#[test]
fn a_port_in_use_is_refused_whoever_has_it() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (status, _, err) = run(&["recv", &udp.local_addr().unwrap().to_string()]);
    assert_eq!(status, 4);
    assert!(err.contains("cannot bind UDP") && err.contains("Address already in use"), "{err}");
    assert!(err.contains("hint:  another program uses that port: give another one"), "{err}");

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (status, _, err) = run(&["recv", &tcp.local_addr().unwrap().to_string()]);
    assert_eq!(status, 4);
    assert!(err.contains("cannot listen on TCP"), "{err}");
}

#[test]
fn something_that_is_no_receiver_is_not_sent_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut peer, b"220 smtp.example ESMTP\r\n").unwrap();
        std::io::Read::read_to_end(&mut peer, &mut Vec::new()).ok();
    });
    let (status, _, err) = run(&["send", &address, "--no-save"]);
    assert_eq!(status, 4);
    assert!(err.contains("does not answer as a linerate receiver does"), "{err}");
    server.join().unwrap();
}

#[test]
fn without_the_right_to_make_a_lab_it_says_what_is_missing() {
    if !is_root() {
        return skip("needs root to give rights up");
    }
    let output = std::process::Command::new("unshare")
        .args(["-U", env!("CARGO_BIN_EXE_linerate"), "bench", "--no-save"])
        .output()
        .unwrap();
    let (status, out, err) = words(output);
    assert_eq!((status, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("cannot create a user namespace"), "{err}");
    assert!(err.contains("hint:  run as root, or allow user namespaces"), "{err}");
}

#[test]
fn a_probe_says_of_every_path_whether_it_works() {
    if !is_root() {
        return skip("needs root for BPF");
    }
    let (status, out, err) = run(&["probe"]);
    assert!(status == 0 || status == 3, "{err}");
    for path in ["packet send", "xsk receive", "xdp native", "xdp live frames"] {
        let line = out.lines().find(|line| line.trim_start().starts_with(path));
        assert!(line.is_some_and(|line| line.contains(" yes ")), "{path}: {out}");
    }
    assert!(out.contains("pktgen"), "{out}");
}

#[test]
fn a_full_disk_costs_the_file_not_the_results() {
    if !is_root() {
        return skip("needs root to mount a small file system");
    }
    let script = "mount -t tmpfs -o size=4k none /mnt && exec \"$0\" bench --trials 1 --duration 100ms --tx udp --rx udp --save /mnt/run.json";
    let output = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_linerate")])
        .output()
        .unwrap();
    let (status, out, err) = words(output);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("cannot write /mnt/run.json: No space left on device"), "{err}");
    assert!(out.contains("delivered"), "what was measured is printed all the same: {out}");
}

#[test]
fn a_closed_pipe_is_a_clean_exit() {
    let mut child = linerate(&["recv", "--help"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(wait(&mut child).code().is_some_and(|code| code == 0 || code == 2));
    let receiver = Recv::start(&[]);
    let target = receiver.address.to_string();
    let args = ["send", &target, "--duration", "2s", "--rate", "100pps", "--interval", "100ms", "--no-save"];
    let mut child = linerate(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn help_manual_and_completions_come_from_one_source() {
    let (status, help, _) = run(&["bench", "--help"]);
    assert_eq!(status, 0);
    let (status, manual, _) = run(&["man"]);
    assert_eq!(status, 0);
    let (status, completions, _) = run(&["completions", "bash"]);
    assert_eq!(status, 0);
    for option in ["--frame-size", "--threads", "--max-loss", "--json-stream", "--threaded-napi"] {
        assert!(help.contains(option), "{option}");
        assert!(manual.contains(&option.replace('-', "\\-")), "{option}");
        assert!(completions.contains(option), "{option}");
    }
}
