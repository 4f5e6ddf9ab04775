//! The results of a search for the best settings as saved in a record. The search itself is the crate `search`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::effect::Effect;

/// Settings by name, with the results of their trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TunedRate {
    /// Every setting that the search could change, with its value.
    pub settings: BTreeMap<String, String>,
    /// Trials of exactly these settings that ran in rotation with the other steps.
    pub trials: u32,
    /// Packets per second delivered: mean of the trials.
    pub delivered_pps: f64,
    /// The 95 % interval of that mean; `None` with fewer than two trials.
    pub interval: Option<RateInterval>,
    /// Packets per second sent: mean of the trials.
    pub sent_pps: f64,
    /// The goal's figure, in the unit of `tuning`.
    pub value: f64,
}

/// The confidence interval of a mean rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RateInterval {
    /// Lower end in packets per second.
    pub low_pps: f64,
    /// Upper end in packets per second.
    pub high_pps: f64,
    /// The confidence level: how often such an interval contains the true mean.
    pub confidence: f64,
}

/// A step from the settings as they were to the best: proven, in the order of the waterfall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneStep {
    /// What it sets: several settings when one alone has no effect.
    pub settings: BTreeMap<String, String>,
    /// The goal's figure before, in the unit of `tuning`: mean of the trials.
    pub from: f64,
    /// The same after.
    pub to: f64,
    /// The change as a share, by these trials and all others.
    pub effect: Effect,
    /// Trials before and after, alternating.
    pub pairs: u32,
    /// What else changed: counters that vanished, stages of a profile that shrank.
    pub evidence: Vec<String>,
    /// What may go wrong with it.
    pub risk: String,
    /// How it is undone.
    pub undone: String,
}

/// A value that was tried and rejected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneRejected {
    /// The setting.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// Its estimated effect at the best settings; `None` when it never ran.
    pub effect: Option<Effect>,
    /// Why it was rejected.
    pub reason: String,
}

/// How a search for the best settings went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneSearch {
    /// `tx`, `rx`, `ndr` or `latency`.
    pub goal: String,
    /// The unit of the goal's figure: `pps` or `ns`; less is better for `ns`.
    pub unit: String,
    /// The search's time budget in seconds.
    pub budget_s: f64,
    /// The noise of a measurement, as a share of its value.
    pub noise_ratio: f64,
    /// Why it ended: `settled`, `budget` or `stopped`.
    pub end: String,
    /// Combinations of all values.
    pub combinations: f64,
    /// What could be set.
    pub space: Vec<TuneKnob>,
    /// What could not, and why.
    pub left_out: BTreeMap<String, String>,
    /// Every measurement in order.
    pub history: Vec<TuneAttempt>,
    /// What limits the best settings.
    pub limits: Vec<String>,
    /// How to use what was found.
    pub artefacts: TuneArtefacts,
    /// Whether the best settings were left in place.
    pub kept: bool,
}

/// Something that can be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneKnob {
    /// Its name.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Its values within the safe range, the current one first.
    pub values: Vec<String>,
    /// What may go wrong.
    pub risk: String,
    /// How it is undone.
    pub undone: String,
}

/// One measurement of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneAttempt {
    /// Its last trial: an index into `end.trials`; `None` when these settings did not run.
    pub trial: Option<u32>,
    /// `screen`, `focus` or `prove`.
    pub phase: String,
    /// The settings that differ from the original ones.
    pub settings: BTreeMap<String, String>,
    /// The goal's figure.
    pub value: Option<f64>,
    /// Why these settings did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How to use what was found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneArtefacts {
    /// A plan for `linerate nic apply --plan`, in TOML; empty when no setting of an interface or the machine changed.
    pub nic_plan: String,
    /// A scenario for `linerate bench` that repeats it, in TOML.
    pub scenario: String,
    /// What an application must do: socket options, threads, placement.
    pub application: Vec<String>,
}
