//! Between a worker's port and its statistics: which packet, sent when, received when; and who may look.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use measure::StatisticsLevel;
use port::{Layer, MeasuringCost, Received, TimeSource};
use sys::{
    clock::{self, WallOffset},
    cpu,
};
use wire::{FlowKey, Likeness, ProbeClock, ProbeHeader, UdpFrame};

use crate::{
    collect::{Arrival, Collector, ReaderPlace, Readings, measuring_cost},
    publish::{RxSnapshot, StreamCount},
    receive::{Queues, Run, StatisticsPlan, Tally},
};

/// Shows a worker's packets to its statistics, with all times on the monotonic clock.
pub(crate) struct Observer {
    collector: Collector,
    probe_clock: Option<ProbeClock>,
    stamp: TimeSource,
    wall: WallOffset,
    local: IpAddr,
    cost: Option<MeasuringCost>,
    /// Of all readers' packets, in the readings of one.
    queues: Option<Queues>,
    /// The reading loop's clock at the first packet of the batch.
    batch_ns: Option<u64>,
    repeated: Option<Repeated>,
}

/// A packet that was like the one before it, and more such after it in the same batch, which are only counted.
struct Repeated {
    like: Likeness,
    arrived_ns: Option<u64>,
    stream: u16,
    payload_bytes: usize,
    /// The number that follows.
    next: u32,
    more: u64,
}

/// A packet that holds a whole datagram.
struct Seen<'s, 'r> {
    layer: Layer,
    received: &'s Received<'r>,
    payload: &'s [u8],
}

/// What becomes of statistics that were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// They go on.
    GoOn,
    /// They begin anew.
    Reset,
}

/// Where a worker shows its statistics when somebody asks; it looks at the question once a batch.
#[derive(Default)]
pub(crate) struct Window {
    asked: AtomicU32,
    answer: Mutex<Option<Vec<Readings>>>,
    answered: Condvar,
}

const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
const ASKED_TO_RESET: u32 = 2;

/// Ethernet header, FCS, IP and UDP headers around a payload, and the least that Ethernet carries.
const IPV4_FRAME_EXTRA: usize = 46;
const IPV6_FRAME_EXTRA: usize = 66;
const FCS_BYTES: usize = 4;
const LEAST_FRAME: usize = 64;

impl Observer {
    pub(crate) fn new(plan: StatisticsPlan, place: ReaderPlace, stamp: TimeSource, local: IpAddr) -> Self {
        Self {
            collector: Collector::new(plan.level, place),
            probe_clock: plan.probe_clock,
            stamp,
            wall: clock::wall_offset(),
            local,
            cost: (plan.level == StatisticsLevel::Time).then(measuring_cost),
            queues: None,
            batch_ns: None,
            repeated: None,
        }
    }

    /// The same, which also tells on which queues all readers' packets came.
    pub(crate) fn telling(self, queues: Option<Queues>) -> Self {
        Self { queues, ..self }
    }

    #[inline]
    pub(crate) fn begin_batch(&mut self) {
        self.batch_ns = None;
    }

    /// Whether packets and bytes are all that is asked for: then [`Observer::count`] is told of them once a batch.
    pub(crate) fn only_counts(&self) -> bool {
        self.collector.level() == StatisticsLevel::Counter
    }

    /// Takes what the tally grew by, and the bytes of these probes' frames.
    pub(crate) fn count(&mut self, before: &RxSnapshot, now: &RxSnapshot, frame_bytes: u64) {
        let payload_bytes = now.payload_bytes - before.payload_bytes;
        self.collector.count(now.packets - before.packets, payload_bytes, frame_bytes);
        self.collector.add_foreign(now.foreign - before.foreign);
    }

    /// From Ethernet header to FCS.
    #[inline(always)]
    pub(crate) fn frame_bytes(&self, layer: Layer, received: &Received<'_>) -> usize {
        let bytes = received.bytes.len();
        let frame_bytes = match layer {
            Layer::Frame => bytes + FCS_BYTES,
            Layer::Payload if self.is_ipv4(received) => bytes + IPV4_FRAME_EXTRA,
            Layer::Payload => bytes + IPV6_FRAME_EXTRA,
        };
        frame_bytes.max(LEAST_FRAME)
    }

    /// A datagram whose sender nobody names came for the address that we listen on.
    #[inline]
    fn is_ipv4(&self, received: &Received<'_>) -> bool {
        received.source.map_or(self.local, |source| source.ip()).to_canonical().is_ipv4()
    }

    /// Takes a packet, which the tally counts.
    #[inline(always)]
    pub(crate) fn observe(
        &mut self,
        layer: Layer,
        received: &Received<'_>,
        (tally, run): (&mut Tally, &mut Run),
    ) {
        if let Some(repeated) = &mut self.repeated {
            if repeated.takes(received) {
                return;
            }
            self.end_repeats((&mut *tally, &mut *run));
        }
        // Its own: else the packet would be written down in memory for those too that are only counted.
        let alone = *received;
        let (received, counted) = (&alone, (tally, run));
        if layer == Layer::Payload {
            let flow = received.source.map_or_else(|| self.unknown_flow(), |source| self.flow_from(source));
            let seen = Seen { layer, received, payload: received.bytes };
            self.take(seen, |like| *like == flow, || flow, counted);
        } else if let Some((payload, headers)) = UdpFrame::plain(received.bytes) {
            let seen = Seen { layer, received, payload };
            let Some(header) = self.take(seen, |like| headers.is_of(like), || headers.flow(), counted) else {
                return;
            };
            if self.stamp == TimeSource::Loop || received.arrived_ns.is_some() {
                self.repeated = Repeated::from(received, &header, payload.len());
            }
        } else {
            self.observe_by_parsing(received, counted);
        }
    }

    /// Adds up the packets that were only counted.
    pub(crate) fn end_repeats(&mut self, (tally, run): (&mut Tally, &mut Run)) {
        let Some(Repeated { stream, payload_bytes, more, .. }) = self.repeated.take() else { return };
        self.collector.add_repeats(more);
        tally.add_many(
            run,
            stream,
            StreamCount { packets: more, payload_bytes: more * payload_bytes as u64 },
        );
    }

    #[cold]
    #[inline(never)]
    fn observe_by_parsing(&mut self, received: &Received<'_>, (tally, run): (&mut Tally, &mut Run)) {
        let layer = Layer::Frame;
        let Ok(frame) = UdpFrame::parse(received.bytes) else {
            tally.add(run, &[]);
            return self.collector.add_foreign(1);
        };
        let flow = frame.flow();
        let seen = Seen { layer, received, payload: frame.payload() };
        self.take(seen, |like| *like == flow, || flow, (tally, run));
    }

    /// Takes a datagram: `is_of` says whether it is of a flow, `flow` of which it is. Returns its header when it was like the
    /// packet before.
    #[inline(always)]
    fn take(
        &mut self,
        Seen { layer, received, payload }: Seen<'_, '_>,
        is_of: impl FnOnce(&FlowKey) -> bool,
        flow: impl FnOnce() -> FlowKey,
        (tally, run): (&mut Tally, &mut Run),
    ) -> Option<ProbeHeader> {
        let Some(header) = tally.add(run, payload) else {
            self.collector.add_foreign(1);
            return None;
        };
        let (payload_bytes, frame_bytes) = (payload.len(), self.frame_bytes(layer, received));
        let arrived_ns = match (self.stamp, received.arrived_ns) {
            (TimeSource::Loop, _) => *self.batch_ns.get_or_insert_with(clock::monotonic_ns),
            (TimeSource::Kernel, Some(wall_ns)) => wall_ns.wrapping_sub(self.wall.ahead_ns),
            (TimeSource::Program | TimeSource::Poll | TimeSource::Card, Some(stamped_ns)) => stamped_ns,
            (_, None) => {
                self.collector.add_unstamped();
                *self.batch_ns.get_or_insert_with(clock::monotonic_ns)
            }
        };
        if self.collector.add_repeated(&header, is_of, (payload_bytes, frame_bytes), arrived_ns) {
            return Some(header);
        }
        let (sent_ns, is_sent_by_wall) = self.sent_ns(&header);
        self.collector.add_other(&Arrival {
            sent_ns,
            is_sent_by_wall,
            header,
            flow: flow(),
            payload_bytes,
            frame_bytes,
            arrived_ns,
        });
        None
    }

    #[inline]
    fn sent_ns(&self, header: &ProbeHeader) -> (Option<u64>, bool) {
        let Some(likely) = header.likely_clock() else { return (None, false) };
        match self.probe_clock.unwrap_or(likely) {
            ProbeClock::Nanos => (Some(header.raw_time), false),
            clock @ ProbeClock::Micros => {
                (Some(header.time_ns(clock).wrapping_sub(self.wall.ahead_ns)), true)
            }
        }
    }

    /// The flow of a datagram: a socket that listens on every address does not know to which it was sent.
    fn flow_from(&self, source: SocketAddr) -> FlowKey {
        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
        let local = match (source.ip(), self.local.to_canonical()) {
            (IpAddr::V4(_), IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), IpAddr::V4(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (_, local) => local,
        };
        FlowKey::udp(source, SocketAddr::new(local, 0)).expect("both are of one version")
    }

    fn unknown_flow(&self) -> FlowKey {
        self.flow_from(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))
    }

    /// Now and then: whether the wall clock was set, and where this thread runs.
    pub(crate) fn check_clocks(&mut self) {
        self.wall = self.wall.checked_by(clock::wall_offset());
        self.collector.set_cpu(cpu::current());
    }

    /// What was measured so far, and what then.
    pub(crate) fn readings(&mut self, then: Then) -> Vec<Readings> {
        self.check_clocks();
        let of_queues = self.queues.as_mut().map(|queues| queues.read(then)).unwrap_or_default();
        let readings =
            Readings { stamp: self.stamp, cost: self.cost, of_queues, ..self.collector.readings() };
        if then == Then::Reset {
            self.collector.reset();
        }
        vec![readings]
    }
}

impl Repeated {
    fn from(received: &Received<'_>, header: &ProbeHeader, payload_bytes: usize) -> Option<Self> {
        Some(Self {
            like: Likeness::of(received.bytes)?,
            arrived_ns: received.arrived_ns,
            stream: header.stream,
            payload_bytes,
            next: header.sequence.wrapping_add(1),
            more: 0,
        })
    }

    /// Counts a packet that is like the others and follows them.
    #[inline(always)]
    fn takes(&mut self, received: &Received<'_>) -> bool {
        let follows =
            received.arrived_ns == self.arrived_ns && self.like.number(received.bytes) == Some(self.next);
        self.next = self.next.wrapping_add(u32::from(follows));
        self.more += u64::from(follows);
        follows
    }
}

impl Window {
    /// Asks the worker for what it has.
    pub(crate) fn ask(&self, then: Then) {
        *self.answer.lock().expect("no holder panics") = None;
        self.asked.store(if then == Then::Reset { ASKED_TO_RESET } else { ASKED }, Relaxed);
    }

    /// Waits for the answer.
    pub(crate) fn answer(&self, at_most: Duration) -> Option<Vec<Readings>> {
        let answer = self.answer.lock().expect("no holder panics");
        let waited = self.answered.wait_timeout_while(answer, at_most, |answer| answer.is_none());
        waited.expect("no holder panics").0.take()
    }

    /// The worker's side, once a batch: what is asked for is shown and, when it shall be, forgotten.
    #[inline]
    pub(crate) fn show(&self, readings: impl FnOnce(Then) -> Vec<Readings>) {
        if self.asked.load(Relaxed) != NOT_ASKED {
            self.show_now(readings);
        }
    }

    #[cold]
    fn show_now(&self, readings: impl FnOnce(Then) -> Vec<Readings>) {
        let then = match self.asked.swap(NOT_ASKED, Relaxed) {
            ASKED_TO_RESET => Then::Reset,
            _ => Then::GoOn,
        };
        *self.answer.lock().expect("no holder panics") = Some(readings(then));
        self.answered.notify_all();
    }
}
