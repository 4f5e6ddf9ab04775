//! A row of the ladder: a sender and a receiver.

use std::fmt;

use lab::Lab;
use trial::{
    Pair, PeerPair, Tick, TrialError, TrialPlan, TrialRun, run_lab_trial, run_peer_trial, run_trial_in,
};

/// A row of the ladder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Row<'p> {
    /// A pair of our engines.
    Ours(&'p Pair),
    /// Another program.
    Peer(&'p PeerPair),
}

impl Row<'_> {
    /// Runs one trial; in `lab`, if one exists and the row can use it.
    pub(crate) fn run(
        self,
        (plan, lab): (&TrialPlan, Option<&Lab>),
        number: u32,
        tick: impl FnMut(Tick) -> bool,
    ) -> Result<TrialRun, TrialError> {
        match (self, lab) {
            (Self::Ours(pair), Some(lab)) => run_trial_in(lab, plan, pair, number, tick),
            (Self::Ours(pair), None) => run_lab_trial(plan, pair, number, tick),
            (Self::Peer(pair), _) => run_peer_trial(plan, pair, number, tick),
        }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(pair) => pair.fmt(f),
            Self::Peer(pair) => pair.fmt(f),
        }
    }
}
