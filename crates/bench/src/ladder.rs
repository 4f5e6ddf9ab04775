//! The ladder: every pair, trial by trial, in one record.

use std::{error::Error, fmt, time::Instant};

use lab::Lab;
use measure::{End, PairSummary, Run, SCHEMA, Skipped, Start};

use crate::{
    peers::{PeerPair, run_peer_trial},
    plan::{BenchPlan, Pair},
    trial::{Tick, TrialError, TrialRun, run_trial, run_trial_in},
};

/// What a ladder tells while it runs.
pub trait Watcher {
    /// A trial begins: its number from 0, of how many, and its row as the table names it.
    fn trial_begins(&mut self, index: u32, of: u32, row: &dyn fmt::Display);

    /// A look at the running trial; returns whether to go on.
    fn tick(&mut self, tick: Tick) -> bool;

    /// A trial is finished, with its intervals.
    fn trial_ends(&mut self, trial: &measure::Trial, intervals: &[measure::Interval]);
}

/// A row of the ladder.
#[derive(Clone, Copy)]
enum Row<'p> {
    Ours(&'p Pair),
    Peer(&'p PeerPair),
}

impl Row<'_> {
    fn run(
        self,
        place: &Place<'_>,
        number: u32,
        tick: impl FnMut(Tick) -> bool,
    ) -> Result<TrialRun, TrialError> {
        let Place { plan, lab } = place;
        match (self, lab) {
            (Self::Ours(pair), Some(lab)) => run_trial_in(lab, plan, pair, number, tick),
            (Self::Ours(pair), None) => run_trial(plan, pair, number, tick),
            (Self::Peer(pair), _) => run_peer_trial(plan, pair, number, tick),
        }
    }
}

/// Where trials run.
struct Place<'p> {
    plan: &'p BenchPlan,
    /// One for all trials: real interfaces take seconds to come up. The embedded lab is made anew for each.
    lab: Option<Lab>,
}

impl<'p> Place<'p> {
    fn of(plan: &'p BenchPlan) -> Result<Self, TrialError> {
        let lab = plan.lab.interfaces.is_some().then(|| Lab::create(&plan.lab)).transpose()?;
        Ok(Self { plan, lab })
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(pair) => write!(f, "{} → {}", pair.tx, pair.rx),
            Self::Peer(pair) => pair.fmt(f),
        }
    }
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
    let rows = || plan.pairs.iter().map(Row::Ours).chain(plan.peers.iter().map(Row::Peer));
    let of = plan.trials * rows().count() as u32;
    let turns = (1..=plan.trials).flat_map(|number| rows().map(move |row| (number, row)));
    let place = match Place::of(plan) {
        Ok(place) => place,
        Err(error) => return Err((Box::new(run), error)),
    };
    let mut failure = None;
    for (turn, (number, row)) in (0..).zip(turns) {
        watcher.trial_begins(turn, of, &row);
        match row.run(&place, number, |tick| watcher.tick(tick)) {
            Ok(mut finished) => {
                let index = run.end.trials.len() as u32;
                finished.intervals.iter_mut().for_each(|interval| interval.trial = index);
                watcher.trial_ends(&finished.trial, &finished.intervals);
                run.intervals.append(&mut finished.intervals);
                let interrupted = finished.trial.interrupted;
                run.end.trials.push(finished.trial);
                failure = finished.error.map(TrialError::Engine);
                if interrupted {
                    run.end.interrupted = true;
                    break;
                }
            }
            // Somebody else's program that fails is told, and costs only its own rows.
            Err(TrialError::Peer(error)) => {
                run.end.skipped.push(Skipped { engine: row.to_string(), reason: error.to_string() });
            }
            // The lab's own pair can do all; what a card cannot do is known only now.
            Err(TrialError::Engine(error)) if plan.lab.interfaces.is_some() => {
                let left_out = Skipped { engine: row.to_string(), reason: in_words(&error) };
                if !run.end.skipped.contains(&left_out) {
                    run.end.skipped.push(left_out);
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

/// An error with its causes; a transparent one repeats its cause.
fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut at = error.source();
    while let Some(cause) = at {
        let text = cause.to_string();
        if !words.ends_with(&text) {
            words = format!("{words}: {text}");
        }
        at = cause.source();
    }
    words
}
