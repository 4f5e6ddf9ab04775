//! `linerate ledger` on loopback.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, UdpSocket},
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{as_nobody, is_root, json, linerate, run, signal, skip, wait, words};

/// Why a document does not match its published schema, if it does not.
fn fault(document: &Value) -> Option<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/linerate.ledger.1.schema.json");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let schema = compiler.compile(file, &mut schemas).unwrap();
    schemas.validate(document, schema).err().map(|error| format!("{error:#}"))
}

fn line<'d>(document: &'d Value, id: &str) -> Option<&'d Value> {
    document["lines"].as_array().unwrap().iter().find(|line| line["id"] == id)
}

/// Reads intervals until they contained what is expected: packets may arrive after the call that sent them.
fn intervals(lines: &mut impl Iterator<Item = io::Result<String>>, mut met: impl FnMut(&Value) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for text in lines {
        let document: Value = serde_json::from_str(&text.unwrap()).unwrap();
        if met(&document["interval"]) {
            return;
        }
        assert!(Instant::now() < deadline, "not found, last document: {document:#}");
    }
    panic!("the command ended early");
}

/// Reads intervals until a line contained this many packets.
fn until_told(lines: &mut impl Iterator<Item = io::Result<String>>, id: &str, packets: u64) {
    let mut told = 0;
    intervals(lines, |interval| {
        told += line(interval, id).map_or(0, |line| line["packets"].as_u64().unwrap());
        told >= packets
    });
}

#[test]
fn packets_to_a_closed_port_are_shown_with_reason_meaning_and_remedy() {
    if !is_root() {
        return skip("drop reasons need root");
    }
    let mut watch = linerate(&["ledger", "lo", "--json-stream", "--interval", "50ms"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first interval is over, so it is watching.
    lines.next().unwrap().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..500 {
        socket.send_to(b"x", "127.0.0.1:9").unwrap();
    }
    until_told(&mut lines, "no-socket", 500);
    signal(&child, "INT");
    let last = lines.map(Result::unwrap).last().unwrap();
    assert!(wait(&mut child).success());
    let document: Value = serde_json::from_str(&last).unwrap();
    let document = &document["end"];
    let no_socket = line(document, "no-socket").unwrap_or_else(|| panic!("{document:#}"));
    // Other programs on this machine may also send to closed ports.
    assert!(no_socket["packets"].as_u64().unwrap() >= 500, "{no_socket}");
    assert!(no_socket["meaning"].as_str().unwrap().contains("No socket is bound"));
    assert!(no_socket["remedy"].as_str().unwrap().contains("ss -lunp"));
    let reasons = document["reasons"].as_array().unwrap();
    let reason = reasons.iter().find(|reason| reason["reason"] == "NO_SOCKET").unwrap();
    assert!(reason["function"].as_str().unwrap().contains("udp"), "{reason}");
    // Each reason shows one flow, perhaps of those programs.
    let flow = reason["flow"].as_str().unwrap();
    assert!(flow.contains(" → 127.0.0.1:") && flow.ends_with(" UDP"), "{reason}");
    assert_eq!(document["cost"]["events_lost"], 0);
    assert_eq!(document["schema"], "linerate.ledger/1");
    assert_eq!(fault(document), None);
    let mut other = document.clone();
    other["schema"] = "linerate.ledger/2".into();
    assert!(fault(&other).is_some());
    // Cycles per packet, or why they are missing.
    let why_not = &document["no_hardware_counters"];
    assert_ne!(
        document["hardware"].is_object(),
        why_not.as_str().is_some_and(|why| !why.is_empty()),
        "{why_not}"
    );
    let cpus = document["cpus"].as_array().unwrap();
    let polled = |cpu: &Value| cpu["net_rx"]["polls"]["packets"].as_u64().unwrap();
    assert!(cpus.iter().map(polled).sum::<u64>() >= 500, "loopback's packets were polled: {cpus:#?}");
}

#[test]
fn a_socket_that_nobody_reads_is_named_with_its_process() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let mut watch = linerate(&["ledger", "lo", "--json-stream", "--interval", "50ms"]);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    // More than its buffer holds, but not more than the backlog of a CPU.
    const SENT: u64 = 1000;
    for _ in 0..SENT {
        socket.send_to(&[0; 500], to).unwrap();
    }
    let mut dropped = 0;
    intervals(&mut lines, |interval| {
        let sockets = interval["sockets"].as_array().unwrap();
        let own = sockets.iter().find(|other| other["port"] == to.port());
        let more = own.map_or(0, |own| own["dropped"].as_u64().unwrap());
        dropped += more;
        dropped > 0 && more == 0
    });
    signal(&child, "INT");
    let last = lines.map(Result::unwrap).last().unwrap();
    assert!(wait(&mut child).success());
    let document: Value = serde_json::from_str(&last).unwrap();
    let end = &document["end"];
    assert_eq!(fault(end), None);
    let sockets = end["sockets"].as_array().unwrap();
    let own = sockets.iter().find(|other| other["port"] == to.port()).unwrap_or_else(|| panic!("{end:#}"));
    assert!(own["unread_bytes"].as_u64().unwrap() > 0, "{own}");
    assert_eq!(own["pid"], std::process::id());
    socket.set_nonblocking(true).unwrap();
    let held = std::iter::from_fn(|| socket.recv(&mut [0; 500]).ok()).count() as u64;
    assert_eq!(own["dropped"].as_u64().unwrap(), SENT - held, "{own}");
    let full = line(end, "receive-buffer").unwrap_or_else(|| panic!("{end:#}"));
    assert!(full["packets"].as_u64().unwrap() >= SENT - held, "{full}");
}

#[test]
fn only_the_requested_flow_is_counted() {
    if !is_root() {
        return skip("drop reasons need root");
    }
    let mut watch =
        linerate(&["ledger", "lo", "--json-stream", "--interval", "50ms", "--flow", "udp dst port 4009"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in [4009, 4010, 4009] {
        for _ in 0..100 {
            socket.send_to(b"x", ("127.0.0.1", port)).unwrap();
        }
    }
    until_told(&mut lines, "no-socket", 200);
    signal(&child, "INT");
    let last = lines.map(Result::unwrap).last().unwrap();
    assert!(wait(&mut child).success());
    let document: Value = serde_json::from_str(&last).unwrap();
    let end = &document["end"];
    assert_eq!(line(end, "no-socket").unwrap_or_else(|| panic!("{end:#}"))["packets"], 200);
    assert_eq!(end["flow"], "udp dst port 4009");
}

#[test]
fn metrics_are_served_on_loopback() {
    let mut watch = linerate(&["ledger", "lo", "--interval", "20ms", "--prometheus", "0", "--json-stream"]);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("metrics at ") {
        said.clear();
        assert!(stderr.read_line(&mut said).unwrap() > 0, "the address of the metrics is printed");
    }
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // Published before the interval's line is printed.
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("linerate_received_packets_total{run="), "{answer}");
    assert!(!answer.contains("# EOF"), "OpenMetrics was not requested: {answer}");
    drop(child.stdout.take());
    signal(&child, "TERM");
    wait(&mut child);
}

#[test]
fn without_privilege_only_counters_are_shown() {
    if !is_root() {
        return skip("changing to nobody needs root");
    }
    let command = linerate(&["ledger", "lo", "--json", "--duration", "30ms", "--interval", "10ms"]);
    let (status, out, err) = words(as_nobody(command).output().unwrap());
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("drop reasons need root; showing counters only"), "{err}");
    let document: Value = serde_json::from_str(&out).unwrap();
    assert!(document["reasons"].is_null() && document["rx_packets"].is_u64(), "{document}");
}

#[test]
fn without_a_terminal_the_screen_is_blocks_of_text() {
    let (status, out, _) = run(&["ledger", "--duration", "30ms", "--interval", "10ms"]);
    assert_eq!(status, 0);
    assert!(out.contains("all interfaces") && out.contains("watching costs"), "{out}");
    assert!(!out.contains('\u{1b}'), "no escape sequences: {out:?}");
    let (_, document) = json(&["ledger", "lo", "--duration", "30ms", "--json"]);
    assert!(document["duration_s"].as_f64().unwrap() >= 0.03, "between the readings: {document}");
}
