use measure::{Cost, Endpoint, Place};

use super::*;
use crate::message::Attempt;

fn of() -> Attempt {
    Attempt { run: "r".into(), trial: 1, attempt: 1 }
}

fn sight(ahead_ns: i64) -> Sight {
    Sight { at_ns: 0, ahead_ns, within_ns: 1000 }
}

fn launch(senders: &[(&str, &[&str])], receivers: &[&str]) -> Launch {
    let names = || senders.iter().map(|(name, _)| *name).chain(receivers.iter().copied());
    Launch {
        of: of(),
        start_at_ns: 1_000_000_000,
        clocks: names().map(|name| (name.to_owned(), sight(0))).collect(),
        incarnations: names().map(|name| (name.to_owned(), "1".to_owned())).collect(),
        senders: senders
            .iter()
            .map(|(name, to)| ((*name).to_owned(), to.iter().map(|to| (*to).to_owned()).collect()))
            .collect(),
        receivers: receivers.iter().map(|name| (*name).to_owned()).collect(),
        duration_ns: 1_000_000_000,
    }
}

fn outcome(agent: &str, what: Measured) -> Outcome {
    Outcome { agent: agent.into(), incarnation: "1".into(), of: of(), sequence: 1, what }
}

/// So many packets in a second from so many nanoseconds on.
fn sent(agent: &str, packets: u64, delivered: u64, began_ns: u64) -> Outcome {
    let trial = Trial {
        sent: packets,
        delivered,
        duration_s: 1.0,
        asked_pps: Some(packets as f64),
        ledger: Ledger::close(packets, delivered, Vec::new()),
        receipt: Receipt { kept_up: true, scheduled: packets, handed: packets, ..Receipt::default() },
        ..Trial::default()
    };
    let interval = |end_s, sent| Interval {
        trial: 0,
        end_s,
        length_s: 0.5,
        sent: Some(sent),
        delivered: None,
        payload_bytes: 0,
        rx_dropped: None,
    };
    let intervals = vec![interval(0.5, packets / 2), interval(1.0, packets - packets / 2)];
    outcome(agent, Measured::Sent { trial: Box::new(trial), intervals, began_ns, cut_short: None })
}

fn received(agent: &str, delivered: u64, lost: u64) -> Outcome {
    let line = LedgerLine::at(Place::ReceiveBuffer, lost, "a counter");
    let report = Report {
        delivered,
        lines: if lost > 0 { vec![line] } else { Vec::new() },
        rx: Endpoint::default(),
        cost: Cost::default(),
        cpus: Vec::new(),
        senders: 1,
        profile: None,
        wire: None,
        clocks: None,
    };
    outcome(agent, Measured::Received { report: Box::new(report), cut_short: None })
}

const STRICT: Demands = Demands { tolerate: 0, most_start_error_ns: 600_000_000 };

fn merged(launch: &Launch, outcomes: &[Outcome], demands: Demands) -> Result<Merged, String> {
    merge(launch, outcomes, &BTreeMap::new(), demands)
}

#[test]
fn losses_in_a_shared_socket_are_counted_once_and_the_ledger_closes() {
    let launch = launch(&[("a", &["r"]), ("b", &["r"])], &["r"]);
    let outcomes =
        [sent("a", 100, 90, 1_000_000_000), sent("b", 100, 80, 1_000_000_000), received("r", 170, 35)];
    let merged = merged(&launch, &outcomes, STRICT).unwrap();
    let ledger = &merged.trial.ledger;
    // The counter saw 35, of which 5 were somebody else's.
    assert_eq!((ledger.sent, ledger.delivered, ledger.unexplained), (200, 170, 0), "{ledger:?}");
    assert_eq!(ledger.lines.iter().map(|line| line.packets).sum::<u64>(), 30);
    assert!(merged.fleet.hosts.iter().all(|host| host.ledger.unexplained == 0), "{:?}", merged.fleet.hosts);
}

#[test]
fn a_result_that_comes_twice_or_of_another_incarnation_is_not_counted() {
    let launch = launch(&[("a", &["r"])], &["r"]);
    let mut outcomes = vec![sent("a", 100, 100, 1_000_000_000), received("r", 100, 0)];
    outcomes.push(Outcome { sequence: 2, ..sent("a", 100, 100, 1_000_000_000) });
    outcomes.push(Outcome { incarnation: "2".into(), ..sent("a", 900, 900, 1_000_000_000) });
    let whole = merged(&launch, &outcomes, STRICT).unwrap();
    assert_eq!(whole.trial.sent, 100);
    outcomes.retain(|outcome| outcome.agent != "a" || outcome.incarnation == "2");
    assert_eq!(missing(&launch, &outcomes), ["a"]);
    assert_eq!(merged(&launch, &outcomes, STRICT).unwrap_err(), "a was lost");
}

#[test]
fn rates_are_those_of_the_time_in_which_all_sent() {
    let launch = launch(&[("a", &["r"]), ("b", &["r"])], &["r"]);
    // The second begins half a second later: half of each is in common.
    let outcomes =
        [sent("a", 100, 100, 1_000_000_000), sent("b", 200, 200, 1_500_000_000), received("r", 300, 0)];
    let merged = merged(&launch, &outcomes, STRICT).unwrap();
    assert!((merged.fleet.common_window_s - 0.5).abs() < 1e-9);
    assert!((merged.trial.sent_pps - 300.0).abs() < 1.0, "{}", merged.trial.sent_pps);
    assert_eq!(merged.fleet.start_spread_ns, 500_000_000);
    assert_eq!(merged.fleet.start_bound_ns, 2 * (1000 + 45_000), "two clocks, and their drift since");
}

#[test]
fn one_that_starts_too_late_voids_the_attempt() {
    let launch = launch(&[("a", &["r"])], &["r"]);
    let outcomes = [sent("a", 100, 100, 1_800_000_000), received("r", 100, 0)];
    assert_eq!(merged(&launch, &outcomes, STRICT).unwrap_err(), "a started 800 ms off");
}

#[test]
fn a_missing_sender_leaves_bounds() {
    let launch = launch(&[("a", &["r"]), ("b", &["r"])], &["r"]);
    let outcomes = [sent("a", 100, 100, 1_000_000_000), received("r", 140, 0)];
    assert!(merged(&launch, &outcomes, STRICT).is_err());
    let part = merged(&launch, &outcomes, Demands { tolerate: 1, ..STRICT }).unwrap();
    assert_eq!(part.fleet.missing, ["b"]);
    // 40 of the other's at most 100 came.
    assert_eq!(part.fleet.loss_ratio_bounds, Some([0.0, 0.3]));
    assert_eq!(part.trial.ledger.unexplained, 0);
}

#[test]
fn a_clock_that_is_ten_seconds_ahead_does_not_matter() {
    let mut launch = launch(&[("a", &["r"]), ("b", &["r"])], &["r"]);
    launch.clocks.insert("b".into(), sight(10_000_000_000));
    let outcomes =
        [sent("a", 100, 100, 1_000_000_000), sent("b", 100, 100, 11_000_000_000), received("r", 200, 0)];
    let merged = merged(&launch, &outcomes, STRICT).unwrap();
    assert_eq!(merged.fleet.start_spread_ns, 0);
}
