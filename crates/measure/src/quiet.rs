//! Whether a machine is fit to measure on, and which differences can be shown there.

use serde::{Deserialize, Serialize};

use crate::{median, student::two_sided_quantile};

/// A look at a machine that does nothing else of ours.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quiet {
    /// How long was looked, in seconds.
    pub duration_s: f64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Share of all CPUs' time that the host gave to others.
    pub steal_ratio: f64,
    /// CPUs' worth of work that was not ours.
    pub background_cpus: f64,
    /// Median lateness of timers of 1 ms, in nanoseconds.
    pub timer_late_p50_ns: f64,
    /// 99 % of them were no later than this, in nanoseconds.
    pub timer_late_p99_ns: f64,
    /// Speed of a loop of equal work in the last third of the look against the first, minus 1.
    pub speed_drift_ratio: f64,
    /// Standard deviation of that loop's blocks, as a share of their mean.
    pub loop_spread_ratio: f64,
    /// How many blocks.
    pub loop_blocks: u32,
}

/// A look and when it was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuietReading {
    /// When, RFC 3339, UTC.
    pub read_at: String,
    /// The boot it was made in.
    pub boot: String,
    /// What it found.
    pub quiet: Quiet,
}

/// What was seen of a machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QuietLook {
    /// How long, in seconds.
    pub duration_s: f64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// CPU time that the host gave to others, in seconds, of all CPUs.
    pub stolen_s: f64,
    /// CPU time of everything on the machine, in seconds.
    pub busy_s: f64,
    /// Of that, this process's.
    pub own_s: f64,
    /// How late each timer came, in nanoseconds.
    pub late_ns: Vec<f64>,
    /// How long each block of equal work took, in nanoseconds, in the order of time.
    pub blocks_ns: Vec<f64>,
}

impl Quiet {
    /// What a look says.
    pub fn of(look: &QuietLook) -> Self {
        let cpus = f64::from(look.cpus.max(1));
        let duration_s = look.duration_s.max(1e-9);
        let third = look.blocks_ns.len() / 3;
        let drift =
            match (median(&look.blocks_ns[..third]), median(&look.blocks_ns[look.blocks_ns.len() - third..]))
            {
                (Some(first), Some(last)) if last > 0.0 => first / last - 1.0,
                _ => 0.0,
            };
        Self {
            duration_s: look.duration_s,
            cpus: look.cpus,
            steal_ratio: look.stolen_s / (duration_s * cpus),
            background_cpus: ((look.busy_s - look.own_s) / duration_s).max(0.0),
            timer_late_p50_ns: quantile(&look.late_ns, 0.5),
            timer_late_p99_ns: quantile(&look.late_ns, 0.99),
            speed_drift_ratio: drift,
            loop_spread_ratio: spread(&look.blocks_ns),
            loop_blocks: look.blocks_ns.len() as u32,
        }
    }

    /// What makes the machine unfit, a sentence each; none when it is fit.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut unless = |fine: bool, complaint: String| {
            if !fine {
                complaints.push(complaint);
            }
        };
        let per_cent = |ratio: f64| ratio * 100.0;
        unless(
            self.steal_ratio <= 0.01,
            format!("the host gives {:.1} % of the CPUs' time to others (steal)", per_cent(self.steal_ratio)),
        );
        unless(
            self.background_cpus <= 0.05 * f64::from(self.cpus.max(1)),
            format!("other programs use {:.2} of {} CPUs", self.background_cpus, self.cpus),
        );
        unless(
            self.timer_late_p99_ns <= 1e6,
            format!("timers come up to {:.1} ms late (99 %)", self.timer_late_p99_ns / 1e6),
        );
        unless(
            self.speed_drift_ratio.abs() <= 0.03,
            format!("the CPU's speed changed by {:+.1} % during the look", per_cent(self.speed_drift_ratio)),
        );
        unless(
            self.loop_spread_ratio <= 0.05,
            format!("equal work differs by {:.1} % (standard deviation)", per_cent(self.loop_spread_ratio)),
        );
        complaints
    }

    /// The smallest difference between two means, as a share, that this many trials on each side show in four of five
    /// attempts, at 95 % confidence, when trials vary as the loop's blocks do; `None` for fewer than two.
    pub fn shows_ratio(&self, trials: u32) -> Option<f64> {
        (trials >= 2).then(|| {
            let (n, degrees) = (f64::from(trials), f64::from(2 * trials - 2));
            let [sure, power] = [0.95, 0.6].map(|probability| two_sided_quantile(probability, degrees));
            (sure + power) * self.loop_spread_ratio * (2.0 / n).sqrt()
        })
    }

    /// The fewest trials on each side that show a difference of this share; `None` when a thousand do not.
    pub fn trials_for(&self, ratio: f64) -> Option<u32> {
        (2..=1000).find(|trials| self.shows_ratio(*trials).is_some_and(|shown| shown <= ratio))
    }
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// Standard deviation as a share of the mean.
fn spread(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if n < 2.0 || mean <= 0.0 {
        return 0.0;
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look() -> QuietLook {
        QuietLook {
            duration_s: 2.0,
            cpus: 2,
            stolen_s: 0.0,
            busy_s: 2.02,
            own_s: 2.0,
            late_ns: (0..100).map(|n| f64::from(n) * 1000.0).collect(),
            blocks_ns: (0..30).map(|n| 1e7 * (1.0 + 0.01 * f64::from(n % 2))).collect(),
        }
    }

    #[test]
    fn a_quiet_machine_has_no_complaint() {
        let quiet = Quiet::of(&look());
        assert_eq!(quiet.complaints(), Vec::<String>::new());
        assert!((quiet.background_cpus - 0.01).abs() < 1e-9);
        assert_eq!((quiet.timer_late_p50_ns, quiet.timer_late_p99_ns), (49_000.0, 98_000.0));
        assert!((quiet.loop_spread_ratio - 0.00506).abs() < 1e-4, "{}", quiet.loop_spread_ratio);
        assert_eq!(quiet.speed_drift_ratio, 0.0);
    }

    #[test]
    fn everything_that_spoils_a_measurement_is_said() {
        let blocks_ns = (0..30).map(|n| if n < 15 { 1e7 } else { 1.2e7 }).collect();
        let late_ns = vec![3e6; 100];
        let loud = QuietLook { stolen_s: 0.4, busy_s: 3.0, late_ns, blocks_ns, ..look() };
        let complaints = Quiet::of(&loud).complaints();
        let begin =
            ["the host gives 10.0 %", "other programs use 0.50 of 2 CPUs", "timers come up to 3.0 ms late"];
        for (complaint, begin) in complaints.iter().zip(begin) {
            assert!(complaint.starts_with(begin), "{complaint}");
        }
        assert!(complaints[3].contains("-16.7 %"), "{}", complaints[3]);
        assert_eq!(complaints.len(), 5);
    }

    #[test]
    fn more_trials_show_smaller_differences() {
        let quiet = Quiet { loop_spread_ratio: 0.02, ..Quiet::default() };
        assert_eq!(quiet.shows_ratio(1), None);
        let shows = |trials| quiet.shows_ratio(trials).unwrap();
        assert!(shows(3) > shows(10) && shows(10) > shows(100));
        // two groups of 17 show a difference of one standard deviation with a power of 0.8
        assert!((shows(17) / 0.02 - 1.0).abs() < 0.03, "{}", shows(17));
        assert_eq!(quiet.trials_for(0.02), Some(17));
        assert_eq!(quiet.trials_for(1e-9), None);
        assert_eq!(Quiet::default().trials_for(0.01), Some(2), "no spread shows everything");
    }

    #[test]
    fn a_look_at_nothing_says_nothing() {
        let quiet = Quiet::of(&QuietLook::default());
        assert!(quiet.complaints().is_empty());
        assert_eq!(quiet.loop_blocks, 0);
    }
}
