//! Agents' clocks seen from the coordinator: the exchange with the shortest round trip before a trial and after it, and a line
//! between. Pure.

use std::{fmt, str::FromStr};

use measure::ClockSight;
use serde::{Deserialize, Serialize};

/// Clocks of machines drift apart by no more than this, where nothing was measured (Huygens, NSDI'18: up to 30 µs a second).
const MOST_DRIFT_PPM: f64 = 30.0;

/// What one exchange showed, as it is stored: [`ClockSight`] of the agent's clock against the coordinator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sight {
    /// When, by the agent's clock.
    pub(crate) at_ns: u64,
    /// By how much it is ahead.
    pub(crate) ahead_ns: i64,
    /// By how much that may be wrong.
    pub(crate) within_ns: u64,
}

impl From<ClockSight> for Sight {
    fn from(sight: ClockSight) -> Self {
        Self { at_ns: sight.at_ns, ahead_ns: sight.ahead_ns, within_ns: sight.within_ns }
    }
}

/// An agent's clock while a trial ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClockLine {
    before: Sight,
    after: Option<Sight>,
}

impl ClockLine {
    pub(crate) fn new(before: Sight, after: Option<Sight>) -> Self {
        Self { before, after: after.filter(|after| after.at_ns > before.at_ns) }
    }

    /// What was gained, in millionths of the time between; `None` where nothing was measured after the trial.
    pub(crate) fn drift_ppm(&self) -> Option<f64> {
        let after = self.after?;
        Some((after.ahead_ns - self.before.ahead_ns) as f64 * 1e6 / (after.at_ns - self.before.at_ns) as f64)
    }

    /// By how much the clock was ahead when it showed `at_ns`.
    pub(crate) fn ahead_ns(&self, at_ns: u64) -> i64 {
        let since = at_ns as f64 - self.before.at_ns as f64;
        self.before.ahead_ns + (self.drift_ppm().unwrap_or(0.0) * since / 1e6).round() as i64
    }

    /// How wrong that may be.
    pub(crate) fn bound_ns(&self, at_ns: u64) -> u64 {
        match self.after {
            // On a line between two points that are wrong by no more than this, no point is.
            Some(after) if at_ns <= after.at_ns => self.before.within_ns.max(after.within_ns),
            _ => {
                let since = at_ns.saturating_sub(self.before.at_ns) as f64;
                self.before.within_ns + (MOST_DRIFT_PPM * since / 1e6).ceil() as u64
            }
        }
    }

    /// The coordinator's time when this clock showed `at_ns`.
    pub(crate) fn ours_ns(&self, at_ns: u64) -> i128 {
        i128::from(at_ns) - i128::from(self.ahead_ns(at_ns))
    }
}

/// The agent's time when the coordinator's clock will show `ours_ns`, from what was seen before.
pub(crate) fn theirs_ns(ours_ns: u64, before: Sight) -> u64 {
    ours_ns.saturating_add_signed(before.ahead_ns)
}

/// A clock that is wrong on purpose, to test what is done about it: `10s,50` is 10 s ahead and gains 50 µs a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Skew {
    ahead_ns: i64,
    drift_ppm: f64,
}

impl Skew {
    /// What this clock shows when the machine's shows `machine_ns`.
    pub(crate) fn shown_ns(&self, machine_ns: u64) -> u64 {
        let gained = (machine_ns as f64 * self.drift_ppm / 1e6) as i64;
        machine_ns.saturating_add_signed(self.ahead_ns).saturating_add_signed(gained)
    }

    /// What the machine's clock shows when this one shows `shown_ns`.
    pub(crate) fn machine_ns(&self, shown_ns: u64) -> u64 {
        if self.drift_ppm == 0.0 {
            return shown_ns.saturating_add_signed(-self.ahead_ns);
        }
        let straight = shown_ns.saturating_add_signed(-self.ahead_ns);
        (straight as f64 / (1.0 + self.drift_ppm / 1e6)) as u64
    }
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ahead, drift) = text.split_once(',').unwrap_or((text, "0"));
        let ahead = wire::parse_duration(ahead).map_err(|error| error.to_string())?;
        let drift_ppm = drift.parse().map_err(|_| format!("'{drift}' is no drift in ppm"))?;
        Ok(Self { ahead_ns: ahead.as_nanos() as i64, drift_ppm })
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns,{}", self.ahead_ns, self.drift_ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(at_ns: u64, ahead_ns: i64, within_ns: u64) -> Sight {
        Sight { at_ns, ahead_ns, within_ns }
    }

    #[test]
    fn a_clock_that_drifts_is_followed_by_a_line() {
        let line = ClockLine::new(sight(1_000, 500, 10), Some(sight(1_000_001_000, 50_500, 20)));
        assert_eq!(line.drift_ppm().map(f64::round), Some(50.0));
        assert_eq!(line.ahead_ns(500_001_000), 25_500);
        assert_eq!(line.bound_ns(500_001_000), 20);
        assert_eq!(line.ours_ns(500_001_000), 500_001_000 - 25_500);
    }

    #[test]
    fn without_a_second_look_the_bound_grows_with_the_drift_that_clocks_have() {
        let line = ClockLine::new(sight(0, -7, 100), None);
        assert_eq!((line.ahead_ns(1_000_000_000), line.bound_ns(1_000_000_000)), (-7, 30_100));
        assert_eq!(line.drift_ppm(), None);
    }

    #[test]
    fn a_wrong_clock_is_turned_back_into_the_machines() {
        let skew: Skew = "10s,50".parse().unwrap();
        let machine = 5_000_000_000_000;
        let shown = skew.shown_ns(machine);
        assert_eq!(shown, machine + 10_000_000_000 + 250_000_000);
        assert!(skew.machine_ns(shown).abs_diff(machine) < 2_000, "{}", skew.machine_ns(shown));
        assert!("10s,x".parse::<Skew>().is_err());
    }
}
