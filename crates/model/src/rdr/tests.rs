use measure::Point;

use super::*;
use crate::{outcome::CpuFunction, outcome::TransactionKind, simulate};

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
fn given_and_fitted_figures_are_met_and_the_others_are_said_to_be_reproduced_or_not() {
    let figures = rdr_figures().unwrap();
    let set = figures.iter().filter(|figure| figure.basis != Basis::Follows);
    let wrong: Vec<_> = set.filter(|figure| figure.deviation().abs() > 0.01).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let missed: Vec<&str> = figures
        .iter()
        .filter(|figure| figure.verdict() == "not reproduced")
        .map(|figure| figure.paper.id.as_str())
        .collect();
    assert_eq!(
        missed,
        ["rdr.stumble-throughput", "rdr.stumble-gap", "rdr.stumble-rate", "rdr.less-lost-line-rate"]
    );
    for figure in &figures {
        let recorded = figure.recorded();
        assert_eq!(recorded.published.is_none(), figure.is_derived(), "{}", recorded.figure);
        assert_eq!(recorded.given, figure.basis != Basis::Follows);
        assert_eq!(recorded.measured_at, figure.verdict());
    }
}

#[test]
fn costs_are_in_physical_order_and_only_two_are_fitted() {
    let machine = rdr_machine(BufferPolicy::Realloc, 1);
    let buffers = &machine.buffers;
    assert!(buffers.reset_ns < buffers.slab_ns / 10.0, "setting up a descriptor is the cheapest of all");
    assert!(buffers.slab_ns < buffers.page_batch_ns, "the page allocator costs more than the slab");
    assert_eq!(buffers.free_burst, 1, "recycling's effect depends on no burst");
    assert_eq!(FITTED.len(), 2);
}

#[test]
fn freeing_and_allocating_has_the_share_that_the_papers_rates_leave_for_it() {
    let shares = rdr_functions().unwrap();
    let of = |function| shares.iter().find(|share| share.function == function).copied().unwrap();
    let buffers = of(CpuFunction::Allocate);
    assert!((buffers.realloc_ratio - (1.0 - 0.5 / 0.7)).abs() < 0.005, "{buffers:?}");
    assert_eq!(buffers.recycle_ratio, 0.0);
    let all: f64 = shares.iter().map(|share| share.realloc_ratio).sum();
    assert!((all - 1.0).abs() < 1e-9, "{all}");
}

#[test]
fn memory_closed_to_the_card_costs_no_packet() {
    let lost = |closed_ratio| {
        let mut config = rdr_machine(BufferPolicy::Realloc, 1);
        config.memory.closed_ratio = closed_ratio;
        simulate(&config).unwrap().window.lost as f64
    };
    let (open, closed) = (lost(0.0), lost(1.0));
    assert!((closed / open - 1.0).abs() < 0.01, "{open} {closed}");
}

#[test]
fn the_card_ends_reads_early_once_its_buffer_is_nearly_full() {
    let trace = BusTrace::simulate(BufferPolicy::Realloc).unwrap();
    assert!(trace.stops() > 0);
    let first = trace.events.iter().find(|e| e.kind == TransactionKind::Stop).unwrap();
    assert!(first.start_clk > trace.regimes.smooth_clk);
    let most = trace.levels.iter().map(|level| level.1).max().unwrap();
    assert!(most <= trace.buffer_bytes && most > 42 * 1024, "{most}");
    let timeline = trace.timeline();
    assert_eq!(timeline.lanes.last().unwrap().name, "STOP#");
    assert_eq!(timeline.levels[0].most, 48.0 * 1024.0);
    assert_eq!(trace.axis(80, 250.0).len(), 2);
    assert!(trace.level_axis(80, 250.0).concat().starts_with('0'));
}

#[test]
fn calls_are_fifty_packets_a_second_and_recycling_carries_more_of_them() {
    let calls = Calls { calls: 12_000, voice_bytes: 20 };
    let run = calls.run(start()).unwrap();
    assert_eq!(number(&run.end.points[0], "offered_pps"), 600_000.0);
    assert_eq!(number(&run.end.points[0], "frame_bytes"), 78.0);
    let most: Vec<f64> = run.end.points.iter().map(|point| number(point, "most_calls")).collect();
    assert!((most[0] / 10_000.0 - 1.0).abs() < 0.05, "0.5 Mpps are 10 000 calls: {most:?}");
    assert!((most[1] / 14_000.0 - 1.0).abs() < 0.05, "0.7 Mpps are 14 000 calls: {most:?}");
    assert!(number(&run.end.points[0], "loss_ratio") > 0.1);
    assert_eq!(run.end.points[1].values["lost_packet_buffer"], 0);
    let refused = |calls, voice_bytes| Calls { calls, voice_bytes }.check().unwrap_err().to_string();
    assert_eq!(refused(0, 160), "0 calls are out of range: 1 to 10504, which fill the link");
    assert_eq!(refused(1, 161), "161 bytes of voice are out of range: 1 to 160");
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
    assert!(run.end.points.iter().all(|p| number(p, "derived_received_bps") > 0.0));
    let policies: Vec<_> = run.end.points.iter().map(|p| p.values["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["realloc", "recycle"]);
    assert!(run.end.trials.iter().all(|t| t.ledger.is_closed() && t.ledger.lost() > 0));
    assert!(run.end.goals_met());
    let notes = run.end.notes.join("\n");
    assert!(notes.contains("not reproduced: gaps in the stumble regime"), "{notes}");
    assert!(
        notes.contains("derived from the paper's slope") && notes.contains("free and allocate 28.6 %"),
        "{notes}"
    );
    assert_eq!(run.end.notes.iter().filter(|note| note.contains("is in no source")).count(), FITTED.len());
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
    assert_eq!(message(&[45], &[1]), "a payload of 45 bytes is out of range: 46 to 1500");
    assert_eq!(message(&[1501], &[1]), "a payload of 1501 bytes is out of range: 46 to 1500");
    assert_eq!(message(&[46], &[3]), "3 ports are out of range: the paper's card has 1 or 2");
    assert!(message(&[], &[1]).contains("at least one payload"));
}
