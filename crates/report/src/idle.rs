//! CPUs that were idle while a ladder ran at its maximum rate, and the option that uses them.

use measure::{Layer, Run};

use crate::{
    ladder::{Rung, best},
    number,
};

/// A CPU counts as idle when it was idle for at least this share of the time.
const IDLE: f64 = 0.8;

/// The remark on a run at the maximum rate whose best pair left CPUs idle; none if more threads were measured too.
pub(crate) fn remark(run: &Run, rungs: &[Rung]) -> Option<String> {
    let at_most = rungs.iter().all(|rung| rung.pair.asked_pps.is_none() && rung.pair.parameters.is_empty());
    let is_scaled = run.end.capacities.iter().any(|found| found.efficiency_ratio.is_some());
    let best = best(rungs).filter(|_| run.start.command == "bench" && at_most && !is_scaled)?;
    let first = best.trials.first().filter(|trial| trial.stream.is_none())?;
    let idle: Vec<(u32, f64)> = first
        .cpus
        .iter()
        .filter_map(|cpu| {
            let of = |trial: &measure::Trial| {
                Some(trial.cpus.iter().find(|other| other.cpu == cpu.cpu)?.idle_ratio)
            };
            Some((cpu.cpu, best.median(of)?))
        })
        .filter(|(_, ratio)| *ratio >= IDLE)
        .collect();
    let (some, all) = (idle.len(), first.cpus.len());
    let subject = match &idle[..] {
        [] => return None,
        [(cpu, ratio)] => format!("CPU {cpu} was idle for {} % of the time", number::percent(*ratio)),
        _ => format!("{some} of {all} CPUs were idle"),
    };
    let in_kernel =
        run.end.capacities.iter().any(|found| found.label == best.pair.rx && found.layer == Layer::Kernel);
    // A receiver in the sender's softirq needs no CPU, others as many CPUs as the senders.
    let more = if in_kernel { some as u32 } else { some as u32 / 2 };
    let threads = match more {
        0 => String::new(),
        more => format!(
            "--threads {} uses {}, ",
            best.pair.tx_threads + more,
            if some == 1 { "it" } else { "them" }
        ),
    };
    Some(format!(
        "{subject} while {} ran at its maximum rate: {threads}--scale measures with up to all CPUs.",
        best.name
    ))
}
