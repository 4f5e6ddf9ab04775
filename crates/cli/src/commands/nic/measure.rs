//! Whether a change brought more packets: samples of the rate of a card under load, before and after.

use std::{fmt, time::Duration};

use measure::{Effect, EffectScale, median};
use nic::{Card, NicError, Sample};
use serde::Serialize;

use super::card::{pause, refused};
use crate::failure::{Failure, Status};

/// Samples of the rate; the interval around a difference needs several.
const LOOKS: u32 = 10;
/// Confidence that the interval contains the true difference.
const CONFIDENCE: f64 = 0.95;

/// Packets received per second, in several samples within `duration`.
pub(super) fn rates(card: &mut Card, duration: Duration) -> Result<Vec<f64>, Failure> {
    let failed = |error: NicError| refused(&error);
    let mut last = Sample::take(card).map_err(failed)?;
    let mut rates = Vec::new();
    for _ in 0..LOOKS {
        if !pause(duration / LOOKS) {
            return Err(Failure::new(
                Status::GoalMissed,
                "interrupted while measuring; all changes are undone",
            ));
        }
        let now = Sample::take(card).map_err(failed)?;
        rates.push(now.since(&last).rx_pps);
        last = now;
    }
    Ok(rates)
}

/// A rate before and after a change.
#[derive(Debug, Serialize)]
pub(super) struct Gain {
    before_pps: f64,
    after_pps: f64,
    /// The difference with its interval; `None` if the samples do not vary.
    effect: Option<Effect>,
    /// Whether the whole interval is above zero.
    better: bool,
}

impl Gain {
    pub(super) fn of(before: &[f64], after: &[f64]) -> Self {
        let (before_pps, after_pps) = (median(before).unwrap_or(0.0), median(after).unwrap_or(0.0));
        let effect = Effect::of(before, after, EffectScale::Difference, CONFIDENCE);
        let better = after_pps > before_pps && effect.as_ref().is_some_and(Effect::excludes_zero);
        Self { before_pps, after_pps, effect, better }
    }

    pub(super) fn is_better(&self) -> bool {
        self.better
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before_pps, after_pps, effect, .. } = self;
        if *before_pps == 0.0 && *after_pps == 0.0 {
            return f.write_str("no packets arrived before or after: --measure needs a card under load");
        }
        write!(f, "received {before_pps:.0} pps before and {after_pps:.0} pps after (medians of {LOOKS})")?;
        match effect {
            Some(_) if self.is_better() => write!(f, ": an increase with 95 % confidence"),
            Some(_) => write!(f, ": no increase with 95 % confidence"),
            None => write!(f, ": too few samples to decide"),
        }
    }
}
