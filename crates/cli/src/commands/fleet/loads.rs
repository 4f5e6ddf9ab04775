//! Which load a fleet tries next: those that the plan names, or those that a search chooses.

use bench::Searching;
use fleet::{FleetLoad, FleetPlan, FleetSearch};
use measure::{Start, Throughput, Trial};

/// The loads of a run.
pub(super) enum Loads<'p> {
    Named(&'p [FleetLoad]),
    Searched(Box<Search>),
}

impl<'p> Loads<'p> {
    pub(super) fn of(plan: &'p FleetPlan) -> Self {
        match plan.search() {
            Some(search) => Self::Searched(Box::new(Search::new(search.clone()))),
            None => Self::Named(plan.loads()),
        }
    }

    /// How many there are, where that is known.
    pub(super) fn count(&self) -> Option<u32> {
        match self {
            Self::Named(loads) => Some(loads.len() as u32),
            Self::Searched(_) => None,
        }
    }

    /// The load after these trials; `None` when there is no more to try.
    pub(super) fn next(&mut self, trials: &[Trial]) -> Option<FleetLoad> {
        match self {
            Self::Named(loads) => loads.get(trials.len()).copied(),
            Self::Searched(search) => search.next(trials),
        }
    }
}

/// A search over the trials of a fleet: the first one warms up.
pub(super) struct Search {
    plan: FleetSearch,
    searching: Option<Searching>,
}

impl Search {
    fn new(plan: FleetSearch) -> Self {
        Self { plan, searching: None }
    }

    fn next(&mut self, trials: &[Trial]) -> Option<FleetLoad> {
        let Some((index, last)) = trials.len().checked_sub(1).map(|at| (at as u32, &trials[at])) else {
            return Some(self.plan.warm_up());
        };
        let plan = &self.plan;
        match &mut self.searching {
            Some(searching) => searching.record(index, last),
            None => {
                let highest = (plan.max_pps.unwrap_or(last.sent_pps).max(1.0), last.delivered_pps);
                self.searching = Some(Searching::begin(&plan.goals, (plan.min_pps, plan.max_pps), highest));
            }
        }
        let (load_pps, duration_s) = self.searching.as_mut()?.next()?;
        Some(FleetLoad { rate_pps: Some(load_pps), duration_ns: (duration_s * 1e9) as u64, size: 0 })
    }
}

/// What the search of a run has found with these trials; nothing where its plan names the loads.
pub(super) fn found(start: &Start, trials: &[Trial]) -> Vec<Throughput> {
    let (Some(plan), Some(first)) = (FleetPlan::stored_search(start), trials.first()) else {
        return Vec::new();
    };
    // A search follows from its trials alone: after the coordinator's death, too.
    let mut search = Search::new(plan);
    for count in 0..=trials.len() {
        search.next(&trials[..count]);
    }
    let goals = search.searching.map(|searching| searching.results(trials)).unwrap_or_default();
    vec![Throughput {
        tx: first.tx.label.clone(),
        rx: first.rx.label.clone(),
        frame_size_bytes: first.frame_size_bytes,
        parameters: first.parameters.clone(),
        generator_max_pps: first.sent_pps,
        goals,
        ..Throughput::default()
    }]
}
