//! Receivers whose BPF program counts or measures: the worker only reads its maps.

use std::sync::Arc;

use measure::StatisticsLevel;
use port::{
    CountOptions, Counts, MeasureOptions, PortError, ProbeAction, ProbeTime, QueuePackets, ReturnList,
    TimeSource, WayBack, XdpMeter, XdpMode, XdpRx,
};
use sys::clock;
use wire::{ProbeClock, StreamTags};

use crate::{
    collect::{Collector, ReaderPlace, Readings},
    error::EngineError,
    interface::{interface, program_time_source},
    plan::{RxTraffic, StatisticsPlan},
    publish::{RxPublished, RxSnapshot, STREAMS, StreamCount},
    reader::RxOutput,
    received::RxResult,
    receiver::{Receiver, RxContext},
    window::AfterReading,
    worker::{Meter, WorkerContext},
};

/// Attaches the program for the plan, and starts the worker that reads it.
pub(super) fn start(
    plan: &RxTraffic,
    mode: XdpMode,
    context: &RxContext<'_>,
) -> Result<Receiver, EngineError> {
    let &RxContext { placement, tags, returns, .. } = context;
    let level = plan.statistics.map(|statistics| statistics.level);
    let at = (context, plan.local);
    if returns.is_some() || level > Some(StatisticsLevel::Counter) {
        let statistics = plan.statistics.unwrap_or_default();
        let (port, stamp) = placement.inside(|| open_meter(plan, (statistics, tags), mode, returns))?;
        let kept = returns.cloned();
        return Receiver::of_workers(vec![port], at, level.is_some(), move |mut port, context, output| {
            let asked = Asked { level, stamp, tags, returns: kept.as_deref() };
            watch_meter(&mut port, &asked, context, output)
        });
    }
    let port = placement.inside(|| {
        let link = interface(plan.interface.as_deref())?;
        let queues = if level.is_some() { link.rx_queues } else { 0 };
        let options = CountOptions {
            streams: STREAMS as u16,
            tag_inverse: tags.inverse(),
            queues,
            verdict: ProbeAction::Drop,
            work_ns: plan.work_ns,
        };
        Ok(XdpRx::open(link.index, mode, &options)?)
    })?;
    // All work happens in softirq, on any CPU; the worker only reads the counters.
    Receiver::of_workers(vec![port], at, level.is_some(), move |port, context, output| {
        watch_counts(&port, level, context, output)
    })
}

fn open_meter(
    plan: &RxTraffic,
    (statistics, tags): (StatisticsPlan, StreamTags),
    mode: XdpMode,
    returns: Option<&Arc<ReturnList>>,
) -> Result<(XdpMeter, TimeSource), EngineError> {
    let link = interface(plan.interface.as_deref())?;
    let stamp = match statistics.stamp {
        Some(TimeSource::Program) => TimeSource::Program,
        _ => program_time_source(&link),
    };
    let is_veth = link.kind.as_deref() == Some("veth");
    let options = MeasureOptions {
        verdict: ProbeAction::Drop,
        queues: link.rx_queues,
        streams: STREAMS as u32,
        tag_inverse: tags.inverse(),
        is_scripted: false,
        times: statistics.level == StatisticsLevel::Time,
        returns: returns
            .map(|_| if is_veth && mode == XdpMode::Native { WayBack::Redirect } else { WayBack::Tx }),
        by_poll: stamp == TimeSource::Poll,
        work_ns: plan.work_ns,
        probe_time: match statistics.probe_clock {
            None => ProbeTime::ByNumbers,
            Some(ProbeClock::Micros) => ProbeTime::Micros,
            Some(ProbeClock::Nanos) => ProbeTime::Nanos,
        },
    };
    let mut port = XdpMeter::open(link.index, mode, &options)?;
    if let Some(returns) = returns {
        port.keep(returns);
    }
    Ok((port, stamp))
}

/// How often a program's counters are read.
const COUNTS_EVERY_NS: u64 = 10_000_000;

/// Publishes the BPF program's counts.
fn watch_counts(
    port: &XdpRx,
    level: Option<StatisticsLevel>,
    context: &WorkerContext,
    RxOutput { published, window }: &RxOutput,
) -> RxResult {
    let mut meter = Meter::start();
    let mut total = RxSnapshot::default();
    let (mut first_ns, mut last_ns) = (None, None);
    let mut counted = Counted::default();
    let mut error = None;
    let error = loop {
        let is_over = context.should_stop();
        window.show(|then| {
            counted.readings(port, then).unwrap_or_else(|cause| {
                error = Some(cause.into());
                Vec::new()
            })
        });
        if error.is_some() {
            break error;
        }
        let counts = match port.read() {
            Ok(counts) => counts,
            Err(error) => break Some(error.into()),
        };
        let now = clock::monotonic_ns();
        if counts.packets() > total.packets {
            first_ns.get_or_insert(now);
            last_ns = Some(now);
        }
        total.packets = counts.packets();
        total.payload_bytes = counts.payload_bytes();
        total.foreign = counts.foreign;
        for (stream, count) in counts.streams.iter().enumerate().filter(|(_, count)| count.packets > 0) {
            let count = StreamCount { packets: count.packets, payload_bytes: count.payload_bytes };
            published.store_stream(stream, &count);
        }
        published.store(&total);
        if is_over {
            break None;
        }
        clock::sleep_until(now + COUNTS_EVERY_NS);
    };
    let (statistics, error) = match (error, level) {
        (None, Some(_)) => match counted.readings(port, AfterReading::Continue) {
            Ok(readings) => (readings, None),
            Err(cause) => (Vec::new(), Some(cause.into())),
        },
        (error, _) => (Vec::new(), error),
    };
    let losses = Vec::new();
    RxResult { tally: total, first_ns, last_ns, losses, ring: None, cost: meter.read(), statistics, error }
}

/// The counts at the last reset: the program's counters continue.
#[derive(Default)]
struct Counted {
    cpus: Vec<Counts>,
    queues: Vec<QueuePackets>,
}

impl Counted {
    fn readings(&mut self, port: &XdpRx, then: AfterReading) -> Result<Vec<Readings>, PortError> {
        let (cpus, queues) = (port.read_cpus()?, port.read_queues()?);
        let nothing = Counts::default();
        let mut readings: Vec<Readings> = cpus
            .iter()
            .enumerate()
            .map(|(cpu, now)| Readings::of_counts(cpu as u32, now, self.cpus.get(cpu).unwrap_or(&nothing)))
            .filter(|readings| readings.snapshot() != RxSnapshot::default())
            .collect();
        if readings.is_empty() {
            readings.push(no_packets(StatisticsLevel::Counter));
        }
        let before = self.queues.iter().copied().chain(std::iter::repeat(QueuePackets::default()));
        readings[0].of_queues.queues =
            queues.iter().zip(before).map(|(now, before)| now.since(before)).collect();
        if then == AfterReading::Reset {
            *self = Self { cpus, queues };
        }
        Ok(readings)
    }
}

/// No CPU has seen a packet: a valid result.
fn no_packets(level: StatisticsLevel) -> Readings {
    let readings = Collector::new(level, ReaderPlace::default()).readings();
    Readings { stamp: TimeSource::Program, ..readings }
}

/// The plan's settings for a measuring program.
struct Asked<'r> {
    /// `None`: only returned packets.
    level: Option<StatisticsLevel>,
    stamp: TimeSource,
    tags: StreamTags,
    returns: Option<&'r ReturnList>,
}

/// Publishes the BPF program's measurements.
fn watch_meter(
    port: &mut XdpMeter,
    &Asked { level, stamp, tags, returns }: &Asked<'_>,
    context: &WorkerContext,
    RxOutput { published, window }: &RxOutput,
) -> RxResult {
    let mut meter = Meter::start();
    let mut total = RxSnapshot::default();
    let (mut first_ns, mut last_ns) = (None, None);
    let mut error = None;
    // The measurements at the last reset: the counters continue.
    let mut before = RxSnapshot::default();
    let mut streams_before = [StreamCount::default(); STREAMS];
    let mut returned_before = 0;
    let read = |port: &mut XdpMeter, then: AfterReading| {
        let Some(level) = level else { return Ok((Vec::new(), Vec::new())) };
        let cost = port.cost();
        let queues = port.read_queues()?;
        let measured = match then {
            AfterReading::Continue => port.read()?,
            AfterReading::Reset => port.take()?,
        };
        let mut readings: Vec<Readings> =
            measured.iter().map(|cpu| Readings { stamp, cost, ..Readings::of_program(level, cpu) }).collect();
        if readings.is_empty() {
            readings.push(Readings { stamp, cost, ..no_packets(level) });
        }
        readings[0].of_queues.queues = queues;
        Ok::<_, PortError>((readings, measured))
    };
    let error = loop {
        let is_over = context.should_stop();
        window.show(|then| {
            let (readings, measured) = read(port, then).unwrap_or_else(|cause| {
                error = Some(cause.into());
                (Vec::new(), Vec::new())
            });
            if then == AfterReading::Reset {
                // Exactly what was read: packets arrive between two calls.
                for cpu in &measured {
                    let streams = cpu.senders.iter().map(|of| (of.stream, of.packets, of.payload_bytes));
                    add_streams(&streams.collect::<Vec<_>>(), tags, &mut streams_before);
                    returned_before += cpu.returned;
                }
                before = readings.iter().map(Readings::snapshot).fold(before, RxSnapshot::plus);
            }
            readings
        });
        if error.is_some() {
            break error;
        }
        let (counts, streams) = match (port.read_counts(), port.read_streams()) {
            (Ok(counts), Ok(streams)) => (counts, streams),
            (Err(cause), _) | (_, Err(cause)) => break Some(cause.into()),
        };
        let now = clock::monotonic_ns();
        let [packets, payload_bytes, foreign, returned] = counts;
        if let Some(returns) = returns {
            returns.set_returned(returned_before + returned);
        }
        let counted = RxSnapshot { packets, payload_bytes, foreign, ..RxSnapshot::default() }.plus(before);
        if counted.packets > total.packets {
            first_ns.get_or_insert(now);
            last_ns = Some(now);
        }
        total = counted;
        let mut sums = streams_before;
        add_streams(&streams, tags, &mut sums);
        publish_streams(&sums, published);
        published.store(&total);
        if is_over {
            break None;
        }
        clock::sleep_until(now + COUNTS_EVERY_NS);
    };
    let (statistics, error) = match (error, read(port, AfterReading::Continue)) {
        (None, Ok((statistics, _))) => (statistics, None),
        (None, Err(cause)) => (Vec::new(), Some(cause.into())),
        (error, _) => (Vec::new(), error),
    };
    let losses = Vec::new();
    RxResult { tally: total, first_ns, last_ns, losses, ring: None, cost: meter.read(), statistics, error }
}

fn publish_streams(sums: &[StreamCount; STREAMS], published: &RxPublished) {
    for (stream, sum) in sums.iter().enumerate().filter(|(_, sum)| sum.packets > 0) {
        published.store_stream(stream, sum);
    }
}

/// Packets and payload bytes by tag, from the program.
fn add_streams(by_tag: &[(u16, u64, u64)], tags: StreamTags, sums: &mut [StreamCount; STREAMS]) {
    for (tag, packets, payload_bytes) in by_tag {
        if let Some(sum) = sums.get_mut(usize::from(tags.stream(*tag))) {
            *sum = sum.plus(StreamCount { packets: *packets, payload_bytes: *payload_bytes });
        }
    }
}
