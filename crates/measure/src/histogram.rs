//! A log-linear histogram for hot loops: fixed memory, one addition per sample, known relative error.

use std::ops::RangeInclusive;

/// Counts of values from 0 to 2^64 − 1 with a relative error of at most 1/128.
///
/// Values below 256 have a bucket each; above, every power of two has 128 buckets, the same as in an
/// HdrHistogram (Tene) with two significant digits, so conversion loses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    samples: u64,
    least: u64,
    most: u64,
    sum: u128,
}

const SUB_BITS: u32 = 7;
const LINEAR: u64 = 2 << SUB_BITS;
const BUCKETS: usize = LINEAR as usize + ((64 - SUB_BITS as usize - 1) << SUB_BITS);

impl Histogram {
    /// An empty histogram; always 58 KiB.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], samples: 0, least: u64::MAX, most: 0, sum: 0 }
    }

    /// Adds one sample.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Adds the same sample `n` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.counts[bucket(value)] += n;
        self.samples += n;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        self.sum += u128::from(value) * u128::from(n);
    }

    /// Adds all samples of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.samples += other.samples;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        self.sum += other.sum;
    }

    /// Adds counts from elsewhere in these buckets: the counts from the first bucket on, and the exact extremes
    /// and sum of those samples.
    ///
    /// # Panics
    /// When there are more counts than buckets.
    pub fn add_counts(&mut self, counts: &[u64], extremes: RangeInclusive<u64>, sum: u128) {
        assert!(counts.len() <= BUCKETS, "{} counts for {BUCKETS} buckets", counts.len());
        let samples: u64 = counts.iter().sum();
        if samples == 0 {
            return;
        }
        self.counts.iter_mut().zip(counts).for_each(|(mine, theirs)| *mine += theirs);
        self.samples += samples;
        self.least = self.least.min(*extremes.start());
        self.most = self.most.max(*extremes.end());
        self.sum += sum;
    }

    /// The sum of all samples.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The smallest sample, exact; `None` without samples.
    pub fn min(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.least)
    }

    /// The largest sample, exact; `None` without samples.
    pub fn max(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.most)
    }

    /// The exact mean; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum as f64 / self.samples as f64)
    }

    /// The value that `percent` of the samples do not exceed, to the bucket's upper edge and never above
    /// the largest sample; `None` without samples.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        if self.samples == 0 {
            return None;
        }
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * self.samples as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(upper_edge(at).min(self.most));
            }
        }
        Some(self.most)
    }

    /// The buckets that hold samples, as (largest value of the bucket, samples).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, n)| (upper_edge(at), *n))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < LINEAR {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < LINEAR {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let lower = ((bucket & ((1 << SUB_BITS) - 1)) | 1 << SUB_BITS) << shift;
    lower + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_within_the_error() {
        for value in
            (0..4096).chain((12..64).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1])).chain([u64::MAX])
        {
            let edge = upper_edge(bucket(value));
            assert!(edge >= value, "{value} above its edge {edge}");
            assert!(edge - value <= value / 128, "{value} is {edge}");
            assert!(bucket(value) == 0 || upper_edge(bucket(value) - 1) < value);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_one_to_a_hundred() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|v| histogram.record(v));
        assert_eq!(histogram.percentile(50.0), Some(50));
        assert_eq!(histogram.percentile(99.0), Some(99));
        assert_eq!(histogram.percentile(100.0), Some(100));
        assert_eq!(histogram.percentile(0.0), Some(1));
        assert_eq!((histogram.min(), histogram.max(), histogram.mean()), (Some(1), Some(100), Some(50.5)));
    }

    #[test]
    fn an_empty_histogram_has_no_values() {
        let empty = Histogram::new();
        assert_eq!(
            (empty.min(), empty.max(), empty.mean(), empty.percentile(50.0)),
            (None, None, None, None)
        );
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut a, mut b, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
        for value in [3, 900, 1 << 40] {
            a.record(value);
            both.record(value);
        }
        b.record_n(77, 5);
        both.record_n(77, 5);
        a.merge(&b);
        assert_eq!(a, both);
    }

    #[test]
    fn counts_of_somebody_else_are_added_in_the_same_buckets() {
        let (mut mine, mut theirs) = (Histogram::new(), Histogram::new());
        for value in [3, 255, 256, 900, 70_000] {
            mine.record(value);
            theirs.record(value);
        }
        let counts = mine.counts.clone();
        mine.add_counts(&counts[..2000], 3..=70_000, mine.sum());
        theirs.merge(&theirs.clone());
        assert_eq!(mine, theirs);
        mine.add_counts(&[0; 10], 0..=u64::MAX, 0);
        assert_eq!(mine, theirs, "an empty histogram has no extremes");
    }
}
