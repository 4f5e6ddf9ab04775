//! A proven step, and what it gains.

use serde::{Deserialize, Serialize};

use super::space::Settings;

/// A change as a share, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The best estimate: 0.5 means 50 % more.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A proven step on the way to the best settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedStep {
    /// The knobs that it sets, with their new values: several where one alone does nothing.
    pub changes: Vec<(usize, usize)>,
    /// All settings before it.
    pub from: Settings,
    /// All settings after it.
    pub to: Settings,
    /// What it changes.
    pub gain: Gain,
    /// Pairs of trials (before and after, alternating) that prove it.
    pub pairs: u32,
}

/// Standard errors on either side of an estimate that cover 95 % of cases.
const INTERVAL: f64 = 1.96;

impl Gain {
    /// From a difference of logarithms and its standard error.
    pub(super) fn of(log: f64, error: f64) -> Self {
        let [ratio, low, high] = [log, log - INTERVAL * error, log + INTERVAL * error].map(f64::exp_m1);
        Self { ratio, low, high }
    }
}
