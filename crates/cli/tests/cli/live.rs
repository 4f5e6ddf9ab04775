//! The live views of running commands, and the replay of their records.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStderr, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::support::{Recv, linerate, own_folder, run};

const PATIENT: Duration = Duration::from_secs(30);

/// The next address on standard error after these words, with its token.
fn served(stderr: &mut BufReader<ChildStderr>, words: &str) -> (SocketAddr, String) {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "'{words}' is printed with its address");
    }
    let url = line.trim().split("http://").nth(1).unwrap();
    let (address, rest) = url.split_once('/').unwrap();
    (address.parse().unwrap(), rest.split("token=").nth(1).unwrap_or_default().to_owned())
}

fn get(address: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// All snapshots of a stream until the last one.
fn stream(address: SocketAddr, token: &str) -> Vec<Value> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream.write_all(format!("GET /events?token={token} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let until_end = lines.take_while(|line| line != "event: end");
    until_end.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

fn start(args: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut child = linerate(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

#[test]
fn a_browser_sees_a_run_to_its_end_and_the_record_replays_it() {
    let recv = Recv::start(&[]);
    let target = recv.address.to_string();
    let saved = own_folder().join("run.json");
    let saved = saved.to_str().unwrap();
    let (mut child, mut stderr) = start(&[
        "send",
        &target,
        "--rate",
        "2kpps",
        "--duration",
        "1500ms",
        "--interval",
        "200ms",
        "--web",
        "--prometheus=0",
        "--save",
        saved,
    ]);
    let (page, token) = served(&mut stderr, "live page at");
    let (metrics, none) = served(&mut stderr, "metrics at");
    assert!(token.len() == 32 && none.is_empty());
    // One browser that never reads, and one that disconnects.
    let mut stalled = TcpStream::connect(page).unwrap();
    stalled.write_all(format!("GET /events?token={token} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    drop(TcpStream::connect(page).unwrap());
    assert!(get(page, "/").starts_with("HTTP/1.1 403 "));
    assert!(get(page, &format!("/?token={token}")).contains("<!doctype html>"));
    let text = get(metrics, "/metrics");
    assert!(
        text.contains("linerate_lost_packets_total{run=\"") && text.contains("place=\"qdisc\"} 0"),
        "{text}"
    );
    let snapshots = stream(page, &token);
    let last = snapshots.last().expect("snapshots");
    assert_eq!((&last["command"], &last["phase"]), (&"send".into(), &"ended".into()));
    assert_eq!(
        (&last["waterfall"]["residual"], &last["waterfall"]["provisional"]),
        (&0.into(), &false.into())
    );
    assert!(last["waterfall"]["from"][1].as_u64().unwrap() > 0);
    assert!(snapshots.iter().any(|one| one["waterfall"]["provisional"] == true), "it was still running");
    assert!(child.wait().unwrap().success());
    drop(stalled);

    let (status, out, err) = run(&["replay", saved, "--speed", "100"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("trial 1/1") && out.contains("sent "), "{out}");
    let (mut child, mut stderr) = start(&["replay", saved, "--speed", "2", "--web"]);
    let (page, token) = served(&mut stderr, "live page at");
    let snapshots = stream(page, &token);
    let last = snapshots.last().expect("snapshots");
    let recorded: Value = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
    assert_eq!(last["waterfall"]["from"][1], recorded["end"]["trials"][0]["sent"]);
    assert_eq!(last["phase"], "ended");
    assert!(child.wait().unwrap().success());
}

#[test]
fn views_that_cannot_be_shown_are_refused_before_anything_runs() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, _, err) =
        run(&["send", "127.0.0.1:9", "--no-handshake", "--no-save", &format!("--web={address}")]);
    assert!(status == 4 && err.contains(&format!("cannot serve the page at {address}")), "{err}");
    let (status, _, err) = run(&["model", "--web"]);
    assert!(status == 2 && err.contains("linerate replay"), "{err}");
    let (status, _, err) = run(&["replay", "/nonexistent.json"]);
    assert!(status == 4 && err.contains("cannot read /nonexistent.json"), "{err}");
    let (status, _, err) = run(&["replay", "x", "--speed", "0"]);
    assert!(status == 2 && err.contains("'0' is not a speed"), "{err}");
}
