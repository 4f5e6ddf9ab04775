//! The live views of running commands, and the replay of their records.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use testing::Browser;

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

/// What Prometheus' own tool says of metrics, where it is installed; the parser of crate `view` checks them everywhere.
fn check_metrics(text: &str) {
    let tool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut tool) = tool else { return eprintln!("no promtool here: package prometheus") };
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(tool.wait().unwrap().success(), "{text}");
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
    check_metrics(text.split_once("\r\n\r\n").expect("a body").1);
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
fn chromium_shows_a_run_beside_ten_clients_a_stalled_one_and_a_closed_tab() {
    let Some(program) = Browser::find() else {
        return testing::skip("no Chromium found; install chromium to test the live page in a browser");
    };
    let mut browser = Browser::start(&program);
    browser.resize(360);
    let recv = Recv::start(&[]);
    let target = recv.address.to_string();
    let args = ["--rate", "2kpps", "--duration", "4s", "--interval", "200ms", "--web", "--no-save"];
    let (mut child, mut stderr) = start(&[&["send", &target][..], &args].concat());
    let (page, token) = served(&mut stderr, "live page at");
    let mut stalled = TcpStream::connect(page).unwrap();
    stalled.write_all(format!("GET /events?token={token} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let token = token.clone();
            thread::spawn(move || stream(page, &token))
        })
        .collect();
    let home = format!("http://{page}/");
    let url = format!("{home}?token={token}");
    browser.visit_and_close(&url);
    browser.visit(&url);
    let sections =
        "[...document.querySelectorAll('h2')].map(h => h.firstChild.data.trim().split(' ')[0]).join()";
    testing::wait_for("the page shows rates and the ledger", || {
        let shown = browser.evaluate(sections);
        let shown = shown.as_str().unwrap_or_default();
        shown.contains("Rates") && shown.contains("Ledger")
    });
    assert_eq!(browser.evaluate("shown.phase === 'ended'"), Value::from(false), "it is still running");
    for width in [360, 768, 1400] {
        browser.resize(width);
        assert_eq!(
            browser.evaluate("document.documentElement.scrollWidth"),
            Value::from(width),
            "nothing leaves"
        );
        for scheme in ["light", "dark"] {
            // `make report-shots` names a folder for pictures.
            let Some(folder) = env::var_os("LINERATE_LIVE_SHOTS") else { continue };
            let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
            browser.command("Emulation.setEmulatedMedia", feature);
            browser.screenshot(&Path::new(&folder).join(format!("live-{width}-{scheme}.png")));
        }
    }
    browser.evaluate("document.querySelector('#pause').click()");
    assert_eq!(browser.evaluate("look.paused"), Value::from(true));
    browser.evaluate("document.querySelector('#pause').click()");
    testing::wait_for("the page shows the end", || browser.evaluate("shown.phase") == "ended");
    assert_eq!(browser.evaluate("shown.waterfall.residual"), Value::from(0));
    assert!(child.wait().unwrap().success(), "the rate was held with all of them looking");
    for client in clients {
        assert_eq!(client.join().unwrap().last().expect("snapshots")["phase"], "ended");
    }
    drop(stalled);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests_that_leave(&home), Vec::<String>::new());
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
