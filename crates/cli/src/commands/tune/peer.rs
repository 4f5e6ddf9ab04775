//! Trials towards a receiver on another host.

use std::cell::Cell;

use bench::{Ask, Bed, Combination, Refusal};
use sys::signal;
use trial::{HostTrialError, Tick, TrialRun, run_host_trial};

use super::words::Words;

/// `linerate recv` on another host.
pub(super) struct PeerBed<'w> {
    words: &'w Words,
}

impl<'w> PeerBed<'w> {
    pub(super) fn new(words: &'w Words) -> Self {
        Self { words }
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
        plan.sender.traffic.rate_pps = ask.rate_pps;
        plan.profile = ask.profile;
        let goes_on = Cell::new(tick(Tick::default()));
        let go_on = || goes_on.get() && signal::caught() == 0;
        run_host_trial(&plan, ask.number, go_on, |now, _| goes_on.set(goes_on.get() & tick(now)))
            .map_err(Refusal::Broken)
    }

    fn keep(&mut self) -> Result<(), HostTrialError> {
        Ok(())
    }
}
