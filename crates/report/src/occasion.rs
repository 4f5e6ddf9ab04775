//! When, where and on what a run ran, in words; raw, to be escaped.

use measure::{Machine, Origin, Run};

use crate::number;

/// Where the packets of a run went, in words.
pub(crate) fn place(origin: Origin) -> &'static str {
    match origin {
        Origin::Lab => "in the lab",
        Origin::Hosts => "on real interfaces",
        Origin::Model => "by simulation",
    }
}

/// The machine in one line.
pub(crate) fn machine(machine: &Machine) -> String {
    let told = |known: bool, fact: String| known.then_some(fact);
    let cpus = format!("{} × {}", machine.cpus, machine.cpu_model);
    let kernel = format!("kernel {} {}", machine.kernel, machine.architecture);
    let mut parts: Vec<String> = [
        told(machine.cpus > 0, cpus),
        told(machine.memory_bytes > 0, number::memory(machine.memory_bytes)),
        told(!machine.kernel.is_empty(), kernel),
        told(!machine.clocksource.is_empty(), format!("clock {}", machine.clocksource)),
    ]
    .into_iter()
    .flatten()
    .collect();
    parts.extend(machine.interfaces.iter().map(|nic| {
        let (queues_tx, queues_rx, mtu) = (nic.tx_queues, nic.rx_queues, nic.mtu_bytes);
        format!("{} ({}, {queues_tx} TX and {queues_rx} RX queues, MTU {mtu})", nic.name, nic.driver)
    }));
    if let Some(why) = &machine.no_hardware_counters {
        parts.push(format!("no cycles, instructions or cache misses per packet ({why})"));
    }
    parts.join(", ")
}

/// When the run started, how long it took, and what wrote it.
pub(crate) fn occasion(run: &Run) -> String {
    let (start, seconds) = (&run.start, run.end.duration_s);
    let took = if seconds > 0.0 { format!(", {}", number::seconds(seconds)) } else { String::new() };
    format!("{}{took}, version {}", start.started_at, start.version)
}
