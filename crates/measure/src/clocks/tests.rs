use super::*;
use crate::random::Random;

/// Two hosts: the answering one's clock is ahead and gains; each way takes its own time.
#[derive(Clone, Copy)]
struct Hosts {
    ahead_ns: i64,
    drift_ppm: f64,
    there_ns: u64,
    back_ns: u64,
}

const SECOND: u64 = 1_000_000_000;

impl Hosts {
    /// By how much the answering clock is ahead after so many nanoseconds of the asking one.
    fn ahead(&self, at_ns: u64) -> i64 {
        self.ahead_ns + (at_ns as f64 * self.drift_ppm / 1e6) as i64
    }

    fn theirs(&self, at_ns: u64) -> u64 {
        at_ns.checked_add_signed(self.ahead(at_ns)).unwrap()
    }

    /// A question at this time, which waits so long in queues on the two ways.
    fn exchange(&self, asked_ns: u64, waits: [u64; 2]) -> ClockExchange {
        let heard = asked_ns + self.there_ns + waits[0];
        let answered = heard + 2_000;
        ClockExchange {
            asked_ns,
            heard_ns: self.theirs(heard),
            answered_ns: self.theirs(answered),
            returned_ns: answered + self.back_ns + waits[1],
        }
    }

    /// Questions before, each half second during, and after; each exchange waits up to `wait_ns`. Returns the comparison
    /// and the largest error of a latency that was corrected by what was used.
    fn run(&self, seconds: u64, wait_ns: u64, agreement: Option<ClockAgreement>) -> (ClockComparison, u64) {
        let mut random = Random::new(seconds ^ wait_ns);
        let mut wait =
            || [0; 2].map(|_| if wait_ns == 0 { 0 } else { random.below(wait_ns as usize) as u64 });
        let mut track = match agreement {
            Some(agreement) => ClockTrack::with_daemons(Ok(agreement)),
            None => ClockTrack::default(),
        };
        let start = 3600 * SECOND;
        let mut used = 0;
        for n in 0..32 {
            used = track.add(ClockStage::Before, &self.exchange(start + n * 200_000, wait())).unwrap_or(used);
        }
        let begin = start + SECOND / 10;
        let mut worst = 0;
        for beat in 0..2 * seconds {
            let from = begin + beat * SECOND / 2;
            let exchange = self.exchange(from, wait());
            used = track.add(ClockStage::During, &exchange).unwrap_or(used);
            for at in (from + SECOND / 100..from + SECOND / 2).step_by(49_000_000) {
                worst = worst.max(self.ahead(at).abs_diff(used));
            }
        }
        let end = begin + seconds * SECOND;
        for n in 0..32 {
            track.add(ClockStage::After, &self.exchange(end + n * 200_000, wait()));
        }
        (track.compared(self.theirs(end + SECOND / 10)), worst)
    }
}

#[test]
fn offset_drift_and_asymmetry_stay_within_the_stated_bound() {
    for ahead_ns in [0, -3_000_000_000_000, 5_000_000_000_000, 40] {
        for drift_ppm in [0.0, 5.0, -30.0, 100.0] {
            for (there_ns, back_ns) in [(20_000, 20_000), (1_000, 60_000), (500_000, 5_000)] {
                for (seconds, wait_ns) in [(1, 0), (1, 10_000), (30, 0), (30, 400_000)] {
                    let hosts = Hosts { ahead_ns, drift_ppm, there_ns, back_ns };
                    let (comparison, worst) = hosts.run(seconds, wait_ns, None);
                    let case = format!(
                        "{ahead_ns} {drift_ppm} {there_ns}/{back_ns} {seconds} s {wait_ns}: {comparison:?}"
                    );
                    let bound = comparison.bound_ns.unwrap();
                    assert!(worst <= bound, "{worst} ns off: {case}");
                    let least = (there_ns + back_ns) / 2;
                    let gained = (drift_ppm.abs() * seconds as f64 * 1000.0) as u64;
                    assert!(bound <= least + gained + wait_ns + 100, "needlessly wide: {case}");
                    let off = (comparison.drift_ppm.unwrap() - drift_ppm).abs();
                    assert!(off <= comparison.drift_bound_ppm.unwrap() + 0.02, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_long_runs_drift_is_followed() {
    let hosts = Hosts { ahead_ns: 7, drift_ppm: 30.0, there_ns: 20_000, back_ns: 20_000 };
    let (comparison, worst) = hosts.run(60, 0, None);
    // 1.8 ms apart at the end, of which half a second's part may be missing at any time.
    assert!(comparison.bound_ns.unwrap() < 80_000 && worst < 60_000, "{worst} {comparison:?}");
}

#[test]
fn a_latency_is_known_when_its_bound_is_below_a_tenth_of_it() {
    let comparison = ClockComparison { bound_ns: Some(100), ..ClockComparison::default() };
    assert!(comparison.allows(1001) && !comparison.allows(1000));
    assert!(!ClockComparison::default().allows(u64::MAX));
}

#[test]
fn daemons_are_believed_until_a_round_trip_contradicts_them() {
    let hosts = Hosts { ahead_ns: 1_000_000, drift_ppm: 0.0, there_ns: 30_000, back_ns: 10_000 };
    let said = ClockAgreement { ahead_ns: 1_000_200, bound_ns: 500 };
    let (kept, worst) = hosts.run(2, 0, Some(said));
    assert_eq!((kept.bound_ns, kept.ahead_ns, worst), (Some(500), 1_000_200, 200));
    assert!(kept.known_by.starts_with("PTP on both hosts"), "{kept:?}");
    let (wrong, worst) = hosts.run(2, 0, Some(ClockAgreement { ahead_ns: 2_000_000, ..said }));
    assert!(
        worst <= wrong.bound_ns.unwrap() && wrong.known_by.contains("PTP's difference contradicts"),
        "{wrong:?}"
    );
    // It says what held at the begin; a clock that drifts away from that is found out by the round trip at the end.
    let drifting = Hosts { drift_ppm: 100.0, ahead_ns: 640_000, ..hosts };
    let (left, worst) = drifting.run(20, 0, Some(said));
    assert!(worst <= left.bound_ns.unwrap() && left.known_by.contains("contradicts"), "{worst} {left:?}");
}

#[test]
fn without_round_trips_after_the_packets_the_bound_allows_for_a_drift() {
    let hosts = Hosts { ahead_ns: 1_000_000, drift_ppm: 20.0, there_ns: 10_000, back_ns: 10_000 };
    let mut track = ClockTrack::default();
    assert_eq!(track.compared(0).bound_ns, None);
    track.add(ClockStage::Before, &hosts.exchange(0, [0, 0]));
    let comparison = track.compared(hosts.theirs(10 * SECOND));
    let bound = comparison.bound_ns.unwrap();
    assert!((300_000..320_000).contains(&bound) && comparison.drift_ppm.is_none(), "{comparison:?}");
}

#[test]
fn contradictory_times_show_nothing() {
    let seen = |asked_ns, heard_ns, answered_ns, returned_ns| {
        ClockExchange { asked_ns, heard_ns, answered_ns, returned_ns }.sight()
    };
    assert_eq!(seen(2, 10, 11, 1), None, "back before it left");
    assert_eq!(seen(1, 11, 10, 2), None, "answered before it came");
    assert_eq!(seen(1, 10, 20, 5), None, "held for longer than it was away");
    assert_eq!(seen(0, u64::MAX, u64::MAX, 0), None, "farther apart than can be said");
    assert!(seen(u64::MAX - 9, u64::MAX - 5, u64::MAX - 3, u64::MAX).is_some());
}
