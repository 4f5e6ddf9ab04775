//! The ladder: every pair, trial by trial, in one record; at one setting or at every point of a sweep.

use measure::{Run, Skipped, Start};
use trial::TrialError;

use crate::{
    capacity, lossless,
    plan::BenchPlan,
    recorder::{Coming, Recorder, Watcher},
    scale,
    sweep::{self, SweepPlan},
};

/// Runs all points and pairs, trial by trial in turns. Trials before an error or an interruption remain in
/// the record; trials of `earlier`, a run of the same plan, are not repeated.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_ladder(
    plan: &SweepPlan,
    start: Start,
    earlier: Option<Run>,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let mut skipped: Vec<Skipped> = Vec::new();
    for one in plan.points.iter().flat_map(|point| &point.skipped) {
        if !skipped.contains(one) {
            skipped.push(one.clone());
        }
    }
    let mut recorder = Recorder::new(start, &skipped, earlier, watcher);
    let turns = plan.turns();
    let of = Some(turns.len() as u32);
    let mut outcome = turns.iter().try_for_each(|turn| {
        let point: &BenchPlan = &plan.points[turn.point];
        let coming = Coming { of, ..Coming::of(point.row(turn.row), point.parameters_in_words()) };
        recorder.trial(point, turn.trial, coming).map(drop)
    });
    if plan.is_sweep() {
        let points = sweep::points(recorder.trials());
        recorder.end_mut().points = points;
    } else if let [only] = &plan.points[..] {
        let mut lossless = Vec::new();
        if let Some(scale) = only.scale.as_ref().filter(|_| outcome.is_ok()) {
            outcome = scale::run(only, scale, &mut recorder);
        }
        if let Some(goal) = only.lossless.as_ref().filter(|_| outcome.is_ok()) {
            // Points of an interrupted run are in the record, too.
            lossless::run(only, goal, &mut recorder, &mut lossless).ok();
        }
        let capacities = capacity::capacities(only, recorder.trials(), &lossless);
        recorder.end_mut().points = capacity::points(&capacities, recorder.trials());
        recorder.end_mut().capacities = capacities;
    }
    recorder.finish()
}
