//! Provokes every place that the lab can reach with a known number of packets; its line shows that number, and
//! the ledger closes. Needs root; otherwise skipped loudly.

#[path = "places/live.rs"]
mod live;
#[path = "places/scene.rs"]
mod scene;
#[path = "places/table.rs"]
mod table;
#[expect(
    dead_code,
    reason = "messages that the sender segments are sent only in the tests of virtual machines"
)]
#[path = "places/ways.rs"]
mod ways;

use std::{net::UdpSocket, process::Command};

use lab::LabPlan;
use ledger::{Place, Received};
use port::{
    CountOptions, PacketRx, PacketRxOptions, ProbeAction, RxPort, SendPath, UdpRx, UdpRxOptions, Wait,
    XdpMode, XdpRx, XdpTx, XdpTxOptions, XskRx, XskRxOptions, XskShape,
};
use scene::{PORT, Scene, count, count_until, run};
use socket2::{Domain, Protocol, Socket, Type};
use sys::{rtnetlink::RouteSocket, udp::UdpSink};
use wire::Template;

fn udp(delivered: u64, lost: u64) -> Received {
    Received { delivered, lost, is_udp: true, ..Received::default() }
}

#[test]
fn the_documentation_names_a_test_for_each_place_or_says_why_there_is_none() {
    let read = |path: &str| {
        std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let document = read("../../docs/ledger.md");
    let (_, rest) = document.split_once("<!-- provoked -->\n").unwrap();
    let (table, _) = rest.split_once("<!-- end of provoked -->").unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .skip(2)
        .map(|row| row.trim_matches(['|', ' ']).split_once(" | ").unwrap())
        .map(|(place, tests)| (place.trim_matches('`'), tests))
        .collect();
    let places: Vec<&str> = Place::ALL.iter().map(|place| place.id()).collect();
    assert_eq!(rows.iter().map(|(place, _)| *place).collect::<Vec<_>>(), places);
    for (place, told) in rows.into_iter().filter(|(_, told)| !told.starts_with("none: ")) {
        for (file, tests) in told.split("; ").map(|part| part.split_once(": ").unwrap()) {
            let source = match file {
                "places.rs" => read("tests/places.rs"),
                "live.rs" | "table.rs" => read(&format!("tests/places/{file}")),
                "machine.rs" => read("tests/vm/machine.rs"),
                _ => read(&format!("../cli/tests/{file}")),
            };
            for test in tests.split(", ").filter_map(|test| test.split(' ').next()) {
                // Text in brackets may contain a comma.
                let is_name = test.contains('_');
                assert!(!is_name || source.contains(&format!("#[test]\nfn {test}()")), "{place}: {test}");
            }
        }
    }
}

#[test]
fn nobody_listens() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    scene.send(100, 20);
    scene.closes(100, &udp(0, 0), &[(Place::NoSocket, 100)]);
}

#[test]
fn what_a_refusal_came_instead_of_was_never_sent() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let connected = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(scene.to()).unwrap();
        (0..100).filter(|_| socket.send(b"x").is_ok()).count() as u64
    };
    let sent = scene.lab.tx().run(connected).unwrap();
    assert!(sent < 100, "a call reports that an earlier packet was refused");
    scene.closes(sent, &udp(0, 0), &[(Place::NoSocket, sent)]);
}

#[test]
fn a_receive_buffer_is_full() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let options = UdpRxOptions { receive_buffer_bytes: Some(20_000), ..UdpRxOptions::at(scene.to()) };
    let mut rx = scene.lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    scene.send(1000, 100);
    let delivered = count_until(&mut rx, 1000);
    assert!(delivered < 1000);
    scene.closes(1000, &udp(delivered, rx.lost().unwrap()), &[(Place::ReceiveBuffer, 1000 - delivered)]);
}

#[test]
fn a_receive_buffer_is_full_of_joined_datagrams() {
    let plan = LabPlan { gro: true, gso: true, tx_checksum: true, ..LabPlan::default() };
    let Some(scene) = Scene::new(&plan) else { return };
    let options =
        UdpRxOptions { receive_buffer_bytes: Some(20_000), gro: true, ..UdpRxOptions::at(scene.to()) };
    let mut rx = scene.lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    scene.send_segmented(40, 32, 100);
    let delivered = count(&mut rx);
    let lost = rx.lost().unwrap();
    assert!(lost > 0 && lost < 40 * 32 - delivered, "the socket counts buffers: {lost}");
    let received = Received { gro: true, ..udp(delivered, lost) };
    scene.closes(40 * 32, &received, &[(Place::ReceiveBuffer, 40 * 32 - delivered)]);
}

#[test]
fn a_socket_filter_says_no() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let _sink = scene.lab.rx().run(|| UdpSink::open(scene.to())).unwrap().unwrap();
    scene.send(100, 20);
    scene.closes(100, &udp(0, 100), &[(Place::SocketFilter, 100)]);
}

#[test]
fn a_checksum_is_wrong() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let mut rx = scene.lab.rx().run(|| UdpRx::open(&UdpRxOptions::at(scene.to()))).unwrap().unwrap();
    scene
        .lab
        .tx()
        .run(|| {
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
            let [high, low] = PORT.to_be_bytes();
            // Source and destination port, length 8 + 4, a wrong checksum, payload.
            let datagram = [0x10, 0, high, low, 0, 12, 0xba, 0xd1, 1, 2, 3, 4];
            for _ in 0..100 {
                raw.send_to(&datagram, &scene.to().into()).unwrap();
            }
        })
        .unwrap();
    scene.send(50, 20);
    let delivered = count_until(&mut rx, 50);
    assert_eq!(delivered, 50);
    scene.closes(150, &udp(delivered, rx.lost().unwrap()), &[(Place::Checksum, 100)]);
}

#[test]
fn a_frame_is_not_for_this_host() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let frame = scene.frame(|frame| frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]));
    scene.send_frames(100, &frame);
    scene.closes(100, &udp(0, 0), &[(Place::OtherHost, 100)]);
}

#[test]
fn an_ip_header_is_broken() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    // Four words are shorter than the shortest header.
    let short = scene.frame(|frame| frame[14] = 0x44);
    scene.send_frames(100, &short);
    let mut wrong = scene.frame(|_| ());
    wrong[24] ^= 0xff;
    scene.send_frames(30, &wrong);
    scene.closes(130, &udp(0, 0), &[(Place::IpHeader, 100), (Place::Checksum, 30)]);
}

#[test]
fn no_way_leads_back_to_the_sender_s_address() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let strict = || std::fs::write("/proc/sys/net/ipv4/conf/lab-rx/rp_filter", "1");
    scene.lab.rx().run(strict).unwrap().unwrap();
    let frame = scene.frame(|frame| frame[26..30].copy_from_slice(&[203, 0, 113, 5]));
    scene.send_frames(100, &frame);
    scene.closes(100, &udp(0, 0), &[(Place::IpAddress, 100)]);
}

#[test]
fn a_firewall_drops() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let rules = format!(
        "add table inet t; add chain inet t in {{ type filter hook input priority 0; }}; add rule inet t in udp dport {PORT} drop"
    );
    scene.lab.rx().run(|| run(Command::new("nft").arg(rules))).unwrap();
    scene.send(100, 20);
    scene.closes(100, &udp(0, 0), &[(Place::Firewall, 100)]);
}

#[test]
fn a_firewall_drops_before_ip_sees_anything() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let rules = format!(
        "add table netdev t; add chain netdev t in {{ type filter hook ingress device lab-rx priority 0; }}; \
         add rule netdev t in udp dport {PORT} drop"
    );
    scene.lab.rx().run(|| run(Command::new("nft").arg(rules))).unwrap();
    scene.send(100, 20);
    scene.closes(100, &udp(0, 0), &[(Place::Firewall, 100)]);
}

#[test]
fn iptables_drops() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let rule = format!("-A INPUT -p udp --dport {PORT} -j DROP");
    scene.lab.rx().run(|| run(Command::new("iptables").args(rule.split(' ')))).unwrap();
    scene.send(100, 20);
    scene.closes(100, &udp(0, 0), &[(Place::Firewall, 100)]);
}

#[test]
fn a_queueing_discipline_is_full() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let mut rx = scene.lab.rx().run(|| UdpRx::open(&UdpRxOptions::at(scene.to()))).unwrap().unwrap();
    tc(scene.lab.tx(), "qdisc add dev lab-tx root tbf rate 2mbit burst 2000 limit 4000");
    scene.send(200, 20);
    // Packets waiting there are not lost: they arrive later.
    let queue = || RouteSocket::open().unwrap().root_qdisc(scene.lab.tx().index()).unwrap().unwrap();
    testing::wait_for("the queue to empty", || scene.lab.tx().run(queue).unwrap().queued == 0);
    let dropped = u64::from(scene.lab.tx().run(queue).unwrap().drops);
    let delivered = count_until(&mut rx, 200 - dropped);
    assert!(dropped > 0);
    scene.closes(200, &udp(delivered, rx.lost().unwrap()), &[(Place::Qdisc, dropped)]);
}

#[test]
fn a_queueing_discipline_drops_segments_not_yet_cut() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    // Smaller than any packet: it drops all.
    tc(scene.lab.tx(), "qdisc add dev lab-tx root bfifo limit 10");
    scene.send_segmented(5, 30, 100);
    scene.closes(150, &udp(0, 0), &[(Place::Qdisc, 150)]);
}

#[test]
fn queueing_disciplines_below_others_are_full() {
    const BELOW_MQ: [&str; 3] = [
        "qdisc add dev lab-tx root handle 1: mq",
        "qdisc replace dev lab-tx parent 1:1 bfifo limit 10",
        "qdisc replace dev lab-tx parent 1:2 bfifo limit 10",
    ];
    const BELOW_HTB: [&str; 3] = [
        "qdisc add dev lab-tx root handle 1: htb default 10",
        "class add dev lab-tx parent 1: classid 1:10 htb rate 10mbit",
        "qdisc add dev lab-tx parent 1:10 bfifo limit 10",
    ];
    for lines in [BELOW_MQ, BELOW_HTB] {
        let Some(scene) = Scene::new(&LabPlan { queues: 2, ..LabPlan::default() }) else { return };
        lines.iter().for_each(|line| tc(scene.lab.tx(), line));
        scene.send(100, 20);
        scene.closes(100, &udp(0, 0), &[(Place::Qdisc, 100)]);
    }
}

#[test]
fn a_filter_of_tc_drops_on_the_way_out() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    tc(scene.lab.tx(), "qdisc add dev lab-tx clsact");
    tc_drop(scene.lab.tx(), "filter add dev lab-tx egress bpf direct-action bytecode");
    scene.send(100, 20);
    scene.closes(100, &udp(0, 0), &[(Place::TcEgress, 100)]);
}

#[test]
fn a_filter_of_tc_drops_on_the_way_in() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    tc(scene.lab.rx(), "qdisc add dev lab-rx clsact");
    tc_drop(scene.lab.rx(), "filter add dev lab-rx ingress bpf direct-action bytecode");
    scene.send(100, 20);
    scene.closes(100, &udp(0, 0), &[(Place::TcIngress, 100)]);
}

fn tc(side: &lab::Side, line: &str) {
    side.run(|| run(Command::new("tc").args(line.split(' ')))).unwrap();
}

/// Adds a filter that drops all.
fn tc_drop(side: &lab::Side, line: &str) {
    // One instruction of the classic language: return 2, which is `TC_ACT_SHOT`.
    side.run(|| run(Command::new("tc").args(line.split(' ')).arg("1,6 0 0 2,"))).unwrap();
}

#[test]
fn packets_are_larger_than_the_peer_s_mtu() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let mtu = ["link", "set", "dev", "lab-rx", "mtu", "1280"];
    scene.lab.rx().run(|| run(Command::new("ip").args(mtu))).unwrap();
    scene.send(100, 1400);
    scene.closes(100, &udp(0, 0), &[(Place::PeerMtu, 100)]);
}

#[test]
fn the_backlog_is_small() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let options = UdpRxOptions { receive_buffer_bytes: Some(4 << 20), ..UdpRxOptions::at(scene.to()) };
    let mut rx = scene.lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    {
        let _small = scene::Sysctl::set("net/core/netdev_max_backlog", "16");
        // The segments of a buffer reach the backlog of one CPU before it is drained.
        scene.send_segmented(1, 64, 100);
    }
    let delivered = count(&mut rx);
    assert!(delivered < 64);
    scene.closes(64, &udp(delivered, rx.lost().unwrap()), &[(Place::Backlog, 64 - delivered)]);
}

#[test]
fn a_program_in_xdp_drops() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let Some(scene) = Scene::new(&LabPlan::default()) else { return };
        let options = CountOptions { streams: 1, verdict: ProbeAction::Drop, ..CountOptions::default() };
        let side = scene.lab.rx();
        let _program = side.run(|| XdpRx::open(side.index(), mode, &options)).unwrap().unwrap();
        scene.send_probes(100);
        scene.closes(100, &udp(0, 0), &[(Place::XdpDrop, 100)]);
    }
}

#[test]
fn a_redirect_meets_a_peer_without_napi() {
    for path in [SendPath::Map, SendPath::Tx] {
        let Some(scene) = Scene::new(&LabPlan::default()) else { return };
        let side = scene.lab.tx();
        let template = Template::new(&scene.frames("64")).unwrap();
        let options = XdpTxOptions { path, ..XdpTxOptions::on(side.index()) };
        let mut tx = side.run(|| XdpTx::open(template.recipe(), &options)).unwrap().unwrap();
        side.run(|| tx.send(64, 7).map(|_| ())).unwrap().unwrap_err();
        // Frames made in the kernel that must bounce are redirected to their pretended source interface.
        scene.closes(64, &udp(0, 0), &[(Place::XdpRedirect, 64)]);
    }
}

#[test]
fn a_program_in_xdp_fails() {
    // Verdicts by number: those that cannot be carried out, and redirects without a target.
    const XDP_ABORTED: u32 = 0;
    const XDP_TX: u32 = 3;
    const XDP_REDIRECT: u32 = 4;
    const UNKNOWN: u32 = 77;
    for (verdict, mode, place) in [
        (XDP_ABORTED, XdpMode::Native, Place::XdpAborted),
        (XDP_ABORTED, XdpMode::Generic, Place::XdpAborted),
        (UNKNOWN, XdpMode::Native, Place::XdpAborted),
        (UNKNOWN, XdpMode::Generic, Place::XdpAborted),
        // The sending end has no NAPI, so it accepts no frames.
        (XDP_TX, XdpMode::Native, Place::XdpTx),
        // It named no target: EINVAL.
        (XDP_REDIRECT, XdpMode::Native, Place::XdpRedirect),
        (XDP_REDIRECT, XdpMode::Generic, Place::XdpRedirect),
    ] {
        let Some(scene) = Scene::new(&LabPlan::default()) else { return };
        eprintln!("verdict {verdict}, {mode:?}");
        let options =
            CountOptions { streams: 1, verdict: ProbeAction::Other(verdict), ..CountOptions::default() };
        let side = scene.lab.rx();
        let _program = side.run(|| XdpRx::open(side.index(), mode, &options)).unwrap().unwrap();
        scene.send_probes(100);
        scene.closes(100, &udp(0, 0), &[(place, 100)]);
    }
}

#[test]
fn the_ring_of_a_packet_socket_is_full() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let side = scene.lab.rx();
    let options = PacketRxOptions { block_bytes: 4096, blocks: 2, ..PacketRxOptions::on(side.index()) };
    let mut rx = side.run(|| PacketRx::open(&options)).unwrap().unwrap();
    scene.send(1000, 20);
    testing::wait_for("all packets at the socket", || rx.statistics().unwrap().packets >= 1000);
    let lost = rx.lost().unwrap();
    assert!(lost > 0);
    let losses = vec![measure::LedgerLine::new(Place::PacketRing, lost, "PACKET_STATISTICS tp_drops")];
    let received = Received { delivered: 1000 - lost, lost, losses, ..Received::default() };
    scene.closes(1000, &received, &[(Place::PacketRing, lost)]);
    let mut held = 0;
    testing::wait_for("the last block", || {
        held += count(&mut rx);
        held == 1000 - lost
    });
}

#[test]
fn what_a_socket_held_when_it_closed_was_never_read() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let socket = scene.lab.rx().run(|| UdpSocket::bind(scene.to()).unwrap()).unwrap();
    scene.send(100, 20);
    (0..30).for_each(|_| _ = socket.recv(&mut [0; 20]).unwrap());
    drop(socket);
    // Like another program, of which only the kernel's counters are known.
    let received = Received { delivered: 30, is_unseen: true, is_closed: true, ..Received::default() };
    scene.closes(100, &received, &[(Place::NotRead, 70)]);
}

#[test]
fn a_peer_s_ring_is_full() {
    let Some(scene) = Scene::new(&LabPlan { threaded_napi: true, ..LabPlan::default() }) else { return };
    let dropped = || scene.lab.tx().link().unwrap().stats.tx_dropped;
    let mut sent = 0;
    // Its threads answer each packet with an ICMP error, and fall behind.
    testing::wait_for("a packet that its thread was too late for", || {
        scene.send(1000, 20);
        sent += 1000;
        dropped() > 0
    });
    let lost = dropped();
    scene.closes(sent, &udp(0, 0), &[(Place::PeerRing, lost), (Place::NoSocket, sent - lost)]);
}

fn af_xdp(scene: &Scene, shape: XskShape) -> XskRx {
    let options = XskRxOptions { dst_port: PORT, shape, ..XskRxOptions::on(scene.lab.rx().interface(), 0) };
    scene.lab.rx().run(|| XskRx::open(&options)).unwrap().unwrap().remove(0)
}

/// Sends datagrams towards an AF_XDP socket that is not read in the meantime: more than it has room for, and no more than the
/// veth's own ring of 256.
fn overrun(shape: XskShape, mtu: u32, payload_bytes: usize, place: Place) {
    const SENT: u64 = 200;
    let Some(scene) = Scene::new(&LabPlan { queues: 1, mtu, ..LabPlan::default() }) else { return };
    let mut rx = af_xdp(&scene, shape);
    scene.send(SENT as u32, payload_bytes);
    scene.wait_for_rx(SENT);
    let losses: Vec<_> = rx.losses().unwrap();
    let lost = losses.iter().map(|loss| loss.packets).sum();
    let losses =
        losses.iter().map(|loss| measure::LedgerLine::new(loss.place, loss.packets, loss.source)).collect();
    let delivered = count(&mut rx);
    assert!(delivered < SENT);
    let received = Received { delivered, lost, is_xsk: true, losses, ..Received::default() };
    scene.closes(SENT, &received, &[(place, SENT - delivered)]);
}

#[test]
fn the_ring_of_an_af_xdp_socket_is_full() {
    overrun(XskShape { frame_size: 2048, frames: 512, ring_slots: 64 }, 1500, 20, Place::XskRingFull);
}

#[test]
fn the_fill_ring_of_an_af_xdp_socket_is_empty() {
    overrun(XskShape { frame_size: 2048, frames: 64, ring_slots: 512 }, 1500, 20, Place::XskFillEmpty);
}

#[test]
fn the_frames_of_an_af_xdp_socket_are_too_small() {
    overrun(XskShape { frame_size: 2048, frames: 512, ring_slots: 512 }, 3000, 2500, Place::XskFrameSmall);
}

#[test]
fn a_burst_of_every_loss_at_once_still_closes() {
    let Some(scene) = Scene::new(&LabPlan::default()) else { return };
    let options = UdpRxOptions { receive_buffer_bytes: Some(20_000), ..UdpRxOptions::at(scene.to()) };
    let mut rx = scene.lab.rx().run(|| UdpRx::open(&options)).unwrap().unwrap();
    let rules = "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in udp dport 5 drop";
    scene.lab.rx().run(|| run(Command::new("nft").arg(rules))).unwrap();
    let address = scene.lab.rx().ipv4()[0];
    scene
        .lab
        .tx()
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for port in [5, 6, PORT] {
                for _ in 0..500 {
                    socket.send_to(&[0; 200], (address, port)).unwrap();
                }
            }
        })
        .unwrap();
    let delivered = count_until(&mut rx, 500);
    let lost = [(Place::Firewall, 500), (Place::NoSocket, 500), (Place::ReceiveBuffer, 500 - delivered)];
    scene.closes(1500, &udp(delivered, rx.lost().unwrap()), &lost);
    assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0);
}
