//! What a receiver that drives a card's descriptor ring itself saw of it.

use serde::{Deserialize, Serialize};

use crate::timeline::{Lane, Mark, Timeline, View};

/// How a ring was used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingUse {
    /// Frames that arrived while the card had no descriptor (register RNBC). They are not lost: the card's packet buffer
    /// may have kept them.
    pub without_descriptor: u64,
    /// Nanoseconds to hand a descriptor back to the card, its buffer included: the median of a sample.
    pub refill_ns: Option<f64>,
    /// Descriptors in that sample.
    pub refills_timed: u64,
    /// Descriptors handed back.
    pub refills: u64,
    /// Writes of the tail register.
    pub tail_writes: u64,
    /// How the card was reached: `sysfs` or `vfio`.
    #[serde(default)]
    pub access: String,
    /// Interrupts that woke the receiver, with `--interrupts`.
    #[serde(default)]
    pub interrupts: u64,
    /// The ring poll by poll, with `--trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RingTrace>,
}

/// A ring over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingTrace {
    /// Descriptors of the ring.
    pub slots: u32,
    /// Whether there was more than the trace has room for; it has the beginning.
    pub is_cut: bool,
    /// Each poll that found a change: nanoseconds since the first one, the card's head, the tail as it was written, frames
    /// missed so far.
    pub moments: Vec<(u64, u32, u32, u64)>,
}

/// Polls before and behind the first missed frame that a picture shows.
const AROUND: usize = 60;

impl RingTrace {
    /// Descriptors that the card had at a moment.
    fn free(&self, (_, head, tail, _): (u64, u32, u32, u64)) -> u32 {
        (tail + self.slots - head) % self.slots.max(1)
    }

    /// The same as lanes of events: the smooth regime, the stumble at the first missed frame, and all of it.
    pub fn timeline(&self, title: impl Into<String>) -> Timeline {
        let us = |ns: u64| ns as f64 / 1e3;
        let mut lanes = ["frames received", "tail written", "no descriptor free", "frames missed"]
            .map(|name| Lane { name: name.into(), events: Vec::new() });
        let mut first_missed = None;
        for (number, pair) in self.moments.windows(2).enumerate() {
            let (before, now) = (pair[0], pair[1]);
            let (at, length) = (us(before.0), us(now.0 - before.0));
            let changes = [now.1 != before.1, now.2 != before.2, self.free(before) == 0, now.3 > before.3];
            for (lane, is_so) in changes.into_iter().enumerate() {
                if is_so {
                    // A tail is written in one moment, everything else happens between two looks.
                    let event = if lane == 1 { (us(now.0), 0.0) } else { (at, length) };
                    lanes[lane].events.push(event);
                }
            }
            if changes[3] && first_missed.is_none() {
                first_missed = Some(number);
            }
        }
        let moment = |number: usize| {
            self.moments.get(number.min(self.moments.len().saturating_sub(1))).map_or(0.0, |m| us(m.0))
        };
        let view = |title: &str, from: f64, to: f64| View { title: title.into(), from, to };
        let mut views = Vec::new();
        let mut marks = Vec::new();
        if self.moments.len() > 1 {
            let smooth = first_missed.unwrap_or(AROUND).clamp(1, AROUND);
            views.push(view("The beginning", 0.0, moment(smooth)));
            if let Some(first) = first_missed {
                marks.push(Mark { name: "first missed frame".into(), at: moment(first + 1) });
                let from = moment(first.saturating_sub(AROUND / 4));
                views.push(view("Around the first missed frame", from, moment(first + AROUND)));
            }
            views.push(view("All of it", 0.0, moment(self.moments.len())));
        }
        let mut timeline = Timeline {
            title: title.into(),
            unit: "µs".into(),
            lanes: lanes.into(),
            views,
            ..Timeline::default()
        };
        timeline.marks = marks;
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_shows_when_the_card_had_no_descriptor_and_missed_frames() {
        let moments =
            vec![(0, 0, 15, 0), (1000, 4, 15, 0), (2000, 15, 15, 0), (5000, 15, 15, 3), (6000, 15, 7, 3)];
        let trace = RingTrace { slots: 16, is_cut: false, moments };
        let timeline = trace.timeline("a ring");
        let events: Vec<&[(f64, f64)]> = timeline.lanes.iter().map(|lane| &lane.events[..]).collect();
        assert_eq!(events[0], [(0.0, 1.0), (1.0, 1.0)]);
        assert_eq!(events[1], [(6.0, 0.0)]);
        assert_eq!(events[2], [(2.0, 3.0), (5.0, 1.0)], "from when it was used up to the next tail");
        assert_eq!(events[3], [(2.0, 3.0)]);
        assert_eq!(timeline.marks, [Mark { name: "first missed frame".into(), at: 5.0 }]);
        assert_eq!(timeline.views.len(), 3);
        assert!(timeline.views.iter().all(|view| view.to > view.from), "{:?}", timeline.views);
    }

    #[test]
    fn nothing_seen_is_no_picture() {
        let timeline = RingTrace { slots: 16, ..RingTrace::default() }.timeline("a ring");
        assert!(timeline.views.is_empty() && timeline.lanes.iter().all(|lane| lane.events.is_empty()));
    }
}
