//! `make bench-tune`: the tuner and an exhaustive search over the same small space of the lab, then both winners turn by
//! turn. The tuner's winner must come within 5 % of the other.

use std::{collections::BTreeMap, error::Error};

use bench::{
    Ask, Assignment, Bed, BenchPlan, Combination, Coming, Knob, KnobValue, LocalBed, Refusal, TuneGoal,
    TunePlace, TunePlan, Watcher, read_machine, run_tune,
};
use lab::LabPlan;
use measure::{Interval, Origin, Start, Trial, median};
use serde_json::json;
use traffic::Departures;
use trial::{Pair, Tick, place};
use wire::{FrameSpec, Rate};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Trials of every combination of the exhaustive search, in turns.
const ROUNDS: usize = 7;
/// Turns of the two winners.
const FINAL: usize = 15;
const TRIAL_NS: u64 = 300_000_000;
const BUDGET_NS: u64 = 90_000_000_000;
/// The required share of the exhaustive search's rate.
const LEAST: f64 = 0.95;

fn main() -> Outcome<()> {
    lab::gain_access()?;
    let plan = tune_plan()?;
    let planner = |at: &Combination| bench_plan(at).map_err(|error| error.to_string());
    let mut bed = LocalBed::new(&planner, std::env::temp_dir());
    let values: Vec<usize> = plan.knobs.iter().map(|knob| knob.values.len()).collect();
    println!("{} combinations of {} knobs", values.iter().product::<usize>(), values.len());

    let run = run_tune(&plan, &mut bed, start(), None, &mut Quiet).map_err(|(_, error)| error)?;
    let best = run.end.best.ok_or("the search measured nothing")?;
    let tuned: Vec<usize> = plan
        .knobs
        .iter()
        .map(|knob| knob.values.iter().position(|value| Some(&value.shown) == best.settings.get(&knob.name)))
        .collect::<Option<_>>()
        .ok_or("the search returned a value outside of the space")?;
    let tuning = run.end.tuning.ok_or("the search has no record")?;
    println!(
        "tune: {} measurements, ended by {}, trials vary by {:.1} %: {}",
        tuning.history.len(),
        tuning.end,
        tuning.noise_ratio * 100.0,
        named(&plan, &tuned)
    );

    let all = combinations(&values);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    for _ in 0..ROUNDS {
        for (settings, rates) in all.iter().zip(&mut rates) {
            rates.push(delivered(&plan, &mut bed, settings)?);
        }
    }
    let middle = |rates: &[f64]| median(rates).unwrap_or(0.0);
    let winner = (0..all.len()).max_by(|a, b| middle(&rates[*a]).total_cmp(&middle(&rates[*b])));
    let winner = &all[winner.ok_or("there are no combinations")?];
    println!("exhaustive: {} measurements: {}", ROUNDS * all.len(), named(&plan, winner));

    let (mut of_tuned, mut of_winner) = (Vec::new(), Vec::new());
    for _ in 0..FINAL {
        of_tuned.push(delivered(&plan, &mut bed, &tuned)?);
        of_winner.push(delivered(&plan, &mut bed, winner)?);
    }
    let ratio = middle(&of_tuned) / middle(&of_winner);
    println!(
        "turn by turn, medians of {FINAL}: tune {:.3} Mpps, exhaustive {:.3} Mpps, ratio {ratio:.3}",
        middle(&of_tuned) / 1e6,
        middle(&of_winner) / 1e6
    );
    if ratio < LEAST { Err(format!("the tuner is not within 5 %: {ratio:.3}").into()) } else { Ok(()) }
}

fn delivered(plan: &TunePlan, bed: &mut LocalBed<'_>, settings: &[usize]) -> Outcome<f64> {
    let ask = Ask { duration_ns: TRIAL_NS, rate_pps: None, statistics: None, profile: false, number: 1 };
    match bed.trial(&plan.combination(settings), &ask, &mut |_| true) {
        Ok(run) => Ok(run.trial.delivered_pps),
        Err(Refusal::Unusable(reason)) => Err(reason.into()),
        Err(Refusal::Broken(error)) => Err(error.into()),
    }
}

fn combinations(values: &[usize]) -> Vec<Vec<usize>> {
    values.iter().fold(vec![Vec::new()], |all, count| {
        all.iter().flat_map(|before| (0..*count).map(move |value| [&before[..], &[value]].concat())).collect()
    })
}

fn named(plan: &TunePlan, settings: &[usize]) -> String {
    let named = plan.knobs.iter().zip(settings);
    named
        .map(|(knob, value)| format!("{}={}", knob.name, knob.values[*value].shown))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Two switches of the engines, the place of the softirq, and the batch size.
fn tune_plan() -> Outcome<TunePlan> {
    let knob = |name: &str, values: Vec<(&str, Vec<Assignment>)>| Knob {
        name: name.into(),
        about: String::new(),
        values: values.into_iter().map(|(shown, sets)| KnobValue { shown: shown.into(), sets }).collect(),
        risk: String::new(),
        undone: String::new(),
        application: String::new(),
    };
    let option = |value: &str| vec![Assignment::Option("batch-size".into(), Some(value.into()))];
    let threaded = vec![Assignment::Option("threaded-napi".into(), None)];
    Ok(TunePlan {
        goal: TuneGoal::Rx,
        place: TunePlace::Lab,
        pair: Pair { tx: "udp".parse()?, rx: "udp".parse()? },
        budget_ns: BUDGET_NS,
        trial_ns: TRIAL_NS,
        seed: 1,
        knobs: vec![
            knob("tx+gso", vec![("off", Vec::new()), ("on", vec![Assignment::TxSwitch("gso".into())])]),
            knob("rx+gro", vec![("off", Vec::new()), ("on", vec![Assignment::RxSwitch("gro".into())])]),
            knob("threaded-napi", vec![("off", Vec::new()), ("on", threaded)]),
            knob("batch-size", vec![("1024", Vec::new()), ("64", option("64"))]),
        ],
        left_out: BTreeMap::new(),
        keep: false,
        options: Vec::new(),
        interface: None,
        words: Vec::new(),
    })
}

fn bench_plan(at: &Combination) -> Outcome<BenchPlan> {
    let given =
        |name: &str| at.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let label = |switches: &[String]| {
        switches.iter().fold("udp".to_owned(), |label, switch| format!("{label}+{switch}"))
    };
    let batch = given("batch-size").flatten().map_or(Ok(1024), |size| size.parse())?;
    let threaded_napi = given("threaded-napi").is_some();
    let cpus = place(&sys::cpu::allowed()?, 1, 1);
    let lab = LabPlan {
        threaded_napi,
        napi_cpus: if threaded_napi { cpus.rx.clone() } else { Vec::new() },
        ..LabPlan::default()
    };
    let pair = Pair { tx: label(&at.tx_switches).parse()?, rx: label(&at.rx_switches).parse()? };
    // As in a record: unnamed settings have their defaults.
    Ok(serde_json::from_value(json!({
        "pairs": [pair],
        "skipped": [],
        "trials": 1,
        "rate": Rate::Max,
        "duration_ns": TRIAL_NS,
        "rate_pps": null,
        "departures": Departures::Constant,
        "frame_size_bytes": 64,
        "payload_bytes": 18,
        "tagged": true,
        "ipv6": false,
        "tx_threads": 1,
        "rx_threads": 1,
        "flows": 1,
        "tx_batch_size": batch,
        "rx_batch_size": 512,
        "spin": false,
        "cpus": cpus,
        "lab": lab,
        "frames": FrameSpec::default(),
        "interval_ns": 500_000_000,
        "seed": 1,
        "profile": false,
    }))?)
}

fn start() -> Start {
    Start {
        command: "tune".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at: String::new(),
        origin: Origin::Lab,
        machine: read_machine(),
        asked: BTreeMap::new(),
    }
}

/// Shows nothing.
struct Quiet;

impl Watcher for Quiet {
    fn trial_begins(&mut self, _: &Coming<'_>) {}

    fn tick(&mut self, _: Tick) -> bool {
        true
    }

    fn trial_ends(&mut self, _: &Trial, _: &[Interval]) -> bool {
        true
    }
}
