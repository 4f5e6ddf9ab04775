//! A receiver's measurements: in the pktgen receiver's form, and in fixed columns for scripts.

use std::io::{self, Write};

use measure::{
    ClockComparison, ClockRelation, NanosSummary, QueueCount, ReceptionShare, ReceptionStatistics,
    SequenceSummary, Timing,
};

use crate::{escape, number};

/// The most senders and flows in text.
const MOST_SHOWN: usize = 16;

/// Writes everything as text: per reader, in total, loss and order, senders and flows, clocks.
pub fn write_reception_human(statistics: &ReceptionStatistics, out: &mut impl Write) -> io::Result<()> {
    let bound_ns = statistics.timing.as_ref().and_then(|timing| timing.clock_bound_ns);
    writeln!(out, "RECEPTION STATISTICS")?;
    writeln!(out, "PER-CPU Stats")?;
    for share in &statistics.readers {
        writeln!(
            out,
            "{}: Rx packets: {}      Rx bytes: {} (on the wire {})",
            reader(share),
            share.packets,
            share.frame_bytes,
            share.l1_bytes
        )?;
        write_rates(rates(share), "      ", out)?;
        write_times(share, "      ", bound_ns, out)?;
    }
    for queue in &statistics.queues {
        writeln!(
            out,
            "Queue {}: Rx packets: {}      Rx bytes: {} (on the wire {})",
            queue.queue, queue.packets, queue.frame_bytes, queue.l1_bytes
        )?;
        let &QueueCount { work_time_ns, rx_pps, frame_bps, l1_bps, .. } = queue;
        write_rates((work_time_ns, rx_pps, frame_bps, l1_bps), "      ", out)?;
    }
    if let Some(unknown) = &statistics.queues_unknown {
        writeln!(out, "Not divided by queue: {}", escape::text(unknown))?;
    }
    let total = &statistics.total;
    writeln!(out, "\n      Global Statistics")?;
    writeln!(
        out,
        "Packets Rx: {}      Bytes Rx: {} (frames with FCS; {} on the wire, {} of payload)",
        total.packets, total.frame_bytes, total.l1_bytes, total.payload_bytes
    )?;
    if total.foreign > 0 {
        writeln!(out, "Other packets: {}", total.foreign)?;
    }
    write_rates(rates(total), "", out)?;
    write_times(total, "", bound_ns, out)?;
    if let Some(sequence) = &statistics.sequence {
        writeln!(out, "Sequence numbers")?;
        writeln!(out, "    {}", sequence_line(sequence))?;
    }
    write_senders(statistics, out)?;
    match &statistics.timing {
        Some(timing) => write_timing(timing, total, out),
        None => Ok(()),
    }
}

fn reader(share: &ReceptionShare) -> String {
    let cpu = share.cpu.map_or("CPU ?".into(), |cpu| format!("CPU {cpu}"));
    let queue = share.queue.map(|queue| format!("queue {queue}"));
    let worker = share.worker.map(|worker| format!("worker {worker}"));
    let more: Vec<String> = queue.into_iter().chain(worker).collect();
    if more.is_empty() { cpu } else { format!("{cpu} ({})", more.join(", ")) }
}

/// Nanoseconds, packets, bits of frames and bits on the wire.
type Rates = (Option<u64>, Option<f64>, Option<f64>, Option<f64>);

fn rates(share: &ReceptionShare) -> Rates {
    (share.work_time_ns, share.rx_pps, share.frame_bps, share.l1_bps)
}

fn write_rates((work_ns, pps, bps, l1_bps): Rates, indent: &str, out: &mut impl Write) -> io::Result<()> {
    let Some(work_ns) = work_ns else { return Ok(()) };
    writeln!(out, "{indent}Work time {} us", work_ns / 1000)?;
    let (Some(pps), Some(bps), Some(l1_bps)) = (pps, bps, l1_bps) else { return Ok(()) };
    writeln!(
        out,
        "{indent}Rate: {pps:.0}pps {:.0}Mb/sec ({bps:.0}bps; on the wire {l1_bps:.0}bps)",
        (bps / 1e6).floor()
    )
}

/// The distributions of a share, by name.
fn distributions(share: &ReceptionShare) -> [(&'static str, Option<&NanosSummary>); 4] {
    [
        ("Inter-arrival", share.inter_arrival.as_ref()),
        ("Inter-arrival per flow", share.flow_inter_arrival.as_ref()),
        ("Jitter", share.jitter.as_ref()),
        ("Latency", share.latency.as_ref()),
    ]
}

/// `bound_ns`: the largest error of a latency because of the clocks.
fn write_times(
    share: &ReceptionShare,
    indent: &str,
    bound_ns: Option<u64>,
    out: &mut impl Write,
) -> io::Result<()> {
    for (name, summary) in distributions(share) {
        let Some(summary) = summary else { continue };
        writeln!(out, "{indent}{name}")?;
        writeln!(
            out,
            "{indent}    Average: {:.0} ns Variance: {:.0} ns2 Std. dev.: {:.0} ns",
            summary.mean_ns, summary.variance_ns2, summary.std_dev_ns
        )?;
        writeln!(out, "{indent}    Max: {} ns Min: {} ns", summary.max_ns, summary.min_ns)?;
        writeln!(
            out,
            "{indent}    50 %: {} ns 90 %: {} ns 99 %: {} ns 99.9 %: {} ns 99.99 %: {} ns",
            summary.p50_ns, summary.p90_ns, summary.p99_ns, summary.p999_ns, summary.p9999_ns
        )?;
        writeln!(out, "{indent}    Samples: {}", summary.samples)?;
        if let ("Latency", Some(bound_ns)) = (name, bound_ns) {
            writeln!(out, "{indent}    Clock error: up to {bound_ns} ns")?;
        }
    }
    Ok(())
}

fn sequence_line(sequence: &SequenceSummary) -> String {
    let mut line = match (sequence.lost, sequence.lost_ratio) {
        (Some(lost), Some(ratio)) => format!("Lost: {lost} ({} %)", number::percent(ratio)),
        _ => "Lost: unknown (several senders or flows share the numbers)".into(),
    };
    line.push_str(&format!(" Reordered: {}", sequence.reordered));
    if let (Some(mean), Some(most)) =
        (sequence.reorder_extent_mean_packets, sequence.reorder_extent_max_packets)
    {
        line.push_str(&format!(" (extent {mean:.1} packets, at most {most})"));
    }
    line.push_str(&format!(" Duplicates: {} Late: {}", sequence.duplicates, sequence.late));
    if sequence.strays > 0 {
        line.push_str(&format!(" Strays: {}", sequence.strays));
    }
    if sequence.restarts > 0 {
        line.push_str(&format!(" Restarts: {}", sequence.restarts));
    }
    line
}

fn write_senders(statistics: &ReceptionStatistics, out: &mut impl Write) -> io::Result<()> {
    for sender in statistics.senders.iter().take(MOST_SHOWN) {
        writeln!(
            out,
            "Sender {}, stream {}: {} packets",
            escape::text(&sender.address),
            sender.stream,
            sender.packets
        )?;
        if let Some(sequence) = &sender.sequence {
            writeln!(out, "    {}", sequence_line(sequence))?;
        }
        if let Some(jitter) = sender.jitter_rfc3550_ns {
            writeln!(out, "    Jitter of RFC 3550 at the end: {jitter:.0} ns")?;
        }
    }
    for flow in statistics.flows.iter().take(MOST_SHOWN) {
        writeln!(out, "Flow {}: {} packets", escape::text(&flow.flow), flow.packets)?;
        if let Some(sequence) = &flow.sequence {
            writeln!(out, "    {}", sequence_line(sequence))?;
        }
    }
    for (what, all) in [("senders", statistics.senders.len()), ("flows", statistics.flows.len())] {
        if all > MOST_SHOWN {
            writeln!(out, "{} more {what} are in the JSON", all - MOST_SHOWN)?;
        }
    }
    if statistics.beyond_tables > 0 {
        writeln!(
            out,
            "{} packets of further senders or flows, which are not listed",
            statistics.beyond_tables
        )?;
    }
    Ok(())
}

fn write_timing(timing: &Timing, total: &ReceptionShare, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "Clocks")?;
    writeln!(out, "    Receive timestamps: {}", escape::text(&timing.rx_stamp_means))?;
    if timing.unstamped > 0 {
        writeln!(out, "    {} packets had no timestamp; the reading loop's time is used", timing.unstamped)?;
    }
    let relation = match timing.clocks {
        ClockRelation::SameHost => "one host, one clock",
        ClockRelation::Synchronised => "two hosts, synchronised",
        ClockRelation::Measured => "two hosts, offset measured between them",
        ClockRelation::None => "unrelated: no one-way latency; the other figures do not need related clocks",
    };
    writeln!(
        out,
        "    Clocks of sender and receiver: {relation} ({})",
        escape::text(&timing.clocks_known_by)
    )?;
    if let Some(why) = timing.latency_refused.as_ref().filter(|_| timing.clocks != ClockRelation::None) {
        writeln!(out, "    No one-way latency: {}", escape::text(why))?;
    }
    for one in &timing.comparisons {
        writeln!(out, "    {}", comparison(one))?;
    }
    if total.before_sent > 0 {
        writeln!(
            out,
            "    {} packets arrived before they were sent: the clocks disagree",
            total.before_sent
        )?;
    }
    writeln!(
        out,
        "    Reading the clock takes {:.1} ns; its resolution is {} ns",
        timing.clock_read_ns, timing.clock_resolution_ns
    )?;
    let (Some(alone), Some(together)) = (timing.measuring_ns, timing.measuring_together_ns) else {
        return Ok(());
    };
    writeln!(
        out,
        "    Measuring a packet takes {alone:.0} ns, or {together:.0} ns when it has the timestamps of the previous packet"
    )
}

fn comparison(one: &ClockComparison) -> String {
    let sender = escape::text(&one.sender);
    let mut line = format!("Our clock was {} ns ahead of {sender}'s at its first packet", one.ahead_ns);
    if let (Some(drift), Some(bound)) = (one.drift_ppm, one.drift_bound_ppm) {
        line.push_str(&format!(" and gained {drift:.3} ppm (± {bound:.3})"));
    }
    if let Some(bound_ns) = one.bound_ns {
        line.push_str(&format!("; known to within {bound_ns} ns"));
    }
    line
}

/// Columns of [`write_reception_script`] before those of the distributions.
const SHARE_COLUMNS: [&str; 13] = [
    "reader",
    "cpu",
    "queue",
    "packets",
    "foreign",
    "payload_bytes",
    "frame_bytes",
    "l1_bytes",
    "work_time_ns",
    "rx_pps",
    "frame_bps",
    "l1_bps",
    "before_sent",
];
const DISTRIBUTIONS: [&str; 4] = ["inter_arrival", "flow_inter_arrival", "jitter", "latency"];
const FIGURES: [&str; 10] = [
    "samples",
    "mean_ns",
    "std_dev_ns",
    "min_ns",
    "max_ns",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "p9999_ns",
];
const SEQUENCE_COLUMNS: [&str; 5] = ["lost", "reordered", "duplicates", "late", "restarts"];

/// Columns of [`write_reception_script`], in their order. Scripts rely on it: new columns come last.
fn reception_script_columns() -> Vec<String> {
    let of = |figures: &'static [&'static str]| {
        let each = move |distribution: &'static str| {
            figures.iter().map(move |figure| format!("{distribution}_{figure}"))
        };
        DISTRIBUTIONS.into_iter().flat_map(each)
    };
    let first = SHARE_COLUMNS.map(String::from).into_iter().chain(of(&FIGURES));
    first.chain(SEQUENCE_COLUMNS.map(String::from)).chain(of(&["variance_ns2"])).collect()
}

/// Writes a header and one line per reader, then one for all: the same columns for any measurement, separated by
/// spaces, `-` for values not measured.
pub fn write_reception_script(statistics: &ReceptionStatistics, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", reception_script_columns().join(" "))?;
    for (number, share) in statistics.readers.iter().enumerate() {
        write_columns(&number.to_string(), share, None, out)?;
    }
    write_columns("all", &statistics.total, statistics.sequence.as_ref(), out)
}

fn write_columns(
    reader: &str,
    share: &ReceptionShare,
    sequence: Option<&SequenceSummary>,
    out: &mut impl Write,
) -> io::Result<()> {
    let count = |value: Option<u64>| value.map_or("-".into(), |value| value.to_string());
    let rate = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let mut columns = vec![
        reader.to_string(),
        count(share.cpu.map(u64::from)),
        count(share.queue.map(u64::from)),
        share.packets.to_string(),
        share.foreign.to_string(),
        share.payload_bytes.to_string(),
        share.frame_bytes.to_string(),
        share.l1_bytes.to_string(),
        count(share.work_time_ns),
        rate(share.rx_pps),
        rate(share.frame_bps),
        rate(share.l1_bps),
        share.before_sent.to_string(),
    ];
    for (_, summary) in distributions(share) {
        let of = |part: fn(&NanosSummary) -> u64| count(summary.map(part));
        columns.extend([
            of(|s| s.samples),
            rate(summary.map(|s| s.mean_ns)),
            rate(summary.map(|s| s.std_dev_ns)),
            of(|s| s.min_ns),
            of(|s| s.max_ns),
            of(|s| s.p50_ns),
            of(|s| s.p90_ns),
            of(|s| s.p99_ns),
            of(|s| s.p999_ns),
            of(|s| s.p9999_ns),
        ]);
    }
    columns.extend([
        count(sequence.and_then(|s| s.lost)),
        count(sequence.map(|s| s.reordered)),
        count(sequence.map(|s| s.duplicates)),
        count(sequence.map(|s| s.late)),
        count(sequence.map(|s| s.restarts)),
    ]);
    columns.extend(distributions(share).map(|(_, summary)| rate(summary.map(|s| s.variance_ns2))));
    writeln!(out, "{}", columns.join(" "))
}

#[cfg(test)]
mod tests {
    use measure::{Distribution, StatisticsLevel};

    use super::*;

    fn statistics(timed: bool) -> ReceptionStatistics {
        let mut gaps = Distribution::new();
        [404, 671, 671, 938].into_iter().for_each(|gap| gaps.record(gap));
        let summary = gaps.summary().filter(|_| timed);
        let share = ReceptionShare {
            cpu: Some(2),
            queue: Some(1),
            worker: Some(0),
            packets: 5,
            frame_bytes: 320,
            l1_bytes: 420,
            payload_bytes: 90,
            work_time_ns: Some(2684),
            rx_pps: Some(1_490_312.965),
            frame_bps: Some(763_040_238.45),
            l1_bps: Some(1_001_490_312.965),
            inter_arrival: summary,
            ..ReceptionShare::default()
        };
        let total = ReceptionShare { worker: None, cpu: None, queue: None, ..share.clone() };
        let sequence = Some(SequenceSummary { received: 5, lost: Some(0), ..SequenceSummary::default() });
        let level = StatisticsLevel::Time;
        ReceptionStatistics { level, total, readers: vec![share], sequence, ..ReceptionStatistics::default() }
    }

    fn written(write: impl Fn(&ReceptionStatistics, &mut Vec<u8>) -> io::Result<()>, timed: bool) -> String {
        let mut out = Vec::new();
        write(&statistics(timed), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reader_has_the_form_of_the_pktgen_receiver() {
        let text = written(write_reception_human, true);
        let expected = "RECEPTION STATISTICS\nPER-CPU Stats\n\
            CPU 2 (queue 1, worker 0): Rx packets: 5      Rx bytes: 320 (on the wire 420)\n      \
            Work time 2 us\n      \
            Rate: 1490313pps 763Mb/sec (763040238bps; on the wire 1001490313bps)\n      \
            Inter-arrival\n          \
            Average: 671 ns Variance: 35644 ns2 Std. dev.: 189 ns\n          \
            Max: 938 ns Min: 404 ns\n          \
            50 %: 671 ns 90 %: 938 ns 99 %: 938 ns 99.9 %: 938 ns 99.99 %: 938 ns\n          \
            Samples: 4\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("Lost: not known") || text.contains("Reordered: 0 Duplicates: 0 Late: 0"),
            "{text}"
        );
    }

    #[test]
    fn packets_are_shown_by_queue_or_with_the_reason_why_not() {
        let text = |change: fn(&mut ReceptionStatistics)| {
            let (mut statistics, mut out) = (statistics(true), Vec::new());
            change(&mut statistics);
            write_reception_human(&statistics, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(!text(|_| ()).contains("by queue"), "its only reader has a queue");
        let unknown = text(|all| all.queues_unknown = Some("far is a veth".into()));
        assert!(unknown.contains("Not divided by queue: far is a veth\n"), "{unknown}");
        let counted = text(|all| {
            let (packets, frame_bytes, l1_bytes) = (5, 320, 420);
            let timed = QueueCount { work_time_ns: Some(9000), ..QueueCount::default() };
            all.queues = vec![QueueCount { queue: 3, packets, frame_bytes, l1_bytes, ..timed }];
        });
        let expected = "Queue 3: Rx packets: 5      Rx bytes: 320 (on the wire 420)\n      Work time 9 us\n";
        assert!(counted.contains(expected), "{counted}");
    }

    #[test]
    fn the_guide_has_every_column_in_its_order() {
        let guide = std::fs::read_to_string(testing::repository().join("docs/pktgen-rx.md")).unwrap();
        let (_, list) = guide.split_once("<!-- script columns -->\n```text\n").unwrap();
        let listed: Vec<&str> = list.split_once("```").unwrap().0.split_whitespace().collect();
        assert_eq!(listed, reception_script_columns());
    }

    #[test]
    fn a_script_gets_the_same_columns_whatever_was_measured() {
        for timed in [true, false] {
            let text = written(write_reception_script, timed);
            let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
            assert_eq!(lines.len(), 3, "header, a reader, all");
            assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
            assert_eq!(lines[0], reception_script_columns());
            let at = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
            assert_eq!((lines[1][at("cpu")], lines[2][at("cpu")], lines[2][at("reader")]), ("2", "-", "all"));
            assert_eq!(lines[1][at("inter_arrival_mean_ns")], if timed { "671.000" } else { "-" });
            assert_eq!(lines[1][at("inter_arrival_variance_ns2")], if timed { "35644.500" } else { "-" });
            assert_eq!((lines[1][at("lost")], lines[2][at("lost")]), ("-", "0"));
        }
    }
}
