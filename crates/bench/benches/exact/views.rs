//! A live view's work, in its own thread: per snapshot, frame and request, whatever the packet rate. Workers do none of it.

use std::hint::black_box;

use measure::{Endpoint, Ledger, LedgerLine, Machine, Origin, Place, Start, Trial};
use view::{Ahead, Form, Frames, Hub, Seen, Story, metrics};

use super::counted::{Count, Part};

const ENGINES: [&str; 5] = ["udp", "packet", "xsk", "xdp", "uring"];
const ROUNDS: u32 = if cfg!(debug_assertions) { 5 } else { 50 };

pub(super) fn count_all(count: &mut Count<'_>) {
    let hub = Hub::new();
    let mut story = ladder();
    count("view: a snapshot is published", Part::Own, ROUNDS, &mut |rounds| {
        for round in 0..rounds {
            look(&mut story, round);
            hub.publish(story.snapshot(at(round)));
        }
    });
    let mut frames = Frames::default();
    let mut story = ladder();
    let shown: Vec<_> = (0..2 * ROUNDS)
        .map(|round| {
            look(&mut story, round);
            story.snapshot(at(round))
        })
        .collect();
    count("view: a frame of the screen", Part::Own, ROUNDS, &mut |rounds| {
        // Each count begins with the same frame on the terminal.
        frames.frame(&shown[0]);
        for snapshot in &shown[..rounds as usize] {
            black_box(frames.frame(snapshot));
        }
    });
    count("view: metrics for a scraper", Part::Own, ROUNDS, &mut |rounds| {
        for snapshot in &shown[..rounds as usize] {
            black_box(metrics(snapshot, Form::OpenMetrics));
        }
    });
}

/// A ladder of all pairs in its last trial.
fn ladder() -> Story {
    let start = Start {
        command: "bench".into(),
        version: String::new(),
        started_at: String::new(),
        origin: Origin::Lab,
        machine: Machine::default(),
        asked: Default::default(),
    };
    let mut story = Story::new(&start, 0.0);
    let pairs = ENGINES.iter().flat_map(|tx| ENGINES.iter().map(move |rx| (*tx, *rx)));
    let all = (ENGINES.len() * ENGINES.len()) as u32;
    for (index, (tx, rx)) in (0..).zip(pairs) {
        let ahead = Ahead { index, of: Some(all), tx: tx.into(), rx: rx.into(), ..Ahead::default() };
        story.trial_begins(ahead, f64::from(index));
        if index + 1 < all {
            story.trial_ends(&trial(tx, rx), f64::from(index) + 1.0);
        }
    }
    story
}

fn trial(tx: &str, rx: &str) -> Trial {
    let side = |label: &str| Endpoint { label: label.into(), ..Endpoint::default() };
    let lost = [Place::Qdisc, Place::PeerRing, Place::Backlog, Place::ReceiveBuffer];
    let lines = lost.map(|place| LedgerLine::at(place, 1000, "a counter"));
    Trial {
        tx: side(tx),
        rx: side(rx),
        sent: 1_000_000,
        delivered: 996_000,
        sent_pps: 1e6,
        delivered_pps: 996e3,
        loss_ratio: 0.004,
        ledger: Ledger::close(1_000_000, 996_000, lines.into()),
        ..Trial::default()
    }
}

fn at(round: u32) -> f64 {
    100.0 + 0.25 * f64::from(round)
}

fn look(story: &mut Story, round: u32) {
    let sent = 300_000 + 1000 * u64::from(round);
    let seen = Seen {
        done_ratio: 0.5,
        sent,
        delivered: Some(sent - 500),
        rx_dropped: Some(400),
        sent_pps: 1e6 + f64::from(round),
        delivered_pps: 999e3 - f64::from(round),
    };
    story.looks(seen, at(round));
}
