//! Sweeps: the same measurement at every combination of some parameters' values, in random order with the repeats
//! interleaved, so that a machine that drifts does not look like an effect.

use std::collections::BTreeMap;

use measure::{CpuShare, Point, Trial, confidence_interval, median};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::plan::BenchPlan;

/// The measurement and its points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepPlan {
    /// One plan per point, with the point's parameters in it. A point without parameters is no sweep.
    pub points: Vec<BenchPlan>,
    /// Trials of each pair at each point.
    pub trials: u32,
    /// Seed of the order.
    pub seed: u64,
}

/// One trial of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Index of the point.
    pub point: usize,
    /// Number of the row within: pairs first, then peers.
    pub row: usize,
    /// Number of the trial, from 1.
    pub trial: u32,
}

impl SweepPlan {
    /// Whether there is more than one setting to compare.
    pub fn is_sweep(&self) -> bool {
        self.points.iter().any(|point| !point.parameters.is_empty())
    }

    /// Every trial in the order they run: all points and pairs once, then again. In a sweep each round is shuffled,
    /// the same way for the same seed.
    pub fn turns(&self) -> Vec<Turn> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut turns = Vec::new();
        for trial in 1..=self.trials {
            let mut round: Vec<Turn> = Vec::new();
            for (point, plan) in self.points.iter().enumerate() {
                round.extend((0..plan.pairs.len() + plan.peers.len()).map(|row| Turn { point, row, trial }));
            }
            if self.is_sweep() {
                random.shuffle(&mut round);
            }
            turns.append(&mut round);
        }
        turns
    }

    /// Seconds that all trials take together, without making labs and draining.
    pub fn seconds(&self) -> f64 {
        self.points.iter().map(|point| point.seconds() * f64::from(self.trials)).sum()
    }
}

/// The confidence of the intervals in a sweep's points.
const CONFIDENCE: f64 = 0.95;

/// The summary of each setting's trials: parameters by name, medians, and 95 % confidence intervals of the
/// means (Student's t), which need two trials.
pub(crate) fn points(trials: &[Trial]) -> Vec<Point> {
    let mut groups: Vec<(BTreeMap<String, Value>, Vec<&Trial>)> = Vec::new();
    for trial in trials.iter().filter(|trial| !trial.interrupted) {
        let mut parameters = trial.parameters.clone();
        // A rate in words, `100kpps`, is not a number that results can be drawn against.
        if let Some(asked) = trial.asked_pps
            && parameters.remove("rate").is_some()
        {
            parameters.insert("asked_pps".into(), json!(asked));
        }
        parameters.insert("tx".into(), json!(trial.tx.label));
        parameters.insert("rx".into(), json!(trial.rx.label));
        match groups.iter_mut().find(|(known, _)| *known == parameters) {
            Some((_, group)) => group.push(trial),
            None => groups.push((parameters, vec![trial])),
        }
    }
    groups.sort_by(|a, b| by_parameters(&a.0, &b.0));
    groups.into_iter().map(|(parameters, trials)| point(parameters, &trials)).collect()
}

fn point(mut values: BTreeMap<String, Value>, trials: &[&Trial]) -> Point {
    let all = |value: fn(&Trial) -> f64| trials.iter().map(|trial| value(trial)).collect::<Vec<f64>>();
    for (name, of) in RESULTS {
        let results = all(*of);
        values.insert((*name).into(), json!(median(&results)));
        if let Some((low, high)) = confidence_interval(&results, CONFIDENCE).filter(|_| has_interval(name)) {
            // With few trials an interval may be wider than its value; no rate is below 0.
            values.insert(format!("{name}_low"), json!(low.max(0.0)));
            values.insert(format!("{name}_high"), json!(high));
        }
    }
    for (side, cpus) in [("tx", tx_cpus as SideCpus), ("rx", rx_cpus)] {
        for (part, share) in CPU_PARTS {
            let shares: Vec<f64> = trials.iter().filter_map(|trial| side_mean(trial, cpus, *share)).collect();
            if let Some(share) = median(&shares) {
                values.insert(format!("{side}_cpu_{part}_ratio"), json!(share));
            }
        }
    }
    for (name, cost) in [("tx_ns_per_packet", tx_cost as fn(&Trial) -> _), ("rx_ns_per_packet", rx_cost)] {
        let costs: Vec<f64> = trials.iter().filter_map(|trial| cost(trial)).collect();
        if let Some(cost) = median(&costs) {
            values.insert(name.into(), json!(cost));
        }
    }
    values.insert("trials".into(), json!(trials.len()));
    Point { values }
}

/// A share of a CPU's time.
type CpuPart = fn(&CpuShare) -> f64;

/// The kinds of a CPU's time, by the names of results.
const CPU_PARTS: &[(&str, CpuPart)] = &[
    ("user", |cpu| cpu.user_ratio),
    ("system", |cpu| cpu.system_ratio),
    ("irq", |cpu| cpu.irq_ratio),
    ("softirq", |cpu| cpu.softirq_ratio),
];

/// A side's own CPUs, and the other side's.
type SideCpus = fn(&Trial) -> (&[u32], &[u32]);

fn tx_cpus(trial: &Trial) -> (&[u32], &[u32]) {
    (&trial.tx.cpus, &trial.rx.cpus)
}

fn rx_cpus(trial: &Trial) -> (&[u32], &[u32]) {
    (&trial.rx.cpus, &trial.tx.cpus)
}

/// Mean share of the CPUs that one side's workers were placed on; `None` if the other side's are there too.
fn side_mean(trial: &Trial, cpus: SideCpus, share: CpuPart) -> Option<f64> {
    let (own, others) = cpus(trial);
    if own.iter().any(|cpu| others.contains(cpu)) {
        return None;
    }
    let shares: Vec<f64> = trial.cpus.iter().filter(|cpu| own.contains(&cpu.cpu)).map(share).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

/// A result's name and its place in a trial.
type Result = (&'static str, fn(&Trial) -> f64);

/// Results of a point, by name.
const RESULTS: &[Result] = &[
    ("sent_pps", |trial| trial.sent_pps),
    ("delivered_pps", |trial| trial.delivered_pps),
    // The bits of a stream are those of its messages, otherwise those of frames.
    ("delivered_bps", |trial| match &trial.stream {
        Some(stream) => stream.delivered_bps,
        None => trial.delivered_pps * f64::from(trial.frame_size_bytes) * 8.0,
    }),
    ("loss_ratio", |trial| trial.loss_ratio),
    ("cpu_user_ratio", |trial| mean(trial, |cpu| cpu.user_ratio)),
    ("cpu_system_ratio", |trial| mean(trial, |cpu| cpu.system_ratio)),
    ("cpu_irq_ratio", |trial| mean(trial, |cpu| cpu.irq_ratio)),
    ("cpu_softirq_ratio", |trial| mean(trial, |cpu| cpu.softirq_ratio)),
];

fn has_interval(name: &str) -> bool {
    name == "delivered_pps" || name == "delivered_bps"
}

fn mean(trial: &Trial, share: fn(&CpuShare) -> f64) -> f64 {
    trial.cpus.iter().map(share).sum::<f64>() / trial.cpus.len().max(1) as f64
}

fn tx_cost(trial: &Trial) -> Option<f64> {
    trial.tx_cost.ns_per_packet
}

fn rx_cost(trial: &Trial) -> Option<f64> {
    trial.rx_cost.ns_per_packet
}

/// Numbers by value, so that a table of points is sorted in whatever order they ran.
pub(crate) fn by_parameters(a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>) -> std::cmp::Ordering {
    let pairs = a.values().zip(b.values());
    let compared = pairs.map(|(a, b)| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.to_string().cmp(&b.to_string()),
    });
    a.keys().cmp(b.keys()).then(compared.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(points: usize, trials: u32) -> SweepPlan {
        let point = |at: usize| BenchPlan {
            parameters: BTreeMap::from([("threads".into(), json!(at))]),
            ..BenchPlan::sample()
        };
        SweepPlan { points: (0..points).map(point).collect(), trials, seed: 7 }
    }

    #[test]
    fn every_round_has_every_point_once_in_an_order_of_its_own() {
        let turns = plan(8, 4).turns();
        let rounds: Vec<Vec<usize>> =
            turns.chunks(8).map(|round| round.iter().map(|t| t.point).collect()).collect();
        for (number, round) in rounds.iter().enumerate() {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<_>>());
            assert!(turns[number * 8..][..8].iter().all(|turn| turn.trial == number as u32 + 1));
        }
        assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]), "{rounds:?}");
        assert_eq!(turns, plan(8, 4).turns(), "the seed decides");
    }

    #[test]
    fn without_parameters_the_order_is_the_ladder_s() {
        let mut plan = plan(1, 2);
        plan.points[0].parameters.clear();
        assert!(!plan.is_sweep());
        assert_eq!(plan.turns().iter().map(|turn| turn.trial).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn parameters_that_are_numbers_are_in_their_order() {
        let of = |value: Value| BTreeMap::from([("a".to_owned(), value)]);
        let mut all = [of(json!(1024)), of(json!(64)), of(json!(128))];
        all.sort_by(by_parameters);
        assert_eq!(all, [of(json!(64)), of(json!(128)), of(json!(1024))]);
    }
}
