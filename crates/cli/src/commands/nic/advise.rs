//! `linerate nic advise`: findings, the largest expected effect first.

use std::io::{self, Write};

use nic::{Finding, Goal, NicError, Page, Surroundings, advise, moved, read_counters, read_queue_counts};
use sys::procfs;

use super::card::{irqbalance_runs, open, pause, refused};
use crate::{
    args::{AdviseArgs, GoalArg},
    failure::Failure,
    output::printed,
};

pub(crate) fn run(args: &AdviseArgs) -> Result<bool, Failure> {
    let goal = match args.goal {
        GoalArg::Pps => Goal::Pps,
        GoalArg::Latency => Goal::Latency,
        GoalArg::Bypass => Goal::Bypass,
    };
    let mut card = open(&args.interface)?;
    let mut look = || -> Result<(Page, Surroundings), NicError> {
        let page = Page::read(&mut card)?;
        let softnet = softnet();
        pause(args.interval);
        let later = read_queue_counts(&mut card)?;
        let queue_packets = later.rx.iter().filter_map(|(queue, count)| {
            Some(count.packets.saturating_sub(page.counts.rx.get(queue)?.packets))
        });
        let now = self::softnet();
        let around = Surroundings {
            cpus: cpus(),
            control: Some(sys::cpu_control::CpuControl::read()),
            irqbalance: irqbalance_runs(),
            moved: moved(&page.counters, &read_counters(&mut card)?),
            queue_packets: queue_packets.collect(),
            squeezed: now.0.saturating_sub(softnet.0),
            backlog_dropped: now.1.saturating_sub(softnet.1),
        };
        Ok((page, around))
    };
    let (page, around) = look().map_err(|error| refused(&error))?;
    let findings = advise(&page, &around, goal);
    let mut out = io::stdout().lock();
    printed(if args.json {
        serde_json::to_writer_pretty(&mut out, &findings)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        write_text(&args.interface, &findings, &mut out)
    })?;
    Ok(true)
}

/// Squeezes and drops at a full backlog, on all CPUs.
fn softnet() -> (u64, u64) {
    let cpus = procfs::softnet_stat().unwrap_or_default();
    cpus.iter().fold((0, 0), |(squeezed, dropped), cpu| {
        (squeezed + u64::from(cpu.time_squeeze), dropped + u64::from(cpu.dropped))
    })
}

/// The machine's CPUs with the NUMA node of each.
fn cpus() -> Vec<(u32, Option<u32>)> {
    let stat = procfs::stat().map(|stat| stat.cpus).unwrap_or_default();
    stat.into_iter().map(|(cpu, _)| (cpu, nic::numa_node_of(cpu))).collect()
}

fn write_text(interface: &str, findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    if findings.is_empty() {
        writeln!(out, "found nothing that limits {interface}")?;
    }
    for (number, finding) in findings.iter().enumerate() {
        writeln!(out, "{}. {}", number + 1, finding.title)?;
        writeln!(out, "   why:      {}", finding.reason)?;
        writeln!(out, "   evidence: {}", finding.evidence)?;
        if !finding.change.is_empty() {
            let settings = finding.change.iter().map(|setting| format!(" --set '{setting}'"));
            writeln!(out, "   change:   linerate nic apply {interface}{}", settings.collect::<String>())?;
        }
        writeln!(out, "   risk:     {}", finding.risk)?;
        writeln!(out, "   cost:     {}", finding.cost)?;
    }
    let control = bench::read_machine().cpu_control.unwrap_or_default();
    let rows: Vec<String> =
        control.rows().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    writeln!(out, "CPUs: {}", rows.join("; "))
}
