//! Places that no trial of the lab reaches, as shown by a live ledger of one namespace.

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::Command,
};

use lab::{LabPlan, Side};
use ledger::{Drivers, DropScope, DropWatch, MachineGrowth, MachineReading, Place};
use measure::Ledger;
use port::{XskTx, XskTxOptions};
use socket2::{Domain, Protocol, Socket, Type};
use sys::tap::create_tap;

use crate::scene::{PORT, Scene, run, until};

/// A namespace of a lab, watched as by `linerate ledger`.
struct Watched<'s> {
    side: &'s Side,
    interfaces: Vec<String>,
    watch: DropWatch,
    before: MachineReading,
}

impl<'s> Watched<'s> {
    /// Also watches the interfaces of these names.
    fn over(side: &'s Side, others: &[&str]) -> Self {
        let watch = DropWatch::over(&[side.namespace()], &DropScope::default()).unwrap();
        let interfaces: Vec<String> =
            [side.interface()].iter().chain(others).map(|name| (*name).to_owned()).collect();
        let before = take(side, &interfaces, &watch);
        Self { side, interfaces, watch, before }
    }

    fn growth(&self) -> MachineGrowth {
        take(self.side, &self.interfaces, &self.watch).since(&self.before, &Drivers::built_in())
    }

    fn sees_xdp_sockets(&self) -> bool {
        self.growth().sees_xdp_sockets()
    }

    /// Asserts that these lines and no others explain all that was sent and not delivered.
    fn closes(&self, sent: u64, delivered: u64, expected: &[(Place, u64)]) {
        let drivers = Drivers::built_in();
        let close = || {
            let growth = self.growth();
            (Ledger::close(sent, delivered, growth.lines(&drivers)), growth)
        };
        // Softirqs may run after the sending call.
        let (ledger, growth) = until(close, |(ledger, _)| ledger.is_closed());
        let lines: Vec<(&str, u64)> =
            ledger.lines.iter().map(|line| (line.place.as_str(), line.packets)).collect();
        let expected: Vec<(&str, u64)> =
            expected.iter().map(|(place, packets)| (place.name(), *packets)).collect();
        let drops: Vec<_> = growth.drops.iter().flat_map(|drops| &drops.places).collect();
        let drops: Vec<_> = drops.iter().map(|drop| (drop.source(), drop.packets)).collect();
        assert_eq!(lines, expected, "{:#?}\n{drops:?}", ledger.lines);
        assert_eq!(ledger.unexplained, 0, "{drops:?}");
    }
}

fn take(side: &Side, interfaces: &[String], watch: &DropWatch) -> MachineReading {
    let drops = watch.read().unwrap();
    side.run(|| MachineReading::take(interfaces, false, Some(drops)).unwrap()).unwrap()
}

fn ip(side: &Side, lines: &[&str]) {
    for line in lines {
        side.run(|| run(Command::new("ip").args(line.split(' ')))).unwrap();
    }
}

fn set(side: &Side, name: &str, value: &str) {
    side.run(|| std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap()).unwrap();
}

/// A TAP interface `tap` at 192.0.2.1/24, whose descriptor never waits.
fn tap(side: &Side, lines: &[&str]) -> File {
    let queue = side.run(|| create_tap("tap", 1).unwrap().remove(0)).unwrap();
    ip(side, lines);
    ip(side, &["address add 192.0.2.1/24 dev tap"]);
    // The standard library supports this for sockets only; the kernel for any descriptor.
    let queue = UnixDatagram::from(queue);
    queue.set_nonblocking(true).unwrap();
    File::from(OwnedFd::from(queue))
}

/// The result of sending datagrams from a namespace: how many left, and the error of the others.
fn send(side: &Side, packets: u64, to: (Ipv4Addr, u16)) -> (u64, Option<i32>) {
    side.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let (mut left, mut error) = (0, None);
        for _ in 0..packets {
            match socket.send_to(&[0; 20], to) {
                Ok(_) => left += 1,
                Err(cause) => error = cause.raw_os_error(),
            }
        }
        (left, error)
    })
    .unwrap()
}

#[test]
fn a_send_buffer_is_full() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.tx();
    let tbf = "qdisc add dev lab-tx root tbf rate 1mbit burst 2000 limit 1000000";
    side.run(|| run(Command::new("tc").args(tbf.split(' ')))).unwrap();
    let watched = Watched::over(side, &[]);
    let sent = side
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let socket = Socket::from(socket);
            socket.set_nonblocking(true).unwrap();
            socket.set_send_buffer_size(1).unwrap();
            (0..100).filter(|_| socket.send_to(&[0; 1000], &scene.to().into()).is_ok()).count() as u64
        })
        .unwrap();
    assert!(sent < 100);
    watched.closes(100, sent, &[(Place::SocketSend, 100 - sent)]);
}

#[test]
fn no_route_leads_there() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let watched = Watched::over(scene.lab.tx(), &[]);
    assert_eq!(send(scene.lab.tx(), 100, (Ipv4Addr::new(203, 0, 113, 1), 9)), (0, Some(101)));
    watched.closes(100, 0, &[(Place::NoRoute, 100)]);
    // A router, too.
    set(scene.lab.rx(), "ipv4/ip_forward", "1");
    let watched = Watched::over(scene.lab.rx(), &[]);
    scene.send_frames(100, &scene.frame(|frame| frame[30..34].copy_from_slice(&[203, 0, 113, 1])));
    watched.closes(100, 0, &[(Place::NoRoute, 100)]);
}

#[test]
fn a_neighbour_does_not_answer() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.tx();
    set(side, "ipv6/conf/default/disable_ipv6", "1");
    // On loopback the sender gets an error.
    let _tap = tap(side, &["link set dev tap up", "link set dev lo up"]);
    set(side, "ipv4/neigh/tap/retrans_time_ms", "10");
    let watched = Watched::over(side, &["tap"]);
    let to = Ipv4Addr::new(192, 0, 2, 9);
    assert_eq!(send(side, 100, (to, 9)), (100, None));
    let failed = || {
        let shown = Command::new("ip").args(["neigh", "show", "nud", "failed"]).output().unwrap();
        String::from_utf8(shown.stdout).unwrap().contains("192.0.2.9")
    };
    testing::wait_for("the neighbour to fail", || side.run(failed).unwrap());
    watched.closes(100, 0, &[(Place::Neighbour, 100)]);
}

#[test]
fn packets_that_may_not_be_cut_are_larger_than_the_next_mtu() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.rx();
    set(side, "ipv6/conf/default/disable_ipv6", "1");
    set(side, "ipv4/ip_forward", "1");
    let _tap = tap(side, &["link set dev tap mtu 600 up"]);
    let mut frame = scene.frame(|_| ());
    frame.resize(14 + 1000, 0);
    frame[16..18].copy_from_slice(&1000u16.to_be_bytes());
    frame[20] = 0x40;
    frame[30..34].copy_from_slice(&[192, 0, 2, 9]);
    frame[24..26].fill(0);
    let checksum = wire::Checksum::ZERO.add_bytes(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    let watched = Watched::over(side, &["tap"]);
    scene.send_frames(100, &frame);
    watched.closes(100, 0, &[(Place::TooBig, 100)]);
}

#[test]
fn a_sending_ring_is_full() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.tx();
    set(side, "ipv6/conf/default/disable_ipv6", "1");
    let mut tap = tap(side, &["link set dev tap txqueuelen 64 up"]);
    ip(side, &["neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev tap"]);
    let watched = Watched::over(side, &["tap"]);
    assert_eq!(send(side, 200, (Ipv4Addr::new(192, 0, 2, 9), 9)), (200, None));
    let mut taken = 0;
    while tap.read(&mut [0; 2048]).is_ok() {
        taken += 1;
    }
    assert!(taken < 200);
    watched.closes(200, taken, &[(Place::DriverTx, 200 - taken)]);
}

#[test]
fn an_interface_that_is_down_is_given_frames() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.rx();
    let mut tap = tap(side, &[]);
    let watched = Watched::over(side, &["tap"]);
    let frame = [&[0; 10][..], &scene.frame(|_| ())].concat();
    for _ in 0..100 {
        let error = tap.write(&frame).unwrap_err();
        assert_ne!(error.kind(), ErrorKind::WouldBlock);
    }
    watched.closes(100, 0, &[(Place::ReceivingInterface, 100)]);
}

#[test]
fn an_af_xdp_socket_is_handed_invalid_descriptors() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.tx();
    let mut tx = side.run(|| XskTx::open(&XskTxOptions::on(side.interface(), 0))).unwrap().unwrap();
    let watched = Watched::over(side, &[]);
    for _ in 0..100 {
        side.run(|| tx.send_invalid().unwrap()).unwrap();
    }
    assert_eq!(tx.statistics().unwrap().tx_invalid_descs, 100);
    if watched.sees_xdp_sockets() {
        watched.closes(100, 0, &[(Place::XskInvalid, 100)]);
    } else {
        eprintln!("this kernel reports AF_XDP sockets only to their owner (CONFIG_XDP_SOCKETS_DIAG)");
        watched.closes(0, 0, &[]);
    }
}

#[test]
fn no_protocol_takes_a_packet() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let watched = Watched::over(scene.lab.rx(), &[]);
    // An EtherType for local experiments, and a transport protocol number of that kind.
    let mut ethertype = scene.frame(|_| ());
    ethertype[12..14].copy_from_slice(&[0x88, 0xb5]);
    scene.send_frames(70, &ethertype);
    scene.send_frames(30, &scene.frame(|frame| frame[23] = 253));
    watched.closes(100, 0, &[(Place::NoHandler, 70), (Place::IpProtocol, 30)]);
}

#[test]
fn ip_takes_nothing_at_all() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    set(scene.lab.rx(), "ipv6/conf/lab-rx/disable_ipv6", "1");
    let watched = Watched::over(scene.lab.rx(), &[]);
    let (tx, rx) = (scene.lab.tx(), scene.lab.rx());
    let mut frame = [&rx.mac()[..], &tx.mac(), &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64]].concat();
    frame.extend(tx.ipv6()[0].octets().iter().chain(&rx.ipv6()[0].octets()));
    frame.extend([0x10, 0, PORT.to_be_bytes()[0], PORT.to_be_bytes()[1], 0, 12, 0, 0, 1, 2, 3, 4]);
    scene.send_frames(100, &frame);
    watched.closes(100, 0, &[(Place::IpInput, 100)]);
}

#[test]
fn fragments_never_become_a_packet() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.rx();
    set(side, "ipv4/ipfrag_time", "1");
    let watched = Watched::over(side, &[]);
    // First fragments of that many packets, without the rest.
    for number in 0..20 {
        let first = scene.frame(|frame| {
            frame[19] = number;
            frame[20] = 0x20;
        });
        scene.send_frames(1, &first);
    }
    let failed = || side.net_counters().unwrap().value("IpReasmFails").unwrap();
    testing::wait_for("the reassembly to time out", || failed() >= 20);
    watched.closes(20, 0, &[(Place::Reassembly, 20)]);
    // No memory for them.
    set(side, "ipv4/ipfrag_low_thresh", "0");
    set(side, "ipv4/ipfrag_high_thresh", "0");
    let watched = Watched::over(side, &[]);
    scene.send_frames(100, &scene.frame(|frame| frame[20] = 0x20));
    watched.closes(100, 0, &[(Place::Reassembly, 100)]);
}

#[test]
fn a_firewall_refuses_what_is_to_leave() {
    const NFT: &str = "nft add table inet t; add chain inet t out { type filter hook output priority 0; }; \
                       add rule inet t out udp dport 9 drop";
    for rule in [NFT, "iptables -A OUTPUT -p udp --dport 9 -j DROP"] {
        let Some(scene) = Scene::new(&LabPlan::default()) else { return };
        let side = scene.lab.tx();
        let (program, words) = rule.split_once(' ').unwrap();
        side.run(|| run(Command::new(program).args(words.split_whitespace()))).unwrap();
        let watched = Watched::over(side, &[]);
        assert_eq!(send(side, 100, (scene.lab.rx().ipv4()[0], 9)), (0, Some(1)), "EPERM");
        watched.closes(100, 0, &[(Place::Firewall, 100)]);
    }
}

#[test]
fn tcp_has_no_use_for_a_segment() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let (tx, rx) = (scene.lab.tx(), scene.lab.rx());
    let _listener = rx.run(|| TcpListener::bind(scene.to()).unwrap()).unwrap();
    let watched = Watched::over(rx, &[]);
    tx.run(|| {
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).unwrap();
        let [high, low] = PORT.to_be_bytes();
        // Ports, sequence and acknowledgement 0, 5 words, RST, window, checksum, urgent.
        let mut segment = [0x10, 0, high, low, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x04, 0, 0, 0, 0, 0, 0];
        let addresses = [tx.ipv4()[0].octets(), rx.ipv4()[0].octets()].concat();
        let pseudo = [&addresses[..], &[0, 6, 0, 20]].concat();
        let checksum = wire::Checksum::ZERO.add_bytes(&pseudo).add_bytes(&segment).finish();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        for _ in 0..100 {
            raw.send_to(&segment, &scene.to().into()).unwrap();
        }
    })
    .unwrap();
    watched.closes(100, 0, &[(Place::Tcp, 100)]);
}

/// Sends datagrams to the other side of the scene, through one socket.
fn send_out(scene: &Scene, bytes: usize, packets: u64) {
    scene
        .lab
        .tx()
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let payload = vec![0; bytes];
            for _ in 0..packets {
                // It may fail because an interface or a firewall refused one: that is what is counted.
                socket.send_to(&payload, scene.to()).ok();
            }
        })
        .unwrap();
}

#[test]
fn what_is_dropped_on_the_way_out_is_counted_once() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    // Learns the neighbour.
    send_out(&scene, 18, 1);
    // Larger than the peer accepts.
    ip(scene.lab.rx(), &[&format!("link set {} mtu 600", scene.lab.rx().interface())]);
    let watched = Watched::over(scene.lab.tx(), &[]);
    send_out(&scene, 1000, 100);
    watched.closes(100, 0, &[(Place::PeerMtu, 100)]);
    ip(scene.lab.rx(), &[&format!("link set {} mtu 1500", scene.lab.rx().interface())]);
    // A firewall below IP.
    let rules = format!(
        "add table netdev t; add chain netdev t out {{ type filter hook egress device {} priority 0; }}; \
         add rule netdev t out udp dport {PORT} drop",
        scene.lab.tx().interface()
    );
    scene.lab.tx().run(|| run(Command::new("nft").arg(rules))).unwrap();
    let watched = Watched::over(scene.lab.tx(), &[]);
    send_out(&scene, 18, 100);
    watched.closes(100, 0, &[(Place::Firewall, 100)]);
}

#[test]
fn multicast_that_nobody_joined_is_no_loss() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let watched = Watched::over(scene.lab.rx(), &[]);
    scene
        .lab
        .tx()
        .run(|| {
            let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.set_multicast_if_v6(scene.lab.tx().index()).unwrap();
            let group: std::net::SocketAddr = "[ff15::7]:4321".parse().unwrap();
            (0..50).for_each(|_| assert_eq!(socket.send_to(b"x", &group.into()).unwrap(), 1));
        })
        .unwrap();
    let named = || {
        let lines = watched.growth().lines(&Drivers::built_in());
        lines.iter().map(|line| (line.place.as_str().to_owned(), line.packets)).collect::<Vec<_>>()
    };
    let is_all = |lines: &Vec<(String, u64)>| lines.iter().map(|(_, packets)| packets).sum::<u64>() >= 50;
    let lines = until(named, is_all);
    assert!(lines.iter().all(|(place, _)| place == Place::OtherHost.name()), "{lines:?}");
}
