//! Builds the record from readers' counts: each reader, each sender, each flow, and all together.

use std::{collections::BTreeMap, net::IpAddr};

use measure::{
    Distribution, FlowStatistics, QueueCount, ReceptionShare, ReceptionStatistics, SenderStatistics,
    SequenceCounts, SequenceSummary, SequenceTracker, StatisticsLevel,
};
use port::{MeasuringCost, QueuePackets, TimeSource};
use wire::FlowKey;

use crate::publish::RxSnapshot;

use super::{Collector, Counts, FlowState, ReaderPlace, Recorded, SenderState, Times, table::Key};

/// Bytes of a frame on the wire besides the frame: preamble, start delimiter and gap.
const L1_EXTRA_BYTES: u64 = 20;

/// Whether one-way latency is meaningful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyMeans {
    /// The clocks are related: it is reported.
    Time,
    /// Sessions relate them: it is reported on this host's clock.
    Related,
    /// They are not: it is not reported.
    Nothing,
}

/// The results of one reader so far.
#[derive(Debug, Clone)]
pub struct Readings {
    pub(crate) level: StatisticsLevel,
    pub(crate) place: ReaderPlace,
    pub(crate) counts: Counts,
    pub(crate) times: Times,
    pub(crate) senders: Vec<(Key, SenderReading)>,
    pub(crate) flows: Vec<(Key, FlowReading)>,
    pub(crate) beyond_tables: u64,
    pub(crate) stamp: TimeSource,
    /// The cost of measuring a packet, when times are measured.
    pub(crate) cost: Option<MeasuringCost>,
    /// For all readers together, when none has its own queue: in one reader's results.
    pub(crate) of_queues: OfQueues,
}

/// Packets per receive queue, as far as known.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfQueues {
    pub(crate) queues: Vec<QueuePackets>,
    /// Why they are missing, or incomplete.
    pub(crate) unknown: Option<String>,
}

impl Readings {
    /// The timestamp source on receipt.
    pub fn stamp(&self) -> TimeSource {
        self.stamp
    }

    /// The cost of measuring a packet, when times are measured: in the program, including reading the header and the clock,
    /// or in the reading loop.
    pub fn cost(&self) -> Option<MeasuringCost> {
        self.cost
    }

    /// Packets without a timestamp.
    pub fn unstamped(&self) -> u64 {
        self.counts.unstamped
    }

    /// Packets that carry the time since their sender's boot, or none.
    pub fn sent_by_uptime(&self) -> u64 {
        self.counts.sent_by_uptime
    }

    /// Packets that were timed, and those of them whose sender's clock a session related to ours.
    pub fn timed_and_related(&self) -> [u64; 2] {
        [self.times.latency.histogram().samples() + self.counts.before_sent, self.counts.related]
    }

    /// The counters among them.
    pub(crate) fn snapshot(&self) -> RxSnapshot {
        let Counts { packets, payload_bytes, foreign, .. } = self.counts;
        RxSnapshot { packets, payload_bytes, foreign, ..RxSnapshot::default() }
    }

    /// The senders' addresses.
    pub fn sender_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.senders.iter().map(|(_, sender)| sender.address)
    }
}

/// One reader's results for a sender.
#[derive(Debug, Clone)]
pub(crate) struct SenderReading {
    pub(crate) address: IpAddr,
    pub(crate) stream: u16,
    pub(crate) packets: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) send_times: u64,
    pub(crate) jitter_rfc3550_ns: Option<f64>,
    pub(crate) sequence: SequenceCounts,
}

/// One reader's results for a flow.
#[derive(Debug, Clone)]
pub(crate) struct FlowReading {
    pub(crate) flow: FlowKey,
    pub(crate) sender: Key,
    pub(crate) stream: u16,
    pub(crate) packets: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) longest_gap_ns: u64,
    /// `None` if the reader only follows senders' numbers.
    pub(crate) sequence: Option<SequenceCounts>,
}

impl Collector {
    /// Its results so far.
    pub fn readings(&mut self) -> Readings {
        self.settle();
        Readings {
            level: self.level,
            place: self.place,
            counts: self.counts,
            times: self.recorded.times(),
            senders: self.senders.iter().map(|(key, state)| (key, state.reading())).collect(),
            flows: self.flows.iter().map(|(key, state)| (key, self.flow_reading(state))).collect(),
            beyond_tables: self.beyond_tables,
            stamp: TimeSource::Loop,
            cost: None,
            of_queues: OfQueues::default(),
        }
    }
}

impl Collector {
    fn flow_reading(&self, state: &FlowState) -> FlowReading {
        let of_sender =
            || &self.senders.iter().nth(state.sender_at).expect("every flow has a sender").1.sequence;
        state.reading(state.sequence.as_ref().unwrap_or_else(of_sender))
    }
}

impl Recorded {
    fn times(&self) -> Times {
        let both = |one: &Distribution| {
            let mut both = self.gap.clone();
            both.merge(one);
            both
        };
        Times {
            inter_arrival: both(&self.reader_gap),
            flow_inter_arrival: both(&self.flow_gap),
            jitter: self.jitter.clone(),
            latency: self.latency.clone(),
            related: self.related.clone(),
        }
    }
}

impl SenderState {
    fn reading(&self) -> SenderReading {
        SenderReading {
            address: self.flow.addresses.src(),
            stream: self.stream,
            packets: self.packets,
            payload_bytes: self.payload_bytes,
            send_times: self.send_times,
            jitter_rfc3550_ns: self.variation.rfc3550_ns(),
            sequence: self.sequence.counts(),
        }
    }
}

impl FlowState {
    fn reading(&self, sequence: &SequenceTracker) -> FlowReading {
        FlowReading {
            flow: self.flow,
            sender: self.sender,
            stream: self.stream,
            packets: self.packets,
            payload_bytes: self.payload_bytes,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            longest_gap_ns: self.longest_gap_ns,
            sequence: Some(sequence.counts()),
        }
    }
}

/// The results of all readers together. Flows and senders are sorted by packets, most first.
pub fn reception(readers: &[Readings], latency: LatencyMeans) -> ReceptionStatistics {
    let level = readers.first().map_or(StatisticsLevel::Counter, |reader| reader.level);
    let mut all = Counts::default();
    let mut times = Times::default();
    for reader in readers {
        all.add(&reader.counts);
        times.merge(&reader.times);
    }
    let shares = readers.iter().map(|reader| ReceptionShare {
        worker: reader.place.worker,
        cpu: reader.place.cpu,
        queue: reader.place.queue,
        ..share(level, &reader.counts, &reader.times, latency)
    });
    let (senders, flows) = (senders(readers), flows(readers));
    let sequences: Vec<SequenceSummary> =
        senders.iter().filter_map(|sender| sender.sequence.clone()).collect();
    ReceptionStatistics {
        level,
        readers: shares.collect(),
        total: share(level, &all, &times, latency),
        queues: queues(level, readers),
        queues_unknown: readers.iter().find_map(|reader| reader.of_queues.unknown.clone()),
        sequence: SequenceSummary::total(&sequences),
        senders,
        flows,
        beyond_tables: readers.iter().map(|reader| reader.beyond_tables).sum(),
        timing: None,
    }
}

fn queues(level: StatisticsLevel, readers: &[Readings]) -> Vec<QueueCount> {
    let each = readers.iter().flat_map(|reader| reader.of_queues.queues.iter().enumerate());
    let count = |(queue, came): (usize, &QueuePackets)| {
        let rates = rates(level, came.packets, came.frame_bytes, came.arrived_ns);
        QueueCount {
            queue: queue as u32,
            packets: came.packets,
            payload_bytes: came.payload_bytes,
            frame_bytes: came.frame_bytes,
            l1_bytes: l1_bytes(came.packets, came.frame_bytes),
            work_time_ns: rates.work_ns,
            rx_pps: rates.pps,
            frame_bps: rates.frame_bps,
            l1_bps: rates.l1_bps,
        }
    };
    each.map(count).collect()
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.payload_bytes += other.payload_bytes;
        self.frame_bytes += other.frame_bytes;
        self.foreign += other.foreign;
        self.unstamped += other.unstamped;
        self.before_sent += other.before_sent;
        self.related += other.related;
        self.before_sent_related += other.before_sent_related;
        self.sent_by_uptime += other.sent_by_uptime;
        self.first_ns = [self.first_ns, other.first_ns].into_iter().flatten().min();
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

impl Times {
    fn merge(&mut self, other: &Self) {
        self.inter_arrival.merge(&other.inter_arrival);
        self.flow_inter_arrival.merge(&other.flow_inter_arrival);
        self.jitter.merge(&other.jitter);
        self.latency.merge(&other.latency);
        self.related.merge(&other.related);
    }
}

/// Time from the first to the last packet, and the packets in it.
struct Rates {
    work_ns: Option<u64>,
    pps: Option<f64>,
    frame_bps: Option<f64>,
    l1_bps: Option<f64>,
}

fn rates(level: StatisticsLevel, packets: u64, frame_bytes: u64, arrived_ns: Option<[u64; 2]>) -> Rates {
    let work_ns = arrived_ns.map(|[first_ns, last_ns]| last_ns.saturating_sub(first_ns));
    let work_ns = work_ns.filter(|_| level >= StatisticsLevel::Basic);
    // The first packet starts the time: only the others count.
    let per_second = |amount: u64| {
        let seconds = work_ns.filter(|ns| *ns > 0)? as f64 / 1e9;
        let others = amount as f64 * (packets - 1) as f64 / packets as f64;
        Some(others / seconds)
    };
    Rates {
        work_ns,
        pps: per_second(packets),
        frame_bps: per_second(8 * frame_bytes),
        l1_bps: per_second(8 * l1_bytes(packets, frame_bytes)),
    }
}

fn l1_bytes(packets: u64, frame_bytes: u64) -> u64 {
    frame_bytes + L1_EXTRA_BYTES * packets
}

fn share(level: StatisticsLevel, counts: &Counts, times: &Times, latency: LatencyMeans) -> ReceptionShare {
    let arrived_ns = counts.first_ns.map(|first_ns| [first_ns, counts.last_ns]);
    let rates = rates(level, counts.packets, counts.frame_bytes, arrived_ns);
    let timed = |distribution: &Distribution| distribution.summary();
    ReceptionShare {
        packets: counts.packets,
        foreign: counts.foreign,
        payload_bytes: counts.payload_bytes,
        frame_bytes: counts.frame_bytes,
        l1_bytes: l1_bytes(counts.packets, counts.frame_bytes),
        work_time_ns: rates.work_ns,
        rx_pps: rates.pps,
        frame_bps: rates.frame_bps,
        l1_bps: rates.l1_bps,
        inter_arrival: timed(&times.inter_arrival),
        flow_inter_arrival: timed(&times.flow_inter_arrival),
        jitter: timed(&times.jitter),
        latency: match latency {
            LatencyMeans::Time => timed(&times.latency),
            LatencyMeans::Related => timed(&times.related),
            LatencyMeans::Nothing => None,
        },
        before_sent: match latency {
            LatencyMeans::Time => counts.before_sent,
            LatencyMeans::Related => counts.before_sent_related,
            LatencyMeans::Nothing => 0,
        },
        ..ReceptionShare::default()
    }
}

fn by_key<'r, T: 'r>(entries: impl Iterator<Item = &'r (Key, T)>) -> BTreeMap<Key, Vec<&'r T>> {
    let mut all: BTreeMap<Key, Vec<&T>> = BTreeMap::new();
    for (key, entry) in entries {
        all.entry(*key).or_default().push(entry);
    }
    all
}

fn senders(readers: &[Readings]) -> Vec<SenderStatistics> {
    let all = by_key(readers.iter().flat_map(|reader| &reader.senders));
    let mut senders: Vec<SenderStatistics> = all
        .values()
        .map(|readings| SenderStatistics {
            address: readings[0].address.to_string(),
            stream: readings[0].stream,
            packets: readings.iter().map(|reading| reading.packets).sum(),
            payload_bytes: readings.iter().map(|reading| reading.payload_bytes).sum(),
            send_times: readings.iter().map(|reading| reading.send_times).sum(),
            sequence: sequence(readings.iter().map(|reading| reading.sequence.clone())),
            jitter_rfc3550_ns: readings
                .iter()
                .filter_map(|reading| reading.jitter_rfc3550_ns)
                .max_by(f64::total_cmp),
        })
        .collect();
    senders.sort_by(|a, b| b.packets.cmp(&a.packets).then_with(|| a.address.cmp(&b.address)));
    senders
}

fn flows(readers: &[Readings]) -> Vec<FlowStatistics> {
    let all = by_key(readers.iter().flat_map(|reader| &reader.flows));
    let mut flows_of_sender: BTreeMap<Key, u32> = BTreeMap::new();
    for readings in all.values() {
        *flows_of_sender.entry(readings[0].sender).or_default() += 1;
    }
    let mut flows: Vec<(FlowKey, FlowStatistics)> = all
        .values()
        .map(|readings| {
            let has_own_numbers = flows_of_sender[&readings[0].sender] == 1;
            (readings[0].flow, flow(readings, has_own_numbers))
        })
        .collect();
    flows.sort_by(|(a_key, a), (b_key, b)| b.packets.cmp(&a.packets).then_with(|| a_key.cmp(b_key)));
    flows.into_iter().map(|(_, flow)| flow).collect()
}

fn flow(readings: &[&FlowReading], has_own_numbers: bool) -> FlowStatistics {
    let mut sequence = sequence(readings.iter().filter_map(|reading| reading.sequence.clone()));
    if let Some(sequence) = sequence.as_mut().filter(|_| !has_own_numbers) {
        (sequence.lost, sequence.lost_ratio) = (None, None);
    }
    let packets: u64 = readings.iter().map(|reading| reading.packets).sum();
    let gaps: u64 = readings.iter().map(|reading| reading.packets - 1).sum();
    let gap_ns: u64 = readings.iter().map(|reading| reading.last_ns.saturating_sub(reading.first_ns)).sum();
    let longest_ns = readings.iter().map(|reading| reading.longest_gap_ns).max();
    FlowStatistics {
        flow: readings[0].flow.to_string(),
        stream: readings[0].stream,
        packets,
        payload_bytes: readings.iter().map(|reading| reading.payload_bytes).sum(),
        sequence,
        inter_arrival_mean_ns: (gaps > 0).then(|| gap_ns as f64 / gaps as f64),
        inter_arrival_max_ns: longest_ns.filter(|_| gaps > 0),
    }
}

fn sequence(readers: impl Iterator<Item = SequenceCounts>) -> Option<SequenceSummary> {
    SequenceSummary::of(&readers.collect::<Vec<_>>())
}
