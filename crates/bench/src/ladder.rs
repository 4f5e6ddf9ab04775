//! The ladder: every pair, trial by trial, in one record.

use std::time::Instant;

use measure::{End, PairSummary, Run, SCHEMA, Start};

use crate::{
    plan::{BenchPlan, Pair},
    trial::{Tick, TrialError, run_trial},
};

/// What a ladder tells while it runs.
pub trait Watcher {
    /// A trial begins: its number from 0, of how many, and its pair.
    fn trial_begins(&mut self, index: u32, of: u32, pair: &Pair);

    /// A look at the running trial; returns whether to go on.
    fn tick(&mut self, tick: Tick) -> bool;

    /// A trial is finished, with its intervals.
    fn trial_ends(&mut self, trial: &measure::Trial, intervals: &[measure::Interval]);
}

/// Runs all pairs, trial by trial in turns. What was measured before an error or an interruption is in the
/// record all the same.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_ladder(
    plan: &BenchPlan,
    start: Start,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let began = Instant::now();
    let mut run = Run {
        schema: SCHEMA.into(),
        start,
        intervals: Vec::new(),
        end: End { skipped: plan.skipped.clone(), ..End::default() },
    };
    let of = plan.trials * plan.pairs.len() as u32;
    let turns = (1..=plan.trials).flat_map(|number| plan.pairs.iter().map(move |pair| (number, pair)));
    let mut failure = None;
    for (index, (number, pair)) in (0..).zip(turns) {
        watcher.trial_begins(index, of, pair);
        match run_trial(plan, pair, number, |tick| watcher.tick(tick)) {
            Ok(mut finished) => {
                finished.intervals.iter_mut().for_each(|interval| interval.trial = index);
                watcher.trial_ends(&finished.trial, &finished.intervals);
                run.intervals.append(&mut finished.intervals);
                let interrupted = finished.trial.interrupted;
                run.end.trials.push(finished.trial);
                if interrupted {
                    run.end.interrupted = true;
                    break;
                }
            }
            Err(error) => {
                run.end.interrupted = true;
                failure = Some(error);
                break;
            }
        }
    }
    run.end.pairs = PairSummary::of(&run.end.trials);
    run.end.duration_s = began.elapsed().as_secs_f64();
    match failure {
        Some(error) => Err((Box::new(run), error)),
        None => Ok(run),
    }
}
