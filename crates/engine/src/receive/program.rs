//! Receivers whose program in the kernel counts or measures: the worker only reads what it wrote.

use std::sync::Arc;

use measure::StatisticsLevel;
use port::{
    CountOptions, Counts, MeasureOptions, PortError, ProbeTime, QueuePackets, ReturnList, TimeSource,
    Verdict, WayBack, XdpMeter, XdpMode, XdpRx,
};
use sys::clock;
use wire::ProbeClock;

use super::{Outlets, Receiver, ReceiverPlan, RxResult, StatisticsPlan, by_poll_where_polled};
use crate::{
    collect::{Collector, ReaderPlace, Readings},
    error::EngineError,
    generate::interface,
    observe::{Then, Window},
    publish::{RxPublished, RxSnapshot, STREAMS, StreamCount},
    worker::{Crew, Meter, Placement, Shift},
};

/// Attaches the program that does what the plan asks for, and starts the worker that reads it.
pub(super) fn start(
    plan: &ReceiverPlan,
    mode: XdpMode,
    placement: &Placement,
    returns: Option<&Arc<ReturnList>>,
) -> Result<Receiver, EngineError> {
    let published = Arc::new(RxPublished::new());
    let window = Arc::new(Window::default());
    let (shared, seen) = (published.clone(), window.clone());
    let level = plan.statistics.map(|statistics| statistics.level);
    let crew = if returns.is_some() || level > Some(StatisticsLevel::Counter) {
        let statistics = plan.statistics.unwrap_or_default();
        let (port, stamp) = placement.inside(|| open_meter(plan, statistics, mode, returns))?;
        let kept = returns.cloned();
        Crew::gather("recv", vec![port], placement, move |mut port, shift| {
            let outlets = Outlets { published: &shared, window: &seen, work_ns: 0 };
            let asked = Asked { level, stamp, returns: kept.as_deref() };
            watch_meter(&mut port, &asked, &shift, outlets)
        })?
    } else {
        let port = placement.inside(|| {
            let link = interface(plan.interface.as_deref())?;
            let queues = if level.is_some() { link.rx_queues } else { 0 };
            let options = CountOptions {
                streams: STREAMS as u16,
                queues,
                verdict: Verdict::Drop,
                work_ns: plan.work_ns,
            };
            Ok(XdpRx::open(link.index, mode, &options)?)
        })?;
        // The counting and all work happen in softirq, wherever that runs; the worker only reads the counters.
        Crew::gather("recv", vec![port], placement, move |port, shift| {
            watch_counts(&port, level, &shift, Outlets { published: &shared, window: &seen, work_ns: 0 })
        })?
    };
    crew.begin();
    let windows = level.map(|_| window).into_iter().collect();
    Ok(Receiver { crew, published: vec![published], windows, local: plan.local, returns: None })
}

fn open_meter(
    plan: &ReceiverPlan,
    statistics: StatisticsPlan,
    mode: XdpMode,
    returns: Option<&Arc<ReturnList>>,
) -> Result<(XdpMeter, TimeSource), EngineError> {
    let link = interface(plan.interface.as_deref())?;
    let stamp = match statistics.stamp {
        Some(TimeSource::Program) => TimeSource::Program,
        _ => by_poll_where_polled(&link),
    };
    let is_veth = link.kind.as_deref() == Some("veth");
    let options = MeasureOptions {
        verdict: Verdict::Drop,
        queues: link.rx_queues,
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

/// How often a program's counters are read: they grow by themselves.
const COUNTS_EVERY_NS: u64 = 10_000_000;

/// Publishes what the program in the kernel counts.
fn watch_counts(
    port: &XdpRx,
    level: Option<StatisticsLevel>,
    shift: &Shift,
    Outlets { published, window, .. }: Outlets<'_>,
) -> RxResult {
    let mut meter = Meter::start();
    let mut total = RxSnapshot::default();
    let (mut first_ns, mut last_ns) = (None, None);
    let mut counted = Counted::default();
    let mut error = None;
    let error = loop {
        let is_over = shift.is_over();
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
        (None, Some(_)) => match counted.readings(port, Then::GoOn) {
            Ok(readings) => (readings, None),
            Err(cause) => (Vec::new(), Some(cause.into())),
        },
        (error, _) => (Vec::new(), error),
    };
    let losses = Vec::new();
    RxResult { tally: total, first_ns, last_ns, losses, cost: meter.read(), statistics, error }
}

/// What was counted before the last time that somebody wanted it to begin anew: the program's counters go on.
#[derive(Default)]
struct Counted {
    cpus: Vec<Counts>,
    queues: Vec<QueuePackets>,
}

impl Counted {
    fn readings(&mut self, port: &XdpRx, then: Then) -> Result<Vec<Readings>, PortError> {
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
        if then == Then::Reset {
            *self = Self { cpus, queues };
        }
        Ok(readings)
    }
}

/// No CPU has seen a packet: that too is an answer.
fn no_packets(level: StatisticsLevel) -> Readings {
    let readings = Collector::new(level, ReaderPlace::default()).readings();
    Readings { stamp: TimeSource::Program, ..readings }
}

/// What the plan wants of a program that measures.
struct Asked<'r> {
    /// `None`: only packets sent back.
    level: Option<StatisticsLevel>,
    stamp: TimeSource,
    returns: Option<&'r ReturnList>,
}

/// Publishes what the program in the kernel measures.
fn watch_meter(
    port: &mut XdpMeter,
    &Asked { level, stamp, returns }: &Asked<'_>,
    shift: &Shift,
    Outlets { published, window, .. }: Outlets<'_>,
) -> RxResult {
    let mut meter = Meter::start();
    let mut total = RxSnapshot::default();
    let (mut first_ns, mut last_ns) = (None, None);
    let mut error = None;
    // What was measured before it was measured anew: the counters go on.
    let mut before = RxSnapshot::default();
    let mut streams_before = [StreamCount::default(); STREAMS];
    let mut returned_before = 0;
    let read = |port: &mut XdpMeter, then: Then| {
        let Some(level) = level else { return Ok(Vec::new()) };
        let cost = port.cost();
        let queues = port.read_queues()?;
        let measured = match then {
            Then::GoOn => port.read()?,
            Then::Reset => port.take()?,
        };
        let mut readings: Vec<Readings> =
            measured.iter().map(|cpu| Readings { stamp, cost, ..Readings::of_program(level, cpu) }).collect();
        if readings.is_empty() {
            readings.push(Readings { stamp, cost, ..no_packets(level) });
        }
        readings[0].of_queues.queues = queues;
        Ok::<_, PortError>(readings)
    };
    let error = loop {
        let is_over = shift.is_over();
        window.show(|then| {
            if then == Then::Reset {
                add_streams(&port.read_streams().unwrap_or_default(), &mut streams_before);
                returned_before += port.read_counts().map_or(0, |counts| counts[3]);
            }
            let readings = read(port, then).unwrap_or_else(|cause| {
                error = Some(cause.into());
                Vec::new()
            });
            if then == Then::Reset {
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
        let counted = RxSnapshot { packets, payload_bytes, foreign, lost: 0 }.plus(before);
        if counted.packets > total.packets {
            first_ns.get_or_insert(now);
            last_ns = Some(now);
        }
        total = counted;
        publish_streams(&streams, streams_before, published);
        published.store(&total);
        if is_over {
            break None;
        }
        clock::sleep_until(now + COUNTS_EVERY_NS);
    };
    let (statistics, error) = match (error, read(port, Then::GoOn)) {
        (None, Ok(statistics)) => (statistics, None),
        (None, Err(cause)) => (Vec::new(), Some(cause.into())),
        (error, _) => (Vec::new(), error),
    };
    let losses = Vec::new();
    RxResult { tally: total, first_ns, last_ns, losses, cost: meter.read(), statistics, error }
}

fn publish_streams(streams: &[(u16, u64, u64)], mut sums: [StreamCount; STREAMS], published: &RxPublished) {
    add_streams(streams, &mut sums);
    for (stream, sum) in sums.iter().enumerate().filter(|(_, sum)| sum.packets > 0) {
        published.store_stream(stream, sum);
    }
}

fn add_streams(streams: &[(u16, u64, u64)], sums: &mut [StreamCount; STREAMS]) {
    for (stream, packets, payload_bytes) in streams {
        if let Some(sum) = sums.get_mut(usize::from(*stream)) {
            *sum = sum.plus(StreamCount { packets: *packets, payload_bytes: *payload_bytes });
        }
    }
}
