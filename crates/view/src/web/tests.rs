use std::sync::mpsc;

use super::*;
use crate::snapshot::{History, Phase, Traffic};

const PATIENT: Duration = Duration::from_secs(20);

fn served(clients: u32, metrics_only: bool) -> (Arc<Hub>, Web) {
    let hub = Hub::new();
    let plan = WebPlan { address: ([127, 0, 0, 1], 0).into(), clients, metrics_only };
    let web = Web::open(plan, &hub).unwrap();
    (hub, web)
}

fn snapshot(number: u64) -> Snapshot {
    Snapshot { command: "bench".into(), title: format!("trial {number}"), ..Snapshot::default() }
}

fn ask(web: &Web, request: &str) -> String {
    let mut stream = TcpStream::connect(web.address()).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(web: &Web, path: &str, headers: &str) -> String {
    let token = web.url().split("token=").nth(1).unwrap_or_default().to_owned();
    ask(web, &format!("GET {path}?token={token} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
}

/// A browser's stream of events; it sends the data of each.
fn events(web: &Web) -> mpsc::Receiver<String> {
    let token = web.url().split("token=").nth(1).unwrap().to_owned();
    let mut stream = TcpStream::connect(web.address()).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream.write_all(format!("GET /events?token={token} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let (send, heard) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let words = line.strip_prefix("data: ").or(line.strip_prefix("event: "));
            if words.is_some_and(|words| send.send(words.to_owned()).is_err()) {
                return;
            }
        }
    });
    heard
}

#[test]
fn only_who_knows_the_token_sees_anything() {
    let (hub, web) = served(4, false);
    hub.publish(snapshot(1));
    for path in ["/", "/events", "/snapshot", "/metrics", "/nonsense"] {
        for query in ["", "?token=", "?token=00000000000000000000000000000000", "?tokens=x"] {
            let answer = ask(&web, &format!("GET {path}{query} HTTP/1.1\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path}{query}: {answer}");
            assert!(!answer.contains("trial 1"));
        }
    }
    assert!(get(&web, "/", "").starts_with("HTTP/1.1 200 "));
    assert!(get(&web, "/", "").contains("Content-Security-Policy: default-src 'none'"));
    assert!(get(&web, "/snapshot", "").contains(r#""title":"trial 1""#));
    assert!(get(&web, "/nonsense", "").starts_with("HTTP/1.1 404 "));
    assert!(ask(&web, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask(&web, "nonsense\r\n\r\n").starts_with("HTTP/1.1 405 "));
}

#[test]
fn ten_browsers_get_the_newest_until_the_end_beside_a_stalled_and_a_closed_one() {
    let (hub, web) = served(12, false);
    hub.publish(snapshot(0));
    let all: Vec<_> = (0..10).map(|_| events(&web)).collect();
    let token = web.url().split("token=").nth(1).unwrap().to_owned();
    // One that asks and never reads, one that asks and leaves.
    let mut stalled = TcpStream::connect(web.address()).unwrap();
    SockRef::from(&stalled).set_recv_buffer_size(4096).unwrap();
    stalled.write_all(format!("GET /events?token={token} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let mut leaving = TcpStream::connect(web.address()).unwrap();
    leaving.write_all(format!("GET /events?token={token} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    drop(leaving);
    for heard in &all {
        assert!(heard.recv_timeout(PATIENT).unwrap().contains("trial"));
    }
    // Large enough that a browser that does not read fills its buffers at once; the run goes on publishing.
    let history = History {
        names: vec!["sent".into()],
        points: (0..20_000).map(|at| (f64::from(at), vec![1.0])).collect(),
    };
    let mut longest = Duration::ZERO;
    for number in 1..=50 {
        let traffic = Some(Traffic { history: history.clone(), ..Traffic::default() });
        let published = Snapshot { traffic, ..snapshot(number) };
        let before = Instant::now();
        hub.publish(published);
        longest = longest.max(before.elapsed());
    }
    assert!(longest < STALLED / 2, "publishing waited {longest:?}");
    hub.publish(Snapshot { phase: Phase::Ended, ..snapshot(51) });
    for heard in &all {
        let mut last = String::new();
        loop {
            match heard.recv_timeout(PATIENT) {
                Ok(words) if words == "end" => break,
                Ok(words) => last = words,
                Err(error) => panic!("no end: {error}"),
            }
        }
        assert!(last.contains(r#""title":"trial 51""#), "{}", &last[..last.len().min(200)]);
    }
    let before = Instant::now();
    drop(web);
    assert!(before.elapsed() < PATIENT / 4, "the end waits for nobody: {:?}", before.elapsed());
    drop(stalled);
}

#[test]
fn one_too_many_comes_later_and_a_free_place_is_taken_again() {
    let (hub, web) = served(2, false);
    hub.publish(snapshot(1));
    let some: Vec<_> = (0..2).map(|_| events(&web)).collect();
    some.iter().for_each(|heard| assert!(heard.recv_timeout(PATIENT).is_ok()));
    assert!(get(&web, "/snapshot", "").starts_with("HTTP/1.1 503 "));
    drop(some);
    let until = Instant::now() + PATIENT;
    let mut number = 1;
    // A stream notices that its browser has gone when it writes.
    while !get(&web, "/snapshot", "").starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < until, "the places stay taken");
        number += 1;
        hub.publish(snapshot(number));
        thread::sleep(STEP);
    }
}

#[test]
fn metrics_alone_need_no_token_and_come_in_the_form_that_is_asked_for() {
    let (hub, web) = served(4, true);
    hub.publish(snapshot(1));
    assert_eq!(web.url(), format!("http://{}/metrics", web.address()));
    let open = get(&web, "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(
        open.contains("Content-Type: application/openmetrics-text; version=1.0.0")
            && open.ends_with("# EOF\n")
    );
    let text = get(&web, "/metrics", "Accept: */*\r\n");
    assert!(text.contains("Content-Type: text/plain; version=0.0.4") && !text.contains("# EOF"));
    for path in ["/snapshot", "/events"] {
        assert!(get(&web, path, "").starts_with("HTTP/1.1 404 "), "{path}");
    }
}

#[test]
fn a_slow_request_gets_two_seconds_and_others_do_not_wait_for_it() {
    let (hub, web) = served(3, true);
    hub.publish(snapshot(1));
    let _silent = TcpStream::connect(web.address()).unwrap();
    assert!(get(&web, "/metrics", "").starts_with("HTTP/1.1 200 "));
    let mut silent = TcpStream::connect(web.address()).unwrap();
    silent.set_read_timeout(Some(PATIENT)).unwrap();
    assert_eq!(silent.read_to_end(&mut Vec::new()).ok(), Some(0), "it is hung up on");
}

#[test]
fn an_address_in_use_is_refused_in_words() {
    let (hub, web) = served(1, true);
    let plan = WebPlan { address: web.address(), clients: 1, metrics_only: true };
    let refused = Web::open(plan, &hub).err().unwrap();
    assert_eq!(refused.to_string(), format!("cannot serve metrics at {}", web.address()));
    let refused = Web::open(WebPlan { metrics_only: false, ..plan }, &hub).err().unwrap();
    assert_eq!(refused.to_string(), format!("cannot serve the page at {}", web.address()));
}
