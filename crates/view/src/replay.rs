//! A recorded run as the moments that a live one has.

use measure::{Run, Trial};

use crate::story::{Ahead, Seen, Story};

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment<'r> {
    /// Seconds since the run began, without the pauses between trials, which are not in the record.
    pub at_s: f64,
    what: What<'r>,
}

#[derive(Debug, Clone, PartialEq)]
enum What<'r> {
    Begins(Ahead),
    Looks(Seen),
    Ends(&'r Trial),
}

impl Moment<'_> {
    /// Adds it to a story; `now_s` is the story's own time.
    pub fn tell(&self, story: &mut Story, now_s: f64) {
        match &self.what {
            What::Begins(ahead) => story.trial_begins(ahead.clone(), now_s),
            What::Looks(seen) => story.looks(*seen, now_s),
            What::Ends(trial) => story.trial_ends(trial, now_s),
        }
    }
}

/// All moments of a run, in their order.
pub fn moments(run: &Run) -> Vec<Moment<'_>> {
    let of = run.end.trials.len() as u32;
    let mut moments = Vec::new();
    let mut began_s = 0.0;
    for (index, trial) in (0..).zip(&run.end.trials) {
        let parameters = trial.parameters.iter().map(|(name, value)| format!("{name} {value}"));
        let ahead = Ahead {
            index,
            of: Some(of),
            tx: trial.tx.label.clone(),
            rx: trial.rx.label.clone(),
            what: parameters.collect::<Vec<_>>().join(", "),
            asked_pps: trial.asked_pps,
            worker_cpus: Vec::new(),
        };
        moments.push(Moment { at_s: began_s, what: What::Begins(ahead) });
        let mut seen = Seen { delivered: Some(0), ..Seen::default() };
        let mut last_s: f64 = 0.0;
        for interval in run.intervals.iter().filter(|interval| interval.trial == index) {
            let per_second = |packets: Option<u64>| packets.unwrap_or(0) as f64 / interval.length_s.max(1e-9);
            seen = Seen {
                done_ratio: (interval.end_s / trial.duration_s.max(1e-9)).min(1.0),
                sent: seen.sent + interval.sent.unwrap_or(0),
                delivered: interval.delivered.map(|packets| seen.delivered.unwrap_or(0) + packets),
                rx_dropped: interval.rx_dropped.map(|packets| seen.rx_dropped.unwrap_or(0) + packets),
                sent_pps: per_second(interval.sent),
                delivered_pps: per_second(interval.delivered),
            };
            last_s = interval.end_s;
            moments.push(Moment { at_s: began_s + last_s, what: What::Looks(seen) });
        }
        began_s += trial.duration_s.max(last_s);
        moments.push(Moment { at_s: began_s, what: What::Ends(trial) });
    }
    moments
}

#[cfg(test)]
mod tests {
    use measure::{End, Interval, SCHEMA};

    use super::*;
    use crate::{snapshot::Phase, story::tests};

    #[test]
    fn a_record_becomes_what_was_seen_then() {
        let mut story = tests::story();
        let trial = Trial { duration_s: 2.0, ..tests::trial(300, 200) };
        let interval = |end_s, sent| Interval {
            trial: 0,
            end_s,
            length_s: 1.0,
            sent: Some(sent),
            delivered: Some(100),
            payload_bytes: 0,
            rx_dropped: Some(sent - 100),
        };
        let run = Run {
            schema: SCHEMA.into(),
            start: tests::start(),
            intervals: vec![interval(1.0, 100), interval(2.0, 200)],
            end: End { trials: vec![trial.clone(), trial], ..End::default() },
        };
        let moments = moments(&run);
        assert_eq!(
            moments.iter().map(|moment| moment.at_s).collect::<Vec<_>>(),
            [0.0, 1.0, 2.0, 2.0, 2.0, 4.0]
        );
        for moment in &moments[..3] {
            moment.tell(&mut story, 100.0 + moment.at_s);
        }
        let now = story.snapshot(102.0);
        let ledger = now.waterfall.unwrap();
        assert_eq!((now.phase, ledger.from.1, ledger.residual), (Phase::Draining, 300, 0));
        assert_eq!(ledger.places[0].packets, 100);
        moments[3].tell(&mut story, 102.0);
        assert!(!story.snapshot(102.0).waterfall.unwrap().provisional);
    }
}
