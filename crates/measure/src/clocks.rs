//! How far two hosts' clocks are apart, by questions and answers between them. Pure: times come in as arguments.

use serde::{Deserialize, Serialize};

/// Clocks of machines drift apart by no more than this, where nothing was measured (Huygens, NSDI'18: up to 30 µs a second).
const MOST_DRIFT_PPM: f64 = 30.0;
/// Sights and changes that are kept of one session; later ones change nothing.
const MOST_KEPT: usize = 4096;

/// When a question was asked, relative to the packets whose times matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockStage {
    /// Before the first packet.
    Before,
    /// Between.
    During,
    /// After the last packet.
    After,
}

/// A question about the other host's clock, and its answer: the first and last time by the clock of the host that asked,
/// the two between by the other one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockExchange {
    /// The question left.
    pub asked_ns: u64,
    /// It came.
    pub heard_ns: u64,
    /// The answer left.
    pub answered_ns: u64,
    /// It came.
    pub returned_ns: u64,
}

/// What one exchange shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSight {
    /// When, by the clock of the host that answered.
    pub at_ns: u64,
    /// By how much that clock is ahead of the other one, if both ways took equally long.
    pub ahead_ns: i64,
    /// By how much that may be wrong: half of the time under way, as if one way had taken all of it.
    pub within_ns: u64,
}

impl ClockExchange {
    /// What it shows; `None` of times that contradict each other.
    pub fn sight(&self) -> Option<ClockSight> {
        let away_ns = self.returned_ns.checked_sub(self.asked_ns)?;
        let held_ns = self.answered_ns.checked_sub(self.heard_ns)?;
        let under_way_ns = away_ns.checked_sub(held_ns)?;
        let twice = |a: u64, b: u64| i128::from(a) + i128::from(b);
        let ahead = (twice(self.heard_ns, self.answered_ns) - twice(self.asked_ns, self.returned_ns)) / 2;
        Some(ClockSight {
            at_ns: self.heard_ns + held_ns / 2,
            ahead_ns: i64::try_from(ahead).ok()?,
            within_ns: under_way_ns.div_ceil(2),
        })
    }
}

/// What a daemon that keeps both clocks says: better than round trips, as long as those do not contradict it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAgreement {
    /// By how much the answering host's clock is ahead.
    pub ahead_ns: i64,
    /// By how much that may be wrong.
    pub bound_ns: u64,
}

/// The exchanges of one session, in which packets are timed: what to take for the difference of the clocks meanwhile, and
/// how wrong that was, seen from the end.
///
/// ```
/// use measure::{ClockExchange, ClockStage, ClockTrack};
///
/// let mut track = ClockTrack::default();
/// let seen = |asked_ns| ClockExchange {
///     asked_ns,
///     heard_ns: asked_ns + 1_000_000 + 300,
///     answered_ns: asked_ns + 1_000_000 + 400,
///     returned_ns: asked_ns + 700,
/// };
/// track.add(ClockStage::Before, &seen(0));
/// track.add(ClockStage::After, &seen(1_000_000_000));
/// let comparison = track.compared(1_000_000_000);
/// assert_eq!((comparison.ahead_ns, comparison.bound_ns), (1_000_000, Some(300)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClockTrack {
    agreement: Option<ClockAgreement>,
    /// Why what the daemon says is not used, if so.
    disagreement: Option<String>,
    before: Option<ClockSight>,
    during: Vec<ClockSight>,
    after: Option<ClockSight>,
    /// What was taken for the difference, and from when on.
    used: Vec<(u64, i64)>,
    /// Where that is from; `None` where it is the daemon's.
    held: Option<ClockSight>,
    exchanges: u64,
}

/// How the clock of a sender's host and the receiver's were related while packets were timed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockComparison {
    /// The sender's address.
    #[serde(default)]
    pub sender: String,
    /// By how much the receiver's clock was ahead at the first packet: of clocks that count from their hosts' start.
    pub ahead_ns: i64,
    /// By how much it gained on the sender's, in millionths; `null` where nothing was measured after the packets.
    pub drift_ppm: Option<f64>,
    /// How wrong the drift may be.
    pub drift_bound_ppm: Option<f64>,
    /// How wrong a one-way latency may be because of the clocks; `null` where nothing was measured.
    pub bound_ns: Option<u64>,
    /// The shortest round trip before the packets.
    pub round_trip_before_ns: Option<u64>,
    /// The shortest round trip after the packets.
    pub round_trip_after_ns: Option<u64>,
    /// Questions and answers.
    pub exchanges: u64,
    /// How all of that is known, in words.
    pub known_by: String,
}

impl ClockTrack {
    /// With what daemons say that keep both clocks, or why that is of no use.
    pub fn with_daemons(said: Result<ClockAgreement, String>) -> Self {
        let (agreement, disagreement) = match said {
            Ok(agreement) => (Some(agreement), None),
            Err(why) => (None, Some(why)),
        };
        Self { agreement, disagreement, ..Self::default() }
    }

    /// Takes an exchange. Returns what to take for the difference from now on, where that changes.
    pub fn add(&mut self, stage: ClockStage, exchange: &ClockExchange) -> Option<i64> {
        let sight = exchange.sight()?;
        self.exchanges += 1;
        let stage = if stage == ClockStage::Before && self.has_begun() { ClockStage::During } else { stage };
        match stage {
            ClockStage::Before => {
                if self.before.is_some_and(|best| best.within_ns <= sight.within_ns) {
                    return None;
                }
                self.before = Some(sight);
                self.hold(sight)
            }
            ClockStage::During => {
                if self.during.len() < MOST_KEPT {
                    self.during.push(sight);
                }
                let held = self.held?;
                let may_be_off = held.within_ns.saturating_add(drift(sight.at_ns.saturating_sub(held.at_ns)));
                if sight.within_ns < may_be_off && self.used.len() < MOST_KEPT {
                    self.hold(sight)
                } else {
                    None
                }
            }
            ClockStage::After => {
                if self.after.is_none_or(|best| sight.within_ns < best.within_ns) {
                    self.after = Some(sight);
                }
                None
            }
        }
    }

    /// What is taken for the difference now.
    pub fn used_ns(&self) -> Option<i64> {
        self.used.last().map(|(_, ahead_ns)| *ahead_ns)
    }

    fn has_begun(&self) -> bool {
        !self.during.is_empty() || self.after.is_some()
    }

    /// Uses a sight, or what the daemons say where that is better and agrees with it.
    fn hold(&mut self, sight: ClockSight) -> Option<i64> {
        if let Some(agreement) = self.agreement {
            if let Some(apart_ns) = contradiction(agreement, sight) {
                self.agreement = None;
                self.disagreement = Some(format!(
                    "PTP's difference contradicts a round trip by {apart_ns} ns and is not used"
                ));
            } else if agreement.bound_ns < sight.within_ns {
                self.held = None;
                return self.take(sight.at_ns, agreement.ahead_ns);
            }
        }
        self.held = Some(sight);
        self.take(sight.at_ns, sight.ahead_ns)
    }

    fn take(&mut self, at_ns: u64, ahead_ns: i64) -> Option<i64> {
        if !self.has_begun() {
            // Nothing was timed by what came before.
            self.used.clear();
        }
        if self.used.last().is_some_and(|(_, last)| *last == ahead_ns) {
            return None;
        }
        self.used.push((at_ns, ahead_ns));
        Some(ahead_ns)
    }

    /// What all exchanges until `now_ns` of the answering clock show together. The clocks' difference is a line between the
    /// best sights before and after; what was used meanwhile is compared with it.
    pub fn compared(&self, now_ns: u64) -> ClockComparison {
        let (Some(before), Some((_, first))) = (self.before, self.used.first()) else {
            return ClockComparison {
                exchanges: self.exchanges,
                known_by: "no round trip was seen before the packets".into(),
                ..ClockComparison::default()
            };
        };
        let round_trip = |sight: ClockSight| sight.within_ns.saturating_mul(2);
        let comparison = ClockComparison {
            ahead_ns: *first,
            round_trip_before_ns: Some(round_trip(before)),
            round_trip_after_ns: self.after.map(round_trip),
            exchanges: self.exchanges,
            ..ClockComparison::default()
        };
        let Some(line) = self.after.and_then(|after| Line::between(before, after)) else {
            let age_ns = now_ns.saturating_sub(self.held.unwrap_or(before).at_ns);
            let within_ns = self.held.map_or(before.within_ns, |held| held.within_ns);
            let said = self.said_words();
            return ClockComparison {
                bound_ns: Some(within_ns.saturating_add(drift(age_ns))),
                known_by: format!(
                    "half of the shortest round trip, and {MOST_DRIFT_PPM} ppm since then, for nothing was measured after the packets{said}"
                ),
                ..comparison
            };
        };
        let by_line = line.within_ns.saturating_add(self.off(&line)).saturating_add(self.bend(&line));
        let by_daemon = self.agreement.filter(|_| self.held.is_none());
        let refuted = by_daemon.and_then(|agreement| {
            [line.start, line.end].into_iter().find_map(|sight| contradiction(agreement, sight))
        });
        let (bound_ns, how) = match (by_daemon, refuted) {
            (Some(agreement), None) if agreement.bound_ns <= by_line => (
                agreement.bound_ns,
                "PTP on both hosts, which round trips before and after do not contradict".to_owned(),
            ),
            (_, Some(apart_ns)) => {
                (by_line, format!("round trips; PTP's difference contradicts one by {apart_ns} ns"))
            }
            _ => {
                let how = "half of the shortest round trips before and after, and a line between";
                (by_line, format!("{how}{}", self.said_words()))
            }
        };
        ClockComparison {
            drift_ppm: Some(line.slope * 1e6),
            drift_bound_ppm: Some(line.slope_within * 1e6),
            bound_ns: Some(bound_ns),
            known_by: how,
            ..comparison
        }
    }

    fn said_words(&self) -> String {
        self.disagreement.as_ref().map(|why| format!("; {why}")).unwrap_or_default()
    }

    /// By how much what was used was off the line, at most: both are straight between two changes.
    fn off(&self, line: &Line) -> u64 {
        let ends = self.used.iter().skip(1).map(|(at_ns, _)| *at_ns).chain([line.end.at_ns]);
        let off = self.used.iter().zip(ends).flat_map(|((from_ns, ahead_ns), until_ns)| {
            [*from_ns, until_ns]
                .map(|at_ns| line.apart(at_ns.clamp(line.start.at_ns, line.end.at_ns), *ahead_ns))
        });
        off.max().unwrap_or(0)
    }

    /// By how much the clocks left the line, as far as sights meanwhile prove that.
    fn bend(&self, line: &Line) -> u64 {
        let left = self.during.iter().map(|sight| {
            line.apart(sight.at_ns, sight.ahead_ns)
                .saturating_sub(sight.within_ns)
                .saturating_sub(line.within_ns)
        });
        left.max().unwrap_or(0)
    }
}

impl ClockComparison {
    /// Whether a one-way latency of so many nanoseconds is known well enough: its bound is below a tenth of it.
    pub fn allows(&self, latency_ns: u64) -> bool {
        self.bound_ns.is_some_and(|bound_ns| bound_allows(bound_ns, latency_ns))
    }
}

/// Whether a latency is known well enough to within a bound: to less than a tenth.
pub fn bound_allows(bound_ns: u64, latency_ns: u64) -> bool {
    bound_ns.saturating_mul(10) < latency_ns
}

/// A clock's difference over time.
struct Line {
    start: ClockSight,
    end: ClockSight,
    slope: f64,
    slope_within: f64,
    within_ns: u64,
}

impl Line {
    fn between(start: ClockSight, end: ClockSight) -> Option<Self> {
        let ns = end.at_ns.checked_sub(start.at_ns).filter(|ns| *ns > 0)? as f64;
        let gained = i128::from(end.ahead_ns) - i128::from(start.ahead_ns);
        Some(Self {
            start,
            end,
            slope: gained as f64 / ns,
            slope_within: (start.within_ns as f64 + end.within_ns as f64) / ns,
            within_ns: start.within_ns.max(end.within_ns),
        })
    }

    /// How far a difference is from the line.
    fn apart(&self, at_ns: u64, ahead_ns: i64) -> u64 {
        let since_ns = at_ns as f64 - self.start.at_ns as f64;
        // Small numbers alone become floating point: a difference of years has no nanoseconds there.
        let ahead = (i128::from(ahead_ns) - i128::from(self.start.ahead_ns)) as f64;
        (ahead - self.slope * since_ns).abs().ceil() as u64
    }
}

/// By how much a daemon's difference is outside of what a round trip allows, if it is.
fn contradiction(said: ClockAgreement, seen: ClockSight) -> Option<u64> {
    let apart = u64::try_from((i128::from(said.ahead_ns) - i128::from(seen.ahead_ns)).unsigned_abs());
    let apart_ns = apart.unwrap_or(u64::MAX);
    let allowed_ns = said.bound_ns.saturating_add(seen.within_ns);
    (apart_ns > allowed_ns).then(|| apart_ns - allowed_ns)
}

/// What clocks may gain on each other in this time.
fn drift(ns: u64) -> u64 {
    (ns as f64 * MOST_DRIFT_PPM / 1e6).ceil() as u64
}

#[cfg(test)]
mod tests;
