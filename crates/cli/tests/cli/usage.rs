//! Usage errors and a refusing environment: the error, the hint, the exit status, and nothing half started.

use std::{
    net::{TcpListener, UdpSocket},
    process::Stdio,
};

use crate::support::{Recv, is_root, linerate, run, signal, skip, wait, words};

#[test]
fn all_problems_are_reported_at_once() {
    let (status, _, err) = run(&["bench", "--frame-size", "63", "--duration", "0s", "--tx-cpus", "999"]);
    assert_eq!(status, 2);
    for text in ["frame size 63", "--duration must be above zero", "CPU 999"] {
        assert!(err.contains(text), "{text}: {err}");
    }
}

#[test]
fn a_port_in_use_is_refused() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (status, _, err) = run(&["recv", &udp.local_addr().unwrap().to_string()]);
    assert_eq!(status, 4);
    assert!(err.contains("cannot bind UDP") && err.contains("Address already in use"), "{err}");
    assert!(err.contains("hint:  another program uses that port; choose another one"), "{err}");

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (status, _, err) = run(&["recv", &tcp.local_addr().unwrap().to_string()]);
    assert_eq!(status, 4);
    assert!(err.contains("cannot listen on TCP"), "{err}");
}

#[test]
fn a_server_that_is_not_a_receiver_is_not_sent_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut peer, b"220 smtp.example ESMTP\r\n").unwrap();
        std::io::Read::read_to_end(&mut peer, &mut Vec::new()).ok();
    });
    let (status, _, err) = run(&["send", &address, "--no-save"]);
    assert_eq!(status, 4);
    assert!(err.contains("is not a linerate receiver"), "{err}");
    server.join().unwrap();
}

#[test]
fn without_permission_to_make_a_lab_the_missing_privilege_is_named() {
    if !is_root() {
        return skip("needs root to drop privileges");
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
fn a_probe_reports_for_every_path_whether_it_works() {
    if !is_root() {
        return skip("needs root for BPF");
    }
    let (status, out, err) = run(&["probe"]);
    assert!(status == 0 || status == 3, "{err}");
    for path in ["uring send", "uring receive", "packet send", "xsk receive", "xdp native", "xdp live frames"]
    {
        let line = out.lines().find(|line| line.trim_start().starts_with(path));
        assert!(line.is_some_and(|line| line.contains(" yes ")), "{path}: {out}");
    }
    assert!(out.contains("pktgen"), "{out}");
}

#[test]
fn a_full_disk_loses_the_file_but_not_the_results() {
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
    assert!(out.contains("delivered"), "the results are printed anyway: {out}");
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

#[test]
fn a_rate_too_low_for_any_packet_ends_with_its_time_or_a_signal() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = sink.local_addr().unwrap().to_string();
    let args = ["send", &target, "--no-handshake", "--rate", "100Gpps", "--no-save"];
    let mut by_time = linerate(&[&args[..], &["--duration", "50ms"]].concat());
    let mut child = by_time.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(1), "the rate was not held");
    for name in ["INT", "TERM"] {
        let mut by_signal = linerate(&[&args[..], &["--duration", "10m"]].concat());
        let mut child = by_signal.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // It sends before it is ended.
        sink.recv(&mut [0; 2048]).unwrap();
        signal(&child, name);
        wait(&mut child);
    }
}
