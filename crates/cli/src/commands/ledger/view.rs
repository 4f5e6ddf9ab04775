//! A live machine's ledger as a block of text.

use std::fmt::Write;

use measure::{CpuShare, InterruptAccounting, Place};
use report::{DropReason, LedgerDocument, PerPacket};

/// Most CPUs of a screen, and most interrupts of one of them.
const MOST_CPUS: usize = 8;
const MOST_INTERRUPTS: usize = 3;
/// Indentation of the explanation below a place's numbers.
const INDENT: usize = 6;

/// The screen: rates of the last interval, totals since the start. Sentences wrap at `columns`, tables do not.
pub(super) fn screen(last: &LedgerDocument, total: &LedgerDocument, columns: Option<usize>) -> String {
    let mut text = String::new();
    write_screen(last, total, columns, &mut text).expect("writing to a string cannot fail");
    text
}

fn write_screen(
    last: &LedgerDocument,
    total: &LedgerDocument,
    columns: Option<usize>,
    out: &mut String,
) -> std::fmt::Result {
    let name = last.interface.as_deref().unwrap_or("all interfaces");
    let drivers =
        if last.drivers.is_empty() { String::new() } else { format!(" ({})", last.drivers.join(", ")) };
    match &last.flow {
        Some(flow) => writeln!(
            out,
            "{name}: {:.0} lost/s of '{flow}'; counters hidden (they do not distinguish flows)",
            last.lost_pps
        )?,
        None => writeln!(
            out,
            "{name}{drivers}: {:.0} in/s, {:.0} out/s, {:.0} lost/s; {:.0} s",
            last.rx_pps, last.tx_pps, last.lost_pps, total.duration_s
        )?,
    }
    // First, so that it fits on any screen.
    write_cost(last, total, out)?;
    if total.lines.is_empty() {
        writeln!(out, "nothing lost")?;
    } else {
        writeln!(out, "\n{:>12} {:>14}  {:<8} place: counter", "per second", "total", "unit")?;
    }
    for rate in &total.lines {
        let line = &rate.line;
        let now = last.lines.iter().find(|other| other.line.place == line.place);
        let now = now.map_or(0.0, |other| other.pps);
        let no_loss = if rate.is_loss() { "" } else { " (no loss)" };
        writeln!(
            out,
            "{now:>12.0} {:>14}  {:<8} {}{no_loss}: {}",
            line.packets,
            line.unit.name(),
            line.place,
            line.source
        )?;
        if let Some(meaning) = line.place.known().map(Place::meaning) {
            write_sentence(meaning, columns, out)?;
        }
        if let Some(remedy) = &line.remedy {
            write_sentence(&format!("try: {remedy}"), columns, out)?;
        }
    }
    match &total.reasons {
        Some(reasons) if !reasons.is_empty() => {
            writeln!(out, "\ntop drop reasons")?;
            for reason in reasons {
                let same = |other: &&DropReason| {
                    (&other.reason, &other.function) == (&reason.reason, &reason.function)
                };
                let now = last.reasons.iter().flatten().find(same).map_or(0.0, |other| other.pps);
                writeln!(out, "{now:>12.0} {:>14}  {}", reason.packets, words(reason))?;
            }
        }
        _ => {}
    }
    write_sockets(last, total, out)?;
    if !total.unknown_counters.is_empty() {
        writeln!(out, "\ncounters of unknown meaning (docs/ledger.md describes how to name them)")?;
        for unknown in &total.unknown_counters {
            writeln!(out, "{:>27}  {} {}", unknown.grown_by, unknown.interface, unknown.counter)?;
        }
    }
    write_cpus(last, out)?;
    if !last.sees_af_xdp && last.flow.is_none() {
        writeln!(out, "\nthis kernel does not report losses of AF_XDP sockets (CONFIG_XDP_SOCKETS_DIAG)")?;
    }
    Ok(())
}

/// A sentence below its line, wrapped.
fn write_sentence(sentence: &str, columns: Option<usize>, out: &mut String) -> std::fmt::Result {
    let width = columns.map_or(usize::MAX, |columns| columns.saturating_sub(INDENT).max(1));
    report::wrap(sentence, width).iter().try_for_each(|line| writeln!(out, "{:INDENT$}{line}", ""))
}

/// The cost of watching, and the events that it missed.
fn write_cost(last: &LedgerDocument, total: &LedgerDocument, out: &mut String) -> std::fmt::Result {
    let cost = &last.cost;
    write!(
        out,
        "watching costs {:.2} % of a CPU here and {:.2} % in the kernel",
        cost.process_cpu_ratio * 100.0,
        cost.program_cpu_ratio * 100.0
    )?;
    if let Some(ns) = cost.ns_per_event {
        write!(out, " ({} events of {ns:.0} ns)", cost.events)?;
    }
    writeln!(out, "; events lost: {}", total.cost.events_lost)
}

/// Sockets whose applications read too slowly.
fn write_sockets(last: &LedgerDocument, total: &LedgerDocument, out: &mut String) -> std::fmt::Result {
    if total.sockets.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>12} {:>14}  sockets not read in time", "unread bytes", "dropped")?;
    for socket in &total.sockets {
        let now = last.sockets.iter().find(|other| (other.port, other.pid) == (socket.port, socket.pid));
        let unread = now.map_or(0, |now| now.unread_bytes);
        write!(out, "{unread:>12} {:>14}  UDP port {}", socket.dropped, socket.port)?;
        if let (Some(process), Some(pid)) = (&socket.process, socket.pid) {
            write!(out, "; {process} ({pid})")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The busiest CPUs.
fn write_cpus(last: &LedgerDocument, out: &mut String) -> std::fmt::Result {
    let mut cpus: Vec<&CpuShare> = last.cpus.iter().collect();
    if cpus.is_empty() {
        return Ok(());
    }
    cpus.sort_by(|a, b| a.idle_ratio.total_cmp(&b.idle_ratio));
    writeln!(
        out,
        "\n{:>5} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>9}  {:>12} {:>8}  interrupts/s",
        "CPU", "user", "system", "irq", "softirq", "steal", "idle", "ksoftirqd", "packets/poll", "squeezes"
    )?;
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let none = || "-".to_owned();
    for cpu in cpus.iter().take(MOST_CPUS) {
        let polls = cpu.net_rx.and_then(|net_rx| net_rx.polls).and_then(|polls| polls.packets_per_poll());
        let rates = cpu.interrupts.iter().take(MOST_INTERRUPTS);
        let rates: Vec<String> = rates.map(|one| format!("{} {:.0}", one.name, one.rate_per_s)).collect();
        writeln!(
            out,
            "{:>5} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>9}  {:>12} {:>8}  {}",
            cpu.cpu,
            percent(cpu.user_ratio),
            percent(cpu.system_ratio),
            percent(cpu.irq_ratio),
            percent(cpu.softirq_ratio),
            percent(cpu.steal_ratio),
            percent(cpu.idle_ratio),
            cpu.ksoftirqd_ratio.map_or_else(none, percent),
            polls.map_or_else(none, |packets| format!("{packets:.1}")),
            cpu.net_rx.map_or_else(none, |net_rx| net_rx.time_squeezes.to_string()),
            rates.join(", ")
        )?;
    }
    if cpus.len() > MOST_CPUS {
        writeln!(out, "{:>5} others are less busy", cpus.len() - MOST_CPUS)?;
    }
    let margin = cpus.iter().filter_map(|cpu| cpu.interrupts_margin_ratio).fold(0.0, f64::max) * 100.0;
    match last.interrupt_accounting {
        InterruptAccounting::Precise => {
            writeln!(out, "time in interrupts is measured by a clock: ±{margin:.1} % of a CPU")
        }
        InterruptAccounting::Ticks => writeln!(
            out,
            "time in interrupts is sampled by the timer tick (no CONFIG_IRQ_TIME_ACCOUNTING): ±{margin:.1} % of a CPU"
        ),
        InterruptAccounting::Unknown => writeln!(out, "the accuracy of time in interrupts is unknown"),
    }?;
    write_hardware(last.hardware, last.no_hardware_counters.as_deref(), out)?;
    writeln!(
        out,
        "squeezes: softirq rounds that ended with packets left (net.core.netdev_budget, netdev_budget_usecs)"
    )
}

/// CPU counters per packet, or why they are missing.
fn write_hardware(counted: Option<PerPacket>, why_not: Option<&str>, out: &mut String) -> std::fmt::Result {
    if let Some(why) = why_not {
        return writeln!(out, "no cycles, instructions or cache misses per packet: {why}");
    }
    let Some(each) = counted else { return Ok(()) };
    let also = [(each.instructions, "instructions"), (each.cache_misses, "cache misses")];
    let also = also.iter().filter_map(|(value, name)| value.map(|value| format!(", {value:.1} {name}")));
    let also: String = also.collect();
    writeln!(out, "per packet, in or out: {:.0} cycles{also}, of all CPUs and all work", each.cycles)
}

fn words(reason: &DropReason) -> String {
    let mut text = reason.reason.clone();
    if !reason.function.is_empty() {
        text += &format!(" in {}", reason.function);
    }
    if reason.buffers != reason.packets {
        text += &format!(", {} buffers", reason.buffers);
    }
    if let (Some(process), Some(pid)) = (&reason.process, reason.pid) {
        text += &format!("; {process} ({pid})");
    }
    match (&reason.flow, reason.port) {
        (Some(flow), _) => text += &format!("; {flow}"),
        (None, Some(port)) => text += &format!("; port {port}"),
        (None, None) => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_per_packet_or_why_they_are_missing() {
        let written = |counted, why_not| {
            let mut text = String::new();
            write_hardware(counted, why_not, &mut text).unwrap();
            text
        };
        let each = PerPacket { cycles: 4321.4, instructions: Some(5000.25), cache_misses: None };
        assert_eq!(
            written(Some(each), None),
            "per packet, in or out: 4321 cycles, 5000.2 instructions, of all CPUs and all work\n"
        );
        assert_eq!(
            written(None, Some("this machine has none")),
            "no cycles, instructions or cache misses per packet: this machine has none\n"
        );
        assert_eq!(written(None, None), "", "nothing moved");
    }

    #[test]
    fn a_sentence_wraps_at_the_screen_s_edge_and_never_without_a_screen() {
        let written = |columns| {
            let mut text = String::new();
            write_sentence("try: one two three", columns, &mut text).unwrap();
            text
        };
        assert_eq!(written(None), "      try: one two three\n");
        assert_eq!(written(Some(14)), "      try: one\n      two\n      three\n");
        assert_eq!(written(Some(3)), "      try:\n      one\n      two\n      three\n");
    }
}
