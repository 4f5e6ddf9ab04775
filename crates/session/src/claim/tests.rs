use std::collections::BTreeMap;

use measure::{Cost, Endpoint, Histogram, LedgerLine};
use serde_json::json;

use super::*;
use crate::message::WireReport;

fn report() -> Report {
    Report {
        delivered: 90,
        lines: vec![LedgerLine::new("receive buffer", 10, "a counter")],
        rx: Endpoint { engine: "udp".into(), ..Endpoint::default() },
        cost: Cost::default(),
        cpus: Vec::new(),
        senders: 1,
        profile: None,
        wire: None,
        clocks: None,
    }
}

fn honest() -> Trial {
    let report = report();
    let mut receipt = Receipt::judge(Some(50.0), 100, 100, 2.0, &Histogram::new());
    receipt.delivered = 90;
    Trial {
        ring: None,
        trial: 1,
        tx: Endpoint { engine: "udp".into(), threads: 1, ..Endpoint::default() },
        rx: report.rx,
        frame_size_bytes: 64,
        payload_bytes: 18,
        asked_pps: Some(50.0),
        parameters: BTreeMap::new(),
        duration_s: 2.0,
        sent: 100,
        sent_pps: 50.0,
        delivered: 90,
        delivered_pps: 45.0,
        loss_ratio: 0.1,
        tx_cost: Cost::default(),
        rx_cost: Cost::default(),
        cpus: Vec::new(),
        queues: None,
        ledger: Ledger::close(100, 90, report.lines),
        receipt,
        statistics: None,
        round_trips: None,
        stream: None,
        interrupted: false,
        profile: None,
        wire: None,
        clocks: None,
        instructions: None,
        kernel: None,
    }
}

fn check(trial: Trial) -> Result<Trial, ClaimError> {
    let report = report();
    let lasted = Duration::from_secs(3);
    checked(trial, &Known { sent: 100, report: &report, lasted, reflects: false })
}

#[test]
fn an_honest_summary_is_unchanged() {
    assert_eq!(check(honest()), Ok(honest()));
}

#[test]
fn a_summary_that_contradicts_the_receiver_or_itself_is_refused_with_the_reason() {
    type Forge = fn(&mut Trial);
    let forged: [(Forge, &str); 18] = [
        (
            |trial| trial.sent = 10u64.pow(15),
            "it claims 1000000000000000 packets sent, but the session has 100",
        ),
        (|trial| trial.ledger.sent = 1, "it claims 1 packets sent, but the session has 100"),
        (|trial| trial.receipt.handed = 2, "it claims 2 packets sent, but the session has 100"),
        (|trial| trial.delivered = 0, "it claims 0 packets delivered, but the session has 90"),
        (|trial| trial.ledger.delivered = 0, "it claims 0 packets delivered, but the session has 90"),
        (|trial| trial.receipt.delivered = 0, "it claims 0 packets delivered, but the session has 90"),
        (|trial| trial.duration_s = 5.0, "it claims 5 seconds in a session of 3s"),
        (|trial| trial.duration_s = -1.0, "it claims -1 seconds in a session of 3s"),
        (|trial| trial.duration_s = f64::NAN, "it claims NaN seconds in a session of 3s"),
        (|trial| trial.sent_pps = 1e9, "its rate of packets sent of 1000000000 does not follow"),
        (|trial| trial.delivered_pps = 1e9, "its rate of packets delivered of 1000000000 does not follow"),
        (|trial| trial.receipt.handed_pps = 0.0, "its rate of packets sent of 0 does not follow"),
        (|trial| trial.tx_cost.user_s = -1.0, "its CPU time of -1 does not follow"),
        (|trial| trial.receipt.shortfall = 7, "its receipt contradicts itself"),
        (|trial| trial.receipt.kept_up = false, "its receipt contradicts itself"),
        (
            |trial| trial.ledger.lines.push(LedgerLine::new("qdisc full", 101, "x").on(HostSide::Sender)),
            "it claims 101 packets lost on the way, but the session has 100",
        ),
        (
            |trial| {
                let line = LedgerLine::new("qdisc full", 0, "x").on(HostSide::Sender);
                trial.ledger.lines = vec![line; 65];
            },
            "its ledger has 65 places on the sending host, more than 64",
        ),
        (
            |trial| drop(trial.tx.options.insert("x".into(), json!(vec![0; 4000]))),
            "the options of its engine have 8007 bytes, more than 4096",
        ),
    ];
    for (forge, said) in forged {
        let mut trial = honest();
        forge(&mut trial);
        let error = check(trial).expect_err(said);
        assert!(error.to_string().starts_with(said), "{error}");
    }
}

#[test]
fn the_sender_reports_losses_on_its_host_and_on_the_way() {
    let mut trial = honest();
    let mut lines = vec![
        LedgerLine::at(Place::Qdisc, 3, "a counter").on(HostSide::Sender),
        LedgerLine::at(Place::BetweenHosts, 2, "a difference"),
    ];
    lines.extend(report().lines);
    trial.ledger = Ledger::close(100, 90, lines);
    assert_eq!(check(trial.clone()), Ok(trial));
}

#[test]
fn a_loss_that_the_receiver_and_its_interface_both_count_is_in_the_ledger_once() {
    let named = LedgerLine::at(Place::XdpDrop, 7, "drop reason").on(HostSide::Receiver);
    let counted = LedgerLine::at(Place::XdpDrop, 3, "rx_queue_0_xdp_drops +90").on(HostSide::Receiver);
    let wire = WireReport { of_all_traffic: vec![counted.clone()], ..WireReport::default() };
    let report = Report { lines: vec![named.clone()], wire: Some(wire), ..report() };
    let mut trial = honest();
    trial.ledger = Ledger::close(100, 90, vec![counted, named]);
    let known = Known { sent: 100, report: &report, lasted: Duration::from_secs(3), reflects: false };
    assert_eq!(checked(trial.clone(), &known).unwrap().ledger, trial.ledger);
}

#[test]
fn more_delivered_than_sent_is_refused() {
    let report = report();
    let mut trial = honest();
    (trial.sent, trial.ledger.sent, trial.receipt.handed) = (80, 80, 80);
    let known = Known { sent: 80, report: &report, lasted: Duration::from_secs(3), reflects: false };
    let error = checked(trial, &known).unwrap_err();
    assert_eq!(error.to_string(), "it claims 80 packets sent, but 90 packets of its streams arrived");
}

#[test]
fn figures_about_the_receiver_come_from_the_receiver() {
    let mut trial = honest();
    trial.ledger.lines = vec![LedgerLine::new("nowhere", 1, "invented")];
    trial.ledger.unexplained = -5;
    trial.loss_ratio = 0.0;
    trial.rx.label = "invented".into();
    trial.rx_cost.user_s = 77.0;
    trial.statistics = Some(measure::ReceptionStatistics::default());
    trial.parameters = BTreeMap::from([("x".into(), json!(1))]);
    assert_eq!(check(trial), Ok(honest()));
}
