//! Trials towards a receiver on another host.

use std::cell::Cell;

use bench::{Ask, Bed, Combination, Refusal};
use session::SessionError;
use sys::signal;
use trial::{HostPlan, HostTrialError, Tick, TrialRun, run_host_trial};

use super::words::Words;

/// `linerate recv` on another host.
pub(super) struct PeerBed<'w> {
    words: &'w Words,
    /// Whether the receiver has refused to look at its CPUs: profiles are evidence, and a search needs none.
    is_unprofiled: bool,
}

impl<'w> PeerBed<'w> {
    pub(super) fn new(words: &'w Words) -> Self {
        Self { words, is_unprofiled: false }
    }
}

impl Bed for PeerBed<'_> {
    type Error = HostTrialError;

    fn trial(
        &mut self,
        at: &Combination,
        ask: &Ask,
        tick: &mut dyn FnMut(Tick) -> bool,
    ) -> Result<TrialRun<HostTrialError>, Refusal<HostTrialError>> {
        let mut plan = self.words.host_plan(at).map_err(|failure| Refusal::Unusable(failure.words()))?;
        plan.sender.traffic.rate_pps = ask.rate_pps.or(plan.sender.traffic.rate_pps);
        plan.profile = ask.profile && !self.is_unprofiled;
        let goes_on = Cell::new(tick(Tick::default()));
        let go_on = || goes_on.get() && signal::caught() == 0;
        let mut trial = |plan: &HostPlan| {
            run_host_trial(plan, ask.number, go_on, |now, _| goes_on.set(goes_on.get() & tick(now)))
        };
        let mut done = trial(&plan);
        if let Err(HostTrialError::Session(SessionError::Refused { reason, .. })) = &done
            && plan.profile
        {
            eprintln!("note: trials have no profile of the receiver: {reason}");
            (plan.profile, self.is_unprofiled) = (false, true);
            done = trial(&plan);
        }
        done.map_err(Refusal::Broken)
    }

    fn keep(&mut self) -> Result<(), HostTrialError> {
        Ok(())
    }
}
