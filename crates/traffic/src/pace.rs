//! When packets are due: a token schedule against the monotonic clock. Pure: time is an argument.

use std::{fmt, str::FromStr};

use measure::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The pattern of departures at a given mean rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Departures {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponentially distributed gaps.
    Poisson,
    /// Bursts of N packets back to back, then a gap that keeps the mean.
    Burst(u32),
}

/// When to stop without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limit {
    /// After this many packets.
    pub count: Option<u64>,
    /// After this many nanoseconds.
    pub duration_ns: Option<u64>,
}

/// An unknown departure pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown departures '{text}': expected constant, poisson or burst:N with N from 1 to 65536")]
pub struct DeparturesError {
    text: String,
}

/// The departures of one worker: which packets are due, how late they left, when the next one is due.
#[derive(Debug)]
pub struct Schedule {
    pace: Option<Pace>,
    end_ns: u64,
    most: u64,
    taken: u64,
    lateness: Histogram,
}

#[derive(Debug)]
struct Pace {
    start_ns: u64,
    gap_ns: f64,
    departures: Departures,
    random: fastrand::Rng,
    /// Offset of the next departure from the start, in nanoseconds.
    next_ns: f64,
    scheduled: u64,
}

impl Schedule {
    /// Departures at `rate_pps` (`None`: always due) from `start_ns` on, until `limit`; `seed` makes Poisson gaps.
    pub fn new(
        rate_pps: Option<f64>,
        departures: Departures,
        limit: Limit,
        start_ns: u64,
        seed: u64,
    ) -> Self {
        let pace = rate_pps.map(|pps| Pace {
            start_ns,
            gap_ns: 1e9 / pps,
            departures,
            random: fastrand::Rng::with_seed(seed),
            next_ns: 0.0,
            scheduled: 0,
        });
        Self {
            pace,
            end_ns: limit.duration_ns.map_or(u64::MAX, |duration| start_ns.saturating_add(duration)),
            most: limit.count.unwrap_or(u64::MAX),
            taken: 0,
            lateness: Histogram::new(),
        }
    }

    /// Takes the packets that are due at `now_ns`, at most `most`; they must be sent next.
    #[inline]
    pub fn take_due(&mut self, now_ns: u64, at_most: usize) -> usize {
        let left = usize::try_from(self.most - self.taken).unwrap_or(usize::MAX).min(at_most);
        let due = match &mut self.pace {
            None if now_ns >= self.end_ns => 0,
            None => left,
            Some(pace) => {
                let mut due = 0;
                while due < left {
                    let departure = pace.departure();
                    if departure > now_ns || departure >= self.end_ns {
                        break;
                    }
                    self.lateness.record(now_ns - departure);
                    pace.advance();
                    due += 1;
                }
                due
            }
        };
        self.taken += due as u64;
        due
    }

    /// When the next packet is due; `None` after the last.
    pub fn next_due(&self) -> Option<u64> {
        if self.taken >= self.most {
            return None;
        }
        match &self.pace {
            None => Some(0),
            Some(pace) => Some(pace.departure()),
        }
        .filter(|departure| *departure < self.end_ns)
    }

    /// Whether nothing is left to do at `now_ns`: all were taken, or the time is over. A schedule that fell
    /// behind does not continue after its end.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns || self.next_due().is_none()
    }

    /// Packets due up to `until_ns`, sent or not; without a rate, those taken.
    pub fn scheduled(&mut self, until_ns: u64) -> u64 {
        let until = until_ns.min(self.end_ns.saturating_sub(1));
        if let Some(pace) = &mut self.pace {
            pace.advance_to(until, self.most);
            return pace.scheduled;
        }
        self.taken
    }

    /// Packets taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Its end by time, `u64::MAX` when never.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// How late each packet taken was, in nanoseconds; empty without a rate.
    pub fn lateness(&self) -> &Histogram {
        &self.lateness
    }
}

impl Pace {
    fn departure(&self) -> u64 {
        self.start_ns.saturating_add(self.next_ns as u64)
    }

    fn advance(&mut self) {
        self.scheduled += 1;
        self.next_ns = match self.departures {
            // From the start each time: sums of rounded gaps would drift.
            Departures::Constant => self.scheduled as f64 * self.gap_ns,
            Departures::Burst(n) => (self.scheduled - self.scheduled % u64::from(n)) as f64 * self.gap_ns,
            Departures::Poisson => self.next_ns - (1.0 - self.random.f64()).ln() * self.gap_ns,
        };
    }
}

/// The most gaps drawn one by one to count due packets; the rest is counted by their mean, which is off by less than one in
/// a thousand.
const MOST_DRAWN: u64 = 1 << 20;

impl Pace {
    /// Advances to the first departure after `until_ns`, or to packet `most`: not one by one if the rate is more than
    /// anything sends.
    fn advance_to(&mut self, until_ns: u64, most: u64) {
        if self.scheduled >= most || self.departure() > until_ns {
            return;
        }
        let offset = until_ns - self.start_ns;
        match self.departures {
            Departures::Poisson => {
                let mut drawn = 0;
                while self.scheduled < most && self.departure() <= until_ns && drawn < MOST_DRAWN {
                    self.advance();
                    drawn += 1;
                }
                if self.scheduled < most && self.departure() <= until_ns {
                    let more = (offset as f64 - self.next_ns) / self.gap_ns;
                    self.scheduled = self.scheduled.saturating_add(more as u64).min(most);
                    self.next_ns += more * self.gap_ns;
                }
            }
            Departures::Constant => self.jump(first_behind(offset, self.gap_ns, 1).min(most)),
            Departures::Burst(n) => {
                let bursts = first_behind(offset, self.gap_ns, n.into());
                self.jump(bursts.saturating_mul(n.into()).min(most));
            }
        }
    }

    /// Advances to the packet with this number.
    fn jump(&mut self, number: u64) {
        self.scheduled = number.saturating_sub(1);
        self.advance();
    }
}

/// The first burst of this many packets that is later than `offset` when truncated to whole nanoseconds.
fn first_behind(offset: u64, gap_ns: f64, packets: u64) -> u64 {
    let is_due = |burst: u64| (burst.saturating_mul(packets) as f64 * gap_ns) as u64 <= offset;
    // The estimate is off by accumulated rounding; the search corrects it.
    let (mut low, mut high) = (0, ((offset as f64 + 1.0) / (gap_ns * packets as f64)) as u64);
    while is_due(high) && high < u64::MAX {
        (low, high) = (high, high.saturating_mul(2).max(1));
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if is_due(middle) { low = middle } else { high = middle }
    }
    high
}

impl FromStr for Departures {
    type Err = DeparturesError;

    fn from_str(text: &str) -> Result<Self, DeparturesError> {
        let wrong = || DeparturesError { text: text.into() };
        match text.split_once(':') {
            None if text == "constant" => Ok(Self::Constant),
            None if text == "poisson" => Ok(Self::Poisson),
            Some(("burst", n)) => {
                n.parse().ok().filter(|n| (1..=65_536).contains(n)).map(Self::Burst).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Departures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Poisson => f.write_str("poisson"),
            Self::Burst(n) => write!(f, "burst:{n}"),
        }
    }
}

impl TryFrom<String> for Departures {
    type Error = DeparturesError;
    fn try_from(text: String) -> Result<Self, DeparturesError> {
        text.parse()
    }
}

impl From<Departures> for String {
    fn from(departures: Departures) -> Self {
        departures.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn for_a_second() -> Limit {
        Limit { duration_ns: Some(SECOND), count: None }
    }

    /// Runs a schedule with a clock that ticks every `step_ns`, and returns each departure's tick.
    fn drive(schedule: &mut Schedule, step_ns: u64) -> Vec<u64> {
        let mut ticks = Vec::new();
        let mut now = 100;
        while !schedule.is_over(now) {
            let due = schedule.take_due(now, 1000);
            ticks.extend(std::iter::repeat_n(now - 100, due));
            now += step_ns;
        }
        ticks
    }

    #[test]
    fn a_constant_rate_is_exact_and_its_gaps_are_equal() {
        let mut schedule = Schedule::new(Some(1000.0), Departures::Constant, for_a_second(), 100, 1);
        let ticks = drive(&mut schedule, 1000);
        assert_eq!(ticks.len(), 1000);
        assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
        assert_eq!(schedule.scheduled(u64::MAX), 1000);
        assert_eq!(schedule.lateness().max(), Some(0));
    }

    #[test]
    fn an_odd_rate_does_not_drift() {
        let limit = Limit { duration_ns: Some(1000 * SECOND), count: None };
        let mut schedule = Schedule::new(Some(333.3), Departures::Constant, limit, 100, 1);
        assert_eq!(drive(&mut schedule, 1_000_000).len(), 333_300);
    }

    #[test]
    fn bursts_keep_the_mean() {
        let mut schedule = Schedule::new(Some(1000.0), Departures::Burst(10), for_a_second(), 100, 1);
        let ticks = drive(&mut schedule, 1000);
        assert_eq!(ticks.len(), 1000);
        for burst in ticks.chunks(10) {
            assert!(burst.iter().all(|tick| tick == &burst[0]));
        }
        assert_eq!(ticks[10] - ticks[0], 10_000_000);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let limit = Limit { duration_ns: Some(100 * SECOND), count: None };
        let mut schedule = Schedule::new(Some(1000.0), Departures::Poisson, limit, 100, 42);
        let ticks = drive(&mut schedule, 1000);
        let gaps: Vec<f64> = ticks.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "mean gap {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "deviation {}", variance.sqrt());
    }

    #[test]
    fn falling_behind_is_late_and_short() {
        let mut schedule = Schedule::new(Some(1000.0), Departures::Constant, for_a_second(), 0, 1);
        assert_eq!(schedule.take_due(500_000_000, 100), 100);
        assert_eq!(schedule.lateness().max(), Some(500_000_000));
        assert!(schedule.is_over(SECOND));
        assert_eq!((schedule.scheduled(SECOND), schedule.taken()), (1000, 100));
    }

    #[test]
    fn an_early_stop_schedules_only_what_was_due_by_then() {
        let mut schedule = Schedule::new(Some(1000.0), Departures::Constant, for_a_second(), 0, 1);
        schedule.take_due(0, 1);
        assert_eq!(schedule.scheduled(100_000_000), 101);
    }

    #[test]
    fn what_was_due_is_counted_at_once_and_as_one_by_one() {
        for departures in [Departures::Constant, Departures::Burst(1), Departures::Burst(7)] {
            for pps in [0.3, 333.3, 1e5, 1e6 / 3.0, 2e9] {
                for until in [0, 1, 2999, 3000, 3001, 9_999_999, 1_000_000_007] {
                    let until = if pps > 1e6 { until % 1_000_000 } else { until };
                    for most in [u64::MAX, 10] {
                        let limit = Limit { count: Some(most), duration_ns: None };
                        let schedule = || Schedule::new(Some(pps), departures, limit, 100, 1);
                        let mut one_by_one = schedule().pace.unwrap();
                        while one_by_one.scheduled < most && one_by_one.departure() <= 100 + until {
                            one_by_one.advance();
                        }
                        let mut at_once = schedule();
                        assert_eq!(
                            at_once.scheduled(100 + until),
                            one_by_one.scheduled,
                            "{departures} {pps}"
                        );
                        assert_eq!(
                            at_once.pace.unwrap().departure(),
                            one_by_one.departure(),
                            "{departures} {pps}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_rate_that_nothing_reaches_is_counted_without_waiting() {
        let limit = Limit { duration_ns: Some(10 * SECOND), count: None };
        for departures in [Departures::Constant, Departures::Burst(100), Departures::Poisson] {
            let mut schedule = Schedule::new(Some(100e9), departures, limit, 100, 1);
            assert_eq!(schedule.take_due(SECOND, 1000), 1000);
            let (scheduled, due) = (schedule.scheduled(u64::MAX) as f64, 1e12);
            assert!((scheduled / due - 1.0).abs() < 1e-3, "{departures}: {scheduled}");
        }
        let mut schedule = Schedule::new(Some(100e9), Departures::Constant, limit, 100, 1);
        assert_eq!(schedule.scheduled(u64::MAX), 1_000_000_000_000);
    }

    #[test]
    fn a_count_ends_it_with_and_without_a_rate() {
        let limit = Limit { count: Some(5), duration_ns: None };
        for rate in [None, Some(1e9)] {
            let mut schedule = Schedule::new(rate, Departures::Constant, limit, 0, 1);
            assert_eq!(schedule.take_due(SECOND, 3), 3);
            assert_eq!(schedule.take_due(SECOND, 3), 2);
            assert!(schedule.is_over(SECOND));
            assert_eq!(schedule.scheduled(SECOND), 5);
        }
    }

    #[test]
    fn departures_read_back_and_refusals_say_what_to_write() {
        for text in ["constant", "poisson", "burst:32"] {
            assert_eq!(text.parse::<Departures>().unwrap().to_string(), text);
        }
        for wrong in ["", "burst", "burst:0", "burst:x", "burst:70000", "uniform"] {
            assert!(
                wrong.parse::<Departures>().unwrap_err().to_string().contains("constant, poisson or burst:N")
            );
        }
    }
}
