//! The statistics of one reader. Pure: packets and arrival times are arguments.

mod program;
mod summary;
mod table;

use std::sync::Arc;

use measure::{Distribution, Placed, SequenceTracker, StatisticsLevel, TransitVariation};
use wire::{FlowKey, ProbeHeader};

use crate::{
    publish::STREAMS,
    sender_clocks::{SenderAhead, SenderClocks},
};
use table::Table;

pub(crate) use summary::OfQueues;
pub use summary::{LatencyMeans, Readings, reception};
pub(crate) use table::Key;

/// A packet with a probe header, as seen by a reader.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// What its sender wrote.
    pub header: ProbeHeader,
    /// Addresses and ports.
    pub flow: FlowKey,
    /// Length of the UDP payload.
    pub payload_bytes: usize,
    /// Length of the frame from Ethernet header to FCS.
    pub frame_bytes: usize,
    /// When it was sent, in nanoseconds; `None` when the header has no time.
    pub sent_ns: Option<u64>,
    /// Whether the header holds a wall clock's time; otherwise the time since its host's boot.
    pub is_sent_by_wall: bool,
    /// When it arrived, in nanoseconds.
    pub arrived_ns: u64,
}

/// The statistics of one reader. Memory is bounded for any input.
#[derive(Debug, Clone)]
pub struct Collector {
    level: StatisticsLevel,
    counts: Counts,
    senders: Table<SenderState>,
    flows: Table<FlowState>,
    beyond_tables: u64,
    recorded: Box<Recorded>,
    last_ns: Option<u64>,
    last: Option<Whose>,
    /// Rows recorded but not yet added: they are added in one go, with warm caches.
    later: Vec<(Arrival, u64)>,
    place: ReaderPlace,
    /// Where senders' clocks are known, and which of its changes the senders here have.
    clocks: Option<Arc<SenderClocks>>,
    clock_changes: u64,
}

/// The most pending rows.
const MOST_LATER: usize = 16;

/// Whose a packet is.
#[derive(Debug, Clone, Copy)]
struct Whose {
    flow: FlowKey,
    stream: u16,
    sender: usize,
    /// The index of its flow, if flows are distinguished.
    at: Option<usize>,
}

/// Where a reader reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderPlace {
    /// Number of the worker; `None` for a program in the kernel.
    pub worker: Option<u32>,
    /// The CPU it last ran on.
    pub cpu: Option<u32>,
    /// Its queue, when it has exactly one.
    pub queue: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) packets: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) frame_bytes: u64,
    pub(crate) foreign: u64,
    pub(crate) unstamped: u64,
    pub(crate) before_sent: u64,
    /// Packets that were timed and whose sender's clock was known, and of these: that arrived before they were sent.
    pub(crate) related: u64,
    pub(crate) before_sent_related: u64,
    pub(crate) sent_by_uptime: u64,
    pub(crate) first_ns: Option<u64>,
    pub(crate) last_ns: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    pub(crate) inter_arrival: Distribution,
    pub(crate) flow_inter_arrival: Distribution,
    pub(crate) jitter: Distribution,
    pub(crate) latency: Distribution,
    /// The same with senders' times put on this host's clock.
    pub(crate) related: Distribution,
}

/// What is recorded of each packet: a gap after a packet of the same flow counts once for both inter-arrival times.
#[derive(Debug, Clone, Default)]
struct Recorded {
    gap: Distribution,
    reader_gap: Distribution,
    flow_gap: Distribution,
    jitter: Distribution,
    latency: Distribution,
    related: Distribution,
}

#[derive(Debug, Clone)]
struct SenderState {
    flow: FlowKey,
    stream: u16,
    packets: u64,
    payload_bytes: u64,
    send_times: u64,
    last_sent: u64,
    variation: TransitVariation,
    sequence: SequenceTracker,
    /// Its flow, while it has only one: then the flow's numbers are the sender's.
    only_flow: Option<usize>,
    ahead: Option<SenderAhead>,
}

#[derive(Debug, Clone)]
struct FlowState {
    flow: FlowKey,
    sender: Key,
    stream: u16,
    packets: u64,
    payload_bytes: u64,
    first_ns: u64,
    last_ns: u64,
    longest_gap_ns: u64,
    /// `None` while it is its sender's only flow.
    sequence: Option<SequenceTracker>,
    sender_at: usize,
}

impl Collector {
    /// The most senders that a reader distinguishes.
    pub const MOST_SENDERS: usize = STREAMS;
    /// The most flows that a reader distinguishes.
    pub const MOST_FLOWS: usize = 1024;

    /// Nothing seen.
    pub fn new(level: StatisticsLevel, place: ReaderPlace) -> Self {
        let tables = level >= StatisticsLevel::Basic;
        Self {
            level,
            counts: Counts::default(),
            senders: Table::new(if tables { Self::MOST_SENDERS } else { 0 }),
            flows: Table::new(if tables { Self::MOST_FLOWS } else { 0 }),
            beyond_tables: 0,
            recorded: Box::default(),
            last_ns: None,
            last: None,
            later: Vec::with_capacity(MOST_LATER),
            place,
            clocks: None,
            clock_changes: 0,
        }
    }

    /// The same, which puts senders' times on this host's clock where a session knows how.
    #[must_use]
    pub fn relating(self, clocks: Option<Arc<SenderClocks>>) -> Self {
        Self { clocks, ..self }
    }

    /// Forgets everything but how senders' clocks are related.
    pub fn reset(&mut self) {
        *self = Self::new(self.level, self.place).relating(self.clocks.take());
    }

    /// Looks whether more is known of senders' clocks; once a batch.
    #[inline]
    pub fn look_at_clocks(&mut self) {
        if let Some(clocks) = &self.clocks
            && clocks.changes() != self.clock_changes
        {
            self.take_clocks();
        }
    }

    #[cold]
    fn take_clocks(&mut self) {
        // What came before was sent by the clock as it was known before.
        self.settle();
        let Some(clocks) = &self.clocks else { return };
        self.clock_changes = clocks.changes();
        self.senders.each_mut(|sender| sender.ahead = clocks.of(sender.stream));
    }

    /// How much it measures.
    pub fn level(&self) -> StatisticsLevel {
        self.level
    }

    /// Where the reader reads now.
    pub fn set_cpu(&mut self, cpu: Option<u32>) {
        self.place.cpu = cpu;
    }

    /// Packets that are not probes.
    #[inline]
    pub fn add_foreign(&mut self, packets: u64) {
        self.counts.foreign += packets;
    }

    /// A packet without a timestamp: the caller used its own clock.
    #[inline]
    pub fn add_unstamped(&mut self) {
        self.counts.unstamped += 1;
    }

    /// The next probe packets, when only packets and bytes are counted.
    #[inline]
    pub fn count(&mut self, packets: u64, payload_bytes: u64, frame_bytes: u64) {
        let counts = &mut self.counts;
        counts.packets += packets;
        counts.payload_bytes += payload_bytes;
        counts.frame_bytes += frame_bytes;
    }

    /// The next probe packet.
    pub fn add(&mut self, arrival: &Arrival) {
        self.add_row(arrival, 1);
    }

    /// The next `packets` probe packets, which differ only in their consecutive numbers. Adding a row
    /// of many costs little more than one packet.
    #[inline]
    pub fn add_row(&mut self, first: &Arrival, packets: u64) {
        self.later.push((*first, packets));
        if self.later.len() == MOST_LATER {
            self.settle();
        }
    }

    /// Adds the pending rows.
    #[inline(never)]
    fn settle(&mut self) {
        let mut later = std::mem::take(&mut self.later);
        for (first, packets) in later.drain(..) {
            self.settle_row(&first, packets);
        }
        self.later = later;
    }

    fn settle_row(&mut self, first: &Arrival, packets: u64) {
        self.count(packets, packets * first.payload_bytes as u64, packets * first.frame_bytes as u64);
        if self.level == StatisticsLevel::Counter {
            return;
        }
        let counts = &mut self.counts;
        counts.first_ns.get_or_insert(first.arrived_ns);
        counts.last_ns = first.arrived_ns;
        counts.sent_by_uptime += packets * u64::from(!first.is_sent_by_wall);
        let mut number = first.header.sequence;
        for more in (0..packets).rev() {
            if let Some(whose) = self.add_numbered(first, number)
                && more > 0
            {
                return self.add_following(first, whose, more);
            }
            number = number.wrapping_add(1);
        }
    }

    /// More packets like the previous one, whose number was the highest.
    fn add_following(&mut self, first: &Arrival, (sender, flow): (usize, usize), packets: u64) {
        let (raw_time, arrived_ns) = (first.header.raw_time, first.arrived_ns);
        let bytes = packets * first.payload_bytes as u64;
        let sender = self.senders.at(sender);
        sender.packets += packets;
        sender.payload_bytes += bytes;
        sender.sequence.observe_following(packets, raw_time, arrived_ns);
        let flow = self.flows.at(flow);
        flow.packets += packets;
        flow.payload_bytes += bytes;
        if let Some(sequence) = &mut flow.sequence {
            sequence.observe_following(packets, raw_time, arrived_ns);
        }
        if self.level < StatisticsLevel::Time {
            return;
        }
        let recorded = &mut *self.recorded;
        recorded.gap.record_n(0, packets);
        let Some(sent_ns) = first.sent_ns else { return };
        sender.variation.observe_same(packets);
        recorded.jitter.record_n(0, packets);
        let transit_ns = arrived_ns.wrapping_sub(sent_ns) as i64;
        match u64::try_from(transit_ns) {
            Ok(latency_ns) => recorded.latency.record_n(latency_ns, packets),
            Err(_) => self.counts.before_sent += packets,
        }
        if let Some(ahead) = sender.ahead {
            self.counts.related += packets;
            match u64::try_from(transit_ns.wrapping_sub(ahead.of(first))) {
                Ok(latency_ns) => recorded.related.record_n(latency_ns, packets),
                Err(_) => self.counts.before_sent_related += packets,
            }
        }
    }

    /// A packet with this number. Returns the indexes of its sender and its flow when its number is the highest.
    #[inline]
    fn add_numbered(&mut self, arrival: &Arrival, number: u32) -> Option<(usize, usize)> {
        let is_timed = self.level == StatisticsLevel::Time;
        let &Arrival { header, flow, arrived_ns, .. } = arrival;
        let bytes = arrival.payload_bytes as u64;
        let same = self.last.filter(|last| last.stream == header.stream && last.flow == flow);
        let is_same = same.is_some_and(|whose| whose.at.is_some());
        let transit_ns = arrival.sent_ns.map(|sent_ns| arrived_ns.wrapping_sub(sent_ns) as i64);
        if is_timed {
            let recorded = &mut *self.recorded;
            if let Some(last_ns) = self.last_ns {
                let gaps = if is_same { &mut recorded.gap } else { &mut recorded.reader_gap };
                gaps.record(arrived_ns.saturating_sub(last_ns));
            }
            self.last_ns = Some(arrived_ns);
            if let Some(transit_ns) = transit_ns {
                match u64::try_from(transit_ns) {
                    Ok(latency_ns) => recorded.latency.record(latency_ns),
                    Err(_) => self.counts.before_sent += 1,
                }
            }
        }
        if same.is_none() {
            self.last = self.whose(arrival);
        }
        let Some(Whose { sender, at, .. }) = self.last else {
            self.beyond_tables += 1;
            return None;
        };
        let state = self.senders.at(sender);
        state.packets += 1;
        state.payload_bytes += bytes;
        state.send_times += u64::from(state.last_sent != header.raw_time);
        state.last_sent = header.raw_time;
        let is_highest = |placed| matches!(placed, Placed::Ahead | Placed::Restart);
        let mut may_follow = is_highest(state.sequence.observe(number, header.raw_time, arrived_ns));
        if is_timed
            && let Some(transit_ns) = transit_ns
            && let Some(apart_ns) = state.variation.observe(transit_ns)
        {
            self.recorded.jitter.record(apart_ns);
        }
        if is_timed
            && let Some(transit_ns) = transit_ns
            && let Some(ahead) = state.ahead
        {
            self.counts.related += 1;
            match u64::try_from(transit_ns.wrapping_sub(ahead.of(arrival))) {
                Ok(latency_ns) => self.recorded.related.record(latency_ns),
                Err(_) => self.counts.before_sent_related += 1,
            }
        }

        let Some(at) = at else {
            self.beyond_tables += 1;
            return None;
        };
        let state = self.flows.at(at);
        if is_timed && state.packets > 0 {
            let gap_ns = arrived_ns.saturating_sub(state.last_ns);
            if !is_same {
                self.recorded.flow_gap.record(gap_ns);
            }
            state.longest_gap_ns = state.longest_gap_ns.max(gap_ns);
        }
        state.last_ns = arrived_ns;
        state.packets += 1;
        state.payload_bytes += bytes;
        if let Some(sequence) = &mut state.sequence {
            may_follow &= is_highest(sequence.observe(number, header.raw_time, arrived_ns));
        }
        may_follow.then_some((sender, at))
    }

    /// Finds or creates the packet's sender and flow; `None` when the table of senders is full.
    fn whose(&mut self, arrival: &Arrival) -> Option<Whose> {
        let &Arrival { header, flow, arrived_ns, .. } = arrival;
        let stream = header.stream;
        let key = Key::of_sender(flow.addresses.src(), stream);
        let clocks = self.clocks.as_ref();
        let ahead = || clocks.and_then(|clocks| clocks.of(stream));
        let sender = self
            .senders
            .find_or_insert(key, || SenderState { ahead: ahead(), ..SenderState::new(flow, stream) })?;
        let at = self.flows.find_or_insert(Key::of_flow(&flow, key), || {
            FlowState::new(flow, (key, sender), stream, arrived_ns)
        });
        let state = self.senders.at(sender);
        if state.packets == 0 {
            state.only_flow = at;
        }
        // From its second flow on, the numbers of each flow are followed separately.
        if state.only_flow.is_some() && state.only_flow != at {
            let first = state.only_flow.take().expect("it is some");
            self.flows.at(first).sequence = Some(state.sequence.clone());
        }
        if let Some(at) = at
            && state.only_flow.is_none()
        {
            self.flows.at(at).sequence.get_or_insert_default();
        }
        Some(Whose { flow, stream, sender, at })
    }
}

impl SenderState {
    fn new(flow: FlowKey, stream: u16) -> Self {
        Self {
            flow,
            stream,
            packets: 0,
            payload_bytes: 0,
            send_times: 0,
            last_sent: 0,
            variation: TransitVariation::default(),
            sequence: SequenceTracker::new(),
            only_flow: None,
            ahead: None,
        }
    }
}

impl SenderAhead {
    fn of(self, arrival: &Arrival) -> i64 {
        if arrival.is_sent_by_wall { self.wall_ns } else { self.uptime_ns }
    }
}

impl FlowState {
    fn new(flow: FlowKey, (sender, sender_at): (Key, usize), stream: u16, first_ns: u64) -> Self {
        Self {
            flow,
            sender,
            stream,
            packets: 0,
            payload_bytes: 0,
            first_ns,
            last_ns: first_ns,
            longest_gap_ns: 0,
            sequence: None,
            sender_at,
        }
    }
}

#[cfg(test)]
mod tests;
