//! From readers' statistics to the record: each reader, each sender, each flow, and all together.

use std::collections::BTreeMap;

use measure::{
    Distribution, FlowStatistics, ReceptionShare, ReceptionStatistics, SenderStatistics, SequenceCounts,
    SequenceSummary, StatisticsLevel,
};
use wire::FlowKey;

use super::{Collector, Counts, FlowState, SenderState, Times, table::Key};

/// Bytes of a frame on the wire besides the frame: preamble, start delimiter and gap.
const L1_EXTRA_BYTES: u64 = 20;

/// Whether one-way latency means anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyMeans {
    /// The clocks are related: it is shown.
    Time,
    /// They are not: it is refused.
    Nothing,
}

/// What all readers together found out. Flows and senders are in order of their packets, most first.
pub fn reception(readers: &[&Collector], latency: LatencyMeans) -> ReceptionStatistics {
    let level = readers.first().map_or(StatisticsLevel::Counter, |reader| reader.level);
    let mut all = Counts::default();
    let mut times = Times::default();
    for reader in readers {
        all.add(&reader.counts);
        times.merge(&reader.times);
    }
    let shares = readers.iter().map(|reader| ReceptionShare {
        worker: Some(reader.place.worker),
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
        queues: Vec::new(),
        sequence: SequenceSummary::total(&sequences),
        senders,
        flows,
        beyond_tables: readers.iter().map(|reader| reader.beyond_tables).sum(),
        timing: None,
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.payload_bytes += other.payload_bytes;
        self.frame_bytes += other.frame_bytes;
        self.foreign += other.foreign;
        self.unstamped += other.unstamped;
        self.before_sent += other.before_sent;
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
    }
}

fn share(level: StatisticsLevel, counts: &Counts, times: &Times, latency: LatencyMeans) -> ReceptionShare {
    let l1_bytes = counts.frame_bytes + L1_EXTRA_BYTES * counts.packets;
    let work_ns = counts.first_ns.map(|first_ns| counts.last_ns.saturating_sub(first_ns));
    let work_ns = work_ns.filter(|_| level >= StatisticsLevel::Basic);
    // The first packet begins the time: what came in it are the others.
    let per_second = |amount: u64| {
        let seconds = work_ns.filter(|ns| *ns > 0)? as f64 / 1e9;
        let others = amount as f64 * (counts.packets - 1) as f64 / counts.packets as f64;
        Some(others / seconds)
    };
    let timed = |distribution: &Distribution| distribution.summary();
    ReceptionShare {
        packets: counts.packets,
        foreign: counts.foreign,
        payload_bytes: counts.payload_bytes,
        frame_bytes: counts.frame_bytes,
        l1_bytes,
        work_time_ns: work_ns,
        rx_pps: per_second(counts.packets),
        frame_bps: per_second(8 * counts.frame_bytes),
        l1_bps: per_second(8 * l1_bytes),
        inter_arrival: timed(&times.inter_arrival),
        flow_inter_arrival: timed(&times.flow_inter_arrival),
        jitter: timed(&times.jitter),
        latency: timed(&times.latency).filter(|_| latency == LatencyMeans::Time),
        before_sent: if latency == LatencyMeans::Time { counts.before_sent } else { 0 },
        ..ReceptionShare::default()
    }
}

fn by_key<'c, T: 'c>(
    readers: &[&'c Collector],
    entries: impl Fn(&'c Collector) -> Box<dyn Iterator<Item = (Key, &'c T)> + 'c>,
) -> BTreeMap<Key, Vec<&'c T>> {
    let mut all: BTreeMap<Key, Vec<&T>> = BTreeMap::new();
    for (key, entry) in readers.iter().flat_map(|reader| entries(reader)) {
        all.entry(key).or_default().push(entry);
    }
    all
}

fn senders(readers: &[&Collector]) -> Vec<SenderStatistics> {
    let all = by_key::<SenderState>(readers, |reader| Box::new(reader.senders.iter()));
    let mut senders: Vec<SenderStatistics> = all
        .values()
        .map(|states| SenderStatistics {
            address: states[0].flow.addresses.src().to_string(),
            stream: states[0].stream,
            packets: states.iter().map(|state| state.packets).sum(),
            payload_bytes: states.iter().map(|state| state.payload_bytes).sum(),
            send_times: states.iter().map(|state| state.send_times).sum(),
            sequence: sequence(states.iter().map(|state| state.sequence.counts())),
            jitter_rfc3550_ns: states
                .iter()
                .filter_map(|state| state.variation.rfc3550_ns())
                .max_by(f64::total_cmp),
        })
        .collect();
    senders.sort_by(|a, b| b.packets.cmp(&a.packets).then_with(|| a.address.cmp(&b.address)));
    senders
}

fn flows(readers: &[&Collector]) -> Vec<FlowStatistics> {
    let all = by_key::<FlowState>(readers, |reader| Box::new(reader.flows.iter()));
    let mut flows_of_sender: BTreeMap<Key, u32> = BTreeMap::new();
    for states in all.values() {
        *flows_of_sender.entry(states[0].sender).or_default() += 1;
    }
    let mut flows: Vec<(FlowKey, FlowStatistics)> = all
        .values()
        .map(|states| {
            let has_own_numbers = flows_of_sender[&states[0].sender] == 1;
            (states[0].flow, flow(states, has_own_numbers))
        })
        .collect();
    flows.sort_by(|(a_key, a), (b_key, b)| b.packets.cmp(&a.packets).then_with(|| a_key.cmp(b_key)));
    flows.into_iter().map(|(_, flow)| flow).collect()
}

fn flow(states: &[&FlowState], has_own_numbers: bool) -> FlowStatistics {
    let mut sequence = sequence(states.iter().map(|state| state.sequence.counts()));
    if let Some(sequence) = sequence.as_mut().filter(|_| !has_own_numbers) {
        (sequence.lost, sequence.lost_ratio) = (None, None);
    }
    let packets: u64 = states.iter().map(|state| state.packets).sum();
    let gaps: u64 = states.iter().map(|state| state.packets - 1).sum();
    let gap_ns: u64 = states.iter().map(|state| state.last_ns.saturating_sub(state.first_ns)).sum();
    FlowStatistics {
        flow: states[0].flow.to_string(),
        stream: states[0].stream,
        packets,
        payload_bytes: states.iter().map(|state| state.payload_bytes).sum(),
        sequence,
        inter_arrival_mean_ns: (gaps > 0).then(|| gap_ns as f64 / gaps as f64),
        inter_arrival_max_ns: states.iter().map(|state| state.longest_gap_ns).max().filter(|_| gaps > 0),
    }
}

fn sequence(readers: impl Iterator<Item = SequenceCounts>) -> Option<SequenceSummary> {
    SequenceSummary::of(&readers.collect::<Vec<_>>())
}
