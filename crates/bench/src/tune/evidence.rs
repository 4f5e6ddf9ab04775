//! Other changes between two settings, and the limit of the current ones: counters, CPUs and profiles of their trials.

use std::collections::BTreeMap;

use measure::{Stage, Trial, median};

/// A place of loss below this share of the packets sent is not mentioned.
const LEAST_LOST: f64 = 0.005;
/// A place vanished when less than this share of its loss remains.
const VANISHED: f64 = 0.1;
/// CPU time of a stage must shrink by this share to be mentioned.
const SHRANK: f64 = 0.2;
/// A CPU is busy when it idles less than this.
const BUSY: f64 = 0.05;
const IDLE: f64 = 0.5;

/// Trials of the same settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Group<'t> {
    pub(super) plain: Vec<&'t Trial>,
    /// A trial with a profile, which costs some speed.
    pub(super) profiled: Option<&'t Trial>,
}

impl Group<'_> {
    /// Lost share of the packets sent, by place.
    fn losses(&self) -> BTreeMap<String, f64> {
        let sent: u64 = self.plain.iter().map(|trial| trial.sent).sum();
        let mut places: BTreeMap<String, u64> = BTreeMap::new();
        for line in self.plain.iter().flat_map(|trial| &trial.ledger.lines) {
            *places.entry(format!("{} ({})", line.place, line.source)).or_default() += line.packets;
        }
        places.into_iter().map(|(place, lost)| (place, lost as f64 / sent.max(1) as f64)).collect()
    }

    fn median(&self, of: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        median(&self.plain.iter().filter_map(|trial| of(trial)).collect::<Vec<_>>())
    }

    /// Nanoseconds of CPU time per packet, by stage of the receive path.
    fn stages(&self) -> BTreeMap<Stage, f64> {
        let profile = self.profiled.and_then(|trial| trial.profile.as_ref());
        let stages = profile.into_iter().flat_map(|profile| &profile.stages);
        stages.filter_map(|stage| Some((stage.stage, stage.ns_per_packet?))).collect()
    }
}

/// The changes from one group to the other, in words.
pub(super) fn changes(before: &Group<'_>, after: &Group<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let (had, has) = (before.losses(), after.losses());
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    for (place, lost) in had.iter().filter(|(_, lost)| **lost >= LEAST_LOST) {
        let left = has.get(place).copied().unwrap_or(0.0);
        if left < lost * VANISHED {
            words.push(format!("loss vanished: {place}, {} of the packets before", percent(*lost)));
        } else if left < lost / 2.0 {
            words.push(format!("loss shrank: {place}, from {} to {}", percent(*lost), percent(left)));
        }
    }
    for (place, lost) in has.iter().filter(|(_, lost)| **lost >= LEAST_LOST) {
        if had.get(place).copied().unwrap_or(0.0) < lost * VANISHED {
            words.push(format!("loss appeared: {place}, {}", percent(*lost)));
        }
    }
    let (was, is) = (before.stages(), after.stages());
    let mut stages: Vec<(f64, String)> = was
        .iter()
        .filter_map(|(stage, was)| {
            let is = is.get(stage).copied().unwrap_or(0.0);
            let shrank = was - is;
            let words = format!("profile: {} {was:.0} → {is:.0} ns per packet", stage.name());
            (shrank > was * SHRANK && shrank > 5.0).then_some((shrank, words))
        })
        .collect();
    stages.sort_by(|a, b| b.0.total_cmp(&a.0));
    words.extend(stages.into_iter().take(3).map(|(_, words)| words));
    let costs = [
        ("sending", [before, after].map(|group| group.median(|trial| trial.tx_cost.ns_per_packet))),
        ("receiving", [before, after].map(|group| group.median(|trial| trial.rx_cost.ns_per_packet))),
    ];
    for (side, cost) in costs {
        if let [Some(was), Some(is)] = cost
            && (was - is) > was * SHRANK
        {
            words.push(format!("{side} threads: {was:.0} → {is:.0} ns of CPU per packet"));
        }
    }
    words
}

/// The limit of the current settings, in words.
pub(super) fn limits(group: &Group<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let losses = group.losses();
    if let Some((place, lost)) =
        losses.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|(_, lost)| **lost >= LEAST_LOST)
    {
        let remedy = group.plain.iter().flat_map(|trial| &trial.ledger.lines).find_map(|line| {
            let is_it = format!("{} ({})", line.place, line.source) == *place;
            line.remedy.clone().filter(|_| is_it)
        });
        let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        words.push(format!("the receiver: {:.1} % of the packets are lost at {place}{remedy}", lost * 100.0));
    } else if !group.plain.is_empty() {
        words.push("the sender: almost no loss, the receiver keeps up".into());
    }
    let mut cpus: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for cpu in group.plain.iter().flat_map(|trial| &trial.cpus) {
        cpus.entry(cpu.cpu).or_default().push(cpu.idle_ratio);
    }
    let idle: Vec<(u32, f64)> =
        cpus.into_iter().filter_map(|(cpu, shares)| Some((cpu, median(&shares)?))).collect();
    let busy = idle.iter().filter(|(_, idle)| *idle < BUSY).count();
    if busy > 0 {
        words.push(format!("{busy} of {} CPUs are fully busy", idle.len()));
    }
    if let Some((cpu, share)) =
        idle.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, idle)| *idle > IDLE)
    {
        words.push(format!(
            "CPU {cpu} idles {:.0} % of the time: more threads or queues could use it",
            share * 100.0
        ));
    }
    let stages = group.stages();
    let all: f64 = stages.values().sum();
    if let Some((stage, ns)) = stages.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
        let share = ns / all.max(1e-9) * 100.0;
        words.push(format!(
            "the most expensive stage of receiving is {}: {ns:.0} ns per packet, {share:.0} % of the total",
            stage.name()
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use measure::{CpuShare, Ledger, LedgerLine, Profile, StageShare};

    use super::*;

    fn trial(lost: u64, idle: [f64; 2], stage_ns: f64) -> Trial {
        let line = LedgerLine::new("receive buffer", lost, "UdpRcvbufErrors");
        let stage = StageShare {
            stage: Stage::Syscall,
            samples: 10,
            share_ratio: 1.0,
            margin_ratio: 0.0,
            ns_per_packet: Some(stage_ns),
        };
        let cpu = |cpu: u32, idle_ratio: f64| CpuShare { cpu, idle_ratio, ..CpuShare::default() };
        Trial {
            sent: 1000,
            delivered: 1000 - lost,
            ledger: Ledger::close(1000, 1000 - lost, vec![line]),
            cpus: vec![cpu(0, idle[0]), cpu(1, idle[1])],
            profile: Some(Profile { stages: vec![stage], ..Profile::default() }),
            ..Trial::default()
        }
    }

    #[test]
    fn a_vanished_loss_and_a_shrunk_stage_are_named() {
        let (before, after) = (trial(200, [0.0, 0.0], 400.0), trial(1, [0.0, 0.9], 100.0));
        let group = |trial| Group { plain: vec![trial], profiled: Some(trial) };
        assert_eq!(
            changes(&group(&before), &group(&after)),
            [
                "loss vanished: receive buffer (UdpRcvbufErrors), 20.0 % of the packets before",
                "profile: system call 400 → 100 ns per packet",
            ]
        );
        let back = changes(&group(&after), &group(&before));
        assert_eq!(back, ["loss appeared: receive buffer (UdpRcvbufErrors), 20.0 %"]);
    }

    #[test]
    fn the_limit_is_a_place_of_loss_or_the_sender_and_an_idle_cpu_is_named() {
        let (lossy, lossless) = (trial(200, [0.0, 0.01], 50.0), trial(0, [0.0, 0.9], 50.0));
        let of = |trial| limits(&Group { plain: vec![trial], profiled: None });
        assert_eq!(
            of(&lossy),
            [
                "the receiver: 20.0 % of the packets are lost at receive buffer (UdpRcvbufErrors)",
                "2 of 2 CPUs are fully busy",
            ]
        );
        assert_eq!(
            of(&lossless),
            [
                "the sender: almost no loss, the receiver keeps up",
                "1 of 2 CPUs are fully busy",
                "CPU 1 idles 90 % of the time: more threads or queues could use it",
            ]
        );
    }
}
