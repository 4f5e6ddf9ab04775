use std::collections::BTreeMap;

use measure::{Endpoint, LedgerLine, Machine, Origin};

use super::*;

pub(crate) fn start() -> Start {
    Start {
        command: "bench".into(),
        version: "0".into(),
        started_at: "2026-01-01T00:00:00Z".into(),
        origin: Origin::Lab,
        machine: Machine::default(),
        asked: BTreeMap::new(),
    }
}

pub(crate) fn story() -> Story {
    Story::new(&start(), 100.0)
}

pub(crate) fn trial(sent: u64, delivered: u64) -> Trial {
    let side = |label: &str| Endpoint { label: label.into(), ..Endpoint::default() };
    let lines = vec![LedgerLine::at(measure::Place::XskRingFull, sent - delivered, "RcvbufErrors")];
    Trial {
        tx: side("udp"),
        rx: side("packet"),
        sent,
        delivered,
        sent_pps: sent as f64,
        delivered_pps: delivered as f64,
        loss_ratio: (sent - delivered) as f64 / sent.max(1) as f64,
        ledger: Ledger::close(sent, delivered, lines),
        ..Trial::default()
    }
}

fn ahead(index: u32, tx: &str) -> Ahead {
    Ahead { index, of: Some(4), tx: tx.into(), rx: "packet".into(), ..Ahead::default() }
}

fn seen(sent: u64, delivered: u64, rx_dropped: u64) -> Seen {
    Seen {
        done_ratio: 0.5,
        sent,
        delivered: Some(delivered),
        rx_dropped: Some(rx_dropped),
        sent_pps: sent as f64,
        delivered_pps: delivered as f64,
    }
}

/// Four trials; `each` gets the story after every step.
pub(crate) fn act(story: &mut Story, mut each: impl FnMut(&Story, f64)) {
    let mut at_s = 100.0;
    for index in 0..4 {
        story.trial_begins(ahead(index, if index % 2 == 0 { "udp" } else { "xdp" }), at_s);
        each(story, at_s);
        for step in 1..4u64 {
            at_s += 0.3;
            story.looks(seen(step * 1000, step * 800, step * 40), at_s);
            each(story, at_s);
        }
        story.trial_ends(&trial(3000, 2700 - u64::from(index) * 100), at_s);
        each(story, at_s);
    }
    story.ends("That is all.".into());
    each(story, at_s);
}

#[test]
fn a_running_ledger_is_provisional_and_its_rows_add_up() {
    let mut story = story();
    story.trial_begins(ahead(0, "udp"), 100.0);
    story.looks(seen(1000, 900, 40), 101.0);
    let snapshot = story.snapshot(101.5);
    let ledger = snapshot.waterfall.unwrap();
    assert!(ledger.provisional);
    assert_eq!((ledger.from, ledger.residual), (("sent".into(), 1000), 60));
    assert_eq!(ledger.to, Some(("delivered".into(), 900)));
    assert_eq!((snapshot.age_s, snapshot.elapsed_s), (0.5, 1.5));
    story.trial_ends(&trial(1000, 950), 102.0);
    let ledger = story.snapshot(102.0).waterfall.unwrap();
    assert!(!ledger.provisional);
    assert_eq!((ledger.residual, ledger.places[0].packets), (0, 50));
}

#[test]
fn the_grid_has_a_cell_a_pair_with_its_state_and_spread() {
    let mut story = story();
    story.trial_begins(ahead(0, "udp"), 100.0);
    story.trial_ends(&trial(1000, 900), 101.0);
    story.trial_begins(ahead(1, "udp"), 101.0);
    story.trial_ends(&trial(1000, 1000), 102.0);
    story.trial_begins(ahead(2, "xdp"), 102.0);
    let snapshot = story.snapshot(102.0);
    let grid = snapshot.grid.unwrap();
    assert_eq!(
        (&grid.rows[..], &grid.columns[..]),
        (&["udp".into(), "xdp".into()][..], &["packet".into()][..])
    );
    let done = &grid.cells[0];
    assert_eq!((done.state, done.trials, done.pps), (CellState::Measured, 2, Some(950.0)));
    assert!((done.spread_ratio.unwrap() - 100.0 / 950.0).abs() < 1e-9);
    assert_eq!(grid.cells[1].state, CellState::Running);
    assert_eq!(snapshot.verdict, "Best so far: 950 pps delivered, udp → packet.");
}

#[test]
fn the_end_is_whole() {
    let mut story = story();
    let mut phases = Vec::new();
    act(&mut story, |story, at_s| phases.push(story.snapshot(at_s).phase));
    let last = story.snapshot(200.0);
    assert_eq!((last.phase, last.done_ratio, last.left_s), (Phase::Ended, Some(1.0), None));
    assert_eq!(last.verdict, "That is all.");
    assert!(phases.contains(&Phase::Running) && phases.contains(&Phase::Waiting));
    assert!(!last.traffic.unwrap().history.points.is_empty());
}

#[test]
fn one_trial_has_no_spread() {
    assert_eq!(spread(&[5.0]), None);
    assert_eq!(spread(&[0.0, 0.0]), None);
}
