//! Scenarios of several steps: each a ladder, sweep or search, all in one record, with the published figures beside.

use std::{collections::BTreeMap, time::Instant};

use bench::{
    BenchPlan, Published, Scenario, SweepPlan, ThroughputPlan, TrialError, run_ladder, run_throughput,
};
use lab::Access;
use measure::{End, Figure, Origin, PairSummary, Point, Run, SCHEMA, Start};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Experiment, gain_access, ndr, points};
use crate::{
    args::{BenchCommand, Cli, Command, OutputArgs},
    failure::{Failure, Status},
    output,
    progress::Progress,
    start::opening,
};

/// A scenario and its steps' command lines.
pub(crate) struct Steps {
    pub(crate) name: String,
    pub(crate) scenario: Scenario,
    pub(crate) commands: Vec<Cli>,
}

/// What a step measures.
#[derive(Serialize)]
#[serde(untagged)]
enum Plan {
    Ladder(SweepPlan),
    Throughput(ThroughputPlan),
}

/// Everything that is asked, as the record repeats it.
#[derive(Serialize)]
struct Asked<'a> {
    scenario: &'a str,
    steps: BTreeMap<&'a str, &'a Plan>,
}

pub(crate) fn run(steps: &Steps) -> Result<bool, Failure> {
    let access = gain_access()?;
    let mut plans = Vec::new();
    for (step, cli) in steps.scenario.steps.iter().zip(&steps.commands) {
        let name = step.name.as_deref().unwrap_or_default();
        plans.push((name, plan(name, cli, access)?));
    }
    let (Some(output), Some((_, first))) = (steps.commands.first().and_then(output_of), plans.first()) else {
        return Err(Failure::new(Status::Internal, "a scenario has steps"));
    };
    let asked =
        Asked { scenario: &steps.name, steps: plans.iter().map(|(name, plan)| (*name, plan)).collect() };
    if output.dry_run {
        return output::print_plan(&asked);
    }
    let lab = first.points()[0].lab.clone();
    let start = opening("bench", Origin::Lab, &asked);
    let experiment = Experiment { start, lab: &lab, access, earlier: None };
    experiment.run(output, None, |start, _, progress| {
        let outcome = all(&plans, start, progress);
        let with_figures =
            |run: &mut Run| run.end.figures = figures(&steps.scenario.published, &run.end.points);
        outcome
            .map(|mut run| {
                with_figures(&mut run);
                run
            })
            .map_err(|(mut run, error)| {
                with_figures(&mut run);
                (run, error)
            })
    })
}

impl Plan {
    fn points(&self) -> &[BenchPlan] {
        match self {
            Self::Ladder(plan) => &plan.points,
            Self::Throughput(plan) => &plan.points,
        }
    }
}

/// A step's plan; its name is a parameter of every point of it.
fn plan(name: &str, cli: &Cli, access: Access) -> Result<Plan, Failure> {
    let mut plan = match &cli.command {
        Command::Bench(bench) => match &bench.command {
            None => Plan::Ladder(points::ladder(bench, access)?),
            Some(BenchCommand::Ndr(ndr)) => Plan::Throughput(ndr::plan(ndr, access)?),
            Some(_) => return Err(alone(name)),
        },
        _ => return Err(alone(name)),
    };
    let points = match &mut plan {
        Plan::Ladder(plan) => &mut plan.points,
        Plan::Throughput(plan) => &mut plan.points,
    };
    for point in points {
        point.parameters.insert("step".into(), json!(name));
    }
    Ok(plan)
}

fn alone(name: &str) -> Failure {
    Failure::new(Status::Usage, format!("step '{name}': only bench and ndr can be one of several steps"))
}

fn output_of(cli: &Cli) -> Option<&OutputArgs> {
    match &cli.command {
        Command::Bench(bench) => match &bench.command {
            Some(BenchCommand::Ndr(ndr)) => Some(&ndr.output),
            _ => Some(&bench.output),
        },
        _ => None,
    }
}

/// All steps in turn, in one record.
fn all(plans: &[(&str, Plan)], start: Start, progress: &mut Progress) -> Result<Run, (Box<Run>, TrialError)> {
    let began = Instant::now();
    let mut total =
        Run { schema: SCHEMA.into(), start: start.clone(), intervals: Vec::new(), end: End::default() };
    let mut failure = None;
    for (_, plan) in plans {
        let outcome = match plan {
            Plan::Ladder(plan) => run_ladder(plan, start.clone(), None, progress),
            Plan::Throughput(plan) => run_throughput(plan, start.clone(), None, progress),
        };
        match outcome {
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
    total.end.duration_s = began.elapsed().as_secs_f64();
    match failure {
        Some(error) => Err((Box::new(total), error)),
        None => Ok(total),
    }
}

/// Adds a step's record; indexes into trials move along.
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
    for skipped in run.end.skipped {
        if !total.end.skipped.contains(&skipped) {
            total.end.skipped.push(skipped);
        }
    }
}

/// Each published figure with the best of the points that are meant.
fn figures(published: &[Published], points: &[Point]) -> Vec<Figure> {
    published
        .iter()
        .map(|figure| {
            let is_meant = |point: &&Point| {
                let is = |name: &str, value: &Value| point.values.get(name) == Some(value);
                figure.step.as_ref().is_none_or(|step| is("step", &json!(step)))
                    && figure.when.iter().all(|(name, value)| is(name, value))
            };
            let metric = |point: &Point| point.values.get(&figure.metric).and_then(Value::as_f64);
            let best = points
                .iter()
                .filter(is_meant)
                .filter_map(|point| Some((metric(point)?, point)))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            Figure {
                figure: figure.figure.clone(),
                unit: figure.unit.clone(),
                published: figure.value,
                measured: best.map(|(value, _)| value),
                place: figure.place.clone(),
                measured_at: best.map_or_else(String::new, |(_, point)| named(point)),
            }
        })
        .collect()
}

fn named(point: &Point) -> String {
    let word = |name: &str| {
        point.values.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    ["step", "tx", "rx"].into_iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_best_of_the_points_that_are_meant() {
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
            figure: "TCP".into(),
            value: 5.5e9,
            unit: "bps".into(),
            place: String::new(),
            step: Some("tcp".into()),
            metric: "delivered_bps".into(),
            when,
        };
        let found = figures(
            &[
                published(BTreeMap::from([("mtu".into(), json!(1500))])),
                published(BTreeMap::from([("mtu".into(), json!(1))])),
            ],
            &points,
        );
        assert_eq!((found[0].measured, found[0].measured_at.as_str()), (Some(2e9), "tcp"));
        assert_eq!(found[1].measured, None, "what was not measured has no value");
    }
}
