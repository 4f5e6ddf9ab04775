//! What one reader finds out about the packets it is shown. Pure: arrivals come in, whoever timed them.

mod cost;
mod program;
mod summary;
mod table;

use measure::{Distribution, Placed, SequenceTracker, StatisticsLevel, TransitVariation};
use wire::{FlowKey, ProbeHeader};

use crate::publish::STREAMS;
use table::Table;

pub(crate) use cost::measuring_cost;
pub(crate) use summary::OfQueues;
pub use summary::{LatencyMeans, Readings, reception};
pub(crate) use table::Key;

/// A packet with a probe header, as a reader sees it.
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
    /// When it was sent, in nanoseconds; `None` when the header does not say.
    pub sent_ns: Option<u64>,
    /// Whether the header tells a wall clock's time, else the time since its host's start.
    pub is_sent_by_wall: bool,
    /// When it arrived, in nanoseconds.
    pub arrived_ns: u64,
}

/// The statistics of one reader. Memory is bounded, whatever arrives.
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
    run: Option<Run>,
    place: ReaderPlace,
}

/// Packets of a batch may differ in nothing but their numbers: stamped together when they were sent and when they came.
/// They are only counted; what they add is added when another comes or somebody looks.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// The packet before.
    like: Arrival,
    sender: usize,
    flow: usize,
    /// The number that follows.
    next: u32,
    repeats: u64,
}

/// Whose a packet is.
#[derive(Debug, Clone, Copy)]
struct Whose {
    flow: FlowKey,
    stream: u16,
    sender: usize,
    /// Its flow's place, where that is told apart.
    at: Option<usize>,
}

/// Where a reader reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderPlace {
    /// Number of the worker; `None` for a program in the kernel.
    pub worker: Option<u32>,
    /// The CPU it last ran on.
    pub cpu: Option<u32>,
    /// Its queue, when it has one of its own.
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
}

/// What is recorded of each packet: a gap after a packet of the same flow is of both inter-arrival times, once.
#[derive(Debug, Clone, Default)]
struct Recorded {
    gap: Distribution,
    reader_gap: Distribution,
    flow_gap: Distribution,
    jitter: Distribution,
    latency: Distribution,
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
    /// Its flow, while it has one alone: that one's numbers are the sender's.
    only_flow: Option<usize>,
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
    /// `None` while it is its sender's only one.
    sequence: Option<SequenceTracker>,
    sender_at: usize,
}

impl Collector {
    /// Senders that a reader tells apart.
    pub const MOST_SENDERS: usize = STREAMS;
    /// Flows that a reader tells apart.
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
            run: None,
            place,
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        *self = Self::new(self.level, self.place);
    }

    /// How much it measures.
    pub fn level(&self) -> StatisticsLevel {
        self.level
    }

    /// Where the reader reads now.
    pub fn set_cpu(&mut self, cpu: Option<u32>) {
        self.place.cpu = cpu;
    }

    /// Packets that are no probes.
    #[inline]
    pub fn add_foreign(&mut self, packets: u64) {
        self.counts.foreign += packets;
    }

    /// A packet that nobody stamped: the caller put its own clock in.
    #[inline]
    pub fn add_unstamped(&mut self) {
        self.counts.unstamped += 1;
    }

    /// The next probe packets, where only packets and bytes are counted.
    #[inline]
    pub fn count(&mut self, packets: u64, payload_bytes: u64, frame_bytes: u64) {
        let counts = &mut self.counts;
        counts.packets += packets;
        counts.payload_bytes += payload_bytes;
        counts.frame_bytes += frame_bytes;
    }

    /// Takes the next probe packet when it is like the one before in all but its number, which follows; says whether it
    /// was. `is_of` says whether it is of a flow.
    #[inline(always)]
    pub fn add_repeated(
        &mut self,
        header: &ProbeHeader,
        is_of: impl FnOnce(&FlowKey) -> bool,
        (payload_bytes, frame_bytes): (usize, usize),
        arrived_ns: u64,
    ) -> bool {
        let Some(Run { like, next, repeats, .. }) = &mut self.run else { return false };
        let is_repeated = header.sequence == *next
            && arrived_ns == like.arrived_ns
            && header.raw_time == like.header.raw_time
            && header.stream == like.header.stream
            && (payload_bytes, frame_bytes) == (like.payload_bytes, like.frame_bytes)
            && is_of(&like.flow);
        *next = next.wrapping_add(u32::from(is_repeated));
        *repeats += u64::from(is_repeated);
        is_repeated
    }

    /// Takes so many packets more that are like the one before, which was repeated.
    pub fn add_repeats(&mut self, packets: u64) {
        let run = self.run.as_mut().expect("a packet was repeated");
        run.next = run.next.wrapping_add(packets as u32);
        run.repeats += packets;
    }

    /// The next probe packet.
    #[inline]
    pub fn add(&mut self, arrival: &Arrival) {
        let Arrival { header, flow, payload_bytes, frame_bytes, arrived_ns, .. } = arrival;
        if !self.add_repeated(header, |like| flow == like, (*payload_bytes, *frame_bytes), *arrived_ns) {
            self.add_other(arrival);
        }
    }

    /// A packet that is not like the one before.
    pub fn add_other(&mut self, arrival: &Arrival) {
        self.settle();
        self.run = None;
        self.count(1, arrival.payload_bytes as u64, arrival.frame_bytes as u64);
        if self.level == StatisticsLevel::Counter {
            return;
        }
        let counts = &mut self.counts;
        counts.first_ns.get_or_insert(arrival.arrived_ns);
        counts.last_ns = arrival.arrived_ns;
        counts.sent_by_uptime += u64::from(!arrival.is_sent_by_wall);
        self.add_numbered(arrival);
    }

    /// Adds up what was only counted.
    fn settle(&mut self) {
        let Some(run) = &mut self.run else { return };
        let repeats = std::mem::take(&mut run.repeats);
        if repeats == 0 {
            return;
        }
        let Run { like, sender, flow, .. } = *run;
        let bytes = repeats * like.payload_bytes as u64;
        let counts = &mut self.counts;
        counts.packets += repeats;
        counts.payload_bytes += bytes;
        counts.frame_bytes += repeats * like.frame_bytes as u64;
        counts.sent_by_uptime += repeats * u64::from(!like.is_sent_by_wall);

        let (raw_time, arrived_ns) = (like.header.raw_time, like.arrived_ns);
        let sender = self.senders.at(sender);
        sender.packets += repeats;
        sender.payload_bytes += bytes;
        sender.sequence.observe_following(repeats, raw_time, arrived_ns);
        let flow = self.flows.at(flow);
        flow.packets += repeats;
        flow.payload_bytes += bytes;
        if let Some(sequence) = &mut flow.sequence {
            sequence.observe_following(repeats, raw_time, arrived_ns);
        }
        if self.level < StatisticsLevel::Time {
            return;
        }
        let recorded = &mut *self.recorded;
        recorded.gap.record_n(0, repeats);
        let Some(sent_ns) = like.sent_ns else { return };
        sender.variation.observe_same(repeats);
        recorded.jitter.record_n(0, repeats);
        match u64::try_from(arrived_ns.wrapping_sub(sent_ns) as i64) {
            Ok(latency_ns) => recorded.latency.record_n(latency_ns, repeats),
            Err(_) => counts.before_sent += repeats,
        }
    }

    #[inline]
    fn add_numbered(&mut self, arrival: &Arrival) {
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
        let whose = if same.is_some() { same } else { self.whose(arrival) };
        self.last = whose;
        let Some(whose) = whose else {
            self.beyond_tables += 1;
            return;
        };
        let state = self.senders.at(whose.sender);
        state.packets += 1;
        state.payload_bytes += bytes;
        state.send_times += u64::from(state.last_sent != header.raw_time);
        state.last_sent = header.raw_time;
        let is_highest = |placed| matches!(placed, Placed::Ahead | Placed::Restart);
        let mut may_repeat = is_highest(state.sequence.observe(header.sequence, header.raw_time, arrived_ns));
        if is_timed
            && let Some(transit_ns) = transit_ns
            && let Some(apart_ns) = state.variation.observe(transit_ns)
        {
            self.recorded.jitter.record(apart_ns);
        }

        let Some(at) = whose.at else {
            self.beyond_tables += 1;
            return;
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
            may_repeat &= is_highest(sequence.observe(header.sequence, header.raw_time, arrived_ns));
        }
        if may_repeat {
            let next = header.sequence.wrapping_add(1);
            self.run = Some(Run { like: *arrival, sender: whose.sender, flow: at, next, repeats: 0 });
        }
    }

    /// Finds or makes the packet's sender and flow; `None` when there is no room for the sender.
    fn whose(&mut self, arrival: &Arrival) -> Option<Whose> {
        let &Arrival { header, flow, arrived_ns, .. } = arrival;
        let stream = header.stream;
        let key = Key::of_sender(flow.addresses.src(), stream);
        let sender = self.senders.find_or_insert(key, || SenderState::new(flow, stream))?;
        let at = self.flows.find_or_insert(Key::of_flow(&flow, key), || {
            FlowState::new(flow, (key, sender), stream, arrived_ns)
        });
        let state = self.senders.at(sender);
        if state.packets == 0 {
            state.only_flow = at;
        }
        // From its second flow on, the numbers of each are followed by themselves.
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
        }
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
