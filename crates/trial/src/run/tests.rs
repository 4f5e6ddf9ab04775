use std::time::Duration;

use measure::{Endpoint, Histogram, LedgerLine};
use session::InFlight;
use sys::procfs::ProcError;
use thiserror::Error;
use traffic::{TxSnapshot, WorkerCost};

use super::*;
use crate::{
    record::{RxOutcome, TrialSettings, TxOutcome},
    watch::Look,
};

#[derive(Debug, Error)]
enum FakeError {
    #[error("the receiver broke")]
    Broken,
    #[error(transparent)]
    Cpus(#[from] ProcError),
}

/// Ends without a kernel: every reading sends ten packets, and every reading of the drain delivers ten of those in flight.
struct FakeEnds<'c> {
    calls: &'c mut Vec<&'static str>,
    looks: u64,
    looks_at_most: u64,
    delivered: u64,
    lost: u64,
    is_stopped: bool,
    loses_receiver: bool,
    breaks: bool,
}

impl<'c> FakeEnds<'c> {
    fn new(calls: &'c mut Vec<&'static str>, looks_at_most: u64) -> Self {
        Self {
            calls,
            looks: 0,
            looks_at_most,
            delivered: 0,
            lost: 0,
            is_stopped: false,
            loses_receiver: false,
            breaks: false,
        }
    }

    fn sent(&self) -> u64 {
        10 * self.looks
    }
}

impl Ends for FakeEnds<'_> {
    type Error = FakeError;
    type Seen = u64;

    const LOOK: Duration = Duration::from_micros(1);
    const LONGEST_DRAIN: Duration = Duration::from_secs(3600);

    fn read_counters(&mut self) -> Result<(), FakeError> {
        self.calls.push("read_counters");
        Ok(())
    }

    fn warm_up(&mut self) -> Result<(), FakeError> {
        self.calls.push("warm_up");
        Ok(())
    }

    fn begin(&mut self) -> Result<u64, FakeError> {
        self.calls.push("begin");
        Ok(clock::monotonic_ns())
    }

    fn look(&mut self) -> Result<Look, FakeError> {
        self.looks += 1;
        Ok(Look { sent: self.sent(), delivered: Some(0), ..Look::default() })
    }

    fn is_finished(&self) -> bool {
        self.is_stopped || self.looks >= self.looks_at_most
    }

    fn has_lost_receiver(&self) -> bool {
        self.loses_receiver
    }

    fn stop(&mut self) {
        self.calls.push("stop");
        self.is_stopped = true;
    }

    fn end_sending(&mut self) -> Result<(), FakeError> {
        self.calls.push("end_sending");
        Ok(())
    }

    fn delivered(&mut self) -> Result<u64, FakeError> {
        Ok(self.delivered)
    }

    fn in_flight(&mut self) -> Result<InFlight<u64>, FakeError> {
        self.delivered = (self.delivered + 10).min(self.sent() - self.lost);
        let is_complete = self.delivered + self.lost == self.sent();
        Ok(InFlight { is_complete, quiet: Duration::from_secs(3600), seen: self.delivered })
    }

    fn close(&mut self) -> Result<Outcome<FakeError>, FakeError> {
        self.calls.push("close");
        let settings = TrialSettings {
            trial: 3,
            tx: Endpoint::default(),
            frame_size_bytes: 64,
            payload_bytes: 18,
            asked_pps: None,
        };
        let tx = TxOutcome {
            tally: TxSnapshot { packets: self.sent(), ..TxSnapshot::default() },
            scheduled: self.sent(),
            seconds: 2.0,
            cost: WorkerCost::default(),
            lateness: Histogram::new(),
            largest_gap_ns: 0,
            error: None,
        };
        let lines = vec![LedgerLine::new("ring", self.lost, "fake")];
        let rx = RxOutcome { delivered: self.delivered, lines, ..RxOutcome::of(Endpoint::default()) };
        Ok(Outcome { settings, tx, rx, error: self.breaks.then_some(FakeError::Broken) })
    }

    fn conclude(self, trial: &Trial) {
        assert_eq!(trial.trial, 3);
        self.calls.push("conclude");
    }
}

const PLAN: WatchPlan = WatchPlan { duration_ns: 1, interval_ns: None };
const WHOLE: [&str; 6] = ["read_counters", "warm_up", "begin", "end_sending", "close", "conclude"];

#[test]
fn a_trial_is_started_watched_drained_and_closed_in_this_order() {
    let mut calls = Vec::new();
    let ends = FakeEnds { lost: 20, ..FakeEnds::new(&mut calls, 5) };
    let mut ticks = 0;
    let run = run_trial(ends, PLAN, None, |_, _| {
        ticks += 1;
        true
    });
    let TrialRun { trial, intervals, error } = run.unwrap();
    assert_eq!(calls, WHOLE);
    assert_eq!((ticks, intervals.len()), (5, 0));
    assert_eq!((trial.sent, trial.delivered, trial.ledger.unexplained), (50, 30, 0));
    assert_eq!((trial.sent_pps, trial.receipt.delivered), (25.0, 30));
    assert!(!trial.interrupted && error.is_none() && !trial.cpus.is_empty());
}

#[test]
fn an_interrupted_trial_is_stopped_once_and_closed_like_any_other() {
    let mut calls = Vec::new();
    let trial = run_trial(FakeEnds::new(&mut calls, u64::MAX), PLAN, None, |_, _| false).unwrap().trial;
    assert_eq!(calls, ["read_counters", "warm_up", "begin", "stop", "end_sending", "close", "conclude"]);
    assert_eq!((trial.interrupted, trial.sent, trial.delivered), (true, 10, 10));
}

#[test]
fn a_lost_receiver_marks_the_trial_and_does_not_prevent_the_user_from_stopping_it() {
    let mut calls = Vec::new();
    let ends = FakeEnds { loses_receiver: true, ..FakeEnds::new(&mut calls, u64::MAX) };
    let mut looks = 0;
    let run = run_trial(ends, PLAN, None, |_, _| {
        looks += 1;
        looks < 3
    });
    assert!(run.unwrap().trial.interrupted);
    assert_eq!(calls.iter().filter(|call| **call == "stop").count(), 1);
}

#[test]
fn measurements_before_a_worker_failed_are_in_the_trial() {
    let mut calls = Vec::new();
    let ends = FakeEnds { breaks: true, ..FakeEnds::new(&mut calls, 2) };
    let run = run_trial(ends, PLAN, None, |_, _| true).unwrap();
    assert_eq!(run.error.unwrap().to_string(), "the receiver broke");
    assert_eq!((run.trial.interrupted, run.trial.sent, run.trial.ledger.unexplained), (true, 20, 0));
}
