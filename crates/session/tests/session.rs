//! Both ends of a session over loopback, with the test's own counters.

use std::{
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use measure::{ClockStage, Cost, Endpoint, LedgerLine, Trial};
use session::{
    Admission, ClockQuestion, Counts, Guest, Host, HostClock, HostEvent, HostListener, Joining, Key, Message,
    Offer, PROTOCOL, Progress, Related, Report, Request, SessionError, Terms,
};

#[derive(Default)]
struct Invented {
    delivered: AtomicU64,
    returning: AtomicU64,
    abandoned: AtomicU64,
    reflects: AtomicU64,
    /// Whether packets are timed.
    times: AtomicBool,
    clock: Skewed,
    related: Mutex<Vec<(i64, i64)>>,
}

/// A clock that is this many nanoseconds ahead of the test's own.
#[derive(Default)]
struct Skewed(u64);

impl HostClock for Skewed {
    fn now_ns(&self) -> u64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGAN.elapsed().as_nanos() as u64 + self.0
    }

    fn wall_ahead_ns(&self) -> u64 {
        1_800_000_000_000_000_000 - self.0
    }
}

impl Counts for Invented {
    fn progress(&self, streams: &[u16]) -> Progress {
        let packets = self.delivered.load(Relaxed) * streams.len() as u64;
        Progress { packets, payload_bytes: packets * 18, dropped: 3 }
    }

    fn send_back(
        &self,
        to: SocketAddr,
        plan: &serde_json::Value,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Box<Trial>, String> {
        assert_eq!((to.ip().to_string(), to.port(), go_on()), ("127.0.0.1".into(), 9, true));
        let sent = plan["n"].as_u64().ok_or("nothing to send")?;
        Ok(Box::new(Trial { sent, ..Trial::default() }))
    }

    fn begin(&self, _: &Joining<'_>) -> u64 {
        7
    }

    fn abandon(&self, begun: u64) {
        assert_eq!(begun, 7);
        self.abandoned.fetch_add(1, Relaxed);
    }

    fn allow_returns(&self, sender: IpAddr) -> Result<(), String> {
        assert_eq!(sender.to_string(), "127.0.0.1");
        if self.reflects.load(Relaxed) == 0 {
            return Err("nothing comes back".into());
        }
        self.returning.fetch_add(1, Relaxed);
        Ok(())
    }

    fn end_returns(&self, _: IpAddr) {
        self.returning.fetch_sub(1, Relaxed);
    }

    fn clock(&self) -> Option<&dyn HostClock> {
        self.times.load(Relaxed).then_some(&self.clock)
    }

    fn relate(&self, begun: u64, related: &Related<'_>) {
        assert_eq!((begun, related.tags.len()), (7, 1));
        self.related.lock().unwrap().push((related.uptime_ahead_ns, related.wall_ahead_ns));
    }

    fn report(&self, begun: u64, delivered: u64, senders: u32) -> Report {
        assert_eq!(begun, 7);
        Report {
            delivered,
            lines: vec![LedgerLine::new("receive buffer", 1, "test")],
            rx: Endpoint::default(),
            cost: Cost::default(),
            cpus: Vec::new(),
            senders,
            profile: None,
            wire: None,
            clocks: None,
        }
    }
}

struct Receiver {
    host: Host,
    counts: Arc<Invented>,
    events: mpsc::Receiver<HostEvent>,
}

fn receiver() -> Receiver {
    receiver_at("127.0.0.1:0", Terms::default())
}

fn receiver_at(address: &str, terms: Terms) -> Receiver {
    let counts = Arc::<Invented>::default();
    let (sender, events) = mpsc::channel();
    let listener = HostListener::bind(address.parse().unwrap()).unwrap();
    let host = Host::serve(listener, terms, counts.clone(), sender).unwrap();
    Receiver { host, counts, events }
}

/// A receiver that can be reached at two addresses.
fn receiver_of_two() -> (Receiver, [SocketAddr; 2]) {
    let receiver = receiver_at("[::]:0", Terms::default());
    let port = receiver.host.address().port();
    (receiver, [([127, 0, 0, 1], port).into(), (std::net::Ipv6Addr::LOCALHOST, port).into()])
}

fn offer(streams: u16) -> Offer {
    Offer {
        protocol: PROTOCOL,
        version: "test".into(),
        streams,
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

fn next(events: &mpsc::Receiver<HostEvent>) -> HostEvent {
    events.recv_timeout(Duration::from_secs(10)).expect("no event within ten seconds")
}

fn until(condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(10), "waited more than ten seconds");
        std::thread::yield_now();
    }
}

#[test]
fn a_session_brings_consent_progress_and_a_report() {
    let receiver = receiver();
    let (mut guest, accepted) = Guest::join(receiver.host.address(), &offer(2)).unwrap();
    assert_eq!(accepted.streams.len(), 2);
    assert_eq!(accepted.data, receiver.host.address(), "packets go where the handshake went");
    assert!(matches!(next(&receiver.events), HostEvent::Joined { .. }));
    receiver.counts.delivered.store(50, Relaxed);
    until(|| guest.progress().packets == 100);
    guest.tell(Progress { packets: 110, ..Progress::default() }).unwrap();
    let report = guest.finish(100).unwrap();
    assert_eq!((report.delivered, report.senders, report.lines[0].packets), (100, 1, 1));
    drop(guest);
    assert!(matches!(next(&receiver.events), HostEvent::Finished { trial: None, .. }));
}

/// A trial in which nothing was sent.
fn trial() -> Trial {
    Trial { trial: 1, frame_size_bytes: 64, payload_bytes: 18, ..Trial::default() }
}

#[test]
fn a_sender_may_take_longer_than_a_beat_for_its_summary() {
    let receiver = receiver();
    let (mut guest, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    assert!(matches!(next(&receiver.events), HostEvent::Joined { .. }));
    guest.finish(0).unwrap();
    let told = receiver.events.recv_timeout(Duration::from_millis(1200));
    assert!(told.is_err(), "the receiver waits for the summary");
    guest.summarise(&trial());
    assert!(matches!(next(&receiver.events), HostEvent::Finished { trial: Some(_), .. }));
}

#[test]
fn concurrent_senders_get_streams_of_their_own_and_release_them() {
    let receiver = receiver();
    let (first, a) = Guest::join(receiver.host.address(), &offer(3)).unwrap();
    let (mut second, b) = Guest::join(receiver.host.address(), &offer(2)).unwrap();
    let tags: std::collections::BTreeSet<u16> = a.streams.iter().chain(&b.streams).copied().collect();
    assert_eq!((tags.len(), tags.contains(&0)), (5, false));
    drop(first);
    until(|| receiver.events.try_iter().any(|event| matches!(event, HostEvent::Lost { .. })));
    let (_third, c) = Guest::join(receiver.host.address(), &offer(3)).unwrap();
    assert_eq!(c.streams.len(), 3);
    assert!(c.streams.iter().all(|tag| !b.streams.contains(tag)));
    assert_eq!(second.finish(0).unwrap().senders, 3, "the first, the third and itself");
}

#[test]
fn offers_that_cannot_be_served_are_refused() {
    let receiver = receiver();
    let untagged = Offer { payload_bytes: 16, ..offer(2) };
    let (_first, accepted) = Guest::join(receiver.host.address(), &untagged).unwrap();
    assert_eq!(accepted.streams, [0, 0]);
    let error = Guest::join(receiver.host.address(), &untagged).unwrap_err();
    assert!(error.to_string().contains("another sender uses payloads below 18 bytes"), "{error}");
    let error = Guest::join(receiver.host.address(), &offer(0)).unwrap_err();
    assert!(error.to_string().contains("0 sending threads"), "{error}");
    let other = Offer { protocol: 99, ..offer(1) };
    let error = Guest::join(receiver.host.address(), &other).unwrap_err();
    assert!(error.to_string().contains("speaks protocol 4, the sender test and speaks 99"), "{error}");
    let curious = Offer { profile: true, ..offer(1) };
    let error = Guest::join(receiver.host.address(), &curious).unwrap_err();
    assert!(error.to_string().contains("does not profile its CPUs: start it with --profile"), "{error}");
}

#[test]
fn one_address_cannot_take_all_streams() {
    let (receiver, [hog, other]) = receiver_of_two();
    let refused = Guest::join(hog, &offer(255)).unwrap_err();
    assert!(
        refused.to_string().contains("255 more streams are too many: an address may have 128"),
        "{refused}"
    );
    let (_all, accepted) = Guest::join(hog, &offer(128)).unwrap();
    assert_eq!(accepted.streams.len(), 128);
    let refused = Guest::join(hog, &offer(1)).unwrap_err();
    assert!(matches!(refused, SessionError::Refused { .. }), "{refused}");
    let (mut guest, accepted) = Guest::join(other, &offer(60)).unwrap();
    assert_eq!(accepted.streams.len(), 60);
    assert_eq!(guest.finish(0).unwrap().senders, 2);
    drop(receiver);
}

#[test]
fn held_sessions_of_one_address_leave_room_for_others() {
    let (receiver, [hog, other]) = receiver_of_two();
    let held: Vec<Guest> = (0..32).map(|_| Guest::join(hog, &offer(1)).unwrap().0).collect();
    let refused = Guest::join(hog, &offer(1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("the receiver at {hog} refused: too many connections: 32 from 127.0.0.1 and 0 from others")
    );
    let (mut guest, _) = Guest::join(other, &offer(1)).unwrap();
    assert_eq!(guest.finish(0).unwrap().delivered, 0);
    drop((held, receiver));
}

#[test]
fn a_sender_that_continues_after_its_time_is_stopped_and_its_streams_are_freed() {
    let terms = Terms { overtime: Duration::from_millis(100), ..Terms::default() };
    let receiver = receiver_at("127.0.0.1:0", terms);
    let address = receiver.host.address();
    let short = Offer { duration_s: Some(0.2), ..offer(128) };
    let (mut guest, _) = Guest::join(address, &short).unwrap();
    let since = Instant::now();
    let refused = loop {
        assert!(since.elapsed() < Duration::from_secs(10), "it continued");
        match guest.tell(Progress::default()) {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    let SessionError::Gone { source, .. } = refused else { panic!("{refused}") };
    let said = "the receiver ended the session: it offered to send for 200ms but continued";
    // What was written to a closed connection may have been answered first.
    assert!(
        [said, "the peer closed the control connection"].contains(&source.to_string().as_str()),
        "{source}"
    );
    until(|| receiver.counts.abandoned.load(Relaxed) == 1);
    until(|| Guest::join(address, &offer(128)).is_ok());
    assert!(receiver.events.try_iter().any(
        |event| matches!(event, HostEvent::Lost { error, .. } if error.to_string().contains("but continued"))
    ));
}

#[test]
fn an_offer_needs_a_possible_duration_and_rate() {
    let receiver = receiver();
    for (bad, said) in [
        (Offer { duration_s: None, ..offer(1) }, "neither a duration nor a number of packets"),
        (Offer { duration_s: Some(-1.0), ..offer(1) }, "impossible duration of -1 seconds"),
        (Offer { rate_pps: Some(0.0), ..offer(1) }, "impossible rate of 0 packets per second"),
    ] {
        let refused = Guest::join(receiver.host.address(), &bad).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
    let endless = Offer { duration_s: Some(1e300), rate_pps: Some(1e300), ..offer(1) };
    Guest::join(receiver.host.address(), &endless).unwrap();
    let many = Offer { duration_s: None, count: Some(u64::MAX), ..offer(1) };
    Guest::join(receiver.host.address(), &many).unwrap();
}

#[test]
fn a_summary_that_contradicts_the_counters_is_refused() {
    let receiver = receiver();
    let (mut guest, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    assert!(matches!(next(&receiver.events), HostEvent::Joined { .. }));
    receiver.counts.delivered.store(50, Relaxed);
    assert_eq!(guest.finish(50).unwrap().delivered, 50);
    guest.summarise(&Trial { sent: 10u64.pow(15), ..trial() });
    let HostEvent::Disputed { error, .. } = next(&receiver.events) else {
        panic!("the summary was accepted")
    };
    assert_eq!(error.to_string(), "it claims 1000000000000000 packets sent, but the session has 50");
}

#[test]
fn strangers_are_refused_with_the_option_that_admits_them() {
    let admission = Admission::of(vec!["10.0.0.0/8".parse().unwrap()]);
    assert!(admission.check("192.168.0.1".parse().unwrap()).unwrap_err().contains("--allow 192.168.0.1"));
    let receiver = receiver_at("127.0.0.1:0", Terms { admission, ..Terms::default() });
    // This host is always served.
    Guest::join(receiver.host.address(), &offer(1)).unwrap();
}

#[test]
fn no_text_of_a_peer_controls_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hostile = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"{\"type\":\"refuse\",\"reason\":\"\\u001b]0;owned\\u0007\"}\n").unwrap();
        peer.read_to_end(&mut Vec::new()).ok();
    });
    let error = Guest::join(address, &offer(1)).unwrap_err();
    assert_eq!(error.to_string(), format!("the receiver at {address} refused: \\u{{1b}}]0;owned\\u{{7}}"));
    hostile.join().unwrap();

    let receiver = receiver();
    let mut peer = TcpStream::connect(receiver.host.address()).unwrap();
    peer.write_all(b"{\"type\":\"\\u001b[31m\"}\n").unwrap();
    let HostEvent::Lost { error, .. } = next(&receiver.events) else { panic!("the line was accepted") };
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("[31m") && !cause.contains('\u{1b}'), "{cause}");
}

#[test]
fn only_a_summary_may_be_a_long_line() {
    let receiver = receiver();
    let mut peer = TcpStream::connect(receiver.host.address()).unwrap();
    peer.write_all(&[b' '; 5000]).unwrap();
    let HostEvent::Lost { error, .. } = next(&receiver.events) else { panic!("the line was accepted") };
    assert_eq!(error.to_string(), "the peer sent a line of more than 4096 bytes");
}

#[test]
fn a_stopped_receiver_is_noticed_by_its_senders() {
    let receiver = receiver();
    let (guest, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    drop(receiver.host);
    until(|| guest.check().is_err());
    assert!(guest.check().unwrap_err().to_string().contains("went away"));
}

#[test]
fn a_receiver_that_times_packets_compares_both_clocks_before_during_and_after_the_trial() {
    let (keyed, key) = keyed();
    for (receiver, key) in [(receiver(), None), (keyed, Some(key))] {
        receiver.counts.times.store(true, Relaxed);
        // The sender's host booted an hour earlier.
        const HOUR: u64 = 3_600_000_000_000;
        let clock: Arc<dyn HostClock> = Arc::new(Skewed(HOUR));
        let (mut guest, _) =
            Guest::join_by(receiver.host.address(), &offer(1), key.as_ref(), &clock).unwrap();
        assert!(!receiver.counts.related.lock().unwrap().is_empty(), "known before the first packet");
        guest.look_at_clocks().unwrap();
        let clocks = guest.finish(0).unwrap().clocks.unwrap();
        let bound_ns = clocks.bound_ns.unwrap();
        let off_ns = clocks.ahead_ns.unsigned_abs().abs_diff(HOUR);
        assert!(clocks.ahead_ns < 0 && off_ns <= bound_ns, "{clocks:?}");
        assert!(clocks.exchanges >= 17 && clocks.sender == "127.0.0.1", "{clocks:?}");
        assert!(clocks.round_trip_before_ns.is_some() && clocks.round_trip_after_ns.is_some(), "{clocks:?}");
        // Both wall clocks show the same time.
        let related = receiver.counts.related.lock().unwrap().clone();
        assert!(
            related.iter().all(|(_, wall_ns)| wall_ns.unsigned_abs() <= bound_ns + 1_000_000_000),
            "{related:?}"
        );
        assert!(related.iter().all(|(uptime_ns, wall_ns)| wall_ns - uptime_ns == HOUR as i64), "{related:?}");
    }
    // A receiver that times nothing gets no questions.
    let untimed = receiver();
    let clock: Arc<dyn HostClock> = Arc::new(Skewed(0));
    let (mut guest, _) = Guest::join_by(untimed.host.address(), &offer(1), None, &clock).unwrap();
    guest.look_at_clocks().unwrap();
    assert_eq!(guest.finish(0).unwrap().clocks, None);
}

#[test]
fn impossible_clocks_and_unexpected_questions_end_only_their_sender() {
    let receiver = receiver();
    receiver.counts.times.store(true, Relaxed);
    let clock: Arc<dyn HostClock> = Arc::new(Skewed(5));
    let (mut honest, _) = Guest::join_by(receiver.host.address(), &offer(1), None, &clock).unwrap();
    let say = |stream: &mut TcpStream, message: &Message| {
        let line = serde_json::to_string(message).unwrap() + "\n";
        stream.write_all(line.as_bytes()).is_ok()
    };
    let question = |stage, asked_ns, returned_ns| {
        Message::ClockQuestion(ClockQuestion { stage, asked_ns, wall_ahead_ns: u64::MAX, returned_ns })
    };
    // Before an offer.
    let mut early = TcpStream::connect(receiver.host.address()).unwrap();
    say(&mut early, &question(ClockStage::Before, 0, None));
    assert_eq!(early.read_to_end(&mut Vec::new()).unwrap(), 0, "the connection is closed");
    let mut liar = TcpStream::connect(receiver.host.address()).unwrap();
    say(&mut liar, &Message::Offer(offer(1)));
    let mut reader = BufReader::new(liar.try_clone().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    let numbers = [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for stage in [ClockStage::After, ClockStage::Before, ClockStage::During] {
        for asked_ns in numbers {
            for returned_ns in numbers {
                assert!(say(&mut liar, &question(stage, asked_ns, Some(returned_ns))));
                reader.read_line(&mut String::new()).unwrap();
            }
        }
    }
    say(&mut liar, &Message::Done { sent: 0 });
    let mut report = String::new();
    while !report.contains("\"report\"") {
        report.clear();
        assert!(reader.read_line(&mut report).unwrap() > 0);
    }
    let clocks = honest.finish(0).unwrap().clocks.unwrap();
    assert!(clocks.ahead_ns.unsigned_abs() <= clocks.bound_ns.unwrap() + 5, "{clocks:?}");
}

#[test]
fn thousands_of_connections_end_no_session() {
    let receiver = receiver();
    let address = receiver.host.address();
    let (mut guest, _) = Guest::join(address, &offer(1)).unwrap();
    // Half open, slow, and closed at once, from one address; at most as many at a time as a process may have.
    let mut held = std::collections::VecDeque::new();
    for number in 0..2000 {
        let Ok(mut peer) = TcpStream::connect(address) else { continue };
        match number % 3 {
            0 => peer.write_all(b"{\"type\":\"off").unwrap_or_default(),
            1 => peer.shutdown(std::net::Shutdown::Write).unwrap_or_default(),
            _ => {}
        }
        held.push_back(peer);
        if held.len() > 200 {
            held.pop_front();
        }
        guest.tell(Progress::default()).unwrap();
    }
    assert_eq!(guest.finish(0).unwrap().delivered, 0);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < 600, "{threads} threads");
    drop(held);
    let others = Guest::join(address, &offer(1));
    assert!(others.is_ok(), "{others:?}");
}

#[test]
fn peers_of_other_versions_are_refused_with_both_versions() {
    let (keyed, key) = keyed();
    let plain = receiver();
    let refusal = |receiver: &Receiver, words: &str| {
        let mut stream = TcpStream::connect(receiver.host.address()).unwrap();
        stream.write_all(format!("{words}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let ours = env!("CARGO_PKG_VERSION");
    for (theirs, protocol, words) in [
        // In the form that all versions used so far, and in a possible future form.
        ("0.0.1", 1, r#"{"type":"offer","protocol":1,"version":"0.0.1","streams":1}"#),
        (
            "9.9.9",
            77,
            r#"{"type":"offer","protocol":77,"version":"9.9.9","streams":{"of":[1,2]},"zeal":"much"}"#,
        ),
        ("9.9.9", 77, r#"{"type":"request","protocol":77,"version":"9.9.9","load":[]}"#),
    ] {
        for receiver in [&plain, &keyed] {
            let answer = refusal(receiver, words);
            let names = format!(
                "this receiver is linerate {ours} and speaks protocol {PROTOCOL}, the sender {theirs} and speaks {protocol}"
            );
            assert!(answer.contains(&names) && answer.contains("refuse"), "{answer}");
        }
    }
    // Sealed, too.
    let other = Offer { protocol: 77, version: "9.9.9".into(), ..offer(1) };
    let error = Guest::join_with(keyed.host.address(), &other, Some(&key)).unwrap_err();
    assert!(
        error.to_string().contains(&format!("linerate {ours}")) && error.to_string().contains("9.9.9"),
        "{error}"
    );
}

#[test]
fn a_hostile_peer_loses_its_connection_and_nothing_else() {
    let receiver = receiver();
    let address = receiver.host.address();
    let rubbish: [&[u8]; 6] = [
        b"\n",
        b"{\"type\":\"report\"}\n",
        &[0xff; 100],
        &[b'['; 70_000],
        b"{\"type\":\"done\",\"sent\":1}\n",
        b"",
    ];
    for bytes in rubbish {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(bytes).ok();
        peer.shutdown(std::net::Shutdown::Write).ok();
        peer.read_to_end(&mut Vec::new()).ok();
    }
    let (mut guest, _) = Guest::join(address, &offer(1)).unwrap();
    assert_eq!(guest.finish(0).unwrap().delivered, 0);
}

#[test]
fn silent_connections_do_not_shut_others_out() {
    let receiver = receiver();
    let silent: Vec<TcpStream> =
        (0..80).map(|_| TcpStream::connect(receiver.host.address()).unwrap()).collect();
    let (mut guest, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    assert_eq!(guest.finish(0).unwrap().delivered, 0);
    drop(silent);
}

#[test]
fn a_server_that_is_not_a_receiver_is_not_sent_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        peer.read_to_end(&mut Vec::new()).ok();
    });
    let error = Guest::join(address, &offer(1)).unwrap_err();
    assert_eq!(error.to_string(), format!("{address} is not a linerate receiver"));
    server.join().unwrap();
}

#[test]
fn an_unreachable_receiver_is_reported_with_its_address() {
    let free: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Guest::join(free, &offer(1)).unwrap_err();
    assert_eq!(error.to_string(), format!("no receiver answers at {free}"));
    assert_eq!(error.source().unwrap().to_string(), "Connection refused (os error 111)");
}

#[test]
fn packets_return_during_a_session_that_requested_it() {
    let receiver = receiver();
    let wanted = Offer { reflect: true, ..offer(1) };
    let refused = Guest::join(receiver.host.address(), &wanted).unwrap_err();
    assert!(refused.to_string().ends_with("refused: nothing comes back"), "{refused}");
    receiver.counts.reflects.store(1, Relaxed);
    let (mut asked, _) = Guest::join(receiver.host.address(), &wanted).unwrap();
    let (plain, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    assert_eq!(receiver.counts.returning.load(Relaxed), 1);
    assert_eq!(asked.local_ip().unwrap().to_string(), "127.0.0.1");
    asked.finish(0).unwrap();
    drop((asked, plain));
    until(|| receiver.counts.returning.load(Relaxed) == 0);
}

fn keyed() -> (Receiver, Key) {
    let key = Key::of(b"correct horse battery");
    (receiver_at("127.0.0.1:0", Terms { key: Some(key.clone()), ..Terms::default() }), key)
}

#[test]
fn a_session_with_a_key_is_the_same_but_unreadable_on_the_wire() {
    let (receiver, key) = keyed();
    let (mut guest, accepted) = Guest::join_with(receiver.host.address(), &offer(2), Some(&key)).unwrap();
    assert_eq!(accepted.streams.len(), 2);
    receiver.counts.delivered.store(50, Relaxed);
    until(|| guest.progress().packets == 100);
    assert_eq!(guest.finish(100).unwrap().delivered, 100);
}

#[test]
fn without_the_key_nobody_gets_past_the_handshake() {
    let (receiver, _) = keyed();
    let address = receiver.host.address();
    let refused = |error: SessionError| error.to_string();
    let plain = refused(Guest::join(address, &offer(1)).unwrap_err());
    assert!(plain.contains("it serves only senders with its key"), "{plain}");
    let other = refused(Guest::join_with(address, &offer(1), Some(&Key::of(b"a guess"))).unwrap_err());
    assert!(other.contains("it has another key"), "{other}");
    let request =
        Request { protocol: PROTOCOL, version: "test".into(), port: 1, plan: serde_json::json!({}) };
    let asked = refused(session::request(address, &request, None, || true).unwrap_err());
    assert!(asked.contains("it serves only senders with its key"), "{asked}");
    for words in [
        "{\"type\":\"handshake\",\"noise\":\"\"}\n".to_owned(),
        "{\"type\":\"handshake\",\"noise\":\"zz\"}\n".to_owned(),
        format!("{{\"type\":\"handshake\",\"noise\":\"{}\"}}\n", "00".repeat(48)),
        format!("{{\"type\":\"handshake\",\"noise\":\"{}\"}}\n", "ab".repeat(2500)),
    ] {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stranger.write_all(words.as_bytes()).unwrap();
        let mut said = String::new();
        stranger.read_to_string(&mut said).ok();
        assert!(!said.contains("accept") && !said.contains("noise"), "{said}");
    }
    assert_eq!(receiver.counts.abandoned.load(Relaxed), 0, "no trial began");
}

#[test]
fn a_host_that_sends_answers_a_request() {
    let receiver = receiver();
    let request =
        Request { protocol: PROTOCOL, version: "test".into(), port: 9, plan: serde_json::json!({"n": 3}) };
    let sent = session::request(receiver.host.address(), &request, None, || true).unwrap();
    assert_eq!(sent, 3);
    assert!(matches!(next(&receiver.events), HostEvent::Sent { trial, .. } if trial.sent == 3));
    let other = Request { protocol: 2, ..request.clone() };
    let error = session::request(receiver.host.address(), &other, None, || true).unwrap_err();
    assert!(error.to_string().contains("speaks protocol 4, the sender test and speaks 2"), "{error}");
    let without = Request { plan: serde_json::json!({}), ..request };
    let error = session::request(receiver.host.address(), &without, None, || true).unwrap_err();
    assert!(error.to_string().contains("refused: nothing to send"), "{error}");
}
