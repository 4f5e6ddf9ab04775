//! The plan of a search for the best settings: complete and printable.

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
    /// The goal.
    pub goal: TuneGoal,
    /// The path of the packets.
    pub place: TunePlace,
    /// The engines as requested.
    pub pair: Pair,
    /// Time budget in nanoseconds.
    pub budget_ns: u64,
    /// Nanoseconds of a trial.
    pub trial_ns: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// The knobs.
    pub knobs: Vec<Knob>,
    /// Knobs left out, with the reason.
    pub left_out: std::collections::BTreeMap<String, String>,
    /// Leave the best settings of machine and interface in effect.
    pub keep: bool,
    /// The options of every trial, as `linerate bench` takes them.
    pub options: Vec<(String, Option<String>)>,
    /// The receiving interface, if it is a real one.
    pub interface: Option<String>,
    /// The command line, with which `--resume` continues a run that was cut short.
    pub words: Vec<String>,
}

/// The typical variation between trials in the lab.
const NOISE_RATIO: f64 = 0.04;
/// A smaller gain does not justify a setting.
const GAIN_RATIO: f64 = 0.02;

impl TunePlan {
    /// The knobs, and those left out.
    pub fn space(&self) -> TuneSpace {
        TuneSpace { knobs: self.knobs.clone(), left_out: self.left_out.clone() }
    }

    /// The search, with this number of trials.
    pub(super) fn search(&self, most_trials: u32) -> TuningPlan {
        TuningPlan {
            values: self.knobs.iter().map(|knob| knob.values.len()).collect(),
            noise_ratio: NOISE_RATIO,
            gain_ratio: GAIN_RATIO,
            most_trials,
            seed: self.seed,
        }
    }

    /// The names and texts of values by number.
    pub fn combination(&self, values: &[usize]) -> Combination {
        Combination::of(self.chosen(values).flat_map(|(_, sets)| sets))
    }

    fn chosen<'s>(&'s self, values: &'s [usize]) -> impl Iterator<Item = (&'s Knob, &'s [Assignment])> {
        self.knobs.iter().zip(values).map(|(knob, value)| (knob, &knob.values[*value].sets[..]))
    }
}
