//! The figure of a combination: one measurement of the goal's figure, from one trial or several.

use measure::{StatisticsLevel, Trial};
use search::{Goal, Measured, Search, SearchPlan, Step};
use traffic::StatisticsPlan;
use trial::{Tick, TrialRun};

use super::{
    bed::{Ask, Bed, Refusal},
    combination::Combination,
    knob::TuneGoal,
};

/// Measures combinations.
pub(super) struct Meter {
    pub(super) goal: TuneGoal,
    pub(super) trial_ns: u64,
    /// The load at which latency is measured, once it is known.
    pub(super) load_pps: Option<f64>,
    /// Where the last search for a rate without loss ended.
    found_pps: Option<f64>,
}

/// Latency is measured at this share of the rate with the original settings.
const LOAD: f64 = 0.5;
/// With more loss than this, latency describes only the packets that got through.
const MOST_LOST: f64 = 0.01;
/// The width of the final bounds of a rate without loss.
const WIDTH: f64 = 0.03;
/// Trials of one search for a rate without loss.
const MOST_TRIALS: u32 = 12;

impl Meter {
    pub(super) fn new(goal: TuneGoal, trial_ns: u64) -> Self {
        Self { goal, trial_ns, load_pps: None, found_pps: None }
    }

    /// Trials per measurement, for the first estimate of how many measurements fit the budget.
    pub(super) fn trials(&self) -> f64 {
        if self.goal == TuneGoal::Ndr { 8.0 } else { 1.0 }
    }

    fn ask(&self, number: u32) -> Ask {
        Ask { duration_ns: self.trial_ns, rate_pps: None, statistics: None, profile: false, number }
    }

    /// Runs the trials of one measurement; trials before an error are in `done`.
    pub(super) fn measure<B: Bed>(
        &mut self,
        bed: &mut B,
        at: &Combination,
        number: u32,
        done: &mut Vec<TrialRun<B::Error>>,
        tick: &mut dyn FnMut(Tick) -> bool,
    ) -> Result<(), Refusal<B::Error>> {
        let ask = self.ask(number);
        match self.goal {
            TuneGoal::Tx | TuneGoal::Rx => {
                done.push(bed.trial(at, &ask, tick)?);
                Ok(())
            }
            TuneGoal::Latency => {
                let load_pps = match self.load_pps {
                    Some(load_pps) => load_pps,
                    None => {
                        let most = bed.trial(at, &ask, tick)?;
                        let load_pps = (most.trial.delivered_pps * LOAD).max(1.0);
                        done.push(most);
                        *self.load_pps.insert(load_pps)
                    }
                };
                let statistics = StatisticsPlan { level: StatisticsLevel::Time, ..StatisticsPlan::default() };
                let ask = Ask { rate_pps: Some(load_pps), statistics: Some(statistics), ..ask };
                done.push(bed.trial(at, &ask, tick)?);
                Ok(())
            }
            TuneGoal::Ndr => self.search(bed, at, ask, done, tick),
        }
    }

    /// The highest rate without loss, starting from the previous result.
    fn search<B: Bed>(
        &mut self,
        bed: &mut B,
        at: &Combination,
        ask: Ask,
        done: &mut Vec<TrialRun<B::Error>>,
        tick: &mut dyn FnMut(Tick) -> bool,
    ) -> Result<(), Refusal<B::Error>> {
        let flood = bed.trial(at, &ask, tick)?;
        let (max_pps, carried_pps) = (flood.trial.sent_pps.max(2.0), flood.trial.delivered_pps);
        done.push(flood);
        let seconds = self.trial_ns as f64 / 1e9;
        let goal = Goal {
            name: "NDR".into(),
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            final_duration_s: seconds,
            duration_sum_s: seconds,
            initial_duration_s: seconds,
            width_ratio: WIDTH,
        };
        let first_pps = self.found_pps.unwrap_or(carried_pps * 0.9).clamp(1.0, max_pps);
        let plan = SearchPlan {
            goals: vec![goal],
            first_pps: Some(first_pps),
            shortfall_ratio: WIDTH,
            most_trials: MOST_TRIALS,
            ..SearchPlan::up_to(max_pps)
        };
        let Ok(mut search) = Search::new(plan) else { return Ok(()) };
        while let Step::Measure { load_pps, duration_s } = search.next() {
            let run = bed.trial(at, &Ask { rate_pps: Some(load_pps), ..ask }, tick)?;
            let trial = &run.trial;
            let measured = Measured {
                duration_s: trial.duration_s,
                scheduled: trial.receipt.scheduled,
                sent: trial.sent,
                lost: trial.ledger.lost(),
            };
            let is_over = trial.interrupted;
            done.push(run);
            if is_over {
                break;
            }
            search.record(load_pps, duration_s, measured);
        }
        self.found_pps = self.figure(&done.iter().map(|run| &run.trial).collect::<Vec<_>>());
        Ok(())
    }

    /// The goal's figure of one measurement's trials, in the goal's unit.
    pub(super) fn figure(&self, trials: &[&Trial]) -> Option<f64> {
        let last = trials.last()?;
        match self.goal {
            TuneGoal::Tx => Some(last.sent_pps),
            TuneGoal::Rx => Some(last.delivered_pps),
            TuneGoal::Ndr => {
                let lossless = trials.iter().filter(|trial| trial.sent > 0 && trial.ledger.lost() == 0);
                lossless.map(|trial| trial.sent_pps).reduce(f64::max).or(Some(0.0))
            }
            TuneGoal::Latency => {
                let latency = last.statistics.as_ref()?.total.latency.as_ref()?;
                (last.loss_ratio <= MOST_LOST).then_some(latency.p99_ns as f64)
            }
        }
    }

    /// The figure in the form of the search: more is better.
    pub(super) fn score(&self, figure: f64) -> f64 {
        if self.goal == TuneGoal::Latency { 1e9 / figure.max(1.0) } else { figure }
    }

    /// A share in the form of the search, back in the figure's own direction.
    pub(super) fn share(&self, ratio: f64) -> f64 {
        if self.goal == TuneGoal::Latency { 1.0 / (1.0 + ratio) - 1.0 } else { ratio }
    }
}
