//! Where a combination of settings is tried: a lab, two interfaces, or whatever implements [`Bed`].

use std::{error::Error, path::PathBuf};

use lab::{Lab, LabPlan};
use nic::{Session, SessionError, Setting};
use traffic::StatisticsPlan;
use trial::{Tick, TrialError, TrialPlan, TrialRun, run_trial_in};

use super::combination::Combination;
use crate::{plan::BenchPlan, recorder::in_words};

/// What one trial is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Packets per second; `None` is the maximum.
    pub rate_pps: Option<f64>,
    /// What receivers measure besides their counters.
    pub statistics: Option<StatisticsPlan>,
    /// Whether CPUs are sampled.
    pub profile: bool,
    /// Number of the trial among those of these settings, from 1.
    pub number: u32,
}

/// Why a trial did not run.
#[derive(Debug)]
pub enum Refusal<E> {
    /// These settings do not run here; others may.
    Unusable(String),
    /// Nothing does any more.
    Broken(E),
}

/// Where combinations are tried. Dropped, it leaves everything as it was.
pub trait Bed {
    /// Why nothing runs any more.
    type Error: Error;

    /// Runs one trial.
    ///
    /// # Errors
    /// [`Refusal`].
    fn trial(
        &mut self,
        at: &Combination,
        ask: &Ask,
        tick: &mut dyn FnMut(Tick) -> bool,
    ) -> Result<TrialRun<Self::Error>, Refusal<Self::Error>>;

    /// Leaves the settings of the last trial as they are, for `linerate nic restore` to undo.
    ///
    /// # Errors
    /// When the journal cannot be written; then they are put back.
    fn keep(&mut self) -> Result<(), Self::Error>;
}

/// From a combination to the plan of its trial, or why there is none.
pub type Planner<'p> = dyn Fn(&Combination) -> Result<BenchPlan, String> + 'p;

/// Our engines at both ends on this machine: in a lab of each trial's own, or between two interfaces.
pub struct LocalBed<'p> {
    plan: &'p Planner<'p>,
    state: PathBuf,
    /// Two real interfaces, which take seconds to come up. Dropped before the session, which needs them back in their
    /// namespace to put their settings back.
    lent: Option<(LabPlan, Lab)>,
    /// The settings that outlive a trial: of the receiving interface, or of the machine alone.
    session: Option<Session>,
    applied: Vec<Setting>,
}

/// The interface whose journal holds the machine's settings where no real one is used.
pub const LOOPBACK: &str = "lo";

impl<'p> LocalBed<'p> {
    /// Trials of these plans; journals go below `state`.
    pub fn new(plan: &'p Planner<'p>, state: PathBuf) -> Self {
        Self { plan, state, session: None, applied: Vec::new(), lent: None }
    }

    /// Changes what outlives a trial; the interfaces are returned before.
    fn apply(&mut self, interface: &str, wanted: Vec<Setting>) -> Result<(), Refusal<TrialError>> {
        if wanted == self.applied {
            return Ok(());
        }
        self.lent = None;
        if self.session.is_none() {
            self.session = Some(Session::begin(interface, &self.state).map_err(broken)?);
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        match session.apply(&wanted) {
            Ok(_) => {
                self.applied = wanted;
                Ok(())
            }
            Err(error @ (SessionError::Problems { .. } | SessionError::RolledBack { .. })) => {
                // What was applied before may be gone, too.
                self.applied.clear();
                Err(Refusal::Unusable(in_words(&error)))
            }
            Err(error) => Err(broken(error)),
        }
    }

    /// Two real interfaces, lent as long as nothing of them changes.
    fn lend(&mut self, plan: &TrialPlan) -> Result<&Lab, TrialError> {
        if self.lent.as_ref().is_none_or(|(lent, _)| *lent != plan.lab) {
            // They are returned before they are borrowed again.
            self.lent = None;
        }
        let (_, lab) = match self.lent.take() {
            Some(lent) => self.lent.insert(lent),
            None => self.lent.insert((plan.lab.clone(), Lab::create(&plan.lab)?)),
        };
        Ok(lab)
    }
}

/// Whether a setting is of a queue that exists, or of none.
fn is_there(setting: &str, queues: u32) -> bool {
    let queue = setting
        .split('.')
        .nth(1)
        .and_then(|key| key.strip_prefix("rx-"))
        .and_then(|queue| queue.parse().ok());
    queue.is_none_or(|queue: u32| queue < queues)
}

fn broken(error: SessionError) -> Refusal<TrialError> {
    Refusal::Broken(TrialError::Settings(error))
}

/// What an engine cannot do is known only when it is opened.
fn refusal(error: TrialError) -> Refusal<TrialError> {
    match error {
        TrialError::Engine(error) => Refusal::Unusable(in_words(&error)),
        error => Refusal::Broken(error),
    }
}

impl Bed for LocalBed<'_> {
    type Error = TrialError;

    fn trial(
        &mut self,
        at: &Combination,
        ask: &Ask,
        tick: &mut dyn FnMut(Tick) -> bool,
    ) -> Result<TrialRun, Refusal<TrialError>> {
        let bench = (self.plan)(at).map_err(Refusal::Unusable)?;
        let Some(pair) = bench.pairs.first() else {
            let why =
                bench.skipped.first().map_or_else(|| "no engine is left".into(), |one| one.reason.clone());
            return Err(Refusal::Unusable(why));
        };
        let plan = TrialPlan {
            duration_ns: ask.duration_ns,
            rate_pps: ask.rate_pps,
            statistics: ask.statistics,
            profile: ask.profile,
            ..bench.trial.clone()
        };
        if let Some(interfaces) = &plan.lab.interfaces {
            let own = bench.rx_settings.iter().filter_map(|text| text.parse().ok());
            let wanted: Vec<Setting> = own.chain(at.interface.iter().chain(&at.machine).cloned()).collect();
            let interface = interfaces.rx.clone();
            self.apply(&interface, wanted)?;
            let lab = self.lend(&plan).map_err(refusal)?;
            return run_trial_in(lab, &plan, pair, ask.number, tick).map_err(refusal);
        }
        self.apply(LOOPBACK, at.machine.clone())?;
        let lab = Lab::create(&plan.lab_for(pair)).map_err(|error| refusal(error.into()))?;
        let queues = lab.rx().rx_queues().map_err(|error| refusal(error.into()))?;
        let wanted: Vec<Setting> =
            at.interface.iter().filter(|setting| is_there(&setting.name, queues)).cloned().collect();
        if !wanted.is_empty() {
            let set = lab.rx().run(|| nic::set_without_journal(lab.rx().interface(), &wanted));
            set.map_err(|error| refusal(error.into()))?
                .map_err(|error| Refusal::Unusable(in_words(&error)))?;
        }
        run_trial_in(&lab, &plan, pair, ask.number, tick).map_err(refusal)
    }

    fn keep(&mut self) -> Result<(), TrialError> {
        self.lent = None;
        match self.session.take() {
            Some(session) => Ok(session.keep()?),
            None => Ok(()),
        }
    }
}
