//! Both ends of a session over loopback, with counters made up by the test.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use measure::{Cost, Endpoint, Histogram, Ledger, LedgerLine, Receipt, Trial};
use session::{
    Counts, Guest, Host, HostEvent, HostListener, Offer, PROTOCOL, Progress, Report, SessionError,
};

#[derive(Default)]
struct Invented {
    delivered: AtomicU64,
    returning: AtomicU64,
    reflects: AtomicU64,
}

impl Counts for Invented {
    fn progress(&self, streams: &[u16]) -> Progress {
        let packets = self.delivered.load(Relaxed) * streams.len() as u64;
        Progress { packets, payload_bytes: packets * 18, dropped: 3 }
    }

    fn begin(&self) -> u64 {
        7
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
        }
    }
}

struct Receiver {
    host: Host,
    counts: Arc<Invented>,
    events: mpsc::Receiver<HostEvent>,
}

fn receiver() -> Receiver {
    let counts = Arc::<Invented>::default();
    let (sender, events) = mpsc::channel();
    let listener = HostListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let host = Host::serve(listener, 4321, counts.clone(), sender).unwrap();
    Receiver { host, counts, events }
}

fn offer(streams: u16) -> Offer {
    Offer {
        protocol: PROTOCOL,
        version: "test".into(),
        streams,
        payload_bytes: 18,
        rate_pps: None,
        duration_s: None,
        count: None,
        reflect: false,
        profile: false,
    }
}

fn next(events: &mpsc::Receiver<HostEvent>) -> HostEvent {
    events.recv_timeout(Duration::from_secs(10)).expect("an event within ten seconds")
}

fn until(condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(10), "waited ten seconds in vain");
        std::thread::yield_now();
    }
}

#[test]
fn a_session_brings_consent_progress_and_a_report() {
    let receiver = receiver();
    let (mut guest, accepted) = Guest::join(receiver.host.address(), &offer(2)).unwrap();
    assert_eq!(accepted.streams, [1, 2]);
    assert_eq!(accepted.data.port(), 4321);
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
    Trial {
        trial: 1,
        tx: Endpoint::default(),
        rx: Endpoint::default(),
        frame_size_bytes: 64,
        payload_bytes: 18,
        asked_pps: None,
        parameters: BTreeMap::new(),
        duration_s: 0.0,
        sent: 0,
        sent_pps: 0.0,
        delivered: 0,
        delivered_pps: 0.0,
        loss_ratio: 0.0,
        tx_cost: Cost::default(),
        rx_cost: Cost::default(),
        cpus: Vec::new(),
        queues: None,
        ledger: Ledger::close(0, 0, Vec::new()),
        receipt: Receipt::judge(None, 0, 0, 0.0, &Histogram::new()),
        statistics: None,
        round_trips: None,
        stream: None,
        interrupted: false,
        profile: None,
    }
}

#[test]
fn a_sender_may_take_longer_than_a_beat_for_its_summary() {
    let receiver = receiver();
    let (mut guest, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    assert!(matches!(next(&receiver.events), HostEvent::Joined { .. }));
    guest.finish(0).unwrap();
    let told = receiver.events.recv_timeout(Duration::from_millis(1200));
    assert!(told.is_err(), "it waits for the summary");
    guest.summarise(&trial());
    assert!(matches!(next(&receiver.events), HostEvent::Finished { trial: Some(_), .. }));
}

#[test]
fn senders_at_once_get_streams_of_their_own_and_give_them_back() {
    let receiver = receiver();
    let (first, a) = Guest::join(receiver.host.address(), &offer(3)).unwrap();
    let (mut second, b) = Guest::join(receiver.host.address(), &offer(2)).unwrap();
    assert_eq!((a.streams, b.streams), (vec![1, 2, 3], vec![4, 5]));
    drop(first);
    until(|| receiver.events.try_iter().any(|event| matches!(event, HostEvent::Lost { .. })));
    let (_third, c) = Guest::join(receiver.host.address(), &offer(3)).unwrap();
    assert_eq!(c.streams, [1, 2, 3]);
    assert_eq!(second.finish(0).unwrap().senders, 3, "it met the first and the third");
}

#[test]
fn what_cannot_be_told_apart_or_given_is_refused() {
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
    assert!(error.to_string().contains("speaks protocol 1, the sender 99"), "{error}");
    let curious = Offer { profile: true, ..offer(1) };
    let error = Guest::join(receiver.host.address(), &curious).unwrap_err();
    assert!(error.to_string().contains("does not look at its CPUs: start it with --profile"), "{error}");
}

#[test]
fn streams_can_be_used_up() {
    let receiver = receiver();
    let (_all, accepted) = Guest::join(receiver.host.address(), &offer(255)).unwrap();
    assert_eq!(accepted.streams.len(), 255);
    let error = Guest::join(receiver.host.address(), &offer(1)).unwrap_err();
    assert!(matches!(error, SessionError::Refused { .. }), "{error}");
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
fn a_hostile_peer_costs_its_connection_and_nothing_else() {
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
fn connections_that_say_nothing_do_not_shut_others_out() {
    let receiver = receiver();
    let silent: Vec<TcpStream> =
        (0..80).map(|_| TcpStream::connect(receiver.host.address()).unwrap()).collect();
    let (mut guest, _) = Guest::join(receiver.host.address(), &offer(1)).unwrap();
    assert_eq!(guest.finish(0).unwrap().delivered, 0);
    drop(silent);
}

#[test]
fn something_else_than_a_receiver_is_not_sent_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        peer.read_to_end(&mut Vec::new()).ok();
    });
    let error = Guest::join(address, &offer(1)).unwrap_err();
    assert_eq!(error.to_string(), format!("{address} does not answer as a linerate receiver does"));
    server.join().unwrap();
}

#[test]
fn nobody_listening_is_said_with_the_address() {
    let free: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Guest::join(free, &offer(1)).unwrap_err();
    assert_eq!(error.to_string(), format!("no receiver answers at {free}"));
    assert_eq!(error.source().unwrap().to_string(), "Connection refused (os error 111)");
}

#[test]
fn packets_come_back_while_a_session_lasts_that_asked_for_it() {
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
