//! What receivers measure for frames of every kind, on the lab. As root; otherwise skipped loudly.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use lab::{Lab, LabPlan, Side};
use measure::{ReceptionShare, ReceptionStatistics, StatisticsLevel};
use sys::{
    netns::NetNs,
    rtnetlink::{RouteSocket, flag},
    tap::create_tap,
};
use testing::wait_for;
use traffic::{
    AfterReading, Departures, LatencyMeans, Limit, Placement, Receiver, ReceiverPlan, RxLayer, RxOptions,
    RxSpec, RxTraffic, SenderPlan, StatisticsPlan, TxTraffic, TxWorkerPlan, reception,
};
use wire::{Checksum, FrameSpec, MacAddr, ProbeClock, ProbeHeader, Sizes, Template, VlanTag};

const PORT: u16 = 4321;
const FRAMES: u64 = 300;

/// A lab as root, or `None` with a printed skip; a failure when everything is required.
fn lab() -> Option<Lab> {
    testing::root_lab(&LabPlan::default(), "XDP needs root")
}

/// Frames of one kind.
#[derive(Debug, Clone, Copy)]
struct Shape {
    is_ipv6: bool,
    tags: &'static [&'static str],
    /// The smallest frames that carry a stream tag.
    frame_bytes: u64,
}

/// The kernel strips priority-only tags (VLAN 0) before sockets get a packet. Packets with a VLAN tag
/// arrive on a separate interface, which not every kernel can create.
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

/// A receiving engine by its label, with this receive buffer.
fn engine(label: &str, receive_buffer_bytes: Option<usize>) -> RxSpec {
    let spec: RxSpec = label.parse().unwrap();
    spec.configured(&RxOptions { receive_buffer_bytes, ..RxOptions::default() })
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
        engine: "packet".parse().unwrap(),
        traffic: TxTraffic {
            workers: vec![worker],
            interface: Some(lab.tx().interface().into()),
            frames: shape.frames(lab),
            rate_pps: None,
            departures: Departures::Constant,
            limit: Limit { count: Some(FRAMES), duration_ns: None },
            batch_size: 64,
            seed: 1,
        },
    };
    let sender = plan.prepare(&placement(lab.tx())).unwrap();
    sender.begin();
    let result = sender.join().remove(0);
    assert!(result.error.is_none() && result.tally.packets == FRAMES, "{result:?}");
}

/// Sends a datagram to a receiver: without a probe header from the wire, or with one from the receiver's own host, whose
/// packets arrive on another interface (loopback).
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

/// A packet that is not a probe, or arrives elsewhere, reaches its socket unchanged.
fn others_pass(lab: &Lab, engine: &RxSpec, target: SocketAddr) {
    let socket = lab.rx().run(|| UdpSocket::bind(target)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for is_probe in [false, true] {
        let sent = send_other(lab, is_probe, target);
        let mut got = [0; 100];
        let length = socket.recv(&mut got).unwrap_or_else(|error| panic!("{engine:?} {is_probe}: {error}"));
        assert_eq!(got[..length], sent, "{engine:?} {is_probe}");
    }
}

/// The measurements of a receiver for a shape's frames, and for packets that are not for it.
fn measured(lab: &Lab, engine: &RxSpec, level: StatisticsLevel, shape: Shape) -> ReceptionShare {
    let is_socket = engine.facts().reads == RxLayer::Socket;
    let [_, target] = shape.addresses(lab);
    let [any, loopback]: [IpAddr; 2] = match shape.is_ipv6 {
        false => [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()],
        true => [Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()],
    };
    let plan = ReceiverPlan {
        engine: engine.clone(),
        traffic: RxTraffic {
            local: (if is_socket { any } else { target }, PORT).into(),
            interface: Some(lab.rx().interface().into()),
            workers: 1,
            spin: false,
            batch_size: 64,
            statistics: Some(StatisticsPlan { level, probe_clock: None, stamp: None }),
            reflect: false,
            work_ns: 0,
        },
    };
    let receiver = plan.start(&placement(lab.rx())).unwrap();
    if is_socket {
        // A packet that a host sends to its interface's own address counts as received there; one to its loopback address does not.
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
    let engines =
        [engine("udp", Some(8_000_000)), engine("packet", None), engine("xsk", None), engine("xdp", None)];
    for engine in &engines {
        let is_socket = engine.facts().reads == RxLayer::Socket;
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

/// `struct virtio_net_hdr` before a frame that is written to a TAP.
const VIRTIO_HEADER: usize = 10;
const SEGMENT: usize = 18;
const UDP_AT: usize = 34;

/// Frames of an IPv4 flow to the host behind a TAP, each after a header without requests.
fn tap_frames(mac: [u8; 6], payload_bytes: usize, frames: u32) -> Vec<Vec<u8>> {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let template = Template::new(&FrameSpec {
        src_addr: address("10.78.0.1").into(),
        dst_addr: address("10.78.0.2").into(),
        dst_mac: MacAddr(mac),
        dst_port: PORT.into(),
        sizes: Sizes::Payload(payload_bytes.to_string().parse().unwrap()),
        ..FrameSpec::default()
    })
    .unwrap();
    let frame = |sequence| {
        let mut bytes = vec![0; VIRTIO_HEADER + template.max_frame_len()];
        template.prime_frame(&mut bytes[VIRTIO_HEADER..]);
        template.restamp_frame(&mut bytes[VIRTIO_HEADER..], sequence, 1);
        bytes
    };
    (0..frames).map(frame).collect()
}

/// The same, each with several datagrams merged as by GRO: VIRTIO_NET_HDR_GSO_UDP_L4.
fn joined_frames(mac: [u8; 6], segments: u32, frames: u32) -> Vec<Vec<u8>> {
    let mut joined = tap_frames(mac, SEGMENT * segments as usize, frames);
    for (at, bytes) in joined.iter_mut().enumerate() {
        let (header, frame) = bytes.split_at_mut(VIRTIO_HEADER);
        let payload_start = UDP_AT + 8;
        for (segment, payload) in (0..segments).zip(frame[payload_start..].chunks_exact_mut(SEGMENT)) {
            ProbeHeader { sequence: at as u32 * segments + segment, raw_time: 1, stream: 0 }.write(payload);
        }
        // The pseudo header's sum, which the code that completes each segment's checksum needs there.
        let udp_len = (frame.len() - UDP_AT) as u32;
        let sum = Checksum::ZERO.add_bytes(&frame[26..UDP_AT]).add_word(17 + udp_len).fold();
        frame[UDP_AT + 6..payload_start].copy_from_slice(&sum.to_be_bytes());
        let words = [payload_start, SEGMENT, UDP_AT, 6].map(|word| (word as u16).to_ne_bytes());
        let (needs_checksum, gso_udp_l4) = (1, 5);
        header[..2].copy_from_slice(&[needs_checksum, gso_udp_l4]);
        header[2..].copy_from_slice(words.as_flattened());
    }
    joined
}

#[test]
fn sockets_packets_are_told_apart_by_the_queue_that_the_driver_wrote_down() {
    if lab().is_none() {
        return;
    }
    let namespace = NetNs::create().unwrap();
    let queues = match namespace.run(|| create_tap("tap", 4)).unwrap() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return testing::skip("no /dev/net/tun");
        }
        queues => queues.unwrap().into_iter().map(File::from).collect::<Vec<_>>(),
    };
    let mac = namespace.run(|| {
        let mut route = RouteSocket::open().unwrap();
        let link = route.link_by_name("tap").unwrap();
        route.change_flags(link.index, flag::UP, flag::UP).unwrap();
        route.add_address(link.index, "10.78.0.2".parse().unwrap(), 24).unwrap();
        link.mac.unwrap()
    });
    let mac = mac.unwrap();
    let (alone, joined) = (tap_frames(mac, SEGMENT, 100), joined_frames(mac, 5, 20));
    // Packets per queue.
    let on_queues = [0, 10, 30, 60];
    let large = Some(8_000_000);
    for (engine, workers) in [
        (engine("udp", Some(1)), 1),
        (engine("udp", large), 1),
        (engine("udp", large), 2),
        (engine("udp+gro", large), 1),
        (engine("udp+reuseport", large), 2),
        (engine("packet", None), 1),
        (engine("packet", None), 2),
    ] {
        let plan = ReceiverPlan {
            engine: engine.clone(),
            traffic: RxTraffic {
                local: SocketAddr::new("10.78.0.2".parse().unwrap(), PORT),
                interface: Some("tap".into()),
                workers,
                spin: false,
                batch_size: 64,
                statistics: Some(StatisticsPlan {
                    level: StatisticsLevel::Basic,
                    ..StatisticsPlan::default()
                }),
                reflect: false,
                work_ns: 0,
            },
        };
        let enter = namespace.try_clone().unwrap();
        let placement = Placement { enter: Some(Arc::new(move || enter.enter())), cpus: Vec::new() };
        let receiver = plan.start(&placement).unwrap();
        // Merged datagrams reach the socket as one buffer, and count as the merged packets.
        let takes_joined = engine.facts().joins_datagrams;
        let (frames, packets_each) = if takes_joined { (&joined, 5) } else { (&alone, 1) };
        let send = || {
            let mut next = frames.iter();
            for (mut queue, count) in queues.iter().zip(on_queues) {
                next.by_ref().take(count / packets_each).for_each(|frame| queue.write_all(frame).unwrap());
            }
        };
        let queues_of = |statistics: &ReceptionStatistics| {
            let words =
                format!("{engine:?} {workers} {:?} {:?}", statistics.queues, statistics.queues_unknown);
            assert_eq!(statistics.queues_unknown, None, "{words}");
            for queue in &statistics.queues {
                assert_eq!(
                    (queue.payload_bytes, queue.frame_bytes),
                    (18 * queue.packets, 64 * queue.packets)
                );
                assert_eq!(queue.l1_bytes, 84 * queue.packets);
                let is_timed = queue.work_time_ns.is_some_and(|ns| ns > 0) && queue.rx_pps.is_some();
                assert_eq!(is_timed, queue.packets > 0, "{words}");
            }
            statistics.queues.iter().map(|queue| queue.packets as usize).collect::<Vec<_>>()
        };
        // Counted before the socket's buffer: a queue's count includes packets that the buffer loses.
        let all = |receiver: &Receiver| receiver.snapshot().packets + receiver.snapshot().lost;
        send();
        wait_for("the frames", || all(&receiver) >= 100);
        let first = reception(&receiver.readings(AfterReading::Reset).unwrap(), LatencyMeans::Time);
        assert_eq!(queues_of(&first), on_queues, "{engine:?} {workers}");
        send();
        wait_for("the frames again", || all(&receiver) >= 200);
        let lost = receiver.snapshot().lost;
        let last = receiver.stop().reception(LatencyMeans::Time).unwrap();
        assert_eq!(queues_of(&last), on_queues, "{engine:?} {workers}: counted anew");
        assert_eq!(first.total.packets + last.total.packets + lost, 200, "{engine:?} {workers}");
    }
}

#[test]
fn where_nobody_tells_queues_apart_it_is_said_why() {
    let Some(lab) = lab() else { return };
    let queues = lab.rx().rx_queues().unwrap();
    assert!(queues > 1, "a lab has several");
    let one = Lab::create(&LabPlan { queues: 1, ..LabPlan::default() }).unwrap();
    for (lab, interface, expected) in [
        (&lab, Some(lab.rx().interface()), Some("is a veth, which records no receive queue")),
        (&lab, None, Some("packets arrive from all interfaces")),
        (&one, Some(one.rx().interface()), None),
    ] {
        let plan = ReceiverPlan {
            engine: engine("udp", None),
            traffic: RxTraffic {
                local: (lab.rx().ipv4()[0], PORT).into(),
                interface: interface.map(str::to_owned),
                workers: 1,
                spin: false,
                batch_size: 64,
                statistics: Some(StatisticsPlan::default()),
                reflect: false,
                work_ns: 0,
            },
        };
        let receiver = plan.start(&placement(lab.rx())).unwrap();
        let statistics = receiver.stop().reception(LatencyMeans::Time).unwrap();
        let said = statistics.queues_unknown.as_deref();
        assert!(
            said.zip(expected).is_some_and(|(said, words)| said.contains(words)) || said == expected,
            "{said:?}"
        );
        assert_eq!(statistics.readers[0].queue, expected.is_none().then_some(0), "its only one");
    }
}
