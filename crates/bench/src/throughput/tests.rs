use measure::{Histogram, Ledger, LedgerLine, Receipt};

use super::*;

fn trial(scheduled: u64, sent: u64, lines: Vec<LedgerLine>) -> Trial {
    let lost: u64 = lines.iter().map(|line| line.packets).sum();
    let ledger = Ledger::close(sent, sent - lost, lines);
    Trial {
        trial: 1,
        frame_size_bytes: 64,
        payload_bytes: 18,
        asked_pps: Some(scheduled as f64),
        duration_s: 1.0,
        sent,
        sent_pps: sent as f64,
        delivered: sent - lost,
        delivered_pps: (sent - lost) as f64,
        loss_ratio: ledger.loss_ratio(),
        ledger,
        receipt: Receipt::judge(Some(scheduled as f64), scheduled, sent, 1.0, &Histogram::new()),
        ..Trial::default()
    }
}

#[test]
fn shortfall_receive_loss_and_socket_loss_are_distinct() {
    let lines = vec![
        LedgerLine::new("receive backlog full", 10, "lab-rx rx_dropped"),
        LedgerLine::new("receive buffer full", 30, "socket SK_MEMINFO_DROPS"),
    ];
    let trial = trial(1250, 1000, lines);
    let kinds = loss_kinds(&[&trial]);
    assert_eq!(kinds.shortfall_ratio, 0.2);
    assert_eq!((kinds.receive_loss_ratio, kinds.socket_loss_ratio), (0.01, 0.03));
    let measured = measured(&trial);
    assert_eq!((measured.scheduled, measured.sent, measured.lost), (1250, 1000, 40));
}

#[test]
fn the_line_with_the_largest_loss_sets_the_bound() {
    let line = |place: &str, packets| LedgerLine::new(place, packets, "x").with_remedy("y");
    let first = trial(100, 100, vec![line("a", 5), line("b", 4)]);
    let second = trial(100, 100, vec![line("b", 11)]);
    let bound = bound_by(&[&first, &second]).unwrap();
    assert_eq!((bound.place.as_str(), bound.lost_share_ratio), ("b", 0.75));
    assert_eq!(bound.remedy.as_deref(), Some("y"));
    assert_eq!(bound_by(&[&trial(100, 100, Vec::new())]), None);
}
