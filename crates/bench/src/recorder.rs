//! Trials in one record: run now, or taken from an earlier run that was cut short.

use std::{collections::VecDeque, error::Error, time::Instant};

use lab::{Lab, LabPlan};
use measure::{End, Interval, PairSummary, Run, SCHEMA, Skipped, Start, Trial};
use nic::{Session, SessionError, Setting};
use trial::{Tick, TrialError, TrialRun};

use crate::{plan::BenchPlan, row::Row};

/// The progress reports of an experiment.
pub trait Watcher {
    /// A trial begins.
    fn trial_begins(&mut self, coming: &Coming<'_>);

    /// Progress of the running trial; returns whether to go on.
    fn tick(&mut self, tick: Tick) -> bool;

    /// A trial is finished, with its intervals; returns whether to go on.
    fn trial_ends(&mut self, trial: &Trial, intervals: &[Interval]) -> bool;
}

/// A trial that is about to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Coming<'p> {
    /// Its number from 0.
    pub index: u32,
    /// The number of trials; `None` when a search decides.
    pub of: Option<u32>,
    /// Its row, as in the table.
    pub row: Row<'p>,
    /// The sweep's parameters or the load as text; may be empty.
    pub what: String,
    /// The requested packets per second; `None` is the maximum, or unknown.
    pub asked_pps: Option<f64>,
    /// CPUs of the pinned workers.
    pub worker_cpus: Vec<u32>,
}

impl<'p> Coming<'p> {
    /// A trial of this row; the recorder knows the rest.
    pub(crate) fn of(row: Row<'p>, what: String) -> Self {
        Self { index: 0, of: None, row, what, asked_pps: None, worker_cpus: Vec::new() }
    }
}

/// A run in progress.
pub(crate) struct Recorder<'w, W> {
    run: Run,
    began: Instant,
    /// Trials of an earlier run with their intervals, in the order they ran.
    earlier: VecDeque<TrialRun>,
    earlier_s: f64,
    watcher: &'w mut W,
    failure: Option<TrialError>,
    /// Real interfaces take seconds to come up, so that one lab serves all trials of its plan.
    lab: Option<BorrowedInterfaces>,
}

/// A lab of borrowed interfaces, and their changed settings. Dropped, it returns the interfaces first and then restores
/// their settings.
struct BorrowedInterfaces {
    plan: LabPlan,
    /// Of the sending and of the receiving interface.
    settings: [Vec<String>; 2],
    lab: Lab,
    _changed: Vec<Session>,
}

impl BorrowedInterfaces {
    fn new(plan: &BenchPlan, lab: LabPlan) -> Result<Self, TrialError> {
        let settings = Self::settings(plan);
        let mut changed = Vec::new();
        if let Some(interfaces) = &plan.trial.lab.interfaces {
            for (name, settings) in [&interfaces.tx, &interfaces.rx].into_iter().zip(&settings) {
                if settings.is_empty() {
                    continue;
                }
                let mut session = Session::begin(name, &plan.state)?;
                let wanted = settings.iter().map(|text| text.parse::<Setting>());
                session.apply(&wanted.collect::<Result<Vec<Setting>, _>>().map_err(SessionError::from)?)?;
                changed.push(session);
            }
        }
        let made = Lab::create(&lab)?;
        Ok(Self { plan: lab, settings, lab: made, _changed: changed })
    }

    fn is_for(&self, plan: &BenchPlan, lab: &LabPlan) -> bool {
        self.plan == *lab && self.settings == Self::settings(plan)
    }

    fn settings(plan: &BenchPlan) -> [Vec<String>; 2] {
        [plan.tx_settings.clone(), plan.rx_settings.clone()]
    }
}

/// The run ended early: interrupted, or a trial could not run. The recorder knows which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;

/// With a larger MTU a driver may have no XDP, because one packet has to fit in a page.
const ETHERNET_MTU: u32 = 1500;

impl<'w, W: Watcher> Recorder<'w, W> {
    /// Begins a record; trials of `earlier` are taken from there instead of being repeated.
    pub(crate) fn new(start: Start, skipped: &[Skipped], earlier: Option<Run>, watcher: &'w mut W) -> Self {
        let mut trials = VecDeque::new();
        let mut earlier_s = 0.0;
        if let Some(earlier) = earlier {
            for (index, trial) in (0u32..).zip(earlier.end.trials) {
                // The trial that was running at the end is repeated.
                if trial.interrupted {
                    break;
                }
                let of_it = earlier.intervals.iter().filter(|interval| interval.trial == index);
                let intervals: Vec<Interval> = of_it.cloned().collect();
                earlier_s += trial.duration_s;
                trials.push_back(TrialRun { trial, intervals, error: None });
            }
        }
        let end = End { skipped: skipped.to_vec(), ..End::default() };
        let run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end };
        Self { run, began: Instant::now(), earlier: trials, earlier_s, watcher, failure: None, lab: None }
    }

    /// Runs a trial, or takes it from the earlier run; returns its index. `None` when another program failed, which the
    /// record notes and which affects only its own row.
    pub(crate) fn trial(
        &mut self,
        plan: &BenchPlan,
        number: u32,
        coming: Coming<'_>,
    ) -> Result<Option<u32>, Stopped> {
        let index = self.run.end.trials.len() as u32;
        let trial = &plan.trial;
        let worker_cpus = trial.cpus.tx.iter().chain(&trial.cpus.rx).copied().collect();
        let coming = Coming { index, asked_pps: trial.rate_pps, worker_cpus, ..coming };
        let name = coming.row.to_string();
        // A row that failed in the earlier run is tried again.
        let earlier = self.earlier.pop_front_if(|earlier| labels(&earlier.trial) == name);
        let is_earlier = earlier.is_some();
        let outcome = match earlier {
            Some(earlier) => Ok(earlier),
            None => {
                self.watcher.trial_begins(&coming);
                self.borrow_interfaces(plan, coming.row).and_then(|()| {
                    let lab = self.lab.as_ref().map(|borrowed| &borrowed.lab);
                    coming.row.run((&plan.trial, lab), number, |tick| self.watcher.tick(tick))
                })
            }
        };
        let mut finished = match outcome {
            Ok(finished) => finished,
            Err(TrialError::Peer(error)) => {
                self.run.end.skipped.push(Skipped { engine: name, reason: error.to_string() });
                return Ok(None);
            }
            // Only now are the limits of the card known. The embedded pair supports everything, unless packets are too large
            // for AF_XDP.
            Err(error @ (TrialError::Engine(_) | TrialError::Segmentation(_)))
                if plan.trial.lab.interfaces.is_some() || plan.trial.lab.mtu > ETHERNET_MTU =>
            {
                let left_out = Skipped { engine: name, reason: in_words(&error) };
                if !self.run.end.skipped.contains(&left_out) {
                    self.run.end.skipped.push(left_out);
                }
                return Ok(None);
            }
            // In a sweep, a setting that the card lacks costs only its points.
            Err(TrialError::Settings(error)) if !plan.parameters.is_empty() => {
                let left_out = Skipped { engine: name, reason: in_words(&error) };
                if !self.run.end.skipped.contains(&left_out) {
                    self.run.end.skipped.push(left_out);
                }
                return Ok(None);
            }
            Err(error) => {
                self.run.end.interrupted = true;
                self.failure = Some(error);
                return Err(Stopped);
            }
        };
        self.failure = finished.error.take();
        finished.intervals.iter_mut().for_each(|interval| interval.trial = index);
        finished.trial.parameters.clone_from(&plan.parameters);
        let goes_on = is_earlier || self.watcher.trial_ends(&finished.trial, &finished.intervals);
        self.run.intervals.append(&mut finished.intervals);
        let interrupted = finished.trial.interrupted || !goes_on;
        self.run.end.trials.push(finished.trial);
        self.run.end.interrupted |= interrupted;
        if interrupted { Err(Stopped) } else { Ok(Some(index)) }
    }

    /// Makes the lab of real interfaces, unless it exists. Another program gets a lab of its own.
    fn borrow_interfaces(&mut self, plan: &BenchPlan, row: Row<'_>) -> Result<(), TrialError> {
        let ours = match row {
            Row::Ours(pair) if plan.trial.lab.interfaces.is_some() => Some(plan.trial.lab_for(pair)),
            _ => None,
        };
        let fits =
            |borrowed: &BorrowedInterfaces| ours.as_ref().is_some_and(|lab| borrowed.is_for(plan, lab));
        if !self.lab.as_ref().is_some_and(fits) {
            // The interfaces must be returned before they are borrowed again.
            self.lab = None;
        }
        if let (Some(lab), None) = (ours, &self.lab) {
            self.lab = Some(BorrowedInterfaces::new(plan, lab)?);
        }
        Ok(())
    }

    /// A trial that was recorded.
    pub(crate) fn recorded(&self, index: u32) -> &Trial {
        &self.run.end.trials[index as usize]
    }

    /// The trials recorded so far.
    pub(crate) fn trials(&self) -> &[Trial] {
        &self.run.end.trials
    }

    /// The part of the record outside of the trials.
    pub(crate) fn end_mut(&mut self) -> &mut End {
        &mut self.run.end
    }

    /// The finished record, with the cause of an early end.
    pub(crate) fn finish(mut self) -> Result<Run, (Box<Run>, TrialError)> {
        self.run.end.pairs = PairSummary::of(&self.run.end.trials);
        self.run.end.duration_s = self.earlier_s + self.began.elapsed().as_secs_f64();
        match self.failure {
            Some(error) => Err((Box::new(self.run), error)),
            None => Ok(self.run),
        }
    }
}

/// A trial's row, as [`Row`] names it.
fn labels(trial: &Trial) -> String {
    format!("{} → {}", trial.tx.label, trial.rx.label)
}

/// An error and its causes in one line; a transparent error repeats its cause.
pub fn in_words(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.map(ToString::to_string).fold(error.to_string(), |words, cause| {
        if words.ends_with(&cause) { words } else { format!("{words}: {cause}") }
    })
}
