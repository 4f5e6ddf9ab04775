//! Between a worker's port and its statistics: which packet, sent when, received when.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use measure::StatisticsLevel;
use port::{Layer, MeasuringCost, Received, TimeSource};
use sys::{
    clock::{self, WallOffset},
    cpu,
};
use wire::{FlowKey, Likeness, ProbeClock, ProbeHeader, UdpFrame};

use crate::{
    collect::{Arrival, Collector, ReaderPlace, Readings},
    plan::StatisticsPlan,
    publish::{RxSnapshot, StreamCount},
    queues::Queues,
    sender_clocks::SenderClocks,
    tally::{Tally, Train},
    window::AfterReading,
};

/// Passes a worker's packets to its statistics, with all times on the monotonic clock.
pub(crate) struct Observer {
    collector: Collector,
    probe_clock: Option<ProbeClock>,
    stamp: TimeSource,
    wall: WallOffset,
    local: IpAddr,
    cost: Option<MeasuringCost>,
    /// Queues of all readers' packets, in the readings of one reader.
    queues: Option<Queues>,
    /// The reading loop's clock at the first packet of the batch.
    batch_ns: Option<u64>,
    row: Option<Row>,
}

/// Packets of a batch that differ only in their consecutive numbers: stamped together when they were
/// sent and when they arrived. They are only counted, and added when a different packet arrives or the batch ends.
struct Row {
    first: Arrival,
    /// Their timestamp from the port; 0 is none.
    stamped_ns: u64,
    /// Their frames' common bytes, from the second one on; they differ at most in number and times.
    like: Option<Likeness>,
    /// The number that follows.
    next: u32,
    /// None between batches.
    packets: u64,
    /// Of these, the number already in the tally.
    tallied: u64,
}

/// Ethernet header, FCS, IP and UDP headers around a payload, and Ethernet's minimum.
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
            cost: None,
            queues: None,
            batch_ns: None,
            row: None,
        }
    }

    /// The same, which also reports the queues of all readers' packets.
    pub(crate) fn telling(self, queues: Option<Queues>) -> Self {
        Self { queues, ..self }
    }

    /// The same, which converts senders' times to this host's clock when a session relates the clocks.
    pub(crate) fn relating(self, clocks: Option<Arc<SenderClocks>>) -> Self {
        Self { collector: self.collector.relating(clocks), ..self }
    }

    /// The same, which also reports the cost of measuring.
    pub(crate) fn costing(self, cost: Option<MeasuringCost>) -> Self {
        Self { cost, ..self }
    }

    #[inline]
    pub(crate) fn begin_batch(&mut self) {
        self.batch_ns = None;
        self.collector.look_at_clocks();
    }

    /// Whether only packets and bytes are requested: then [`Observer::count`] receives them once per batch.
    pub(crate) fn only_counts(&self) -> bool {
        self.collector.level() == StatisticsLevel::Counter
    }

    /// Adds the tally's increase, and the bytes of these probes' frames.
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

    /// A datagram without a known sender was sent to the address that we are bound to.
    #[inline]
    fn is_ipv4(&self, received: &Received<'_>) -> bool {
        received.source.map_or(self.local, |source| source.ip()).to_canonical().is_ipv4()
    }

    /// Takes a packet, which the tally counts before the batch ends.
    #[inline(always)]
    pub(crate) fn observe(
        &mut self,
        layer: Layer,
        received: &Received<'_>,
        counted: (&mut Tally, &mut Train),
    ) {
        if let Some(row) = &mut self.row
            && row.takes(received)
        {
            return;
        }
        // A separate function: else packets that are only counted would be stored to memory too.
        let alone = *received;
        self.observe_other(layer, &alone, counted);
    }

    /// Adds the packets that were only counted.
    pub(crate) fn end_row(&mut self, (tally, train): (&mut Tally, &mut Train)) {
        let Some(row) = self.row.as_mut().filter(|row| row.packets > 0) else { return };
        self.collector.add_row(&row.first, row.packets);
        let packets = row.packets - row.tallied;
        if packets > 0 {
            let payload_bytes = packets * row.first.payload_bytes as u64;
            tally.add_many(train, row.first.header.stream, StreamCount { packets, payload_bytes });
        }
        row.packets = 0;
    }

    /// Handles a packet that does not obviously continue the row.
    #[inline(never)]
    fn observe_other(
        &mut self,
        layer: Layer,
        received: &Received<'_>,
        (tally, train): (&mut Tally, &mut Train),
    ) {
        let known = self.glance(received);
        let is_known = known.is_some();
        let Some(arrival) = known.or_else(|| self.parse(layer, received, (&mut *tally, &mut *train))) else {
            return self.collector.add_foreign(1);
        };
        let (stamped_ns, tallied) = (received.arrived_ns.unwrap_or(0), u64::from(!is_known));
        let is_of_kind = self.row.as_ref().is_some_and(|row| row.is_of_kind(&arrival));
        match &mut self.row {
            Some(row) if is_of_kind && row.is_next(&arrival) => row.take(tallied),
            _ => {
                self.end_row((tally, train));
                match &mut self.row {
                    Some(row) if is_of_kind => row.begin(arrival, stamped_ns, tallied),
                    row => *row = Some(Row::new(arrival, stamped_ns, tallied)),
                }
            }
        }
        let Some(row) = &mut self.row else { return };
        if self.stamp != TimeSource::Loop && stamped_ns == 0 {
            row.like = None; // each must count as unstamped
        } else if is_of_kind && !is_known && layer == Layer::Frame {
            row.like = Likeness::of(received.bytes);
        }
    }

    /// A packet that looks like those of the row, except for its number and its times.
    #[inline]
    fn glance(&mut self, received: &Received<'_>) -> Option<Arrival> {
        let row = self.row.as_mut()?;
        let (sequence, raw_time) = row.like.as_mut()?.follow(received.bytes)?;
        let header = ProbeHeader { sequence, raw_time, ..row.first.header };
        let first = row.first;
        let (sent_ns, is_sent_by_wall) = self.sent_ns(&header);
        Some(Arrival { header, sent_ns, is_sent_by_wall, arrived_ns: self.arrived_ns(received), ..first })
    }

    /// Reads a packet's headers, and tallies it if it is a probe.
    fn parse(
        &mut self,
        layer: Layer,
        received: &Received<'_>,
        (tally, train): (&mut Tally, &mut Train),
    ) -> Option<Arrival> {
        let (payload, flow) = match layer {
            Layer::Payload => (received.bytes, self.flow_from(received.source)),
            Layer::Frame => match UdpFrame::plain(received.bytes) {
                Some((payload, headers)) => (payload, headers.flow()),
                None => {
                    let frame = UdpFrame::parse(received.bytes);
                    let Ok(frame) = frame else { return tally.add(train, &[]).and(None) };
                    (frame.payload(), frame.flow())
                }
            },
        };
        let header = tally.add(train, payload)?;
        let (sent_ns, is_sent_by_wall) = self.sent_ns(&header);
        Some(Arrival {
            header,
            flow,
            payload_bytes: payload.len(),
            frame_bytes: self.frame_bytes(layer, received),
            sent_ns,
            is_sent_by_wall,
            arrived_ns: self.arrived_ns(received),
        })
    }

    /// When a packet arrived, on the monotonic clock.
    #[inline]
    fn arrived_ns(&mut self, received: &Received<'_>) -> u64 {
        match (self.stamp, received.arrived_ns) {
            (TimeSource::Loop, _) => *self.batch_ns.get_or_insert_with(clock::monotonic_ns),
            (TimeSource::Kernel, Some(wall_ns)) => wall_ns.wrapping_sub(self.wall.ahead_ns),
            (TimeSource::Program | TimeSource::Poll | TimeSource::Card, Some(stamped_ns)) => stamped_ns,
            (_, None) => {
                self.collector.add_unstamped();
                *self.batch_ns.get_or_insert_with(clock::monotonic_ns)
            }
        }
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

    /// The flow of a datagram: a socket bound to every address does not know the destination, and a sender may
    /// be unknown.
    fn flow_from(&self, source: Option<SocketAddr>) -> FlowKey {
        let source = source.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
        let local = match (source.ip(), self.local.to_canonical()) {
            (IpAddr::V4(_), IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), IpAddr::V4(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (_, local) => local,
        };
        FlowKey::udp(source, SocketAddr::new(local, 0)).expect("both have one version")
    }

    /// From time to time: checks whether the wall clock was set, and the CPU of this thread.
    pub(crate) fn check_clocks(&mut self) {
        self.wall = self.wall.checked_by(clock::wall_offset());
        self.collector.set_cpu(cpu::current());
    }

    /// The measurements so far, and then keeps or resets them.
    pub(crate) fn readings(&mut self, then: AfterReading) -> Vec<Readings> {
        self.check_clocks();
        let of_queues = self.queues.as_mut().map(|queues| queues.read(then)).unwrap_or_default();
        let readings =
            Readings { stamp: self.stamp, cost: self.cost, of_queues, ..self.collector.readings() };
        if then == AfterReading::Reset {
            self.collector.reset();
        }
        vec![readings]
    }
}

impl Row {
    fn new(first: Arrival, stamped_ns: u64, tallied: u64) -> Self {
        Self {
            first,
            stamped_ns,
            like: None,
            next: first.header.sequence.wrapping_add(1),
            packets: 1,
            tallied,
        }
    }

    /// Starts a new row with a packet of the same kind.
    fn begin(&mut self, first: Arrival, stamped_ns: u64, tallied: u64) {
        *self = Self { like: self.like, ..Self::new(first, stamped_ns, tallied) };
    }

    /// Counts a packet that obviously continues the row.
    #[inline(always)]
    fn takes(&mut self, received: &Received<'_>) -> bool {
        let is_next = self.packets > 0
            && received.arrived_ns.unwrap_or(0) == self.stamped_ns
            && self.like.as_ref().is_some_and(|like| like.number(received.bytes) == Some(self.next));
        if is_next {
            self.take(0);
        }
        is_next
    }

    #[inline(always)]
    fn take(&mut self, tallied: u64) {
        self.next = self.next.wrapping_add(1);
        self.packets += 1;
        self.tallied += tallied;
    }

    /// Whether a packet's frame equals the others, except for its number and its times.
    fn is_of_kind(&self, other: &Arrival) -> bool {
        let first = &self.first;
        first.flow == other.flow
            && first.header.stream == other.header.stream
            && (first.payload_bytes, first.frame_bytes) == (other.payload_bytes, other.frame_bytes)
    }

    /// Whether a packet of this kind belongs here.
    fn is_next(&self, other: &Arrival) -> bool {
        let Self { first, .. } = self;
        self.packets > 0
            && other.header.sequence == self.next
            && other.header.raw_time == first.header.raw_time
            && other.arrived_ns == first.arrived_ns
    }
}
