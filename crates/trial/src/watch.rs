//! From readings of a running trial to the screen and the record. Pure: readings come with their time.

use measure::Interval;

/// The intervals of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchPlan {
    /// The expected duration of the trial in nanoseconds.
    pub duration_ns: u64,
    /// Nanoseconds between recorded intervals; `None` records none.
    pub interval_ns: Option<u64>,
}

/// Counters of a running trial since its start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Look {
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered; `None` when no receiver reports.
    pub delivered: Option<u64>,
    /// Payload bytes for a recorded interval.
    pub payload_bytes: u64,
    /// Packets that the receiving sockets or rings have dropped.
    pub rx_dropped: Option<u64>,
    /// Seconds of load so far, for senders that start later than the trial.
    pub load_s: Option<f64>,
}

/// A running trial on a screen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tick {
    /// Share of the trial's time that is over, 0..=1.
    pub done_ratio: f64,
    /// Packets per second sent since the last tick.
    pub sent_pps: f64,
    /// Packets per second delivered since the last tick.
    pub delivered_pps: f64,
    /// The counters behind it.
    pub look: Look,
}

/// Turns readings into ticks and recorded intervals.
pub(crate) struct Watch {
    plan: WatchPlan,
    start_ns: u64,
    ticked: (u64, Look),
    recorded: (u64, Look),
    intervals: Vec<Interval>,
}

impl Watch {
    /// The most intervals in the record; a trial that lasts longer keeps its first ones.
    const MOST_INTERVALS: usize = 100_000;

    pub(crate) fn new(plan: WatchPlan, start_ns: u64) -> Self {
        let nothing = (start_ns, Look { delivered: Some(0), rx_dropped: Some(0), ..Look::default() });
        Self { plan, start_ns, ticked: nothing, recorded: nothing, intervals: Vec::new() }
    }

    /// A reading at this moment: its tick, and the interval that it ends.
    pub(crate) fn look(&mut self, at_ns: u64, look: Look) -> (Tick, Option<&Interval>) {
        let before = std::mem::replace(&mut self.ticked, (at_ns, look));
        let seconds = at_ns.saturating_sub(before.0).max(1) as f64 / 1e9;
        let elapsed_s = at_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let duration_s = self.plan.duration_ns.max(1) as f64 / 1e9;
        let tick = Tick {
            done_ratio: (look.load_s.unwrap_or(elapsed_s) / duration_s).min(1.0),
            sent_pps: look.sent.saturating_sub(before.1.sent) as f64 / seconds,
            delivered_pps: grown(before.1.delivered, look.delivered).unwrap_or(0) as f64 / seconds,
            look,
        };
        (tick, self.record(at_ns, look))
    }

    fn record(&mut self, at_ns: u64, look: Look) -> Option<&Interval> {
        let (last_ns, last) = self.recorded;
        let length_ns = at_ns.saturating_sub(last_ns);
        if length_ns < self.plan.interval_ns? || self.intervals.len() >= Self::MOST_INTERVALS {
            return None;
        }
        self.recorded = (at_ns, look);
        self.intervals.push(Interval {
            trial: 0,
            end_s: at_ns.saturating_sub(self.start_ns) as f64 / 1e9,
            length_s: length_ns as f64 / 1e9,
            sent: Some(look.sent.saturating_sub(last.sent)),
            delivered: grown(last.delivered, look.delivered),
            payload_bytes: look.payload_bytes.saturating_sub(last.payload_bytes),
            rx_dropped: grown(last.rx_dropped, look.rx_dropped),
        });
        self.intervals.last()
    }

    /// All recorded intervals.
    pub(crate) fn into_intervals(self) -> Vec<Interval> {
        self.intervals
    }
}

fn grown(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    now.map(|now| now.saturating_sub(before.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn look(sent: u64, delivered: u64) -> Look {
        let rx_dropped = Some(sent - delivered);
        Look { sent, delivered: Some(delivered), payload_bytes: sent * 18, rx_dropped, load_s: None }
    }

    #[test]
    fn ticks_cover_the_time_since_the_last_reading_and_intervals_that_since_the_last_interval() {
        let plan = WatchPlan { duration_ns: 4 * SECOND, interval_ns: Some(2 * SECOND) };
        let mut watch = Watch::new(plan, SECOND);
        let (tick, interval) = watch.look(2 * SECOND, look(100, 90));
        let first = look(100, 90);
        assert_eq!(tick, Tick { done_ratio: 0.25, sent_pps: 100.0, delivered_pps: 90.0, look: first });
        assert_eq!(interval, None);
        let (tick, interval) = watch.look(3 * SECOND, look(300, 280));
        let second = look(300, 280);
        assert_eq!(tick, Tick { done_ratio: 0.5, sent_pps: 200.0, delivered_pps: 190.0, look: second });
        let interval = interval.unwrap();
        assert_eq!((interval.end_s, interval.length_s), (2.0, 2.0));
        assert_eq!(
            (interval.sent, interval.delivered, interval.rx_dropped),
            (Some(300), Some(280), Some(20))
        );
        assert_eq!(watch.look(3 * SECOND + 1, look(300, 280)).1, None);
        assert_eq!(watch.into_intervals().len(), 1);
    }

    #[test]
    fn without_a_report_intervals_do_not_have_delivered_packets() {
        let mut watch = Watch::new(WatchPlan { duration_ns: 1, interval_ns: Some(1) }, 0);
        let alone = Look { sent: 5, load_s: Some(0.0), ..Look::default() };
        let (tick, interval) = watch.look(SECOND, alone);
        assert_eq!((tick.done_ratio, tick.delivered_pps), (0.0, 0.0), "its load has not begun");
        let interval = interval.unwrap();
        assert_eq!((interval.sent, interval.delivered, interval.rx_dropped), (Some(5), None, None));
    }

    #[test]
    fn without_an_interval_none_is_recorded() {
        let mut watch = Watch::new(WatchPlan { duration_ns: 1, interval_ns: None }, 0);
        assert_eq!(watch.look(u64::MAX, look(1, 1)).1, None);
    }
}
