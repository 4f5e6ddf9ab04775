use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabPlan};
use measure::{NanosSummary, ReceptionStatistics};
use port::{MeasureOptions, ProbeAction, ProbeTime, XdpMeter, XdpMode};
use wire::{PROBE_LEN, ProbeClock, ProbeHeader, StreamTags};

use super::*;
use crate::collect::{Arrival, Collector, LatencyMeans, reception};

/// A lab as root, or `None` with a printed skip; a failure when everything is required.
fn lab() -> Option<Lab> {
    testing::root_lab(&LabPlan::default(), "XDP needs root")
}

/// One packet of a script: which socket sends it, in which stream, its number, when it leaves and arrives.
#[derive(Clone, Copy)]
struct Scripted {
    socket: usize,
    stream: u16,
    number: u32,
    sent_ns: u64,
    arrived_ns: u64,
}

/// Two senders, one with two flows; losses, duplicates, overtaken and late packets, a restart, short and very long
/// times, packets that leave and arrive together.
fn script() -> Vec<Scripted> {
    let mut script = Vec::new();
    let mut now = 5_000_000_000u64;
    let mut random = 12345u64;
    let mut below = move |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % most
    };
    for start in 0..2u64 {
        for number in 0..1500u32 {
            let together = number / 64 % 2 == 1;
            let of_batch = if together { number / 16 * 16 } else { number };
            let sent_ns = 1_000_000_000 + start * 100_000_000 + u64::from(of_batch) * 1000;
            if of_batch == number {
                now += [3, 300, 5000, 70_000][below(4) as usize] + below(200);
            }
            if number % 50 == 7 {
                continue; // lost
            }
            let socket = of_batch as usize % 2;
            let one = Scripted { socket, stream: 1, number, sent_ns, arrived_ns: now };
            script.push(one);
            if number % 90 == 11 {
                script.push(one); // twice
            }
            if !together {
                script.push(Scripted { socket: 2, stream: 2, sent_ns: sent_ns - 77, ..one });
            }
        }
    }
    script.push(Scripted { arrived_ns: now + 9_000_000_000, number: 1500, ..script[script.len() - 1] });
    // Some are reordered, by a few or by many.
    let packets = script.len();
    for at in (100..packets - 400).step_by(97) {
        let arrived_ns = script[at..at + 12].iter().map(|one| one.arrived_ns).collect::<Vec<_>>();
        script[at..at + 12].rotate_left(1 + at % 11);
        script[at..at + 12].iter_mut().zip(arrived_ns).for_each(|(one, ns)| one.arrived_ns = ns);
    }
    script
}

fn statistics(readings: &[Readings]) -> ReceptionStatistics {
    reception(readings, LatencyMeans::Time)
}

#[test]
fn the_program_and_user_space_find_the_same_in_the_same_packets() {
    for (family, by_poll) in [(0, false), (1, false), (0, true), (1, true)] {
        let Some(lab) = lab() else { return };
        let (tx, rx) = (lab.tx(), lab.rx());
        let address = |side: &lab::Side| [IpAddr::V4(side.ipv4()[0]), IpAddr::V6(side.ipv6()[0])][family];
        let target = SocketAddr::new(address(rx), 4321);
        let options = MeasureOptions {
            verdict: ProbeAction::Drop,
            streams: 1 << 16,
            tag_inverse: 1,
            queues: 2,
            times: true,
            probe_time: ProbeTime::ByNumbers,
            is_scripted: true,
            returns: None,
            by_poll,
            work_ns: 0,
        };
        let mut meter = rx.run(|| XdpMeter::open(rx.index(), XdpMode::Native, &options)).unwrap().unwrap();
        let script = script();
        let mut collector = Collector::new(StatisticsLevel::Time, ReaderPlace::default());
        tx.run(|| {
            // One CPU receives: the sending one.
            sys::cpu::pin_to(sys::cpu::allowed().unwrap()[0]).unwrap();
            let sockets = [0; 3].map(|port| UdpSocket::bind(SocketAddr::new(address(tx), port)).unwrap());
            for one in &script {
                let mut payload = [0; 40];
                let raw_time = ProbeClock::Nanos.encode(one.sent_ns);
                let header = ProbeHeader { sequence: one.number, raw_time, stream: one.stream };
                header.write(&mut payload);
                payload[PROBE_LEN + 2..PROBE_LEN + 10].copy_from_slice(&one.arrived_ns.to_be_bytes());
                let socket = &sockets[one.socket];
                socket.send_to(&payload, target).unwrap();
                collector.add(&Arrival {
                    header,
                    flow: FlowKey::udp(socket.local_addr().unwrap(), target).unwrap(),
                    payload_bytes: payload.len(),
                    frame_bytes: payload.len() + [46, 66][family],
                    sent_ns: Some(one.sent_ns),
                    is_sent_by_wall: false,
                    arrived_ns: one.arrived_ns,
                });
            }
        })
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while meter.read_counts().unwrap()[0] < script.len() as u64 {
            assert!(Instant::now() < deadline, "all packets arrive");
            thread::yield_now();
        }
        assert_eq!(
            meter.read_queues().unwrap().iter().map(|queue| queue.packets).sum::<u64>(),
            script.len() as u64
        );
        let level = StatisticsLevel::Time;
        let measured = meter.take().unwrap();
        let readings: Vec<_> = measured.iter().map(|cpu| Readings::of_program(level, cpu)).collect();
        assert_same(&statistics(&readings), &statistics(&[collector.readings()]));
        let after = meter.read().unwrap();
        assert_eq!(after.iter().map(|cpu| cpu.packets).sum::<u64>(), 0, "measured anew");
    }
}

#[test]
fn packets_with_tags_of_no_stream_are_foreign_to_the_program() {
    let Some(lab) = lab() else { return };
    let (tx, rx) = (lab.tx(), lab.rx());
    let tags = StreamTags::drawn(0x1234);
    let options = MeasureOptions {
        verdict: ProbeAction::Drop,
        streams: 4,
        tag_inverse: tags.inverse(),
        queues: 1,
        times: false,
        probe_time: ProbeTime::ByNumbers,
        is_scripted: false,
        returns: None,
        by_poll: true,
        work_ns: 0,
    };
    let mut meter = rx.run(|| XdpMeter::open(rx.index(), XdpMode::Native, &options)).unwrap().unwrap();
    let target = SocketAddr::new(rx.ipv4()[0].into(), 4321);
    tx.run(|| {
        let socket = UdpSocket::bind((tx.ipv4()[0], 0)).unwrap();
        for sequence in 0..10 {
            // Streams 0 to 3 are known; 4, 5 and the streams of tags 1 and 0x8000 are not.
            let known = (0..4).map(|stream| tags.tag(stream));
            for stream in known.chain([tags.tag(4), tags.tag(5), 1, 0x8000]) {
                let mut payload = [0; 18];
                ProbeHeader { sequence, raw_time: 0, stream }.write(&mut payload);
                socket.send_to(&payload, target).unwrap();
            }
        }
    })
    .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let counts = loop {
        let counts = meter.read_counts().unwrap();
        if counts[0] + counts[2] >= 80 {
            break counts;
        }
        assert!(Instant::now() < deadline, "all packets arrive: {counts:?}");
        thread::yield_now();
    };
    assert_eq!([counts[0], counts[2]], [40, 40]);
    let measured = meter.take().unwrap();
    let mut streams: Vec<u16> =
        measured.iter().flat_map(|cpu| &cpu.senders).map(|sender| tags.stream(sender.stream)).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams, [0, 1, 2, 3], "a stranger takes no entry of the table");
}

fn assert_same(program: &ReceptionStatistics, user: &ReceptionStatistics) {
    let figures = |summary: &Option<NanosSummary>| summary.clone().unwrap();
    let (p, u) = (&program.total, &user.total);
    assert_eq!((p.packets, p.payload_bytes, p.frame_bytes), (u.packets, u.payload_bytes, u.frame_bytes));
    assert_eq!((p.work_time_ns, p.before_sent), (u.work_time_ns, u.before_sent));
    // The same buckets, and exact sums: nothing differs at all.
    assert_eq!(figures(&p.inter_arrival), figures(&u.inter_arrival));
    assert_eq!(figures(&p.flow_inter_arrival), figures(&u.flow_inter_arrival));
    assert_eq!(figures(&p.jitter), figures(&u.jitter));
    assert_eq!(figures(&p.latency), figures(&u.latency));
    assert_eq!(program.sequence, user.sequence);
    assert!(
        user.sequence.as_ref().unwrap().reordered > 50 && u.latency.as_ref().unwrap().max_ns > 9_000_000_000
    );
    assert_eq!(program.senders, user.senders);
    let flows = |all: &ReceptionStatistics| {
        let mut flows: Vec<_> = all
            .flows
            .iter()
            .map(|flow| (flow.flow.clone(), flow.packets, flow.inter_arrival_max_ns))
            .collect();
        flows.sort();
        flows
    };
    assert_eq!(flows(program), flows(user));
}
