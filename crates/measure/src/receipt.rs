//! The rate receipt: the requested rate of a generator, and what it achieved.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Asked, scheduled, handed over, delivered, and how late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The requested rate; `None` is "as fast as possible".
    pub asked_pps: Option<f64>,
    /// Packets that the schedule made due; equals `handed` at the maximum rate.
    pub scheduled: u64,
    /// Packets that the kernel or ring accepted.
    pub handed: u64,
    /// Packets per second accepted, over the time from first to last call.
    pub handed_pps: f64,
    /// Frames that left, by the sending interface's own counter; `None` when other traffic shares it.
    pub on_wire: Option<u64>,
    /// Packets that the receiver reports; `null` in JSON and 0 here without a report.
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub delivered: u64,
    /// Packets due that were never handed over: the generator's shortfall, never the receiver's loss.
    pub shortfall: u64,
    /// How late packets left against the schedule, in nanoseconds; `None` at the maximum rate.
    pub lateness: Option<Lateness>,
    /// The longest time between two batches handed over, in nanoseconds.
    pub largest_gap_ns: u64,
    /// Whether the requested rate was held to within [`Receipt::TOLERANCE`]; always true at the maximum rate.
    pub kept_up: bool,
}

/// Percentiles of lateness in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Half of the packets left no later than this.
    pub p50_ns: u64,
    /// 90 % left no later.
    pub p90_ns: u64,
    /// 99 % left no later.
    pub p99_ns: u64,
    /// 99.9 % left no later.
    pub p999_ns: u64,
    /// The latest of all.
    pub max_ns: u64,
}

impl Default for Receipt {
    /// Nothing requested, nothing sent.
    fn default() -> Self {
        Self::judge(None, 0, 0, 0.0, &Histogram::new())
    }
}

impl Receipt {
    /// Share of the packets due that may be missing before the rate counts as not held.
    pub const TOLERANCE: f64 = 0.001;

    /// Judges a finished run; `lateness` holds one sample per packet, and is empty at the maximum rate.
    pub fn judge(
        asked_pps: Option<f64>,
        scheduled: u64,
        handed: u64,
        seconds: f64,
        lateness: &Histogram,
    ) -> Self {
        let shortfall = scheduled.saturating_sub(handed);
        Self {
            asked_pps,
            scheduled,
            handed,
            handed_pps: if seconds > 0.0 { handed as f64 / seconds } else { 0.0 },
            on_wire: None,
            delivered: 0,
            shortfall,
            lateness: asked_pps.and_then(|_| Lateness::of(lateness)),
            largest_gap_ns: 0,
            kept_up: asked_pps.is_none() || shortfall as f64 <= scheduled as f64 * Self::TOLERANCE,
        }
    }
}

impl Lateness {
    /// The percentiles of a histogram in nanoseconds; `None` when it is empty.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        Some(Self {
            p50_ns: histogram.percentile(50.0)?,
            p90_ns: histogram.percentile(90.0)?,
            p99_ns: histogram.percentile(99.0)?,
            p999_ns: histogram.percentile(99.9)?,
            max_ns: histogram.max()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_falls_short_says_so() {
        let receipt = Receipt::judge(Some(1000.0), 1000, 900, 1.0, &Histogram::new());
        assert_eq!(receipt.shortfall, 100);
        assert!(!receipt.kept_up);
    }

    #[test]
    fn a_thousandth_is_tolerated() {
        assert!(Receipt::judge(Some(1000.0), 1000, 999, 1.0, &Histogram::new()).kept_up);
        assert!(!Receipt::judge(Some(1000.0), 1000, 998, 1.0, &Histogram::new()).kept_up);
    }

    #[test]
    fn the_maximum_rate_is_always_held_and_never_late() {
        let mut late = Histogram::new();
        late.record(5);
        let receipt = Receipt::judge(None, 10, 10, 2.0, &late);
        assert!(receipt.kept_up && receipt.lateness.is_none());
        assert_eq!(receipt.handed_pps, 5.0);
    }
}
