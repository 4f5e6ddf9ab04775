//! Both ends' clocks compared: the sender asks, the receiver answers and puts the two together.

use std::time::{Duration, Instant};

use measure::{ClockAgreement, ClockComparison, ClockExchange, ClockTrack};

use crate::{
    counts::{Counts, Related},
    host_clock::HostClock,
    message::{ClockQuestion, KeptClock, Message},
};

/// So many questions are asked before the packets and after them, unless the time is up.
const QUESTIONS: u32 = 48;
/// At least so many, however long they take, and how long the others may.
const LEAST_QUESTIONS: u32 = 8;
const QUESTIONS_AT_MOST: Duration = Duration::from_millis(100);

/// The sender's side: which questions are to come.
#[derive(Debug)]
pub(crate) struct Asking {
    since: Instant,
    asked: u32,
}

impl Asking {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now(), asked: 0 }
    }

    /// Whether one more is worth its time.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.asked += 1;
        let has_time = self.asked <= LEAST_QUESTIONS || self.since.elapsed() < QUESTIONS_AT_MOST;
        self.asked <= QUESTIONS && has_time
    }
}

/// The receiver's side: what a session's exchanges show.
pub(crate) struct Comparing<'c> {
    counts: &'c dyn Counts,
    clock: &'c dyn HostClock,
    tags: &'c [u16],
    begun: u64,
    sender: String,
    track: ClockTrack,
    /// The last question, and the answer whose return is not known yet.
    open: Option<(ClockQuestion, Answer)>,
    /// By how much our wall clocks' distance from the time since the start differs, as first seen, and by how much that
    /// changed since.
    walls: Option<(i64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    heard_ns: u64,
    answered_ns: u64,
}

impl<'c> Comparing<'c> {
    /// `None` where no packets are timed.
    pub(crate) fn over(
        counts: &'c dyn Counts,
        (begun, tags): (u64, &'c [u16]),
        (sender, kept): (String, Option<&KeptClock>),
    ) -> Option<Self> {
        let clock = counts.clock()?;
        let track = match (kept, clock.kept()) {
            (Some(theirs), Some(ours)) => ClockTrack::with_daemons(agreement(theirs, &ours)),
            (Some(_), None) => {
                ClockTrack::with_daemons(Err("PTP keeps the sender's clock and not ours".into()))
            }
            (None, Some(_)) => {
                ClockTrack::with_daemons(Err("PTP keeps our clock and not the sender's".into()))
            }
            (None, None) => ClockTrack::default(),
        };
        Some(Self { counts, clock, tags, begun, sender, track, open: None, walls: None })
    }

    /// Takes a question and with it the end of the exchange before; returns the answer, which is to leave at once.
    pub(crate) fn answer(&mut self, question: &ClockQuestion) -> Message {
        let heard_ns = self.clock.now_ns();
        if let (Some((before, Answer { heard_ns, answered_ns })), Some(returned_ns)) =
            (self.open.take(), question.returned_ns)
        {
            let exchange = ClockExchange { asked_ns: before.asked_ns, heard_ns, answered_ns, returned_ns };
            if let Some(ahead_ns) = self.track.add(before.stage, &exchange) {
                self.relate(ahead_ns);
            }
        }
        self.see_walls(question);
        let answered_ns = self.clock.now_ns();
        self.open = Some((*question, Answer { heard_ns, answered_ns }));
        Message::ClockAnswer { asked_ns: question.asked_ns, heard_ns, answered_ns }
    }

    fn see_walls(&mut self, question: &ClockQuestion) {
        let differ_ns = self.clock.wall_ahead_ns().wrapping_sub(question.wall_ahead_ns) as i64;
        let (first_ns, apart_ns) = self.walls.unwrap_or((differ_ns, 0));
        self.walls = Some((first_ns, apart_ns.max(differ_ns.abs_diff(first_ns))));
    }

    fn relate(&self, ahead_ns: i64) {
        let comparison = self.comparison();
        let walls_ns = self.walls.map_or(0, |(differ_ns, _)| differ_ns);
        let related = Related {
            tags: self.tags,
            uptime_ahead_ns: ahead_ns,
            wall_ahead_ns: ahead_ns.wrapping_add(walls_ns),
            comparison: &comparison,
        };
        self.counts.relate(self.begun, &related);
    }

    fn comparison(&self) -> ClockComparison {
        let mut comparison = self.track.compared(self.clock.now_ns());
        comparison.sender.clone_from(&self.sender);
        // A wall clock that was set meanwhile, or one of the two ways to read it.
        let walls_ns = self.walls.map_or(0, |(_, apart_ns)| apart_ns);
        comparison.bound_ns = comparison.bound_ns.map(|bound_ns| bound_ns.saturating_add(walls_ns));
        comparison
    }

    /// What all exchanges show.
    pub(crate) fn close(&self) -> ClockComparison {
        let comparison = self.comparison();
        if let Some(ahead_ns) = self.track.used_ns() {
            self.relate(ahead_ns);
        }
        comparison
    }
}

/// What two daemons that follow one clock say together.
fn agreement(theirs: &KeptClock, ours: &KeptClock) -> Result<ClockAgreement, String> {
    if theirs.reference != ours.reference {
        return Err(format!("PTP follows {} there and {} here", theirs.reference, ours.reference));
    }
    let [ours_ahead, theirs_ahead] =
        [ours, theirs].map(|kept| i128::from(kept.ahead_ns) - i128::from(kept.wall_ahead_ns));
    let ahead_ns =
        i64::try_from(ours_ahead - theirs_ahead).map_err(|_| "PTP's differences are impossible")?;
    Ok(ClockAgreement { ahead_ns, bound_ns: ours.bound_ns.saturating_add(theirs.bound_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_agree_where_they_follow_one_clock() {
        let ours = KeptClock { reference: "a".into(), ahead_ns: 300, bound_ns: 40, wall_ahead_ns: 5_000_000 };
        let theirs = KeptClock { ahead_ns: -100, wall_ahead_ns: 9_000_000, bound_ns: 2, ..ours.clone() };
        // Ours shows 400 ns more than theirs, and its host started 4 ms earlier.
        let expected = ClockAgreement { ahead_ns: 4_000_400, bound_ns: 42 };
        assert_eq!(agreement(&theirs, &ours), Ok(expected));
        let other = KeptClock { reference: "b".into(), ..ours };
        assert_eq!(agreement(&theirs, &other).unwrap_err(), "PTP follows a there and b here");
    }

    #[test]
    fn a_slow_connection_is_asked_less() {
        let mut asking = Asking::begin();
        assert!((0..LEAST_QUESTIONS).all(|_| asking.goes_on()));
        let mut late = Asking { since: Instant::now().checked_sub(QUESTIONS_AT_MOST).unwrap(), ..asking };
        assert!(!late.goes_on());
        let mut all = Asking::begin();
        assert!((0..=QUESTIONS).filter(|_| all.goes_on()).count() <= QUESTIONS as usize);
    }
}
