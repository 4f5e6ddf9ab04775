//! Comparison of both hosts' clocks: the sender sends questions, the receiver answers and evaluates them.

use std::time::{Duration, Instant};

use measure::{ClockAgreement, ClockComparison, ClockExchange, ClockTrack};

use crate::{
    counts::{Counts, Related},
    host_clock::HostClock,
    message::{ClockQuestion, KeptClock, Message},
};

/// Questions before the packets and after them, unless time is up.
const QUESTIONS: u32 = 48;
/// The fewest questions, however long they take, and the time limit for the others.
const LEAST_QUESTIONS: u32 = 8;
const QUESTIONS_AT_MOST: Duration = Duration::from_millis(100);

/// The sender's side: which questions to send next.
#[derive(Debug)]
pub(crate) struct Asking {
    since: Instant,
    asked: u32,
}

impl Asking {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now(), asked: 0 }
    }

    /// Whether time permits another question.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.asked += 1;
        let has_time = self.asked <= LEAST_QUESTIONS || self.since.elapsed() < QUESTIONS_AT_MOST;
        self.asked <= QUESTIONS && has_time
    }
}

/// The receiver's side: the results of a session's exchanges.
pub(crate) struct Comparing<'c> {
    counts: &'c dyn Counts,
    clock: &'c dyn HostClock,
    tags: &'c [u16],
    begun: u64,
    sender: String,
    track: ClockTrack,
    /// The last question, with the answer whose arrival time is not known yet.
    open: Option<(ClockQuestion, Answer)>,
    /// The difference between the hosts in how far their wall clocks are ahead of the time since boot, as first seen, and
    /// how much it has changed since.
    walls: Option<(i64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    heard_ns: u64,
    answered_ns: u64,
}

impl<'c> Comparing<'c> {
    /// `None` if packets are not timed.
    pub(crate) fn over(
        counts: &'c dyn Counts,
        (begun, tags): (u64, &'c [u16]),
        (sender, kept): (String, Option<&KeptClock>),
    ) -> Option<Self> {
        let clock = counts.clock()?;
        let track = match (kept, clock.kept()) {
            (Some(theirs), Some(ours)) => ClockTrack::with_daemons(agreement(theirs, &ours)),
            (Some(_), None) => ClockTrack::with_daemons(Err(
                "PTP synchronises the sender's clock but not the receiver's".into(),
            )),
            (None, Some(_)) => ClockTrack::with_daemons(Err(
                "PTP synchronises the receiver's clock but not the sender's".into(),
            )),
            (None, None) => ClockTrack::default(),
        };
        Some(Self { counts, clock, tags, begun, sender, track, open: None, walls: None })
    }

    /// Takes a question, which ends the exchange before it; returns the answer, which must leave at once.
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
        // A wall clock that was set in between, or a delay between reading the two clocks.
        let walls_ns = self.walls.map_or(0, |(_, apart_ns)| apart_ns);
        comparison.bound_ns = comparison.bound_ns.map(|bound_ns| bound_ns.saturating_add(walls_ns));
        comparison
    }

    /// The result of all exchanges.
    pub(crate) fn close(&self) -> ClockComparison {
        let comparison = self.comparison();
        if let Some(ahead_ns) = self.track.used_ns() {
            self.relate(ahead_ns);
        }
        comparison
    }
}

/// The result of two daemons that follow one clock.
fn agreement(theirs: &KeptClock, ours: &KeptClock) -> Result<ClockAgreement, String> {
    if theirs.reference != ours.reference {
        return Err(format!(
            "PTP follows {} at the sender and {} at the receiver",
            theirs.reference, ours.reference
        ));
    }
    let [ours_ahead, theirs_ahead] =
        [ours, theirs].map(|kept| i128::from(kept.ahead_ns) - i128::from(kept.wall_ahead_ns));
    let ahead_ns =
        i64::try_from(ours_ahead - theirs_ahead).map_err(|_| "PTP reports impossible differences")?;
    Ok(ClockAgreement { ahead_ns, bound_ns: ours.bound_ns.saturating_add(theirs.bound_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_agree_if_they_follow_one_clock() {
        let ours = KeptClock { reference: "a".into(), ahead_ns: 300, bound_ns: 40, wall_ahead_ns: 5_000_000 };
        let theirs = KeptClock { ahead_ns: -100, wall_ahead_ns: 9_000_000, bound_ns: 2, ..ours.clone() };
        // Our clock is 400 ns ahead of theirs, and our host booted 4 ms earlier.
        let expected = ClockAgreement { ahead_ns: 4_000_400, bound_ns: 42 };
        assert_eq!(agreement(&theirs, &ours), Ok(expected));
        let other = KeptClock { reference: "b".into(), ..ours };
        assert_eq!(
            agreement(&theirs, &other).unwrap_err(),
            "PTP follows a at the sender and b at the receiver"
        );
    }

    #[test]
    fn a_slow_connection_gets_fewer_questions() {
        let mut asking = Asking::begin();
        assert!((0..LEAST_QUESTIONS).all(|_| asking.goes_on()));
        let mut late = Asking { since: Instant::now().checked_sub(QUESTIONS_AT_MOST).unwrap(), ..asking };
        assert!(!late.goes_on());
        let mut all = Asking::begin();
        assert!((0..=QUESTIONS).filter(|_| all.goes_on()).count() <= QUESTIONS as usize);
    }
}
