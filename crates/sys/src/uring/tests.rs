use std::{os::unix::net::UnixDatagram, process::Command, thread, time::Instant};

use super::*;
use crate::udp::{RecvBatch, SendBatch, SocketOptions, UdpSocket};

const PATIENCE: Duration = Duration::from_secs(20);
const WAIT: Option<Duration> = Some(Duration::from_millis(20));
const OPTIONS: ReceiveOptions = ReceiveOptions { buffers: 64, datagram_bytes: 2048, details: false };

fn pair(address: &str, options: &SocketOptions) -> (UdpSocket, UdpSocket) {
    let any: SocketAddr = address.parse().unwrap();
    let rx = UdpSocket::bind(any, options).unwrap();
    rx.set_timeouts(PATIENCE).unwrap();
    let tx = UdpSocket::bind(any, &SocketOptions::default()).unwrap();
    tx.connect(rx.local_address().unwrap()).unwrap();
    (tx, rx)
}

fn large() -> SocketOptions {
    SocketOptions { receive_buffer_bytes: Some(8 << 20), ..SocketOptions::default() }
}

/// Receives until that many datagrams have arrived: each one's first two bytes and its length.
fn collect(ring: &mut ReceiveRing, count: usize) -> Vec<(u16, usize)> {
    let (mut seen, since) = (Vec::new(), Instant::now());
    while seen.len() < count {
        let look = |datagram: Datagram<'_>| {
            let number = u16::from_ne_bytes([datagram.bytes[0], *datagram.bytes.get(1).unwrap_or(&0)]);
            seen.push((number, datagram.bytes.len()));
        };
        ring.recv(WAIT, usize::MAX, look).unwrap();
        assert!(since.elapsed() < PATIENCE, "{} of {count} datagrams", seen.len());
    }
    seen
}

/// Sends slots `from..to`, each with its number and of the length that follows from it.
fn send_numbered(ring: &mut SendRing, from: u16, to: u16, len: impl Fn(u16) -> usize) {
    let mut next = from;
    while next < to {
        let batch = usize::from(to - next).min(ring.slots());
        for slot in 0..batch {
            let number = next + slot as u16;
            ring.slot_mut(slot)[..2].copy_from_slice(&number.to_ne_bytes());
            ring.set_len(slot, len(number));
        }
        let slots: Vec<u32> = (0..batch as u32).collect();
        let mut taken = Vec::new();
        ring.send(0, &slots, |slot, outcome| {
            outcome.unwrap();
            taken.push(slot);
        })
        .unwrap();
        taken.sort_unstable();
        assert_eq!(taken, slots);
        next += batch as u16;
    }
}

#[test]
fn datagrams_arrive_in_order_with_their_lengths() {
    for (address, sqpoll) in [("127.0.0.1:0", false), ("127.0.0.1:0", true), ("[::1]:0", false)] {
        let (tx, rx) = pair(address, &large());
        let mut out = SendRing::new(&[tx], (32, 1500), sqpoll).unwrap();
        let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
        let len = |number: u16| [1, 18, 1472][usize::from(number) % 3];
        send_numbered(&mut out, 0, 100, len);
        let expected: Vec<_> = (0..100).map(|n| (if len(n) == 1 { n % 256 } else { n }, len(n))).collect();
        assert_eq!(collect(&mut into, 100), expected, "{address} {sqpoll}");
        assert_eq!(into.recv(None, 9, |_| ()).unwrap(), 0);
    }
}

/// The queue's head moves a moment after a batch has completed.
#[test]
fn the_kernel_s_thread_takes_batch_after_batch() {
    let (tx, _rx) = pair("127.0.0.1:0", &SocketOptions::default());
    let mut out = SendRing::new(&[tx], (64, 20), true).unwrap();
    let slots: Vec<u32> = (0..64).collect();
    for _ in 0..6000 {
        let mut taken = 0;
        out.send(0, &slots, |_, outcome| taken += usize::from(outcome.is_ok())).unwrap();
        assert_eq!(taken, 64);
    }
}

#[test]
fn indexes_wrap_and_buffers_go_round() {
    let (tx, rx) = pair("127.0.0.1:0", &large());
    let mut out = SendRing::new(&[tx], (50, 32), false).unwrap();
    let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
    // More than 2^16 buffers are provided.
    for round in 0..1400u16 {
        let from = (round % 1000) * 50;
        send_numbered(&mut out, from, from + 50, |_| 20);
        assert_eq!(collect(&mut into, 50), (from..from + 50).map(|n| (n, 20)).collect::<Vec<_>>());
    }
}

#[test]
fn a_receiver_out_of_buffers_goes_on_when_it_has_some() {
    let (tx, rx) = pair("127.0.0.1:0", &large());
    let mut out = SendRing::new(&[tx], (1000, 32), false).unwrap();
    let options = ReceiveOptions { buffers: 4, ..OPTIONS };
    let mut into = ReceiveRing::new(rx.as_fd(), &options).unwrap();
    send_numbered(&mut out, 0, 1000, |_| 20);
    let (mut seen, mut idle, since) = (Vec::new(), 0, Instant::now());
    while seen.len() < 1000 {
        into.recv(WAIT, 3, |datagram| seen.push(datagram.bytes[0])).unwrap();
        idle += usize::from(into.state == State::Idle);
        assert!(since.elapsed() < PATIENCE, "{} of 1000", seen.len());
    }
    assert_eq!(seen, (0..1000u16).map(|n| n as u8).collect::<Vec<_>>());
    assert!(idle > 100, "it ran out of buffers {idle} times: the test would show nothing");
    assert_eq!(rx.dropped().unwrap(), 0);
}

#[test]
fn no_more_than_asked_for_are_lent_and_the_others_wait() {
    let (tx, rx) = pair("127.0.0.1:0", &large());
    let mut out = SendRing::new(&[tx], (10, 32), false).unwrap();
    let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
    send_numbered(&mut out, 0, 10, |_| 20);
    let mut lent = |most| into.recv(WAIT, most, |_| ()).unwrap();
    assert_eq!([lent(4), lent(4), lent(4)], [4, 4, 2]);
}

#[test]
fn a_ring_goes_with_its_owner_to_another_thread() {
    let (tx, rx) = pair("127.0.0.1:0", &large());
    let mut out = SendRing::new(&[tx], (40, 32), false).unwrap();
    let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
    for round in 0..4 {
        let from = round * 40;
        send_numbered(&mut out, from, from + 20, |_| 20);
        assert_eq!(collect(&mut into, 20), (from..from + 20).map(|n| (n, 20)).collect::<Vec<_>>());
        let there = thread::scope(|scope| {
            scope
                .spawn(|| {
                    send_numbered(&mut out, from + 20, from + 40, |_| 20);
                    collect(&mut into, 20)
                })
                .join()
                .unwrap()
        });
        assert_eq!(there, (from + 20..from + 40).map(|n| (n, 20)).collect::<Vec<_>>());
    }
}

#[test]
fn datagrams_say_who_sent_them_when_and_whether_they_were_cut() {
    let (tx, rx) = pair("[::1]:0", &SocketOptions { timestamps: true, ..large() });
    let source = tx.local_address().unwrap();
    let mut out = SendRing::new(&[tx], (1, 100), false).unwrap();
    let options = ReceiveOptions { datagram_bytes: 50, details: true, ..OPTIONS };
    let mut into = ReceiveRing::new(rx.as_fd(), &options).unwrap();
    // The kernel starts to stamp a moment after the first socket requested it.
    let since = Instant::now();
    for len in [50, 51].into_iter().cycle() {
        let before = crate::clock::realtime_ns();
        send_numbered(&mut out, 7, 8, |_| len);
        let (mut came, mut stamped) = (0, false);
        while came == 0 {
            came = into
                .recv(WAIT, 1, |datagram| {
                    assert_eq!((datagram.bytes.len(), datagram.truncated), (50, len > 50));
                    assert_eq!((datagram.bytes[0], datagram.source), (7, Some(source)));
                    stamped = datagram.times.is_some_and(|times| {
                        assert_eq!(times.card_ns, None, "loopback has no card");
                        (before..=crate::clock::realtime_ns()).contains(&times.kernel_ns)
                    });
                })
                .unwrap();
        }
        if stamped && len > 50 {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "no datagram is stamped");
    }
}

#[test]
fn a_datagram_longer_than_its_buffer_is_marked() {
    let (tx, rx) = pair("127.0.0.1:0", &large());
    let mut out = SendRing::new(&[tx], (1, 60_000), false).unwrap();
    let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
    for (len, lent, cut) in [(2048, 2048, false), (2049, 2048, true), (60_000, 2048, true), (30, 30, false)] {
        send_numbered(&mut out, 7, 8, |_| len);
        let mut seen = Vec::new();
        while seen.is_empty() {
            into.recv(WAIT, 1, |datagram| seen.push((datagram.bytes.len(), datagram.truncated))).unwrap();
        }
        assert_eq!(seen, [(lent, cut)], "{len} bytes");
    }
}

#[test]
fn what_became_of_it_is_said_of_each_slot() {
    let (tx, rx) = pair("127.0.0.1:0", &SocketOptions::default());
    let mut out = SendRing::new(&[tx], (2, 100), false).unwrap();
    drop(rx);
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        out.send(0, &[0], |_, outcome| outcomes.push(outcome.map_err(|error| error.raw_os_error()))).unwrap();
    }
    assert_eq!(outcomes, [Ok(()), Err(Some(libc::ECONNREFUSED))]);

    // Longer than a datagram can be; the others are still sent.
    let (tx, _rx) = pair("127.0.0.1:0", &SocketOptions::default());
    let mut out = SendRing::new(&[tx], (3, 65_508), false).unwrap();
    [20, 65_508, 20].into_iter().enumerate().for_each(|(slot, len)| out.set_len(slot, len));
    let mut outcomes = Vec::new();
    let outcome = |slot, outcome: io::Result<()>| {
        outcomes.push((slot, outcome.err().and_then(|error| error.raw_os_error())));
    };
    out.send(0, &[0, 1, 2], outcome).unwrap();
    assert_eq!(outcomes, [(0, None), (1, Some(libc::EMSGSIZE)), (2, None)]);
}

#[test]
fn a_full_socket_turns_away_what_it_has_no_room_for_and_waits_for_none() {
    for sqpoll in [false, true] {
        // Sockets of a pair hold what was not read; UDP on loopback holds nothing for its sender.
        let (tx, rx) = UnixDatagram::pair().unwrap();
        let mut out = SendRing::new(&[&tx], (1000, 20), sqpoll).unwrap();
        let slots: Vec<u32> = (0..1000).collect();
        let mut refused = Vec::new();
        let outcome = |slot, outcome: io::Result<()>| {
            let full = Some(libc::EAGAIN);
            refused.extend(outcome.err().map(|error| (slot, error.raw_os_error() == full)));
        };
        out.send(0, &slots, outcome).unwrap();
        let first = refused.first().expect("no socket holds as many").0;
        assert!(first > 0);
        assert_eq!(refused, (first..1000).map(|slot| (slot, true)).collect::<Vec<_>>());
        // They are sent as soon as there is room.
        for _ in 0..first {
            rx.recv(&mut [0; 20]).unwrap();
        }
        out.send(0, &[first], |_, outcome| outcome.unwrap()).unwrap();
    }
}

#[test]
fn a_dropped_ring_lets_go_of_its_ports_at_once() {
    for round in 0..50 {
        let (tx, rx) = pair("127.0.0.1:0", &SocketOptions::default());
        let ports = [&tx, &rx].map(|socket| socket.local_address().unwrap());
        let mut out = SendRing::new(&[&tx], (4, 20), round % 2 == 0).unwrap();
        let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
        send_numbered(&mut out, 0, 4, |_| 20);
        // Half of them are unused.
        if round % 4 < 2 {
            collect(&mut into, 4);
        }
        drop((out, into, tx, rx));
        for port in ports {
            UdpSocket::bind(port, &SocketOptions::default()).unwrap();
        }
    }
}

#[test]
fn each_flow_has_its_socket() {
    let (first, rx) = pair("127.0.0.1:0", &large());
    let second = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default()).unwrap();
    second.connect(rx.local_address().unwrap()).unwrap();
    let addresses = [&first, &second].map(|socket| socket.local_address().unwrap());
    let mut out = SendRing::new(&[first, second], (1, 20), false).unwrap();
    let mut into = RecvBatch::new(4, 64).with_sources();
    for (socket, address) in addresses.into_iter().enumerate() {
        out.send(socket, &[0], |_, outcome| outcome.unwrap()).unwrap();
        assert_eq!(into.recv(&rx, true).unwrap(), 1);
        assert_eq!(into.message(0).source, Some(address));
    }
}

#[test]
fn what_comes_before_the_first_look_is_received_too() {
    let (tx, rx) = pair("127.0.0.1:0", &large());
    let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
    SendBatch::new(30, 1, 20).send(&tx, 0, 30).unwrap();
    assert_eq!(collect(&mut into, 30).len(), 30);
}

#[test]
fn the_kernel_s_thread_needs_no_privilege() {
    const ROLE: &str = "URING_TEST_UNPRIVILEGED";
    if std::env::var_os(ROLE).is_some() {
        assert!(!crate::capability::Capability::NetAdmin.held(), "the test would show nothing");
        let (tx, rx) = pair("127.0.0.1:0", &SocketOptions::default());
        let mut out = SendRing::new(&[tx], (8, 32), true).unwrap();
        send_numbered(&mut out, 0, 8, |_| 20);
        let mut into = ReceiveRing::new(rx.as_fd(), &OPTIONS).unwrap();
        assert_eq!(collect(&mut into, 8).len(), 8);
        return;
    }
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "uring::tests::the_kernel_s_thread_needs_no_privilege"]).env(ROLE, "1");
    if crate::capability::Capability::NetAdmin.held() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn this_kernel_says_what_its_rings_can_do() {
    let features = Features::of_kernel().unwrap();
    assert!(features.zero_copy, "{features:?}");
    assert_eq!(disabled(), None, "it was possible to make rings");
}
