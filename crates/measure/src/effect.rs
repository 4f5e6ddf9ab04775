//! Whether two sets of trials differ, by how much, and whether there are enough trials to decide.

use serde::{Deserialize, Serialize};

use crate::student::two_sided_quantile;

/// The difference of B from A, with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    /// The scale of the three numbers.
    pub scale: EffectScale,
    /// Best estimate.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The confidence level: how often such an interval contains the true value.
    pub confidence: f64,
}

/// The scale of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EffectScale {
    /// B ÷ A − 1, of the geometric means.
    Ratio,
    /// B − A, of the means, in the metric's own unit.
    Difference,
}

/// Whether more or less of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better: rates.
    Higher,
    /// Less is better: loss, cost, lateness.
    Lower,
}

/// The verdict on B against A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Conclusion {
    /// Better, by enough to matter.
    Better,
    /// Worse, by enough to matter.
    Worse,
    /// Shown to differ by less than matters.
    NoDifference,
    /// The trials are too noisy for any reasonable number of them.
    TooNoisy,
    /// This many more trials of each side are likely to decide.
    NeedsTrials {
        /// Trials to add to each side.
        more: u32,
    },
}

/// How to judge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// Whether more or less is better.
    pub better: Better,
    /// Relative or absolute.
    pub scale: EffectScale,
    /// The smallest effect that matters, in the units of the scale.
    pub matters: f64,
    /// Confidence of the interval: at most a share `1 − confidence` of equal pairs is called better or worse.
    pub confidence: f64,
}

/// The most trials per side that advice suggests.
const MOST_TRIALS: u32 = 30;

impl Effect {
    /// Welch's interval for the difference of two means whose variances need not be equal, of the logarithms
    /// for a ratio (Welch 1947; degrees of freedom after Satterthwaite).
    ///
    /// `None` with fewer than two values on a side, or for a ratio of values that are not all positive.
    pub fn of(a: &[f64], b: &[f64], scale: EffectScale, confidence: f64) -> Option<Self> {
        let moments = Moments::of_both(a, b, scale)?;
        let [a, b] = moments.map(|m| m.variance / m.count);
        let difference = moments[1].mean - moments[0].mean;
        let half_width = match (a + b).sqrt() {
            error if error > 0.0 => {
                let [of_a, of_b] = moments.map(|m| m.count - 1.0);
                let degrees = (a + b).powi(2) / (a * a / of_a + b * b / of_b);
                error * two_sided_quantile(confidence, degrees)
            }
            // every trial had the same value, as in a model run
            _ => 0.0,
        };
        let back = |value: f64| match scale {
            EffectScale::Ratio => value.exp_m1(),
            EffectScale::Difference => value,
        };
        let [estimate, low, high] = [difference, difference - half_width, difference + half_width].map(back);
        Some(Self { scale, estimate, low, high, confidence })
    }

    /// Whether the interval excludes "no effect".
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

impl EffectScale {
    /// The mean that an effect on this scale compares: the geometric mean for a ratio, the mean for a
    /// difference. `None` without values, or for a ratio of values that are not all positive.
    pub fn centre(self, values: &[f64]) -> Option<f64> {
        let mean = |sum: f64| (!values.is_empty()).then(|| sum / values.len() as f64);
        match self {
            Self::Difference => mean(values.iter().sum()),
            Self::Ratio if values.iter().all(|value| *value > 0.0) => {
                mean(values.iter().map(|value| value.ln()).sum()).map(f64::exp)
            }
            Self::Ratio => None,
        }
    }
}

impl Question {
    /// Judges B against A; the effect is `None` when it cannot be estimated.
    pub fn judge(&self, a: &[f64], b: &[f64]) -> (Option<Effect>, Conclusion) {
        let fewest = a.len().min(b.len()) as u32;
        let Some(effect) = Effect::of(a, b, self.scale, self.confidence) else {
            // two trials yield an interval, but it is too wide to be useful
            return (None, Conclusion::NeedsTrials { more: 3u32.saturating_sub(fewest).max(1) });
        };
        let within = effect.low > -self.matters && effect.high < self.matters;
        let verdict = match (effect.excludes_zero(), effect.estimate.abs() >= self.matters) {
            (true, true) if (effect.estimate > 0.0) == (self.better == Better::Higher) => Conclusion::Better,
            (true, true) => Conclusion::Worse,
            (true, false) => Conclusion::NoDifference,
            (false, _) if within => Conclusion::NoDifference,
            (false, _) => match self.trials_needed(a, b) {
                Some(needed) => Conclusion::NeedsTrials { more: needed.saturating_sub(fewest).max(1) },
                None => Conclusion::TooNoisy,
            },
        };
        (Some(effect), verdict)
    }

    /// Trials per side until the interval, with the present scatter, is no wider than the smallest effect that matters, to
    /// either side; `None` above [`MOST_TRIALS`].
    fn trials_needed(&self, a: &[f64], b: &[f64]) -> Option<u32> {
        let moments = Moments::of_both(a, b, self.scale)?;
        let variance = moments[0].variance + moments[1].variance;
        let target = match self.scale {
            EffectScale::Ratio => self.matters.ln_1p(),
            EffectScale::Difference => self.matters,
        };
        let half_width =
            |n: f64, degrees: f64| (variance / n).sqrt() * two_sided_quantile(self.confidence, degrees);
        // finite degrees of freedom need at least as many trials as infinite ones
        let least = (half_width(1.0, 1e9) / target).powi(2).ceil().clamp(2.0, f64::from(MOST_TRIALS) + 1.0);
        (least as u32..=MOST_TRIALS).find(|n| half_width(f64::from(*n), 2.0 * f64::from(n - 1)) <= target)
    }
}

#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of_both(a: &[f64], b: &[f64], scale: EffectScale) -> Option<[Self; 2]> {
        Some([Self::of(a, scale)?, Self::of(b, scale)?])
    }

    fn of(values: &[f64], scale: EffectScale) -> Option<Self> {
        let values: Vec<f64> = match scale {
            EffectScale::Difference => values.to_vec(),
            EffectScale::Ratio if values.iter().all(|value| *value > 0.0) => {
                values.iter().map(|value| value.ln()).collect()
            }
            EffectScale::Ratio => return None,
        };
        if values.len() < 2 || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Self { count, mean, variance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const SEED: u64 = 20_260_504;
    const ROUNDS: u32 = 2_000;

    fn question() -> Question {
        Question { better: Better::Higher, scale: EffectScale::Ratio, matters: 0.02, confidence: 0.95 }
    }

    /// Trials of a rate with the given relative scatter.
    fn trials(random: &mut Random, n: usize, rate: f64, scatter: f64) -> Vec<f64> {
        (0..n).map(|_| rate * (1.0 + scatter * random.normal())).collect()
    }

    fn share(rounds: u32, mut happens: impl FnMut(&mut Random) -> bool) -> f64 {
        let mut random = Random::new(SEED);
        (0..rounds).filter(|_| happens(&mut random)).count() as f64 / f64::from(rounds)
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for (n_a, n_b, scatter_b, confidence) in
            [(3, 3, 0.03, 0.95), (5, 5, 0.01, 0.95), (3, 10, 0.1, 0.95), (5, 5, 0.03, 0.80)]
        {
            let held = share(ROUNDS, |random| {
                let (a, b) = (trials(random, n_a, 3e5, 0.03), trials(random, n_b, 3.3e5, scatter_b));
                let effect = Effect::of(&a, &b, EffectScale::Difference, confidence).unwrap();
                effect.low <= 3e4 && 3e4 <= effect.high
            });
            // Welch's interval is slightly too wide for very few trials, never too narrow by more than chance
            let chance = 3.0 * (confidence * (1.0 - confidence) / f64::from(ROUNDS)).sqrt();
            assert!(
                held > confidence - chance && held < confidence + 0.04,
                "{held} of {confidence}, {n_a} and {n_b}"
            );
        }
    }

    #[test]
    fn equal_machines_are_told_apart_no_more_often_than_stated() {
        for (n, scatter) in [(3, 0.05), (5, 0.03), (10, 0.03), (20, 0.10)] {
            let alarms = share(ROUNDS, |random| {
                let (a, b) = (trials(random, n, 3e5, scatter), trials(random, n, 3e5, scatter));
                matches!(question().judge(&a, &b).1, Conclusion::Better | Conclusion::Worse)
            });
            let chance = 3.0 * (0.05 * 0.95 / f64::from(ROUNDS)).sqrt();
            assert!(alarms < 0.05 + chance, "{alarms} with {n} trials of {scatter}");
        }
    }

    #[test]
    fn a_true_change_is_found_and_its_direction_right() {
        for (change, verdict) in [(1.10, Conclusion::Better), (0.90, Conclusion::Worse)] {
            let found = share(1_000, |random| {
                let (a, b) = (trials(random, 5, 3e5, 0.02), trials(random, 5, 3e5 * change, 0.02));
                question().judge(&a, &b).1 == verdict
            });
            assert!(found > 0.99, "{found} of {change}");
        }
    }

    #[test]
    fn less_is_better_where_it_is_said_so() {
        let cost = Question { better: Better::Lower, ..question() };
        assert_eq!(cost.judge(&[100.0, 101.0, 99.0], &[80.0, 81.0, 79.0]).1, Conclusion::Better);
    }

    #[test]
    fn what_does_not_matter_is_no_difference() {
        let (a, b) = ([100.0, 100.1, 99.9], [100.5, 100.6, 100.4]);
        let (effect, verdict) = question().judge(&a, &b);
        assert!(effect.unwrap().excludes_zero());
        assert_eq!(verdict, Conclusion::NoDifference);
    }

    #[test]
    fn the_trials_it_asks_for_decide() {
        let decided = share(500, |random| {
            let (a, b) = (trials(random, 3, 3e5, 0.03), trials(random, 3, 3e5, 0.03));
            let Conclusion::NeedsTrials { more } = question().judge(&a, &b).1 else { return true };
            let n = 3 + more as usize;
            // twice the advice, because three trials may underestimate the scatter
            let (a, b) = (trials(random, 2 * n, 3e5, 0.03), trials(random, 2 * n, 3e5, 0.03));
            !matches!(question().judge(&a, &b).1, Conclusion::TooNoisy)
        });
        assert!(decided > 0.9, "{decided}");
    }

    #[test]
    fn scatter_beyond_help_is_said_to_be() {
        assert_eq!(question().judge(&[1.0, 9.0, 3.0], &[2.0, 8.0, 4.0]).1, Conclusion::TooNoisy);
    }

    #[test]
    fn one_trial_a_side_decides_nothing() {
        assert_eq!(question().judge(&[1.0], &[9.0]), (None, Conclusion::NeedsTrials { more: 2 }));
        assert_eq!(question().judge(&[], &[9.0, 9.0]).1, Conclusion::NeedsTrials { more: 3 });
    }

    #[test]
    fn what_never_varies_differs_when_it_differs() {
        assert_eq!(question().judge(&[5.0, 5.0], &[6.0, 6.0]).1, Conclusion::Better);
        assert_eq!(question().judge(&[5.0, 5.0], &[5.0, 5.0]).1, Conclusion::NoDifference);
    }

    #[test]
    fn a_ratio_needs_positive_values_and_a_difference_does_not() {
        assert_eq!(Effect::of(&[0.0, 1.0], &[1.0, 1.0], EffectScale::Ratio, 0.95), None);
        let effect = Effect::of(&[0.0, 0.0], &[0.5, 0.5], EffectScale::Difference, 0.95).unwrap();
        assert_eq!((effect.estimate, effect.low, effect.high), (0.5, 0.5, 0.5));
        assert_eq!(Effect::of(&[f64::NAN, 1.0], &[1.0, 1.0], EffectScale::Difference, 0.95), None);
    }
}
