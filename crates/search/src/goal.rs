//! The goal of a search.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A search goal (draft-ietf-bmwg-mlrsearch, "Search Goal").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Its name: `NDR`, `PDR` …
    pub name: String,
    /// A trial that loses a larger share of its packets is lossy.
    pub loss_ratio: f64,
    /// The share of trial time that may be lossy before a load is too high.
    pub exceed_ratio: f64,
    /// Shorter trials do not decide alone.
    pub final_duration_s: f64,
    /// Trial time at one load that suffices to classify it.
    pub duration_sum_s: f64,
    /// The first trials, which only narrow the range down, take this long.
    pub initial_duration_s: f64,
    /// The search ends when the relevant bounds are within this share of the upper one.
    pub width_ratio: f64,
}

/// A goal that no search can reach.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("goal {goal}: {what}")]
pub struct GoalError {
    /// The goal's name.
    pub goal: String,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Goal {
    /// No packet lost in half of the trial time: three trials of a second, 1 % wide.
    pub fn ndr() -> Self {
        Self {
            name: "NDR".into(),
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            final_duration_s: 1.0,
            duration_sum_s: 3.0,
            initial_duration_s: 0.25,
            width_ratio: 0.01,
        }
    }

    /// The same, allowing half a per cent loss.
    pub fn pdr() -> Self {
        Self { name: "PDR".into(), loss_ratio: 0.005, ..Self::ndr() }
    }

    /// The usual name of a goal: NDR is without loss, PDR with half a per cent; others name their ratio.
    pub fn name_of(loss_ratio: f64) -> String {
        match loss_ratio {
            0.0 => "NDR".into(),
            0.005 => "PDR".into(),
            other => format!("PDR {} %", other * 100.0),
        }
    }

    /// Every problem of this goal.
    pub fn problems(&self) -> Vec<GoalError> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        let time = |value: f64| value.is_finite() && value > 0.0;
        let rules = [
            (share(self.loss_ratio), "the loss ratio must be from 0 to below 1"),
            (share(self.exceed_ratio), "the exceed ratio must be from 0 to below 1"),
            (self.width_ratio > 0.0 && self.width_ratio < 1.0, "the width must be above 0 and below 1"),
            (time(self.final_duration_s) && time(self.initial_duration_s), "a trial must be longer than 0 s"),
            (
                self.initial_duration_s <= self.final_duration_s,
                "the initial trials must not be longer than the final ones",
            ),
            (
                self.duration_sum_s.is_finite() && self.duration_sum_s >= self.final_duration_s,
                "the duration sum must hold at least one final trial",
            ),
        ];
        let broken = rules.into_iter().filter(|(kept, _)| !kept);
        broken.map(|(_, what)| GoalError { goal: self.name.clone(), what }).collect()
    }

    /// The goals that lead to this one, itself last: the first classifies a load by one short trial, and ends with bounds
    /// twice as far apart as the next, which halves the distance.
    pub(crate) fn targets(&self) -> Vec<Self> {
        // A chain of more targets costs more trials than it saves: cargo bench -p linerate-search.
        let first = Self {
            final_duration_s: self.initial_duration_s,
            duration_sum_s: self.initial_duration_s,
            // So that the geometric mean halves the interval.
            width_ratio: (1.0 - (1.0 - self.width_ratio).powi(2)).min(0.5),
            ..self.clone()
        };
        if self.duration_sum_s > self.initial_duration_s {
            vec![first, self.clone()]
        } else {
            vec![self.clone()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_offered_are_sound_and_every_problem_is_told() {
        assert_eq!(Goal::ndr().problems(), []);
        assert_eq!(Goal::pdr().problems(), []);
        let wrong = Goal {
            name: "x".into(),
            loss_ratio: 1.0,
            exceed_ratio: -0.1,
            final_duration_s: 0.0,
            duration_sum_s: -1.0,
            initial_duration_s: f64::NAN,
            width_ratio: 0.0,
        };
        assert_eq!(wrong.problems().len(), 6);
        assert_eq!(wrong.problems()[0].to_string(), "goal x: the loss ratio must be from 0 to below 1");
    }

    #[test]
    fn a_coarse_target_of_single_trials_comes_before_the_goal() {
        let goal =
            Goal { initial_duration_s: 1.0, final_duration_s: 64.0, duration_sum_s: 64.0, ..Goal::ndr() };
        let targets = goal.targets();
        assert_eq!(targets.last(), Some(&goal));
        let durations: Vec<f64> = targets.iter().map(|target| target.final_duration_s).collect();
        assert_eq!(durations, [1.0, 64.0]);
        let width = targets[0].width_ratio;
        assert!(((1.0 - width).sqrt() - (1.0 - goal.width_ratio)).abs() < 1e-12, "{width}");
        let single = Goal { duration_sum_s: 1.0, final_duration_s: 1.0, initial_duration_s: 1.0, ..goal };
        assert_eq!(single.targets(), std::slice::from_ref(&single));
    }
}
