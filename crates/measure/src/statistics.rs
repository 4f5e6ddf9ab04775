//! Statistics over a few trials.

use serde::{Deserialize, Serialize};

use crate::student::two_sided_quantile;

/// The middle of the values, the mean of the two middle ones for an even number; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The confidence interval of the mean, at the given confidence (Student's t).
/// `None` with fewer than two values.
pub fn confidence_interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half_width = (variance / count).sqrt() * two_sided_quantile(confidence, count - 1.0);
    Some((mean - half_width, mean + half_width))
}

/// Several trials of one quantity.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of values.
    pub trials: u32,
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// `(max − min) ÷ median`, 0 for a median of 0.
    pub spread_ratio: f64,
}

impl Summary {
    /// Trials agree while their spread stays below this share of the median.
    pub const AGREEMENT: f64 = 0.10;

    /// Summarises values; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = median(values)?;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread_ratio = if median > 0.0 { (max - min) / median } else { 0.0 };
        Some(Self { trials: values.len() as u32, median, min, max, spread_ratio })
    }

    /// Whether the trials agree to within [`Summary::AGREEMENT`].
    pub fn agrees(&self) -> bool {
        self.spread_ratio <= Self::AGREEMENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn an_interval_is_that_of_the_printed_tables() {
        // mean 10, deviation 1, t(0.95, 2) = 4.303
        let (low, high) = confidence_interval(&[9.0, 10.0, 11.0], 0.95).unwrap();
        assert!((low - (10.0 - 4.303 / 3f64.sqrt())).abs() < 1e-3 && (high + low - 20.0).abs() < 1e-9);
        assert_eq!(confidence_interval(&[1.0], 0.95), None);
        assert_eq!(confidence_interval(&[2.0, 2.0], 0.95), Some((2.0, 2.0)));
    }

    #[test]
    fn trials_far_apart_disagree() {
        assert!(Summary::of(&[100.0, 104.0, 96.0]).unwrap().agrees());
        let apart = Summary::of(&[100.0, 120.0, 90.0]).unwrap();
        assert_eq!((apart.min, apart.max, apart.spread_ratio), (90.0, 120.0, 0.3));
        assert!(!apart.agrees());
    }
}
