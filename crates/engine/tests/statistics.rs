//! What receivers measure of frames of every kind, on the lab. As root; else skipped loudly.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use engine::{
    Departures, LatencyMeans, Limit, PacketRxPlan, PacketTxPlan, Placement, Receiver, ReceiverPlan, RxEngine,
    Sender, SenderPlan, StatisticsPlan, TxEngine, TxWorkerPlan, UdpRxPlan, XdpRxPlan, XskRxPlan,
};
use lab::{Access, Lab, LabPlan, Side};
use measure::{ReceptionShare, StatisticsLevel};
use sys::rtnetlink::{RouteSocket, flag};
use wire::{FrameSpec, MacAddr, ProbeClock, ProbeHeader, Sizes, VlanTag};

const PORT: u16 = 4321;
const FRAMES: u64 = 300;

/// A lab as root, or `None` with a loud word; a failure where everything is required.
fn lab() -> Option<Lab> {
    if let Ok(Access::Privileged) = lab::gain_access() {
        return Some(Lab::create(&LabPlan::default()).unwrap());
    }
    assert!(std::env::var_os("LINERATE_REQUIRE_ALL").is_none(), "XDP needs root");
    eprintln!("skipped: XDP needs root");
    None
}

/// Frames of one kind.
#[derive(Debug, Clone, Copy)]
struct Shape {
    is_ipv6: bool,
    tags: &'static [&'static str],
    /// The smallest that carry a stream tag.
    frame_bytes: u64,
}

/// What the kernel takes off before sockets get a packet: a tag that names no network, but a priority. Those of a network
/// come in at an interface of its own, which not every kernel can make.
const PRIORITY: &str = "0/5";

const OF_SOCKETS: [Shape; 3] = [
    Shape { is_ipv6: true, tags: &[], frame_bytes: 84 },
    Shape { is_ipv6: false, tags: &[PRIORITY], frame_bytes: 68 },
    Shape { is_ipv6: true, tags: &[PRIORITY], frame_bytes: 88 },
];
const BELOW_SOCKETS: [Shape; 4] = [
    Shape { is_ipv6: true, tags: &[], frame_bytes: 84 },
    Shape { is_ipv6: false, tags: &["7"], frame_bytes: 68 },
    Shape { is_ipv6: true, tags: &["7"], frame_bytes: 88 },
    Shape { is_ipv6: true, tags: &["802.1ad:9", "7"], frame_bytes: 92 },
];

impl Shape {
    fn addresses(self, lab: &Lab) -> [IpAddr; 2] {
        [lab.tx(), lab.rx()].map(|side| match self.is_ipv6 {
            false => side.ipv4()[0].into(),
            true => side.ipv6()[0].into(),
        })
    }

    fn frames(self, lab: &Lab) -> FrameSpec {
        let [source, target] = self.addresses(lab);
        FrameSpec {
            src_addr: source.into(),
            dst_addr: target.into(),
            src_mac: MacAddr(lab.tx().mac()),
            dst_mac: MacAddr(lab.rx().mac()),
            src_port: 20_000.into(),
            dst_port: PORT.into(),
            vlan: self.tags.iter().map(|tag| tag.parse::<VlanTag>().unwrap()).collect(),
            sizes: Sizes::Frame(self.frame_bytes.to_string().parse().unwrap()),
            ..FrameSpec::default()
        }
    }
}

fn placement(side: &Side) -> Placement {
    let namespace = side.namespace().try_clone().unwrap();
    Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: Vec::new() }
}

fn send(lab: &Lab, shape: Shape) {
    let [source, target] = shape.addresses(lab);
    let worker =
        TxWorkerPlan { target: (target, PORT).into(), local: (source, 0).into(), flows: 1, stream: 3 };
    let plan = SenderPlan {
        engine: TxEngine::Packet(PacketTxPlan { qdisc_bypass: true }),
        workers: vec![worker],
        interface: Some(lab.tx().interface().into()),
        frames: shape.frames(lab),
        rate_pps: None,
        departures: Departures::Constant,
        limit: Limit { count: Some(FRAMES), duration_ns: None },
        batch_size: 64,
        seed: 1,
    };
    let sender = Sender::prepare(&plan, &placement(lab.tx())).unwrap();
    sender.begin();
    let result = sender.join().remove(0);
    assert!(result.error.is_none() && result.tally.packets == FRAMES, "{result:?}");
}

fn wait_for(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !met() {
        assert!(Instant::now() < deadline, "waited 20 s in vain for {what}");
        thread::yield_now();
    }
}

/// Sends a datagram to a receiver: without a probe header from the wire, or with one from the receiver's own host, whose
/// packets come in at another interface (loopback).
fn send_other(lab: &Lab, is_probe: bool, target: SocketAddr) -> [u8; 40] {
    let mut payload: [u8; 40] = std::array::from_fn(|at| at as u8);
    if is_probe {
        let raw_time = ProbeClock::Nanos.encode(1);
        ProbeHeader { sequence: 1, raw_time, stream: 3 }.write(&mut payload);
    }
    let any: IpAddr =
        if target.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let side = if is_probe { lab.rx() } else { lab.tx() };
    let sender = side.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
    sender.send_to(&payload, target).unwrap();
    payload
}

/// What is no probe, or comes in elsewhere, arrives at its socket as it was sent.
fn others_pass(lab: &Lab, engine: &RxEngine, target: SocketAddr) {
    let socket = lab.rx().run(|| UdpSocket::bind(target)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for is_probe in [false, true] {
        let sent = send_other(lab, is_probe, target);
        let mut got = [0; 100];
        let length = socket.recv(&mut got).unwrap_or_else(|error| panic!("{engine:?} {is_probe}: {error}"));
        assert_eq!(got[..length], sent, "{engine:?} {is_probe}");
    }
}

/// What a receiver measured of a shape's frames, and of packets that are not for it.
fn measured(lab: &Lab, engine: &RxEngine, level: StatisticsLevel, shape: Shape) -> ReceptionShare {
    let is_socket = matches!(engine, RxEngine::Udp(_));
    let [_, target] = shape.addresses(lab);
    let [any, loopback]: [IpAddr; 2] = match shape.is_ipv6 {
        false => [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()],
        true => [Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()],
    };
    let plan = ReceiverPlan {
        engine: engine.clone(),
        local: (if is_socket { any } else { target }, PORT).into(),
        interface: Some(lab.rx().interface().into()),
        workers: 1,
        spin: false,
        batch_size: 64,
        statistics: Some(StatisticsPlan { level, probe_clock: None, stamp: None }),
        reflect: false,
        work_ns: 0,
    };
    let receiver = Receiver::start(&plan, &placement(lab.rx())).unwrap();
    if is_socket {
        // What a host sends to an address of its interface is taken for received there; its loopback address is not.
        send_other(lab, true, (loopback, PORT).into());
    } else {
        others_pass(lab, engine, (target, PORT + 1).into());
    }
    send(lab, shape);
    wait_for(&format!("all of {engine:?} {level:?} {shape:?}"), || receiver.snapshot().packets >= FRAMES);
    let reception = receiver.stop().reception(LatencyMeans::Time).unwrap();
    let readers = |count: fn(&ReceptionShare) -> u64| reception.readers.iter().map(count).sum::<u64>();
    let total = &reception.total;
    assert_eq!(readers(|share| share.packets), total.packets);
    assert_eq!(readers(|share| share.frame_bytes), total.frame_bytes);
    if level > StatisticsLevel::Counter {
        let sequence = reception.sequence.as_ref().unwrap();
        assert_eq!((sequence.received, sequence.lost), (FRAMES, Some(0)), "{engine:?} {shape:?}");
        assert_eq!((reception.senders.len(), reception.flows.len()), (1, 1), "{engine:?} {shape:?}");
        assert_eq!(reception.senders[0].stream, 3);
    }
    reception.total
}

#[test]
fn frames_of_both_versions_and_with_tags_are_measured_and_all_others_pass() {
    let Some(lab) = lab() else { return };
    let loopback = lab.rx().run(|| {
        let mut route = RouteSocket::open()?;
        let loopback = route.link_by_name("lo")?;
        route.change_flags(loopback.index, flag::UP, flag::UP)
    });
    loopback.unwrap().unwrap();
    let engines = [
        RxEngine::Udp(UdpRxPlan { receive_buffer_bytes: Some(8_000_000), ..UdpRxPlan::default() }),
        RxEngine::Packet(PacketRxPlan {}),
        RxEngine::Xsk(XskRxPlan::default()),
        RxEngine::Xdp(XdpRxPlan::default()),
    ];
    for engine in &engines {
        let is_socket = matches!(engine, RxEngine::Udp(_));
        for &shape in if is_socket { &OF_SOCKETS[..] } else { &BELOW_SOCKETS } {
            let tags_bytes = if is_socket { 0 } else { 4 * shape.tags.len() as u64 };
            let untagged_bytes = shape.frame_bytes - 4 * shape.tags.len() as u64;
            let payload_bytes = untagged_bytes - if shape.is_ipv6 { 66 } else { 46 };
            for level in [StatisticsLevel::Counter, StatisticsLevel::Time] {
                let total = measured(&lab, engine, level, shape);
                let words = format!("{engine:?} {level:?} {shape:?} {total:?}");
                assert_eq!(total.packets, FRAMES, "{words}");
                assert_eq!(total.payload_bytes, FRAMES * payload_bytes, "{words}");
                assert_eq!(total.frame_bytes, FRAMES * (untagged_bytes + tags_bytes), "{words}");
                assert_eq!(total.l1_bytes, total.frame_bytes + 20 * FRAMES, "{words}");
                assert_eq!(total.latency.is_some(), level == StatisticsLevel::Time, "{words}");
            }
        }
    }
}
