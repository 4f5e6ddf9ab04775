use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use measure::ReceptionStatistics;
use wire::ProbeClock;

use super::*;

/// A packet of a script: its host and port, stream and number, send and receive time.
fn arrival(host: u8, port: u16, stream: u16, sequence: u32, sent_ns: u64, arrived_ns: u64) -> Arrival {
    let end = |host, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), port);
    Arrival {
        header: ProbeHeader { sequence, raw_time: ProbeClock::Nanos.encode(sent_ns), stream },
        flow: FlowKey::udp(end(host, port), end(99, 9)).unwrap(),
        payload_bytes: 18,
        frame_bytes: 64,
        sent_ns: Some(sent_ns),
        is_sent_by_wall: false,
        arrived_ns,
    }
}

fn reader(level: StatisticsLevel, arrivals: &[Arrival]) -> Collector {
    let mut collector = Collector::new(level, ReaderPlace::default());
    arrivals.iter().for_each(|arrival| collector.add(arrival));
    collector
}

fn statistics(readers: &[Collector]) -> ReceptionStatistics {
    reception(&readers.iter().map(|reader| reader.clone().readings()).collect::<Vec<_>>(), LatencyMeans::Time)
}

#[test]
fn a_scripted_stream_is_measured_exactly() {
    // Sent every 1000 ns, with transit times of 200 to 239 ns in rotation.
    let script: Vec<Arrival> = (0..40_000u32)
        .map(|n| {
            let sent = 1_000_000 + 1000 * u64::from(n);
            arrival(1, 7, 0, n, sent, sent + 200 + u64::from(n % 40))
        })
        .collect();
    let got = statistics(&[reader(StatisticsLevel::Time, &script)]);
    let total = &got.total;
    assert_eq!((total.packets, total.payload_bytes), (40_000, 720_000));
    assert_eq!((total.frame_bytes, total.l1_bytes), (2_560_000, 3_360_000));
    // 39 999 gaps from 1 000 200 to 40 999 039 + 200.
    assert_eq!(total.work_time_ns, Some(39_999_039));
    assert_eq!(total.rx_pps, Some(39_999.0 / 0.039_999_039));
    let latency = total.latency.as_ref().unwrap();
    assert_eq!((latency.samples, latency.min_ns, latency.max_ns), (40_000, 200, 239));
    assert_eq!((latency.mean_ns, latency.p50_ns, latency.p90_ns, latency.p99_ns), (219.5, 219, 235, 239));
    let variance = (40.0f64 * 40.0 - 1.0) / 12.0;
    assert!((latency.std_dev_ns - variance.sqrt()).abs() < 1e-12, "of a uniform distribution");
    let gaps = total.inter_arrival.as_ref().unwrap();
    assert_eq!((gaps.samples, gaps.min_ns, gaps.max_ns), (39_999, 961, 1001));
    assert_eq!(gaps.mean_ns, 39_999_039.0 / 39_999.0);
    assert_eq!(total.flow_inter_arrival, total.inter_arrival, "of a single flow");
    let jitter = total.jitter.as_ref().unwrap();
    assert_eq!((jitter.samples, jitter.min_ns, jitter.max_ns, jitter.p50_ns), (39_999, 1, 39, 1));
    assert_eq!(jitter.mean_ns, (39_000.0 + 999.0 * 39.0) / 39_999.0);
    assert_eq!((got.sequence.as_ref().unwrap().lost, got.senders[0].send_times), (Some(0), 40_000));
}

#[test]
fn each_sender_has_its_own_numbers_and_each_flow_its_own_gaps() {
    let mut script = Vec::new();
    for n in 0..1000u32 {
        let now = 1_000_000 + 1000 * u64::from(n);
        // Sender 1 numbers two flows together; sender 2 loses every tenth; sender 3 has the same address, but a stream.
        script.push(arrival(1, 7 + (n % 2) as u16, 0, n, now, now + 100));
        if n % 10 != 5 {
            script.push(arrival(2, 7, 0, n, now, now + 300));
        }
        script.push(arrival(2, 7, 3, n, now, now + 500));
    }
    let got = statistics(&[reader(StatisticsLevel::Time, &script)]);
    let senders: Vec<_> = got
        .senders
        .iter()
        .map(|sender| (sender.address.as_str(), sender.stream, sender.sequence.as_ref().unwrap().lost))
        .collect();
    assert_eq!(senders, [("10.0.0.1", 0, Some(0)), ("10.0.0.2", 3, Some(0)), ("10.0.0.2", 0, Some(100))]);
    let flows: Vec<_> = got
        .flows
        .iter()
        .map(|flow| (flow.flow.as_str(), flow.stream, flow.packets, flow.sequence.as_ref().unwrap().lost))
        .collect();
    assert_eq!(
        flows,
        [
            ("udp 10.0.0.2:7 > 10.0.0.99:9", 3, 1000, Some(0)),
            ("udp 10.0.0.2:7 > 10.0.0.99:9", 0, 900, Some(100)),
            ("udp 10.0.0.1:7 > 10.0.0.99:9", 0, 500, None),
            ("udp 10.0.0.1:8 > 10.0.0.99:9", 0, 500, None),
        ]
    );
    assert_eq!(got.flows[2].inter_arrival_mean_ns, Some(2000.0));
    assert_eq!(got.flows[1].inter_arrival_max_ns, Some(2000));
    let total = &got.total;
    assert_eq!(total.jitter.as_ref().unwrap().max_ns, 0, "each sender's packets have the same transit time");
    assert_eq!(total.flow_inter_arrival.as_ref().unwrap().max_ns, 2000);
    assert_eq!(total.inter_arrival.as_ref().unwrap().min_ns, 200, "of whatever flow");
}

#[test]
fn readers_together_are_one_that_saw_all() {
    let script: Vec<Arrival> = (0..9000u32)
        .filter(|n| n % 100 != 99)
        .map(|n| {
            let now = 5_000_000 + 700 * u64::from(n);
            arrival(1, 1000 + (n % 4) as u16, 0, n, now, now + 2000 + u64::from(n % 7))
        })
        .collect();
    let share = |number: u32| {
        let own: Vec<_> = script.iter().filter(|one| one.header.sequence % 4 == number).copied().collect();
        reader(StatisticsLevel::Time, &own)
    };
    let apart = statistics(&[share(0), share(1), share(2), share(3)]);
    let together = statistics(&[reader(StatisticsLevel::Time, &script)]);
    assert_eq!(apart.total.packets, 8910);
    assert_eq!(apart.total.latency, together.total.latency);
    assert_eq!(apart.total.flow_inter_arrival, together.total.flow_inter_arrival);
    assert_eq!(apart.sequence, together.sequence);
    // The very last is missing too, which cannot be detected.
    assert_eq!(together.sequence.unwrap().lost, Some(89));
    assert_eq!(apart.flows.len(), 4);
    assert_eq!(apart.readers.iter().map(|share| share.packets).sum::<u64>(), 8910);
}

#[test]
fn levels_measure_what_they_say() {
    let script: Vec<Arrival> =
        (0..10).map(|n| arrival(1, 7, 0, n, 1000 + 10 * u64::from(n), 2000 + 10 * u64::from(n))).collect();
    let counter = statistics(&[reader(StatisticsLevel::Counter, &script)]);
    assert_eq!((counter.total.packets, counter.total.rx_pps, counter.sequence), (10, None, None));
    let basic = statistics(&[reader(StatisticsLevel::Basic, &script)]);
    assert_eq!((basic.total.work_time_ns, basic.total.rx_pps), (Some(90), Some(1e8)));
    assert!(basic.sequence.is_some() && basic.total.inter_arrival.is_none());
    let refused = reception(&[reader(StatisticsLevel::Time, &script).readings()], LatencyMeans::Nothing);
    assert!(refused.total.latency.is_none() && refused.total.jitter.is_some());
}

#[test]
fn packets_that_arrive_before_they_were_sent_are_told_apart() {
    let script = [arrival(1, 7, 0, 0, 1000, 900), arrival(1, 7, 0, 1, 1000, 1100)];
    let got = statistics(&[reader(StatisticsLevel::Time, &script)]);
    assert_eq!((got.total.before_sent, got.total.latency.unwrap().samples), (1, 1));
    assert_eq!(got.total.jitter.unwrap().max_ns, 200, "a difference needs no relation");
}

#[test]
fn a_single_packet_and_none_have_no_rates() {
    let got = statistics(&[reader(StatisticsLevel::Time, &[arrival(1, 7, 0, 0, 1000, 1100)])]);
    assert_eq!((got.total.work_time_ns, got.total.rx_pps), (Some(0), None));
    assert!(got.total.inter_arrival.is_none() && got.flows[0].inter_arrival_mean_ns.is_none());
    let none = statistics(&[reader(StatisticsLevel::Time, &[])]);
    assert_eq!((none.total.work_time_ns, none.sequence), (None, None));
}

#[test]
fn senders_without_end_cost_accuracy_and_no_memory() {
    let mut collector = Collector::new(StatisticsLevel::Time, ReaderPlace::default());
    for n in 0..100_000u32 {
        let mut one = arrival(1, 7, (n % 250) as u16, n, 1000, 2000);
        one.flow.addresses = wire::Addresses::V4 { src: Ipv4Addr::from_bits(n), dst: Ipv4Addr::LOCALHOST };
        collector.add(&one);
    }
    let got = statistics(&[collector]);
    assert_eq!(got.total.packets, 100_000);
    assert_eq!((got.senders.len(), got.flows.len()), (Collector::MOST_SENDERS, Collector::MOST_SENDERS));
    assert!(got.flows.iter().all(|flow| flow.packets == 1));
    assert_eq!(got.beyond_tables, 100_000 - Collector::MOST_SENDERS as u64);
}

#[test]
fn nothing_is_allocated_for_a_packet() {
    let mut collector = reader(StatisticsLevel::Time, &[arrival(1, 7, 0, 0, 1, 1)]);
    let allocated = allocation_counter::measure(|| {
        for n in 1..10_000 {
            collector.add(&arrival((n % 200) as u8, n as u16, 0, n, n.into(), 2 * u64::from(n)));
        }
    });
    assert_eq!(allocated.count_total, 0);
}

/// Packets that differ only in their consecutive numbers.
fn rows(script: &[Arrival]) -> impl Iterator<Item = &[Arrival]> {
    script.chunk_by(|one, other| {
        let follows = ProbeHeader { sequence: one.header.sequence.wrapping_add(1), ..one.header };
        let rest = |arrival: &Arrival| (arrival.flow, arrival.payload_bytes, arrival.arrived_ns);
        other.header == follows && rest(one) == rest(other)
    })
}

#[test]
fn packets_that_differ_in_nothing_but_their_numbers_are_measured_each() {
    let mut script = Vec::new();
    let (mut number, mut other) = (u32::MAX - 500, 0);
    for batch in 0..200u64 {
        // Some after the start of the sender's clock, one beyond 2^32 ns, some before they were sent.
        let now = 5_000_000 + 100_000 * batch;
        let sent = match batch % 5 {
            0 => now - 1000 * batch,
            1 => 0,
            2 => now + 700,
            _ => now - 4_000_000,
        };
        for packet in 0..(batch * 37 % 90) as u32 {
            let two_flows = batch % 7 == 3;
            let port = 7 + u16::from(two_flows) * (packet / 5 % 2) as u16;
            script.push(Arrival {
                payload_bytes: 18 + 2 * usize::from(packet > 50),
                ..arrival(1, port, 0, number, sent, now)
            });
            // Lost, duplicate, another sender in between.
            number = number.wrapping_add(1 + u32::from(packet == 33 && batch % 3 == 0));
            if packet == 20 && batch % 4 == 0 {
                script.push(*script.last().unwrap());
            }
            if packet % 25 == 24 {
                script.push(arrival(2, 9, 1, other, sent, now));
                other += 1;
            }
        }
    }
    for level in [StatisticsLevel::Basic, StatisticsLevel::Time] {
        let mut together = Collector::new(level, ReaderPlace::default());
        rows(&script).for_each(|row| together.add_row(&row[0], row.len() as u64));
        let (together, each) = (statistics(&[together]), statistics(&[reader(level, &script)]));
        assert_eq!(together, each);
        assert_eq!(together.total.packets, script.len() as u64);
        assert!(together.sequence.unwrap().duplicates > 10);
    }
}

#[test]
fn senders_times_are_put_on_this_hosts_clock_where_a_session_knows_how() {
    let clocks = std::sync::Arc::<SenderClocks>::default();
    let mut reader =
        Collector::new(StatisticsLevel::Time, ReaderPlace::default()).relating(Some(clocks.clone()));
    let measured = |reader: &mut Collector| {
        let readings = reader.readings();
        let both = readings.timed_and_related();
        (both, reception(&[readings], LatencyMeans::Related).total)
    };
    let ahead = |uptime_ns| Some(SenderAhead { uptime_ns, wall_ns: uptime_ns + 7 });
    // Stream 1's host started 5 s later than ours; nothing is known of stream 2.
    clocks.set(&[1], ahead(5_000_000_000));
    reader.add(&arrival(1, 7, 1, 0, 1_000, 5_000_001_300));
    reader.add(&arrival(2, 7, 2, 0, 1_000, 5_000_001_300));
    let (both, total) = measured(&mut reader);
    assert_eq!((both, total.latency.unwrap().max_ns), ([2, 1], 300));
    // It drifts: what came before keeps the latency that it had.
    reader.add(&arrival(1, 7, 1, 1, 2_000, 5_000_002_300));
    clocks.set(&[1, 2], ahead(5_000_000_100));
    reader.look_at_clocks();
    reader.add(&arrival(1, 7, 1, 2, 3_000, 5_000_003_300));
    let by_wall = Arrival { is_sent_by_wall: true, ..arrival(2, 7, 2, 1, 3_000, 5_000_003_300) };
    reader.add(&by_wall);
    reader.add_row(&Arrival { arrived_ns: 5_000_003_000, ..arrival(2, 7, 2, 2, 3_000, 0) }, 3);
    let (both, total) = measured(&mut reader);
    let latency = total.latency.unwrap();
    assert_eq!((both, latency.samples, total.before_sent), ([8, 7], 4, 3));
    assert_eq!((latency.min_ns, latency.max_ns), (193, 300));
    reader.reset();
    reader.add(&arrival(1, 7, 1, 3, 4_000, 5_000_004_300));
    assert_eq!(measured(&mut reader).1.latency.unwrap().max_ns, 200, "clocks are not forgotten");
}
