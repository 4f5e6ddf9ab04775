//! Converts the measurements of a BPF program to readings.

use measure::{CountedSequence, Distribution, Histogram, StatisticsLevel, TransitVariation};
use port::{Counts as PortCounts, Measured, MeasuredFlow, MeasuredSender, MeasuredTimes, TimeSource};
use wire::FlowKey;

use super::{
    Collector, Counts, Key, ReaderPlace, Times,
    summary::{FlowReading, OfQueues, Readings, SenderReading},
};

impl Readings {
    /// One CPU's counters, as the difference to `before`.
    pub(crate) fn of_counts(cpu: u32, now: &PortCounts, before: &PortCounts) -> Self {
        let place = ReaderPlace { worker: None, cpu: Some(cpu), queue: None };
        let mut readings = Collector::new(StatisticsLevel::Counter, place).readings();
        readings.stamp = TimeSource::Program;
        readings.counts = Counts {
            packets: now.packets() - before.packets(),
            payload_bytes: now.payload_bytes() - before.payload_bytes(),
            frame_bytes: now.frame_bytes() - before.frame_bytes(),
            foreign: now.foreign - before.foreign,
            ..Counts::default()
        };
        readings
    }

    /// One CPU's.
    pub(crate) fn of_program(level: StatisticsLevel, measured: &Measured) -> Self {
        let [first_ns, last_ns] = measured.arrived_ns;
        let times = Times {
            inter_arrival: distribution(&measured.inter_arrival),
            flow_inter_arrival: distribution(&measured.flow_inter_arrival),
            jitter: distribution(&measured.jitter),
            latency: distribution(&measured.latency),
            // The program knows no clock but its own.
            related: Distribution::new(),
        };
        Self {
            level,
            place: ReaderPlace { worker: None, cpu: Some(measured.cpu), queue: None },
            counts: Counts {
                packets: measured.packets,
                payload_bytes: measured.payload_bytes,
                frame_bytes: measured.frame_bytes,
                foreign: measured.foreign,
                unstamped: 0,
                before_sent: measured.before_sent,
                related: 0,
                before_sent_related: 0,
                sent_by_uptime: measured.sent_by_uptime,
                first_ns: (measured.packets > 0).then_some(first_ns),
                last_ns,
            },
            times,
            senders: measured.senders.iter().map(sender).collect(),
            flows: measured.flows.iter().filter_map(flow).collect(),
            beyond_tables: measured.beyond_tables,
            stamp: TimeSource::Program,
            cost: None,
            of_queues: OfQueues::default(),
        }
    }
}

fn distribution(times: &MeasuredTimes) -> Distribution {
    let mut histogram = Histogram::new();
    let [least_ns, most_ns] = times.extremes_ns;
    histogram.add_counts(&times.counts, least_ns..=most_ns, times.sum);
    let mut distribution = Distribution::new();
    distribution.add_counted(&histogram, times.squares);
    distribution
}

fn sender(measured: &MeasuredSender) -> (Key, SenderReading) {
    let sequence = CountedSequence {
        first: measured.first,
        span: measured.span,
        distinct: measured.distinct,
        arrived_ns: measured.arrived_ns,
        restarts: measured.restarts,
        distinct_before: measured.distinct_before,
        lost_before: measured.lost_before,
        reordered: measured.reordered,
        extent_sum: measured.extent_sum,
        extent_max: measured.extent_max,
        duplicates: measured.duplicates,
        late: measured.late,
        strays: measured.strays,
    };
    let reading = SenderReading {
        address: measured.address,
        stream: measured.stream,
        packets: measured.packets,
        payload_bytes: measured.payload_bytes,
        send_times: measured.send_times,
        jitter_rfc3550_ns: measured.jitter_scaled_ns.map(TransitVariation::rfc3550_of_scaled),
        sequence: sequence.into(),
    };
    (Key::of_sender(measured.address, measured.stream), reading)
}

/// `None` for a flow between two IP versions, which does not exist.
fn flow(measured: &MeasuredFlow) -> Option<(Key, FlowReading)> {
    let flow = FlowKey::udp(measured.source, measured.destination)?;
    let sender = Key::of_sender(measured.source.ip(), measured.stream);
    let [first_ns, last_ns] = measured.arrived_ns;
    let reading = FlowReading {
        flow,
        sender,
        stream: measured.stream,
        packets: measured.packets,
        payload_bytes: measured.payload_bytes,
        first_ns,
        last_ns,
        longest_gap_ns: measured.longest_gap_ns,
        sequence: None,
    };
    Some((Key::of_flow(&flow, sender), reading))
}

#[cfg(test)]
mod tests;
