//! A quantity over time: its mean and its largest value, without keeping samples.

/// A level that changes at known times.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge {
    level: u64,
    since_ps: u64,
    area: u128,
    from_ps: u64,
    most: u64,
}

impl Gauge {
    #[inline]
    pub(crate) fn set(&mut self, now_ps: u64, level: u64) {
        self.area += u128::from(self.level) * u128::from(now_ps - self.since_ps);
        self.since_ps = now_ps;
        self.level = level;
        self.most = self.most.max(level);
    }

    /// Discards the past, at the end of the warm-up.
    pub(crate) fn restart(&mut self, now_ps: u64) {
        *self = Self { level: self.level, since_ps: now_ps, area: 0, from_ps: now_ps, most: self.level };
    }

    /// The mean since the start or the restart, weighted by time.
    pub(crate) fn mean(&self, now_ps: u64) -> f64 {
        let area = self.area + u128::from(self.level) * u128::from(now_ps - self.since_ps);
        let span = now_ps - self.from_ps;
        if span == 0 { self.level as f64 } else { area as f64 / span as f64 }
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_weighted_by_time() {
        let mut gauge = Gauge::default();
        gauge.set(10, 4);
        gauge.set(20, 2);
        assert_eq!((gauge.mean(40), gauge.most()), (2.0, 4));
        gauge.restart(40);
        assert_eq!((gauge.mean(50), gauge.most()), (2.0, 2));
    }
}
