//! A ledger of a live machine as one screen, and as metrics.

use std::fmt::Write;

use measure::Unit;

use super::document::{Document, Reason};

/// The screen: rates of the last interval, totals since the start.
pub(super) fn screen(last: &Document, total: &Document) -> String {
    let mut text = String::new();
    write_screen(last, total, &mut text).expect("a string takes everything");
    text
}

fn write_screen(last: &Document, total: &Document, out: &mut String) -> std::fmt::Result {
    let name = last.interface.as_deref().unwrap_or("all interfaces");
    let drivers =
        if last.drivers.is_empty() { String::new() } else { format!(" ({})", last.drivers.join(", ")) };
    match &last.flow {
        Some(flow) => writeln!(
            out,
            "{name}: {:.0} lost/s of '{flow}'; counters know no flows and are left out",
            last.lost_pps
        )?,
        None => writeln!(
            out,
            "{name}{drivers}: {:.0} in/s, {:.0} out/s, {:.0} lost/s; {:.0} s",
            last.rx_pps, last.tx_pps, last.lost_pps, total.duration_s
        )?,
    }
    if total.lines.is_empty() {
        writeln!(out, "nothing lost")?;
    } else {
        writeln!(out, "\n{:>12} {:>14}  {:<8} place: counter", "per second", "total", "unit")?;
    }
    for line in &total.lines {
        let now = last.lines.iter().find(|other| other.place == line.place).map_or(0.0, |other| other.pps);
        let no_loss = if line.is_loss { "" } else { " (no loss)" };
        writeln!(
            out,
            "{now:>12.0} {:>14}  {:<8} {}{no_loss}: {}",
            line.packets,
            unit(line.unit),
            line.place,
            line.source
        )?;
        if let Some(meaning) = line.meaning {
            writeln!(out, "{:>38}{meaning}", "")?;
        }
        if let Some(remedy) = &line.remedy {
            writeln!(out, "{:>38}try: {remedy}", "")?;
        }
    }
    match &total.reasons {
        Some(reasons) if !reasons.is_empty() => {
            writeln!(out, "\ntop drop reasons")?;
            for reason in reasons {
                let same =
                    |other: &&Reason| (&other.reason, &other.function) == (&reason.reason, &reason.function);
                let now = last.reasons.iter().flatten().find(same).map_or(0.0, |other| other.pps);
                writeln!(out, "{now:>12.0} {:>14}  {}", reason.packets, words(reason))?;
            }
        }
        _ => {}
    }
    if !total.unknown_counters.is_empty() {
        writeln!(out, "\ncounters that nobody knows (docs/ledger.md says how to name them)")?;
        for unknown in &total.unknown_counters {
            writeln!(out, "{:>27}  {} {}", unknown.grown_by, unknown.interface, unknown.counter)?;
        }
    }
    let cost = &last.cost;
    write!(
        out,
        "\nwatching costs {:.2} % of a CPU here and {:.2} % in the kernel",
        cost.process_cpu_ratio * 100.0,
        cost.program_cpu_ratio * 100.0
    )?;
    if let Some(ns) = cost.ns_per_event {
        write!(out, " ({} events of {ns:.0} ns)", cost.events)?;
    }
    writeln!(out, "; events lost: {}", total.cost.events_lost)
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Packets => "packets",
        Unit::Frames => "frames",
        Unit::Buffers => "buffers",
    }
}

fn words(reason: &Reason) -> String {
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

/// Totals since the start in the OpenMetrics text format.
pub(super) fn prometheus(total: &Document) -> String {
    let mut text = String::new();
    write_prometheus(total, &mut text).expect("a string takes everything");
    text
}

fn write_prometheus(total: &Document, out: &mut String) -> std::fmt::Result {
    writeln!(out, "# TYPE linerate_lost_packets counter")?;
    writeln!(out, "# HELP linerate_lost_packets Packets lost by place; see docs/ledger.md.")?;
    for line in &total.lines {
        let place = line.id.unwrap_or(&line.place);
        writeln!(out, "linerate_lost_packets_total{{place=\"{}\"}} {}", escaped(place), line.packets)?;
    }
    writeln!(out, "# TYPE linerate_dropped_packets counter")?;
    writeln!(
        out,
        "# HELP linerate_dropped_packets Packets that the kernel dropped, by its reason and function."
    )?;
    for reason in total.reasons.iter().flatten() {
        writeln!(
            out,
            "linerate_dropped_packets_total{{reason=\"{}\",function=\"{}\"}} {}",
            escaped(&reason.reason),
            escaped(&reason.function),
            reason.packets
        )?;
    }
    let mut counter = |name: &str, help: &str, value: f64| {
        writeln!(
            out,
            "# TYPE linerate_{name} counter\n# HELP linerate_{name} {help}\nlinerate_{name}_total {value}"
        )
    };
    counter("received_packets", "Frames that the interfaces received.", total.rx_packets as f64)?;
    counter("sent_packets", "Frames that the interfaces sent.", total.tx_packets as f64)?;
    counter("ledger_events_lost", "Drops that are in no reason's count.", total.cost.events_lost as f64)?;
    let seconds = |ratio: f64| ratio * total.duration_s;
    counter(
        "ledger_process_cpu_seconds",
        "CPU time of the watching process.",
        seconds(total.cost.process_cpu_ratio),
    )?;
    counter(
        "ledger_program_cpu_seconds",
        "CPU time of the program in the kernel.",
        seconds(total.cost.program_cpu_ratio),
    )?;
    writeln!(out, "# EOF")
}

/// A label's value, in quotes: as OpenMetrics writes it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
