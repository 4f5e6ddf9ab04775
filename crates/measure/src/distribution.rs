//! Samples of one quantity: exact mean and deviation, percentiles from buckets.

use serde::{Deserialize, Serialize};

use crate::{hdr, histogram::Histogram};

/// A [`Histogram`] with the exact standard deviation of its samples.
///
/// The sums are integers (192 bits for the squares): nothing cancels, and nothing overflows before
/// 2^64 samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distribution {
    histogram: Histogram,
    squares: Wide,
}

/// A distribution as saved in a record, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NanosSummary {
    /// Number of samples.
    pub samples: u64,
    /// The exact mean.
    pub mean_ns: f64,
    /// The exact standard deviation (of the samples themselves, not of a population behind them).
    pub std_dev_ns: f64,
    /// Its square, the exact variance, in square nanoseconds.
    #[serde(default)]
    pub variance_ns2: f64,
    /// The smallest sample, exact.
    pub min_ns: u64,
    /// The largest sample, exact.
    pub max_ns: u64,
    /// Half of the samples are at most this; percentiles are at most 1/128 above the truth, never below.
    pub p50_ns: u64,
    /// 90 % are at most this.
    pub p90_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// 99.9 % are at most this.
    pub p999_ns: u64,
    /// 99.99 % are at most this.
    pub p9999_ns: u64,
    /// All buckets as an HdrHistogram V2 string (compressed, Base64), two significant digits.
    pub hdrh: String,
}

/// An unsigned number of 192 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Wide {
    low: u128,
    high: u64,
}

impl Distribution {
    /// Empty; always 58 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one sample.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.histogram.record(value);
        self.squares.add(u128::from(value) * u128::from(value));
    }

    /// Adds the same sample `n` times.
    pub fn record_n(&mut self, value: u64, n: u64) {
        self.histogram.record_n(value, n);
        self.squares = self.squares.plus(Wide::product(u128::from(value) * u128::from(value), n));
    }

    /// Adds all samples of another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        self.squares = self.squares.plus(other.squares);
    }

    /// Adds counts from elsewhere; `squares` is the sum of the samples' squares.
    pub fn add_counted(&mut self, counted: &Histogram, squares: u128) {
        self.histogram.merge(counted);
        self.squares.add(squares);
    }

    /// The buckets, extremes and mean.
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// The standard deviation of the samples; `None` without any.
    pub fn std_dev(&self) -> Option<f64> {
        Some(self.variance()?.sqrt())
    }

    /// The mean squared distance from the mean; `None` without samples.
    ///
    /// With mean m + r/n (m and r whole), the squared distances from m add up to Σx² − m(Σx + r), which is exact; those
    /// from the mean are r²/n less.
    pub fn variance(&self) -> Option<f64> {
        let samples = self.histogram.samples();
        if samples == 0 {
            return None;
        }
        let n = u128::from(samples);
        let sum = self.histogram.sum();
        let (mean, rest) = ((sum / n) as u64, sum % n);
        let apart = self.squares.minus(Wide::product(sum + rest, mean));
        if apart.high == 0 && apart.low <= u128::from(u64::MAX) {
            // Both products are below 2^128.
            let scaled = (apart.low * n - rest * rest) as f64;
            return Some(scaled / n as f64 / n as f64);
        }
        let n = n as f64;
        let rest = rest as f64;
        Some(((apart.as_f64() - rest * rest / n) / n).max(0.0))
    }

    /// All figures for a record; `None` without samples.
    pub fn summary(&self) -> Option<NanosSummary> {
        let histogram = &self.histogram;
        let percentile = |percent| histogram.percentile(percent).unwrap_or_default();
        Some(NanosSummary {
            samples: histogram.samples(),
            mean_ns: histogram.mean()?,
            std_dev_ns: self.std_dev()?,
            variance_ns2: self.variance()?,
            min_ns: histogram.min()?,
            max_ns: histogram.max()?,
            p50_ns: percentile(50.0),
            p90_ns: percentile(90.0),
            p99_ns: percentile(99.0),
            p999_ns: percentile(99.9),
            p9999_ns: percentile(99.99),
            hdrh: hdr::encode(histogram),
        })
    }
}

impl NanosSummary {
    /// The buckets that hold samples, as (largest value of the bucket in nanoseconds, samples); empty when the string
    /// cannot be read.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        hdr::decode(&self.hdrh).unwrap_or_default()
    }
}

impl Wide {
    #[inline]
    fn add(&mut self, value: u128) {
        let (low, carries) = self.low.overflowing_add(value);
        self.low = low;
        self.high = self.high.wrapping_add(u64::from(carries));
    }

    fn plus(mut self, other: Self) -> Self {
        self.add(other.low);
        self.high = self.high.wrapping_add(other.high);
        self
    }

    fn minus(self, other: Self) -> Self {
        let (low, borrows) = self.low.overflowing_sub(other.low);
        Self { low, high: self.high.wrapping_sub(other.high).wrapping_sub(u64::from(borrows)) }
    }

    fn product(a: u128, b: u64) -> Self {
        let b = u128::from(b);
        let low = (a & u128::from(u64::MAX)) * b;
        let high = (a >> 64) * b;
        let mut product = Self { low, high: (high >> 64) as u64 };
        product.add(high << 64);
        product
    }

    fn as_f64(self) -> f64 {
        self.high as f64 * 2f64.powi(128) + self.low as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::new();
        values.iter().for_each(|value| distribution.record(*value));
        distribution
    }

    #[test]
    fn a_known_deviation_is_exact() {
        let distribution = of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((distribution.histogram().mean(), distribution.std_dev()), (Some(5.0), Some(2.0)));
        assert_eq!(of(&[1, 2]).variance(), Some(0.25));
        assert_eq!((of(&[]).variance(), of(&[7]).variance()), (None, Some(0.0)));
    }

    #[test]
    fn a_small_deviation_on_a_large_offset_does_not_cancel() {
        let offset = 1 << 62;
        assert_eq!(of(&[offset + 1, offset + 2, offset + 3, offset + 4]).variance(), Some(1.25));
    }

    #[test]
    fn a_million_million_samples_do_not_overflow() {
        const SAMPLES: u64 = 1_000_000_000_000;
        let mut distribution = Distribution::new();
        distribution.record_n(u64::MAX, SAMPLES);
        distribution.record_n(u64::MAX - 2, SAMPLES);
        assert_eq!(distribution.histogram().samples(), 2 * SAMPLES);
        assert_eq!(distribution.variance(), Some(1.0));
        let mut far = Distribution::new();
        far.record_n(0, SAMPLES);
        far.record_n(u64::MAX - 1, SAMPLES);
        assert_eq!(far.std_dev(), Some(2f64.powi(63)));
    }

    #[test]
    fn samples_one_by_one_many_at_once_and_merged_are_the_same() {
        let mut many = Distribution::new();
        many.record_n(u64::MAX, 3);
        many.record_n(12, 2);
        let mut merged = of(&[u64::MAX, 12]);
        merged.merge(&of(&[12, u64::MAX, u64::MAX]));
        assert_eq!(many, merged);
        assert_eq!(many, of(&[12, u64::MAX, u64::MAX, u64::MAX, 12]));
    }

    #[test]
    fn a_summary_carries_every_figure_and_its_buckets() {
        let summary = of(&(1..=10_000).collect::<Vec<_>>()).summary().unwrap();
        assert_eq!((summary.samples, summary.min_ns, summary.max_ns), (10_000, 1, 10_000));
        assert_eq!(summary.mean_ns, 5000.5);
        for (found, exact) in [(summary.p50_ns, 5000), (summary.p99_ns, 9900), (summary.p9999_ns, 9999)] {
            assert!((exact..=exact + exact / 128).contains(&found), "{found} for {exact}");
        }
        assert_eq!(summary.buckets().iter().map(|(_, samples)| samples).sum::<u64>(), 10_000);
        assert!(of(&[]).summary().is_none());
    }
}
