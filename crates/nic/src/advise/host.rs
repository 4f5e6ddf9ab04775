//! Findings about the CPUs that serve the card: frequency, sleep, siblings.

use super::view::{Finding, Goal, View};

/// All of them.
pub(super) const RULES: [fn(&View<'_>) -> Option<Finding>; 4] =
    [frequency_changes, cpus_sleep_deeply, turbo_depends_on_the_load, siblings_share_a_core];

/// Leaving a state that takes longer than this costs a packet more than its whole way through the kernel.
const LONG_US: u32 = 10;
/// The remedy of `linerate bench`, `send` and `recv`.
const HOLD: &str = "linerate bench, send and recv hold it with --hold-cpu while they run";

fn frequency_changes(view: &View<'_>) -> Option<Finding> {
    let control = view.around.control.as_ref()?;
    let governor = control.governors.iter().find(|governor| *governor != "performance")?;
    Some(Finding {
        effect: 45,
        title: format!("the governor {governor} changes the CPUs' frequency"),
        reason: "a CPU that was idle is slow when packets come; the rate depends on what ran before".into(),
        evidence: format!("scaling_governor is {}", control.governors.join(", ")),
        change: Vec::new(),
        risk: "none".into(),
        cost: format!("power; {HOLD}, cpupower frequency-set -g performance always"),
    })
}

fn cpus_sleep_deeply(view: &View<'_>) -> Option<Finding> {
    let control = view.around.control.as_ref()?;
    let limit_us = control.wake_up_limit_us.unwrap_or(u32::MAX);
    let reachable = control.idle_states.iter();
    let mut reachable = reachable.filter(|state| !state.is_disabled && state.exit_latency_us <= limit_us);
    let deep = reachable.find(|state| state.exit_latency_us > LONG_US)?;
    Some(Finding {
        effect: if view.goal == Goal::Latency { 70 } else { 30 },
        title: format!("idle CPUs take {} µs or more to wake up", deep.exit_latency_us),
        reason: "the first packet after a pause waits for it; at low rates every packet does".into(),
        evidence: format!("C-state {} is enabled", deep.name),
        change: Vec::new(),
        risk: "none".into(),
        cost: format!("power, and turbo for the other cores; {HOLD}"),
    })
}

fn turbo_depends_on_the_load(view: &View<'_>) -> Option<Finding> {
    let is_on = view.around.control.as_ref()?.turbo?;
    is_on.then(|| Finding {
        effect: 10,
        title: "turbo frequencies depend on temperature and on how many cores are busy".into(),
        reason: "two runs with the same settings differ; one thread looks faster than each of many".into(),
        evidence: "turbo is on".into(),
        change: Vec::new(),
        risk: "none".into(),
        cost:
            "a lower peak when it is off (intel_pstate/no_turbo, cpufreq/boost); only comparisons need that"
                .into(),
    })
}

fn siblings_share_a_core(view: &View<'_>) -> Option<Finding> {
    let is_on = view.around.control.as_ref()?.smt?;
    is_on.then(|| Finding {
        effect: 12,
        title: "two CPUs share each core (SMT)".into(),
        reason: "a queue's softirq and the program that reads its packets slow each other down on one core"
            .into(),
        evidence: "smt/active is 1".into(),
        change: Vec::new(),
        risk: "none".into(),
        cost: "none: linerate places workers on different cores first; interrupts should be spread likewise"
            .into(),
    })
}
