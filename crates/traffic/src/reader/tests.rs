use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use measure::StatisticsLevel;
use port::{Loss, TimeSource};
use wire::{FrameSpec, Sizes, StreamTags, Template, Values, VlanTag};

use super::*;
use crate::collect::{Arrival, Collector, LatencyMeans, ReaderPlace, reception};
use crate::plan::StatisticsPlan;
use crate::publish::StreamCount;

/// A frame, and its arrival time.
type Came = (Vec<u8>, u64);

/// Lends a script's frames, batch by batch, and stops its reader after the last.
struct Scripted {
    batches: Vec<Vec<Came>>,
    stop: Arc<AtomicBool>,
}

impl RxPort for Scripted {
    const LAYER: Layer = Layer::Frame;

    fn recv(&mut self, _wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        if self.batches.is_empty() {
            self.stop.store(true, Relaxed);
            return Ok(0);
        }
        let batch = self.batches.remove(0);
        for (bytes, arrived_ns) in &batch {
            sink(Received { bytes, truncated: false, arrived_ns: Some(*arrived_ns), source: None });
        }
        Ok(batch.len())
    }

    fn time_source(&self) -> TimeSource {
        TimeSource::Poll
    }

    fn lost_seen(&self) -> u64 {
        0
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        Ok(0)
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        Ok(Vec::new())
    }
}

/// Senders whose frames each differ in one way.
fn templates() -> Vec<Template> {
    let usual = FrameSpec {
        src_addr: Values::Fixed(Ipv4Addr::new(10, 0, 0, 1).into()),
        dst_addr: Values::Fixed(Ipv4Addr::new(10, 0, 0, 99).into()),
        stream: 3,
        sizes: Sizes::Payload("18".parse().unwrap()),
        ..FrameSpec::default()
    };
    let tag: VlanTag = "100".parse().unwrap();
    let of = |address: &str| Values::Fixed(address.parse::<IpAddr>().unwrap());
    let specs = [
        usual.clone(),
        FrameSpec { src_port: 7.into(), ..usual.clone() },
        FrameSpec { stream: 4, ..usual.clone() },
        FrameSpec { sizes: Sizes::Payload("17".parse().unwrap()), stream: 0, ..usual.clone() },
        FrameSpec { sizes: Sizes::Payload("900".parse().unwrap()), ..usual.clone() },
        FrameSpec { vlan: vec![tag], ..usual.clone() },
        FrameSpec { src_addr: of("2001:db8::1"), dst_addr: of("2001:db8::2"), ..usual },
    ];
    specs.iter().map(|spec| Template::new(spec).unwrap()).collect()
}

/// Packets mostly like the previous one, in batches: sometimes another sender, time, number or frame.
fn script(random: &mut fastrand::Rng) -> Vec<Vec<Came>> {
    let templates = templates();
    let (mut sender, mut sent_ns, mut arrived_ns) = (0, 1_000_000_000, 1_000_005_000);
    let mut numbers = vec![0u32; templates.len()];
    let mut next = || {
        match random.u32(..40) {
            0 => sender = random.usize(..templates.len()),
            1 => sent_ns += random.u64(..2000),
            2 => arrived_ns += random.u64(..3000),
            3 => numbers[sender] = numbers[sender].wrapping_add(random.u32(..4)),
            4 => numbers[sender] = numbers[sender].saturating_sub(random.u32(..4)),
            5 => return (vec![random.u8(..); random.usize(1..90)], arrived_ns),
            _ => {}
        }
        let template = &templates[sender];
        let mut frame = vec![0; template.max_frame_len()];
        template.prime_frame(&mut frame);
        let len = template.restamp_frame(&mut frame, numbers[sender], sent_ns);
        numbers[sender] += 1;
        frame.truncate(len);
        (frame, arrived_ns)
    };
    let packets: Vec<Came> = (0..20_000).map(|_| next()).collect();
    let mut rest = &packets[..];
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(random.usize(1..200).min(rest.len()));
        batches.push(batch.to_vec());
        rest = later;
    }
    batches
}

/// The same packets one by one, each parsed separately.
fn one_by_one(level: StatisticsLevel, batches: &[Vec<Came>]) -> (Collector, BTreeMap<u16, StreamCount>) {
    let mut collector = Collector::new(level, ReaderPlace::default());
    let mut streams: BTreeMap<u16, StreamCount> = BTreeMap::new();
    for (frame, arrived_ns) in batches.iter().flatten() {
        let parsed = UdpFrame::parse(frame).ok();
        let Some((parsed, header)) = parsed.and_then(|parsed| Some((parsed, parsed.probe()?))) else {
            collector.add_foreign(1);
            continue;
        };
        let payload_bytes = parsed.payload().len();
        let count = StreamCount { packets: 1, payload_bytes: payload_bytes as u64 };
        let sum = streams.entry(header.stream).or_default();
        *sum = sum.plus(count);
        collector.add(&Arrival {
            header,
            flow: parsed.flow(),
            payload_bytes,
            frame_bytes: (frame.len() + 4).max(64),
            sent_ns: Some(header.raw_time),
            is_sent_by_wall: false,
            arrived_ns: *arrived_ns,
        });
    }
    (collector, streams)
}

#[test]
fn packets_counted_together_are_measured_as_one_by_one() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let batches = script(&mut fastrand::Rng::with_seed(seed));
    for level in [StatisticsLevel::Basic, StatisticsLevel::Time] {
        let stop: Arc<AtomicBool> = Arc::default();
        let mut port = Scripted { batches: batches.clone(), stop: stop.clone() };
        let plan = StatisticsPlan { level, ..StatisticsPlan::default() };
        let place = ReaderPlace::default();
        let observer = Observer::new(plan, place, port.time_source(), Ipv4Addr::LOCALHOST.into());
        let output = RxOutput::default();
        let got = receive(
            &mut port,
            Wait::Spin,
            (Probes::Sent(StreamTags::NUMBERED), Some(observer)),
            &WorkerContext::until(stop),
            (&output, 0),
        );

        let (mut collector, streams) = one_by_one(level, &batches);
        let exact = reception(&[collector.readings()], LatencyMeans::Time);
        let mut found = reception(&got.statistics, LatencyMeans::Time);
        // The CPU of the test's thread.
        (found.total.cpu, found.readers[0].cpu) = (exact.total.cpu, exact.readers[0].cpu);
        assert_eq!(found, exact, "seed {seed}, {level:?}");
        let total = streams.values().copied().fold(StreamCount::default(), StreamCount::plus);
        assert_eq!((got.tally.packets, got.tally.payload_bytes), (total.packets, total.payload_bytes));
        assert_eq!(got.tally.foreign, exact.total.foreign);
        for (stream, count) in &streams {
            assert_eq!(output.published.load_stream(usize::from(*stream)), *count, "stream {stream}");
        }
        let alike = exact.total.inter_arrival.map_or(0, |gaps| gaps.buckets()[0].1);
        assert!(level == StatisticsLevel::Basic || alike > 10_000, "the script has runs: {alike}");
    }
}
