//! What a search for the best settings does: complete and printable.

use search::TuningPlan;
use serde::{Deserialize, Serialize};
use trial::Pair;

use super::{
    combination::{Assignment, Combination},
    knob::{Knob, TuneGoal, TunePlace},
    knobs::TuneSpace,
};

/// A search for the best settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunePlan {
    /// What is searched for.
    pub goal: TuneGoal,
    /// Where packets go.
    pub place: TunePlace,
    /// The engines as they were asked for.
    pub pair: Pair,
    /// Nanoseconds that it may take.
    pub budget_ns: u64,
    /// Nanoseconds of a trial.
    pub trial_ns: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// What can be set.
    pub knobs: Vec<Knob>,
    /// What cannot, with the reason.
    pub left_out: std::collections::BTreeMap<String, String>,
    /// Leave the machine and the interface as found best.
    pub keep: bool,
    /// The options that every trial has, as `linerate bench` takes them.
    pub options: Vec<(String, Option<String>)>,
    /// The receiving interface, where it is a real one.
    pub interface: Option<String>,
    /// The command line, from which a run that was cut short goes on.
    pub words: Vec<String>,
}

/// What a trial of the lab scatters by as a rule.
const NOISE_RATIO: f64 = 0.04;
/// A gain below this is not worth a setting.
const GAIN_RATIO: f64 = 0.02;

impl TunePlan {
    /// What can be set, and what cannot.
    pub fn space(&self) -> TuneSpace {
        TuneSpace { knobs: self.knobs.clone(), left_out: self.left_out.clone() }
    }

    /// The search, with so many trials.
    pub(super) fn search(&self, most_trials: u32) -> TuningPlan {
        TuningPlan {
            values: self.knobs.iter().map(|knob| knob.values.len()).collect(),
            noise_ratio: NOISE_RATIO,
            gain_ratio: GAIN_RATIO,
            most_trials,
            seed: self.seed,
        }
    }

    /// What values by number stand for.
    pub fn combination(&self, values: &[usize]) -> Combination {
        Combination::of(self.chosen(values).flat_map(|(_, sets)| sets))
    }

    fn chosen<'s>(&'s self, values: &'s [usize]) -> impl Iterator<Item = (&'s Knob, &'s [Assignment])> {
        self.knobs.iter().zip(values).map(|(knob, value)| (knob, &knob.values[*value].sets[..]))
    }
}
