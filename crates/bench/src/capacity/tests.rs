use measure::{Endpoint, LedgerLine, Place};
use trial::Pair;

use super::*;
use crate::scale_plan::{ScalePlan, ScaledReceiver};

fn pair(tx: &str, rx: &str) -> Pair {
    Pair { tx: tx.parse().unwrap(), rx: rx.parse().unwrap() }
}

fn plan(pairs: &[(&str, &str)]) -> BenchPlan {
    BenchPlan { pairs: pairs.iter().map(|(tx, rx)| pair(tx, rx)).collect(), ..BenchPlan::sample() }
}

/// A trial with its sender on CPU 0 and its receiver, softirq included, on CPU 1.
fn trial(tx: &str, rx: &str, sent_pps: f64, delivered_pps: f64) -> Trial {
    let end = |label: &str, cpu: u32| Endpoint {
        label: label.into(),
        threads: 1,
        cpus: vec![cpu],
        ..Endpoint::default()
    };
    let mut trial = Trial { tx: end(tx, 0), rx: end(rx, 1), sent_pps, delivered_pps, ..Trial::default() };
    trial.rx.options = [("threaded_napi".to_owned(), json!(true)), ("napi_cpus".into(), json!([1]))].into();
    trial.cpus = [(0, 0.0), (1, 0.5)]
        .map(|(cpu, idle_ratio)| CpuShare { cpu, idle_ratio, ..CpuShare::default() })
        .into();
    trial.loss_ratio = 1.0 - delivered_pps / sent_pps;
    let lost = LedgerLine::at(Place::ReceiveBuffer, (sent_pps - delivered_pps) as u64, "counter");
    trial.ledger.lines = if lost.packets > 0 { vec![lost] } else { Vec::new() };
    trial
}

fn of<'c>(all: &'c [Capacity], side: CapacitySide, label: &str) -> &'c Capacity {
    all.iter().find(|found| found.side == side && found.label == label).unwrap()
}

#[test]
fn senders_are_measured_towards_xdp_drop_and_receivers_by_the_most_and_under_the_fastest() {
    let plan = plan(&[("udp", "udp"), ("udp", "xdp"), ("packet", "udp"), ("packet", "xdp")]);
    let trials = [
        trial("udp", "udp", 400.0, 390.0),
        trial("udp", "xdp", 300.0, 300.0),
        trial("packet", "udp", 900.0, 250.0),
        trial("packet", "xdp", 800.0, 800.0),
    ];
    let found = capacities(&plan, &trials, &[]);
    assert_eq!(found.len(), 4);
    let udp = of(&found, CapacitySide::Sending, "udp");
    assert_eq!((udp.pps, udp.with.as_str(), udp.layer), (300.0, "xdp", Layer::Kernel));
    assert_eq!(udp.limited_by.as_deref(), Some("the sender's CPU"));
    let received = of(&found, CapacitySide::Receiving, "udp");
    assert_eq!((received.pps, received.with.as_str(), received.layer), (390.0, "udp", Layer::Sockets));
    assert_eq!((received.flooded_pps, received.flood_pps), (Some(250.0), Some(900.0)));
    assert_eq!(received.limited_by, Some("receive buffer full".into()));
    assert_eq!(of(&found, CapacitySide::Receiving, "xdp").limited_by.as_deref(), Some("the sender"));
}

#[test]
fn without_xdp_drop_a_sender_is_measured_at_its_highest_rate() {
    let plan = plan(&[("udp", "udp"), ("udp", "packet")]);
    let trials = [trial("udp", "udp", 400.0, 390.0), trial("udp", "packet", 300.0, 300.0)];
    let found = capacities(&plan, &trials, &[]);
    assert_eq!(of(&found, CapacitySide::Sending, "udp").with, "udp");
}

#[test]
fn a_core_is_a_cpu_that_the_side_kept_busy_and_at_least_one() {
    let mut both = trial("udp", "udp", 400.0, 390.0);
    both.rx.options.insert("napi_cpus".into(), json!([2, 3]));
    both.cpus = [0.0, 0.0, 0.5, 1.0]
        .into_iter()
        .zip(0..)
        .map(|(idle_ratio, cpu)| CpuShare { cpu, idle_ratio, ..CpuShare::default() })
        .collect();
    let plan = plan(&[("udp", "udp")]);
    let found = capacities(&plan, &[both], &[]);
    let received = of(&found, CapacitySide::Receiving, "udp");
    assert_eq!((received.busy_cpus, received.pps_per_cpu, received.cpus_used), (1.5, 260.0, 4));
    let half_idle = capacities(&plan, &[trial("udp", "udp", 400.0, 390.0)], &[]);
    assert_eq!(of(&half_idle, CapacitySide::Receiving, "udp").pps_per_cpu, 390.0);
}

#[test]
fn a_search_adds_the_rate_without_loss() {
    let plan = plan(&[("udp", "udp")]);
    let rate = LosslessRate { rx: "udp".into(), pps: Some(370.0), is_sender_s: true };
    let found = capacities(&plan, &[trial("udp", "udp", 400.0, 390.0)], &[rate]);
    let received = of(&found, CapacitySide::Receiving, "udp");
    assert_eq!((received.lossless_pps, received.is_lossless_bound), (Some(370.0), true));
    assert_eq!(of(&found, CapacitySide::Sending, "udp").lossless_pps, None);
}

#[test]
fn efficiency_is_per_cpu_and_relative_to_one_thread() {
    let mut plan = plan(&[("xdp", "xdp")]);
    let xdp: RxSpec = "xdp".parse().unwrap();
    plan.scale = Some(ScalePlan {
        steps: Vec::new(),
        receivers: vec![ScaledReceiver { ladder: xdp.clone(), rx: xdp }],
    });
    let scaled = |threads: u32, cpus: &[u32], pps: f64| {
        let mut trial = trial("xdp", "xdp", pps, pps);
        trial.parameters = [(STAGE.to_owned(), json!(SCALING)), ("threads".into(), json!(threads))].into();
        (trial.tx.threads, trial.tx.cpus) = (threads, cpus.to_vec());
        // In the sender's softirq: the receiver has no CPU.
        trial.rx.options.clear();
        trial
    };
    let trials = [trial("xdp", "xdp", 5.0, 5.0), scaled(1, &[0], 6.0), scaled(2, &[0, 1], 9.0)];
    let found = capacities(&plan, &trials, &[]);
    let scaled: Vec<&Capacity> = found.iter().filter(|found| found.efficiency_ratio.is_some()).collect();
    let told: Vec<_> =
        scaled.iter().map(|one| (one.threads, one.cpus_used, one.efficiency_ratio.unwrap())).collect();
    assert_eq!(told, [(1, 1, 1.0), (2, 2, 0.75)]);
    let alone = of(&found, CapacitySide::Receiving, "xdp");
    assert_eq!(
        (alone.pps, alone.cpus_used, alone.efficiency_ratio),
        (6.0, 1, None),
        "a program needs no CPU"
    );
    assert_eq!((alone.lossless_pps, alone.is_lossless_bound), (Some(6.0), true));
    assert_eq!(scaled[1].scales.as_deref(), Some("xdp"));
    let points = points(&found, &trials);
    let values = &points[1].values;
    assert_eq!(
        (&values["threads"], &values["efficiency_ratio"], &values["cpus_used"]),
        (&json!(2), &json!(0.75), &json!(2))
    );
    assert!(!values.contains_key(STAGE) && points.len() == 2, "{points:?}");
}
