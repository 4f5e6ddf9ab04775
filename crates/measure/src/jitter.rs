//! How the time in transit varies from packet to packet. No clock relation is needed: offsets cancel.

/// The variation of the transit times of one sender's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransitVariation {
    last_ns: Option<i64>,
    /// Sixteen times the estimate.
    scaled: u64,
}

impl TransitVariation {
    /// Records the next packet's transit time (arrival − departure, any two clocks) and returns its distance to
    /// the previous one: the pktgen receiver's jitter. `None` for the first packet.
    #[inline]
    pub fn observe(&mut self, transit_ns: i64) -> Option<u64> {
        let last = self.last_ns.replace(transit_ns)?;
        let apart = transit_ns.abs_diff(last);
        // RFC 3550, A.8: J += (|D| − J) / 16, in integers.
        self.scaled = (self.scaled + apart.min(u64::MAX >> 8)) - ((self.scaled + 8) >> 4);
        Some(apart)
    }

    /// The next packets have the previous transit time: their jitter is 0, and the estimate falls.
    pub fn observe_same(&mut self, packets: u64) {
        for _ in 0..packets {
            let fall = (self.scaled + 8) >> 4;
            if fall == 0 {
                return;
            }
            self.scaled -= fall;
        }
    }

    /// The interarrival jitter of RFC 3550, 6.4.1, in nanoseconds; `None` before the second packet.
    pub fn rfc3550_ns(&self) -> Option<f64> {
        self.last_ns.map(|_| Self::rfc3550_of_scaled(self.scaled))
    }

    /// The same from sixteen times the estimate, the form that RFC 3550, A.8 keeps.
    pub fn rfc3550_of_scaled(scaled_ns: u64) -> f64 {
        scaled_ns as f64 / 16.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_the_distance_to_the_packet_before() {
        let mut variation = TransitVariation::default();
        let apart: Vec<_> = [500, 700, 650, 650, -50].map(|transit| variation.observe(transit)).into();
        assert_eq!(apart, [None, Some(200), Some(50), Some(0), Some(700)]);
    }

    #[test]
    fn the_estimate_is_that_of_rfc_3550() {
        let mut variation = TransitVariation::default();
        let mut estimate = 0.0f64;
        for packet in 0..1000i64 {
            let transit = 10_000 + packet % 7 * 1600;
            let last = 10_000 + (packet - 1) % 7 * 1600;
            variation.observe(transit);
            if packet > 0 {
                estimate += ((transit - last).abs() as f64 - estimate) / 16.0;
            }
        }
        let found = variation.rfc3550_ns().unwrap();
        assert!((found - estimate).abs() <= 1.0, "{found} for {estimate}");
    }

    #[test]
    fn the_same_time_many_times_is_each_time_the_same() {
        for packets in [0, 1, 5, 64, 100_000] {
            let mut each = TransitVariation::default();
            each.observe(0);
            each.observe(7_000_000);
            let mut once = each;
            (0..packets).for_each(|_| assert_eq!(each.observe(7_000_000), Some(0)));
            once.observe_same(packets);
            assert_eq!(once, each);
        }
    }

    #[test]
    fn hostile_transit_times_do_not_overflow() {
        let mut variation = TransitVariation::default();
        for packet in 0..10_000 {
            variation.observe(if packet % 2 == 0 { i64::MIN } else { i64::MAX });
        }
        assert!(variation.rfc3550_ns().unwrap() > 1e15);
    }
}
