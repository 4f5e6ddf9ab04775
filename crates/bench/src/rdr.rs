//! The RDR paper's experiment on a card: floods against each policy of the engine `pci`, and against the kernel's driver.
//!
//! Every combination of receiver, payload and load is a point of a sweep. A policy is rated by its rate as a multiple
//! of `realloc`'s at the same payload and load.

use std::collections::BTreeMap;

use measure::{Place, Point, Run, Stage, Start, Trial, median};
use serde::Serialize;
use serde_json::{Value, json};
use trial::TrialError;

use crate::{ladder::run_ladder, plan::BenchPlan, recorder::Watcher, sweep::SweepPlan};

/// Parameters of the points.
const RECEIVER: &str = "receiver";
const PAYLOAD: &str = "payload_bytes";
const OFFERED: &str = "offered";

/// The paper's own receiver, with which the others are compared.
const REALLOC: &str = "pci realloc";

/// Bytes of an Ethernet frame in addition to its payload: header and FCS.
pub const ETHERNET_BYTES: u32 = 18;

/// One point: a receiver at a payload and a load.
pub fn rdr_point(receiver: &str, payload_bytes: u32, offered: &str, plan: BenchPlan) -> BenchPlan {
    let parameters =
        [(RECEIVER, json!(receiver)), (PAYLOAD, json!(payload_bytes)), (OFFERED, json!(offered))];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value));
    BenchPlan { parameters: parameters.into(), ..plan }
}

/// The points, and the kind of card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RdrPlan {
    /// Every receiver at every payload and load.
    #[serde(flatten)]
    pub sweep: SweepPlan,
    /// Whether the receiving card is emulated.
    pub is_emulated: bool,
}

/// Runs every point, as a sweep.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_rdr(
    plan: &RdrPlan,
    start: Start,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let (mut run, error) = match run_ladder(&plan.sweep, start, None, watcher) {
        Ok(run) => (run, None),
        Err((run, error)) => (*run, Some(error)),
    };
    complete(&mut run);
    if plan.is_emulated {
        run.end.notes.push(EMULATED.into());
    }
    match error {
        None => Ok(run),
        Some(error) => Err((Box::new(run), error)),
    }
}

const EMULATED: &str = "The card is emulated: neither its PCI bus nor its wire takes time, and its CPUs run on this \
                        machine's CPUs. Compare the receivers with each other, not with a real card.";

/// Adds the trials' figures of ring and buffers to each point, and its ratio to `realloc`.
fn complete(run: &mut Run) {
    let trials = &run.end.trials;
    for point in &mut run.end.points {
        let of_it = |trial: &&Trial| {
            !trial.interrupted
                && trial.parameters.iter().all(|(name, value)| point.values.get(name) == Some(value))
        };
        let of_it: Vec<&Trial> = trials.iter().filter(of_it).collect();
        for (name, value) in RESULTS {
            let values: Vec<f64> = of_it.iter().filter_map(|trial| value(trial)).collect();
            if let Some(value) = median(&values) {
                point.values.insert((*name).into(), json!(value));
            }
        }
    }
    let before = run.end.points.clone();
    for point in &mut run.end.points {
        let at = |point: &Point| [PAYLOAD, OFFERED].map(|name| point.values.get(name).cloned());
        let is_reference =
            |other: &&Point| at(other) == at(point) && other.values.get(RECEIVER) == Some(&json!(REALLOC));
        let Some(reference) = before.iter().find(is_reference) else { continue };
        for (result, ratio) in [("delivered_pps", "delivered_of_realloc"), ("refill_ns", "refill_of_realloc")]
        {
            let [own, others] = [&point.values, &reference.values].map(|values| number(values, result));
            if let (Some(own), Some(others)) = (own, others.filter(|others| *others > 0.0)) {
                point.values.insert(ratio.into(), json!(own / others));
            }
        }
    }
}

fn number(values: &BTreeMap<String, Value>, name: &str) -> Option<f64> {
    values.get(name).and_then(Value::as_f64)
}

/// A result's name and where it is in a trial.
type Figure = (&'static str, fn(&Trial) -> Option<f64>);

const RESULTS: &[Figure] = &[
    ("missed_ratio", |trial| {
        let missed: u64 = lost_at(trial, Place::NicMissed);
        (trial.sent > 0).then(|| missed as f64 / trial.sent as f64)
    }),
    ("allocation_ratio", |trial| share(trial, Stage::Allocation)),
    ("driver_ratio", |trial| share(trial, Stage::Driver)),
    ("refill_ns", |trial| trial.ring.as_ref()?.refill_ns),
    ("without_descriptor", |trial| Some(trial.ring.as_ref()?.without_descriptor as f64)),
    ("unexplained", |trial| Some(trial.ledger.unexplained as f64)),
];

fn lost_at(trial: &Trial, place: Place) -> u64 {
    let lines = trial.ledger.lines.iter().filter(|line| line.place.as_str() == place.name());
    lines.map(|line| line.packets).sum()
}

/// A stage's share of the receiving time.
fn share(trial: &Trial, stage: Stage) -> Option<f64> {
    let profile = trial.profile.as_ref().filter(|profile| profile.receiving_samples > 0)?;
    Some(profile.stages.iter().filter(|share| share.stage == stage).map(|share| share.share_ratio).sum())
}

#[cfg(test)]
mod tests {
    use measure::{End, Ledger, LedgerLine, Machine, Origin, Profile, RingUse, SCHEMA, StageShare};

    use super::*;

    fn trial(receiver: &str, delivered: u64, refill_ns: Option<f64>) -> Trial {
        let line = LedgerLine::new(Place::NicMissed, 1000 - delivered, "MPC");
        Trial {
            sent: 1000,
            delivered,
            delivered_pps: delivered as f64,
            parameters: rdr_point(receiver, 46, "max", BenchPlan::sample()).parameters,
            ledger: Ledger::close(1000, delivered, vec![line]),
            ring: refill_ns.map(|ns| RingUse { refill_ns: Some(ns), ..RingUse::default() }),
            ..Trial::default()
        }
    }

    fn run(trials: Vec<Trial>) -> Run {
        let start = Start {
            command: "bench rdr".into(),
            version: String::new(),
            started_at: String::new(),
            origin: Origin::Hosts,
            machine: Machine::default(),
            asked: BTreeMap::new(),
        };
        let points = crate::sweep::points(&trials);
        let end = End { trials, points, ..End::default() };
        let mut run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end };
        complete(&mut run);
        run
    }

    #[test]
    fn a_policy_is_rated_as_a_multiple_of_realloc() {
        let run = run(vec![
            trial("pci realloc", 500, Some(80.0)),
            trial("pci recycle", 700, Some(10.0)),
            trial("kernel", 400, None),
        ]);
        let of = |receiver: &str, name: &str| {
            let point = run.end.points.iter().find(|point| point.values[RECEIVER] == receiver).unwrap();
            number(&point.values, name)
        };
        assert_eq!(of("pci recycle", "delivered_of_realloc"), Some(1.4));
        assert_eq!(of("pci recycle", "refill_of_realloc"), Some(0.125));
        assert_eq!(of("pci recycle", "missed_ratio"), Some(0.3));
        assert_eq!(of("kernel", "delivered_of_realloc"), Some(0.8));
        assert_eq!(of("kernel", "refill_of_realloc"), None, "the kernel's driver has no such counter");
        assert_eq!(of("kernel", "unexplained"), Some(0.0));
    }

    #[test]
    fn the_allocating_share_of_a_profile_is_a_result() {
        let stage = StageShare {
            stage: Stage::Allocation,
            share_ratio: 0.25,
            margin_ratio: 0.01,
            samples: 25,
            ns_per_packet: None,
        };
        let profile = Profile { receiving_samples: 100, stages: vec![stage], ..Profile::default() };
        let run = run(vec![Trial { profile: Some(profile), ..trial("kernel", 400, None) }]);
        assert_eq!(number(&run.end.points[0].values, "allocation_ratio"), Some(0.25));
        assert_eq!(number(&run.end.points[0].values, "driver_ratio"), Some(0.0));
        assert_eq!(
            number(&run.end.points[0].values, "delivered_of_realloc"),
            None,
            "no realloc to compare with"
        );
    }
}
