//! The loop of every trial: start, watch, stop, drain, read the counters, close the ledger.

use std::thread;

use measure::{Interval, Trial};
use session::drain;
use sys::{
    clock,
    counting::{Mark, mark},
};

use crate::{
    cpu_time::CpuWatch,
    ends::{Ends, Outcome},
    error::TrialError,
    profile::Diagnosis,
    watch::{Tick, Watch, WatchPlan},
};

/// A finished trial.
#[derive(Debug)]
pub struct TrialRun<E = TrialError> {
    /// The trial.
    pub trial: Trial,
    /// Its intervals; `trial` in each is 0 until the run numbers them.
    pub intervals: Vec<Interval>,
    /// The cause of a worker's early end.
    pub error: Option<E>,
}

/// Runs one trial between two ends. `tick` gets every reading, with the interval that it ends, and returns whether to go
/// on; a trial that it ends early is drained and closed like any other. With a diagnosis the trial also has the polls of
/// devices and a profile.
///
/// # Errors
/// Why it could not run. A path that breaks later ends the trial early, with the measurements until then.
pub fn run_trial<E: Ends>(
    mut ends: E,
    plan: WatchPlan,
    mut diagnosis: Option<Diagnosis>,
    mut tick: impl FnMut(Tick, Option<&Interval>) -> bool,
) -> Result<TrialRun<E::Error>, E::Error> {
    ends.read_counters()?;
    ends.warm_up()?;
    let cpus = CpuWatch::start(diagnosis.as_ref().and_then(Diagnosis::napi))?;
    mark(Mark::Begin);
    let mut watch = Watch::new(plan, ends.begin()?);
    let mut is_stopped = false;
    let mut has_lost_receiver = false;
    let mut sent = 0;
    while !ends.is_finished() {
        thread::sleep(E::LOOK);
        diagnosis.iter_mut().for_each(Diagnosis::tick);
        let look = ends.look()?;
        sent = look.sent;
        let (now, interval) = watch.look(clock::monotonic_ns(), look);
        if !tick(now, interval) && !is_stopped {
            is_stopped = true;
            ends.stop();
        }
        has_lost_receiver |= ends.has_lost_receiver();
    }
    let cpus = cpus.shares()?;
    ends.end_sending()?;
    let delivered = ends.delivered()?;
    if delivered == sent {
        // Nothing is in flight: the rest is bookkeeping, and a receiver that updates at intervals.
        mark(Mark::End);
    }
    let profile = diagnosis.map(|mut diagnosis| diagnosis.take(delivered));
    let mut before = None;
    drain(E::LONGEST_DRAIN, || {
        let now = ends.delivered()?;
        if before.replace(now) == Some(now) {
            mark(Mark::End);
        }
        ends.in_flight()
    })?;
    mark(Mark::End);
    let Outcome { settings, tx, mut rx, error } = ends.close()?;
    rx.cpus = cpus;
    rx.profile = profile.or(rx.profile);
    let trial = tx.into_trial(settings, rx, is_stopped || has_lost_receiver || error.is_some());
    ends.conclude(&trial);
    Ok(TrialRun { trial, intervals: watch.into_intervals(), error })
}

#[cfg(test)]
mod tests;
