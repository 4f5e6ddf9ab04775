//! The record of a run from what the server has stored: the same while it runs and after its coordinator died. Each step
//! and result is counted once.

use std::collections::BTreeMap;

use async_nats::jetstream;
use measure::{FleetRun, FleetVoided, Interval, Start, Trial};

use crate::{
    clock::Sight,
    connect::{COORDINATOR, ServerPlan, connect, runtime},
    error::FleetError,
    merge::{Demands, merge},
    message::{Attempt, Launch, Step},
    store::{Stored, read_run},
};

/// What a fleet measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetOutcome {
    /// One a trial, of all agents together.
    pub trials: Vec<Trial>,
    /// Intervals of trials with a single sender.
    pub intervals: Vec<Interval>,
    /// Every agent's part.
    pub fleet: FleetRun<Trial>,
    /// Whether the run did not reach its end.
    pub interrupted: bool,
}

/// A run as the server has stored it, with what opens its record.
///
/// # Errors
/// A server that cannot be reached, or that has no such run.
pub fn collect(server: &ServerPlan, run: &str) -> Result<(Start, FleetOutcome), FleetError> {
    runtime()?.block_on(async {
        let client = connect(server, COORDINATOR, false, |_| ()).await?;
        let context = jetstream::new(client);
        let mut stored = Stored::default();
        read_run(&context, run, &mut stored).await?;
        let Concluded { trials, intervals, fleet } = conclude(run, &stored);
        let interrupted = !stored.steps.contains(&Step::Ended);
        let head = stored.head.ok_or_else(|| FleetError::UnknownRun { run: run.into() })?;
        Ok((head.start, FleetOutcome { trials, intervals, fleet, interrupted }))
    })
}

/// What the stored steps and results amount to.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Concluded {
    pub(crate) trials: Vec<Trial>,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) fleet: FleetRun<Trial>,
}

impl Concluded {
    pub(crate) fn voided_because(&self, of: &Attempt) -> Option<String> {
        let is_it = |voided: &&FleetVoided| (voided.trial, voided.attempt) == (of.trial, of.attempt);
        self.fleet.voided.iter().find(is_it).map(|voided| voided.reason.clone())
    }
}

/// The trials of a run, from what is stored of it.
pub(crate) fn conclude(run: &str, stored: &Stored) -> Concluded {
    let mut concluded =
        Concluded { fleet: FleetRun { run: run.into(), ..FleetRun::default() }, ..Concluded::default() };
    let mut demands = Demands { tolerate: 0, most_start_error_ns: u64::MAX };
    if let Some(head) = &stored.head {
        concluded.fleet.agents = head.agents.clone();
        demands = Demands { tolerate: head.tolerate, most_start_error_ns: head.most_start_error_ns };
    }
    let mut launches: BTreeMap<&Attempt, &Launch> = BTreeMap::new();
    let mut clocks: BTreeMap<&Attempt, &BTreeMap<String, Sight>> = BTreeMap::new();
    let mut voided: BTreeMap<&Attempt, &str> = BTreeMap::new();
    for step in &stored.steps {
        match step {
            Step::Starts(launch) => {
                launches.insert(&launch.of, launch);
            }
            Step::Clocks { of, after } => {
                clocks.insert(of, after);
            }
            Step::Voided { of, reason } => {
                voided.insert(of, reason);
            }
            Step::Ended => {}
        }
    }
    let unseen = BTreeMap::new();
    let mut void = |of: &Attempt, reason: String| {
        concluded.fleet.voided.push(FleetVoided { trial: of.trial, attempt: of.attempt, reason });
    };
    for (of, reason) in &voided {
        if !launches.contains_key(*of) {
            void(of, (*reason).to_owned());
        }
    }
    for (of, launch) in launches {
        if let Some(reason) = voided.get(of) {
            void(of, (*reason).to_owned());
            continue;
        }
        match merge(launch, &stored.outcomes, clocks.get(of).copied().unwrap_or(&unseen), demands) {
            Ok(merged) => {
                let index = concluded.trials.len() as u32;
                let numbered =
                    merged.intervals.into_iter().map(|interval| Interval { trial: index, ..interval });
                concluded.intervals.extend(numbered);
                concluded.trials.push(merged.trial);
                concluded.fleet.trials.push(merged.fleet);
            }
            Err(reason) => void(of, reason),
        }
    }
    concluded.fleet.voided.sort_by_key(|voided| (voided.trial, voided.attempt));
    concluded
}
