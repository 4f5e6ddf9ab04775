//! One seeded generator, the same numbers on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): kept here
/// because a library may change its algorithm, and the same seed would then give another run.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in (0, 1], never 0.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// An exponentially distributed time with this mean, rounded to whole picoseconds.
    #[inline]
    pub(crate) fn exponential_ps(&mut self, mean_ps: f64) -> u64 {
        (-ln(self.unit()) * mean_ps).round() as u64
    }
}

/// The natural logarithm of a positive normal number, by IEEE additions, multiplications and divisions
/// only. The platform's `ln` may round differently on another machine, and one picosecond changes a run.
///
/// ln(2^e · m) = e·ln 2 + 2·artanh((m − 1)/(m + 1)); the series' next term is below 1e-16 for m in [√½, √2].
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let mut series = 0.0;
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * s2 + 1.0 / odd;
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = Random::new(1234567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn the_logarithm_agrees_with_the_platforms() {
        let mut random = Random::new(7);
        for _ in 0..100_000 {
            let x = random.unit();
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn exponential_times_have_their_mean_and_variance() {
        let mut random = Random::new(3);
        let n = 1_000_000;
        let times: Vec<f64> = (0..n).map(|_| random.exponential_ps(1e6) as f64 / 1e6).collect();
        let mean = times.iter().sum::<f64>() / n as f64;
        let variance = times.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>() / n as f64;
        // five standard errors: 1/sqrt(n) of the mean, sqrt(8)/sqrt(n) of the variance
        assert!((mean - 1.0).abs() < 5e-3, "{mean}");
        assert!((variance - 1.0).abs() < 5.0 * 2.83e-3, "{variance}");
    }
}
