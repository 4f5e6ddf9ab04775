//! Scenarios of several steps: each a ladder, a sweep or a search, all in one record with the published figures.

use std::collections::BTreeMap;

use measure::{End, Figure, Interval, PairSummary, Point, Run, SCHEMA, Start, Trial};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trial::TrialError;

use crate::{
    ladder::run_ladder,
    plan::BenchPlan,
    recorder::Watcher,
    scenario::Published,
    sweep::SweepPlan,
    throughput::{ThroughputPlan, run_throughput},
};

/// A scenario of several steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepsPlan {
    /// The scenario's name, or its file.
    pub scenario: String,
    /// Its steps, in the order they run.
    pub steps: Vec<StepPlan>,
    /// The published figures.
    pub published: Vec<Published>,
}

/// A step; its name is the parameter `step` of every point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Its name.
    pub step: String,
    /// Its subject.
    pub plan: ExperimentPlan,
}

/// The kind of a run in the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExperimentPlan {
    /// A ladder, or a sweep of ladders.
    Ladder(SweepPlan),
    /// Throughput searches.
    Throughput(ThroughputPlan),
}

/// The name of the parameter with the step of a trial.
const STEP: &str = "step";

impl ExperimentPlan {
    /// Its settings, one entry per point.
    pub fn points(&self) -> &[BenchPlan] {
        match self {
            Self::Ladder(plan) => &plan.points,
            Self::Throughput(plan) => &plan.points,
        }
    }

    /// The mutable settings.
    pub fn points_mut(&mut self) -> &mut [BenchPlan] {
        match self {
            Self::Ladder(plan) => &mut plan.points,
            Self::Throughput(plan) => &mut plan.points,
        }
    }

    /// Runs it; trials of `earlier`, a run of the same plan, are not repeated.
    ///
    /// # Errors
    /// The trial that could not start, with the record so far.
    pub fn run(
        &self,
        start: Start,
        earlier: Option<Run>,
        watcher: &mut impl Watcher,
    ) -> Result<Run, (Box<Run>, TrialError)> {
        match self {
            Self::Ladder(plan) => run_ladder(plan, start, earlier, watcher),
            Self::Throughput(plan) => run_throughput(plan, start, earlier, watcher),
        }
    }
}

impl StepPlan {
    /// A step of this name.
    pub fn new(step: &str, mut plan: ExperimentPlan) -> Self {
        for point in plan.points_mut() {
            point.parameters.insert(STEP.into(), json!(step));
        }
        Self { step: step.into(), plan }
    }
}

/// Runs all steps in turn, into one record. Trials before an error or an interruption remain in the record;
/// trials of `earlier`, a run of the same plan, are not repeated.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_steps(
    plan: &StepsPlan,
    start: Start,
    earlier: Option<Run>,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let mut total =
        Run { schema: SCHEMA.into(), start: start.clone(), intervals: Vec::new(), end: End::default() };
    let mut failure = None;
    for step in &plan.steps {
        let of_step = earlier.as_ref().map(|earlier| part_of(earlier, &step.step));
        match step.plan.run(start.clone(), of_step, watcher) {
            Ok(run) => append(&mut total, run),
            Err((run, error)) => {
                append(&mut total, *run);
                failure = Some(error);
            }
        }
        if total.end.interrupted || failure.is_some() {
            break;
        }
    }
    total.end.pairs = PairSummary::of(&total.end.trials);
    total.end.figures = figures(&plan.published, &total.end.points);
    match failure {
        Some(error) => Err((Box::new(total), error)),
        None => Ok(total),
    }
}

/// The trials of an earlier run in one step.
fn part_of(earlier: &Run, step: &str) -> Run {
    let mut part = Run {
        schema: SCHEMA.into(),
        start: earlier.start.clone(),
        intervals: Vec::new(),
        end: End::default(),
    };
    for (index, trial) in (0u32..).zip(&earlier.end.trials) {
        if trial.parameters.get(STEP).and_then(Value::as_str) != Some(step) {
            continue;
        }
        let now = part.end.trials.len() as u32;
        let of_it = earlier.intervals.iter().filter(|interval| interval.trial == index);
        part.intervals.extend(of_it.map(|interval| Interval { trial: now, ..interval.clone() }));
        part.end.trials.push(Trial::clone(trial));
    }
    part
}

/// Adds a step's record; indexes into trials are adjusted.
fn append(total: &mut Run, mut run: Run) {
    let offset = total.end.trials.len() as u32;
    run.intervals.iter_mut().for_each(|interval| interval.trial += offset);
    for found in &mut run.end.throughput {
        found.goals.iter_mut().flat_map(|goal| &mut goal.trials).for_each(|trial| *trial += offset);
        found.latency.iter_mut().for_each(|at| at.trial += offset);
        found.frame_loss.iter_mut().for_each(|at| at.trial += offset);
    }
    total.intervals.append(&mut run.intervals);
    total.end.trials.append(&mut run.end.trials);
    total.end.points.append(&mut run.end.points);
    total.end.throughput.append(&mut run.end.throughput);
    total.end.interrupted |= run.end.interrupted;
    total.end.duration_s += run.end.duration_s;
    for skipped in run.end.skipped {
        if !total.end.skipped.contains(&skipped) {
            total.end.skipped.push(skipped);
        }
    }
}

/// Each published figure with the best of the matching points.
fn figures(published: &[Published], points: &[Point]) -> Vec<Figure> {
    published
        .iter()
        .map(|figure| {
            let base = figure.figure();
            if !base.no_counterpart.is_empty() {
                return base;
            }
            let metric = |point: &Point| point.values.get(&figure.metric).and_then(Value::as_f64);
            let best = |when: &BTreeMap<String, Value>| {
                let is_meant = |point: &&Point| {
                    let is = |name: &str, value: &Value| point.values.get(name) == Some(value);
                    figure.step.as_ref().is_none_or(|step| is(STEP, &json!(step)))
                        && when.iter().all(|(name, value)| is(name, value))
                };
                let meant = points.iter().filter(is_meant);
                meant.filter_map(|point| Some((metric(point)?, point))).max_by(|a, b| a.0.total_cmp(&b.0))
            };
            let Some((value, point)) = best(&figure.when) else { return base };
            if figure.over.is_empty() {
                return Figure { measured: Some(value), measured_at: named(point), ..base };
            }
            let Some((under, other)) = best(&figure.over).filter(|(under, _)| *under > 0.0) else {
                return base;
            };
            let measured_at = format!("{} over {}", told_apart(point, other), told_apart(other, point));
            Figure { measured: Some(value / under), measured_at, ..base }
        })
        .collect()
}

/// The parameters in which a point differs from another.
fn told_apart(point: &Point, from: &Point) -> String {
    const PARAMETERS: [&str; 9] =
        ["tx", "rx", "mtu", "offload", "send_size", "payload", "threads", "burst", "tx_usecs"];
    let differs = PARAMETERS.into_iter().filter(|name| point.values.get(*name) != from.values.get(*name));
    let words = differs.filter_map(|name| {
        let value = point.values.get(name)?;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some(format!("{name} {value}"))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn named(point: &Point) -> String {
    let word = |name: &str| {
        point.values.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    [STEP, "tx", "rx"].into_iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_best_of_the_matching_points() {
        let point = |step: &str, mtu: u32, bps: f64| Point {
            values: BTreeMap::from([
                ("step".to_owned(), json!(step)),
                ("mtu".into(), json!(mtu)),
                ("delivered_bps".into(), json!(bps)),
            ]),
        };
        let points = [
            point("tcp", 1500, 1e9),
            point("tcp", 1500, 2e9),
            point("tcp", 9000, 5e9),
            point("udp", 1500, 9e9),
        ];
        let published = |when| Published {
            id: None,
            figure: "TCP".into(),
            value: 5.5e9,
            unit: "bps".into(),
            place: String::new(),
            step: Some("tcp".into()),
            metric: "delivered_bps".into(),
            when,
            over: BTreeMap::new(),
        };
        let found = figures(
            &[
                published(BTreeMap::from([("mtu".into(), json!(1500))])),
                published(BTreeMap::from([("mtu".into(), json!(1))])),
            ],
            &points,
        );
        assert_eq!((found[0].measured, found[0].measured_at.as_str()), (Some(2e9), "tcp"));
        assert_eq!(found[1].measured, None, "nothing measured, no value");
        let ratio = Published {
            over: BTreeMap::from([("mtu".into(), json!(1500))]),
            ..published(BTreeMap::from([("mtu".into(), json!(9000))]))
        };
        let none = Published { id: Some("10gbe.udp-9000".into()), ..published(BTreeMap::new()) };
        let found = figures(&[ratio, none], &points);
        assert_eq!(found[0].measured, Some(2.5));
        assert_eq!(found[0].measured_at, "mtu 9000 over mtu 1500");
        assert_eq!(found[1].measured, None, "a result with another limit is not compared with it");
        assert!(found[1].no_counterpart.contains("10 Gb/s link"));
    }

    #[test]
    fn a_plan_reads_back_as_written() {
        let ladder = SweepPlan { points: vec![BenchPlan::sample()], trials: 2, seed: 3 };
        let search = ThroughputPlan {
            points: vec![BenchPlan::sample()],
            goals: vec![search::Goal::ndr()],
            min_pps: None,
            max_pps: Some(1e6),
            tests: crate::throughput::Tests {
                latency_shares: vec![0.1],
                frame_loss_step: None,
                back_to_back: None,
                longest_burst_s: 2.0,
            },
            seed: 3,
        };
        let plan = StepsPlan {
            scenario: "two".into(),
            steps: vec![
                StepPlan::new("z", ExperimentPlan::Ladder(ladder)),
                StepPlan::new("a", ExperimentPlan::Throughput(search)),
            ],
            published: Vec::new(),
        };
        let read: StepsPlan = serde_json::from_value(serde_json::to_value(&plan).unwrap()).unwrap();
        assert_eq!(read, plan, "in the order of the scenario, each of its kind");
        assert_eq!(read.steps[0].plan.points()[0].parameters["step"], "z");
    }
}
