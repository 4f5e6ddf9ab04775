//! The place where a combination of settings is tried: a lab, two interfaces, or another [`Bed`].

use std::{error::Error, path::PathBuf};

use lab::{Lab, LabPlan};
use nic::{Session, SessionError, Setting};
use traffic::StatisticsPlan;
use trial::{Tick, TrialError, TrialPlan, TrialRun, run_trial_in};

use super::combination::Combination;
use crate::{plan::BenchPlan, recorder::in_words};

/// The request for one trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Packets per second; `None` is the plan's rate.
    pub rate_pps: Option<f64>,
    /// What receivers measure in addition to their counters.
    pub statistics: Option<StatisticsPlan>,
    /// Whether CPUs are sampled.
    pub profile: bool,
    /// Number of the trial among those of the same settings, from 1.
    pub number: u32,
}

/// Why a trial did not run.
#[derive(Debug)]
pub enum Refusal<E> {
    /// These settings are unavailable; others may be available.
    Unusable(String),
    /// No settings work any more.
    Broken(E),
}

/// The place where combinations are tried. Dropped, it restores everything.
pub trait Bed {
    /// Why no settings work any more.
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

    /// Leaves the settings of the last trial in effect, for `linerate nic restore` to undo.
    ///
    /// # Errors
    /// When the journal cannot be written; then the settings are restored.
    fn keep(&mut self) -> Result<(), Self::Error>;
}

/// From a combination to the plan of its trial, or the reason why there is none.
pub type Planner<'p> = dyn Fn(&Combination) -> Result<BenchPlan, String> + 'p;

/// Our engines at both ends on this machine: in one lab per trial, or between two interfaces.
pub struct LocalBed<'p> {
    plan: &'p Planner<'p>,
    state: PathBuf,
    /// Two real interfaces, which take seconds to come up. Dropped before the session, which restores their settings in
    /// their own namespace.
    lent: Option<(LabPlan, Lab)>,
    /// The settings that outlive a trial: of the receiving interface, or only of the machine.
    session: Option<Session>,
    applied: Vec<Setting>,
}

/// The interface whose journal holds the machine's settings if no real one is used.
pub const LOOPBACK: &str = "lo";

impl<'p> LocalBed<'p> {
    /// Trials of these plans; journals are below `state`.
    pub fn new(plan: &'p Planner<'p>, state: PathBuf) -> Self {
        Self { plan, state, session: None, applied: Vec::new(), lent: None }
    }

    /// Changes the settings that outlive a trial; returns the interfaces first.
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
                // Settings applied before may be lost, too.
                self.applied.clear();
                Err(Refusal::Unusable(in_words(&error)))
            }
            Err(error) => Err(broken(error)),
        }
    }

    /// Two real interfaces, borrowed as long as their settings do not change.
    fn lend(&mut self, plan: &TrialPlan) -> Result<&Lab, TrialError> {
        if self.lent.as_ref().is_none_or(|(lent, _)| *lent != plan.lab) {
            // They must be returned before they are borrowed again.
            self.lent = None;
        }
        let (_, lab) = match self.lent.take() {
            Some(lent) => self.lent.insert(lent),
            None => self.lent.insert((plan.lab.clone(), Lab::create(&plan.lab)?)),
        };
        Ok(lab)
    }
}

/// Whether a setting is of an existing queue, or of no queue.
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

/// An engine's limits are known only when it is opened.
fn refusal(error: TrialError) -> Refusal<TrialError> {
    match error {
        TrialError::Engine(error) => Refusal::Unusable(in_words(&error)),
        TrialError::Segmentation(error) => Refusal::Unusable(in_words(&error)),
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
            rate_pps: ask.rate_pps.or(bench.trial.rate_pps),
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
