//! When, where and on which machine a run ran, as text; raw, must be escaped.

use measure::{Machine, Origin, Run, Trial};
use serde_json::Value;

use crate::number;

/// The kind of path of a run, as text.
pub(crate) fn place(origin: Origin) -> &'static str {
    match origin {
        Origin::Lab => "in the lab",
        Origin::Hosts => "on existing interfaces",
        Origin::Model => "by simulation",
        Origin::Exact => "by counted instructions in an emulated machine",
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

/// The machine in brief.
pub(crate) fn machine_in_short(machine: &Machine) -> String {
    format!("{} × {}, kernel {}", machine.cpus, machine.cpu_model, machine.kernel)
}

/// The CPUs that sent and received in the first trial of a ladder; `None` if workers were not pinned.
pub(crate) fn placement(run: &Run) -> Option<String> {
    // A receiver in the kernel may have no CPU of its own.
    let pinned = |trial: &&Trial| !trial.tx.cpus.is_empty() && !trial.rx.cpus.is_empty();
    let first = run.end.trials.iter().find(pinned)?;
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let threads = first.rx.options.get("napi_cpus").and_then(Value::as_array);
    let threads: Vec<u32> = threads
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .filter_map(|cpu| cpu.try_into().ok())
        .collect();
    let softirq = match first.rx.options.get("threaded_napi") {
        Some(Value::Bool(true)) if threads.is_empty() => "softirq not pinned".into(),
        Some(Value::Bool(true)) if threads == first.rx.cpus => "softirq on the receiving CPUs".into(),
        Some(Value::Bool(true)) => format!("softirq on {}", list(&threads)),
        Some(Value::Bool(false)) => "softirq on the sending CPUs".into(),
        _ => return Some(format!("CPUs {} → {}", list(&first.tx.cpus), list(&first.rx.cpus))),
    };
    Some(format!("CPUs {} → {} ({softirq})", list(&first.tx.cpus), list(&first.rx.cpus)))
}

/// When the run started, how long it took, and what wrote it.
pub(crate) fn occasion(run: &Run) -> String {
    let (start, seconds) = (&run.start, run.end.duration_s);
    let took = if seconds > 0.0 { format!(", {}", number::seconds(seconds)) } else { String::new() };
    format!("{}{took}, version {}", start.started_at, start.version)
}
