//! The ladder: every pair, trial by trial, in one record; at one setting or at every point of a sweep.

use measure::{Run, Start};

use crate::{
    plan::BenchPlan,
    recorder::{Coming, Recorder, Watcher},
    sweep::{self, SweepPlan},
    trial::TrialError,
};

/// Runs all points and pairs, trial by trial in turns. What was measured before an error or an interruption is in
/// the record all the same; what `earlier` measured with the same plan is not measured again.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_ladder(
    plan: &SweepPlan,
    start: Start,
    earlier: Option<Run>,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let skipped = plan.points.first().map_or(&[][..], |first| &first.skipped);
    let mut recorder = Recorder::new(start, skipped, earlier, watcher);
    let turns = plan.turns();
    let of = Some(turns.len() as u32);
    for turn in &turns {
        let point: &BenchPlan = &plan.points[turn.point];
        let coming = Coming { index: 0, of, row: point.row(turn.row), what: point.parameters_in_words() };
        if recorder.trial(point, turn.trial, coming).is_err() {
            break;
        }
    }
    if plan.is_sweep() {
        let points = sweep::points(recorder.trials());
        recorder.end_mut().points = points;
    }
    recorder.finish()
}
