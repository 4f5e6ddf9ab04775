use measure::Point;

use super::*;

fn start() -> Start {
    Start {
        command: "bench rdr".into(),
        version: "test".into(),
        started_at: String::new(),
        origin: measure::Origin::Model,
        machine: measure::Machine::default(),
        asked: Default::default(),
    }
}

fn rdr(payloads: &[u32], ports: &[u32]) -> Rdr {
    Rdr { payloads: payloads.into(), ports: ports.into(), ..Rdr::default() }
}

fn number(point: &Point, name: &str) -> f64 {
    point.values[name].as_f64().unwrap_or_else(|| panic!("{name} is no number"))
}

#[test]
fn every_published_figure_is_met_within_ten_per_cent() {
    let figures = rdr_figures().unwrap();
    let wrong: Vec<_> = figures.iter().filter(|figure| figure.deviation().abs() > 0.10).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn below_200_bytes_the_rate_is_constant_and_above_it_is_theory() {
    let run = rdr(&[46, 120, 190, 250, 600, 1500], &[1]).run(start()).unwrap();
    for point in &run.end.points {
        let (payload, policy) = (number(point, "payload_bytes"), point.values["policy"].as_str().unwrap());
        let capacity = if policy == "realloc" { 0.5e6 } else { 0.7e6 };
        let expected = (capacity * (payload + 18.0) * 8.0).min(number(point, "theory_bps"));
        let received = number(point, "received_bps");
        assert!((received / expected - 1.0).abs() < 0.02, "{payload} {policy}: {received} of {expected}");
        assert!((number(point, "sent_bps") / number(point, "theory_bps") - 1.0).abs() < 1e-3);
    }
}

#[test]
fn a_second_port_changes_nothing() {
    let run = rdr(&[46, 150, 400], &[1, 2]).run(start()).unwrap();
    let of = |ports| run.end.points.iter().filter(move |p| p.values["ports"] == ports);
    assert_eq!(of(1).count(), 6);
    for (one, two) in of(1).zip(of(2)) {
        let (one, two) = (number(one, "received_bps"), number(two, "received_bps"));
        assert!((two / one - 1.0).abs() < 0.01, "{one} {two}");
    }
}

#[test]
fn points_carry_the_names_that_readers_rely_on_and_every_ledger_closes() {
    let run = rdr(&[64], &[1]).run(start()).unwrap();
    for name in
        ["payload_bytes", "ports", "theory_bps", "sent_bps", "received_bps", "received_pps", "lost_pps"]
    {
        number(&run.end.points[0], name);
    }
    assert!(run.end.points.iter().all(|p| number(p, "published_received_bps") > 0.0));
    let policies: Vec<_> = run.end.points.iter().map(|p| p.values["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["realloc", "recycle"]);
    assert!(run.end.trials.iter().all(|t| t.ledger.is_closed() && t.ledger.lost() > 0));
    assert!(run.end.goals_met());
    assert_eq!(run.end.notes.len(), 2 + FITTED.len());
    let json = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<Run>(&json).unwrap().end.points.len(), 2);
}

#[test]
fn a_trace_shows_what_crossed_when_in_order() {
    let trace = BusTrace::simulate(BufferPolicy::Recycle).unwrap();
    assert!(trace.events.windows(2).all(|pair| pair[0].start_clk <= pair[1].start_clk));
    assert!(trace.events.iter().all(|e| e.start_clk < trace.length_clk));
    let realloc = BusTrace::simulate(BufferPolicy::Realloc).unwrap();
    let frames = |trace: &BusTrace| {
        trace.events.iter().filter(|e| e.kind == crate::outcome::TransactionKind::Frame).count()
    };
    assert!(frames(&trace) > frames(&realloc), "recycling moves more frames in the same time");
}

#[test]
fn the_same_machine_runs_the_same_every_time() {
    let point = RdrPoint { payload: 46, ports: 2, policy: BufferPolicy::Realloc };
    assert_eq!(point.compute().unwrap(), point.compute().unwrap());
}

#[test]
fn refusals_name_the_range() {
    let message = |payloads: &[u32], ports: &[u32]| rdr(payloads, ports).points().unwrap_err().to_string();
    assert_eq!(
        message(&[45], &[1]),
        "a payload of 45 bytes fits no frame of the experiment: from 46 to 1500"
    );
    assert_eq!(
        message(&[1501], &[1]),
        "a payload of 1501 bytes fits no frame of the experiment: from 46 to 1500"
    );
    assert_eq!(message(&[46], &[3]), "3 ports: the experiment's card has 1 or 2 in use");
    assert!(message(&[], &[1]).contains("at least one payload"));
}
