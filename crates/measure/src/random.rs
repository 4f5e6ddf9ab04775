//! A small generator for permutations and for synthetic data: a seed always yields the same numbers.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without `bound`, which is greater than 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // the high half of the product; bias below 2^-50 for the lengths used here
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Puts the values into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    #[cfg(test)]
    pub(crate) fn normal(&mut self) -> f64 {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (u, v) = (unit(self.next()), unit(self.next()));
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_as_likely_as_any_other() {
        let (mut random, mut seen) = (Random::new(1), std::collections::BTreeMap::new());
        for _ in 0..60_000 {
            let mut order = [0, 1, 2, 3];
            random.shuffle(&mut order);
            *seen.entry(order).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 24);
        // 2500 each, deviation 49
        assert!(seen.values().all(|n| (2250..2750).contains(n)), "{seen:?}");
    }

    #[test]
    fn normal_values_have_their_moments() {
        let mut random = Random::new(2);
        let values: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
