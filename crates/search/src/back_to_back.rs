//! The back-to-back test (RFC 2544, 26.4): the longest burst at the highest rate that loses nothing, repeated; and
//! the buffer size it implies (RFC 9004).

use serde::{Deserialize, Serialize};

/// Chooses the next burst, and the longest lossless one of each repetition.
#[derive(Debug, Clone, PartialEq)]
pub struct BackToBack {
    shortest: u64,
    longest: u64,
    width_ratio: f64,
    repetitions: u32,
    /// Burst length known to pass in the current repetition.
    passes: u64,
    /// Burst length known to be too long.
    fails: u64,
    results: Vec<Burst>,
}

/// The result of one repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Packets of the longest burst without loss; 0 when even the shortest lost some.
    pub packets: u64,
    /// Whether the longest burst tried passed too, so that the true value may be larger.
    pub at_limit: bool,
}

impl BackToBack {
    /// Bursts from `shortest` to `longest` packets, each repetition to within `width_ratio`.
    pub fn new(shortest: u64, longest: u64, width_ratio: f64, repetitions: u32) -> Self {
        let shortest = shortest.max(1);
        Self {
            shortest,
            longest: longest.max(shortest),
            width_ratio: width_ratio.clamp(1e-4, 0.5),
            repetitions,
            passes: 0,
            fails: u64::MAX,
            results: Vec::new(),
        }
    }

    /// Packets of the next burst; `None` when all repetitions are done.
    pub fn next_burst(&self) -> Option<u64> {
        if self.results.len() as u32 >= self.repetitions {
            return None;
        }
        Some(match (self.passes, self.fails) {
            // The longest first: most devices either pass it, or differ below it.
            (0, u64::MAX) => self.longest,
            (0, fails) => (fails / 4).max(self.shortest),
            (passes, fails) => passes + (fails - passes) / 2,
        })
    }

    /// Notes whether a burst passed without loss.
    pub fn record(&mut self, packets: u64, is_lossless: bool) {
        if is_lossless {
            self.passes = self.passes.max(packets);
        } else {
            self.fails = self.fails.min(packets);
        }
        // A shorter burst that loses while a longer one passes is noise: the shorter one decides.
        self.passes = if self.passes < self.fails { self.passes } else { 0 };
        let at_limit = self.passes >= self.longest;
        let is_narrow = self.fails != u64::MAX
            && (self.fails - self.passes) as f64 <= (self.fails as f64 * self.width_ratio).max(1.0);
        if at_limit || is_narrow || self.fails <= self.shortest {
            self.results.push(Burst { packets: self.passes, at_limit });
            (self.passes, self.fails) = (0, u64::MAX);
        }
    }

    /// The repetitions so far.
    pub fn results(&self) -> &[Burst] {
        &self.results
    }

    /// Mean of the repetitions, in packets; `None` before the first.
    pub fn mean_packets(&self) -> Option<f64> {
        let sum: u64 = self.results.iter().map(|burst| burst.packets).sum();
        (!self.results.is_empty()).then(|| sum as f64 / self.results.len() as f64)
    }

    /// The time the buffer holds, corrected for the packets that leave it while it fills (RFC 9004):
    /// `packets ÷ burst rate × (1 − throughput ÷ burst rate)`. 0 when the device is as fast as the burst.
    pub fn buffer_time_s(packets: f64, burst_pps: f64, throughput_pps: f64) -> f64 {
        if burst_pps <= 0.0 { 0.0 } else { packets / burst_pps * (1.0 - throughput_pps / burst_pps).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(mut test: BackToBack, mut passes: impl FnMut(u64) -> bool) -> (BackToBack, u32) {
        let mut bursts = 0;
        while let Some(packets) = test.next_burst() {
            test.record(packets, passes(packets));
            bursts += 1;
            assert!(bursts < 10_000, "it ends");
        }
        (test, bursts)
    }

    #[test]
    fn the_longest_lossless_burst_is_found_in_every_repetition() {
        let (test, _) = run(BackToBack::new(1, 100_000, 0.01, 5), |packets| packets <= 4321);
        assert_eq!(test.results().len(), 5);
        for burst in test.results() {
            assert!(!burst.at_limit && burst.packets <= 4321 && burst.packets as f64 > 4321.0 * 0.98);
        }
    }

    #[test]
    fn a_device_that_never_loses_is_at_the_limit_and_one_that_always_does_has_none() {
        let (test, bursts) = run(BackToBack::new(1, 1000, 0.01, 3), |_| true);
        assert_eq!((test.mean_packets(), bursts), (Some(1000.0), 3));
        assert!(test.results().iter().all(|burst| burst.at_limit));
        let (test, _) = run(BackToBack::new(1, 1000, 0.01, 2), |_| false);
        assert_eq!(test.mean_packets(), Some(0.0));
    }

    #[test]
    fn what_leaves_while_the_buffer_fills_is_taken_off() {
        // 1000 packets at 1 Mpps take 1 ms, of which the device forwarded 3/4 meanwhile.
        assert!((BackToBack::buffer_time_s(1000.0, 1e6, 0.75e6) - 250e-6).abs() < 1e-12);
        assert_eq!(BackToBack::buffer_time_s(1000.0, 1e6, 2e6), 0.0);
    }

    proptest! {
        #[test]
        fn it_ends_whatever_the_device_does(answers in proptest::collection::vec(any::<bool>(), 1..200), longest in 1u64..1 << 40) {
            let mut answers = answers.into_iter().cycle();
            run(BackToBack::new(1, longest, 0.01, 3), |_| answers.next().unwrap());
        }
    }
}
