//! `linerate fleet run`: one plan on many machines, one record.

use std::{cell::RefCell, collections::BTreeSet, time::Instant};

use fleet::{FleetLoad, FleetOutcome, FleetPlan, Preflight, Watcher, collect, is_name, run_fleet};
use measure::{End, Origin, PairSummary, Run, SCHEMA, Start, Trial};
use serde::Serialize;
use sys::signal;
use trial::Tick;
use view::Ahead;

use super::{
    loads::{Loads, found},
    server::{refused, server_plan},
};
use crate::{
    args::{FleetCollectArgs, FleetRunArgs},
    failure::{Failure, Status},
    pipeline::{Ending, Pipeline},
    progress::Progress,
    start::opening,
};

/// The plan of a run.
#[derive(Serialize)]
struct Asked<'a, P> {
    run: &'a str,
    tolerate: u32,
    plan: P,
}

pub(super) fn run(args: &FleetRunArgs) -> Result<bool, Failure> {
    let plan = FleetPlan::read(&args.plan).map_err(|error| Failure::of(Status::Usage, &error))?;
    let name = args.name.clone().unwrap_or_else(a_name);
    if !is_name(&name) {
        return Err(Failure::new(Status::Usage, format!("'{name}' is not a name for a run"))
            .hint("--name takes letters, digits, - and _"));
    }
    let asked = Asked { run: &name, tolerate: args.tolerate, plan: plan.asked() };
    let Some(pipeline) = Pipeline::open(&args.output, "fleet", &asked)? else { return Ok(true) };
    let start = opening("fleet", Origin::Hosts, &asked);
    pipeline.begin(&start)?;
    eprintln!("run {name}");
    let began = Instant::now();
    let mut outcome = FleetOutcome::default();
    let terminal = Terminal {
        pipeline: &pipeline,
        engines: plan.engines(),
        loads: RefCell::new(Loads::of(&plan)),
        progress: RefCell::new(pipeline.progress(&start, None)?),
        broken_output: RefCell::default(),
    };
    let server = server_plan(&args.server);
    let ran = run_fleet(&server, &plan, (&name, &start, args.tolerate), &terminal, &mut outcome);
    let Terminal { progress, broken_output, .. } = terminal;
    let shown = progress.into_inner().finish().err();
    let failure = ran.err().map(|error| refused(&error)).or(broken_output.into_inner()).or(shown);
    if outcome.trials.is_empty()
        && let Some(failure) = failure
    {
        return Err(failure);
    }
    let is_partial = outcome.fleet.trials.iter().any(|trial| !trial.missing.is_empty());
    let run = record(start, outcome, began.elapsed().as_secs_f64());
    let ending = Ending { failure, max_loss: plan.max_loss(), ..Ending::default() };
    Ok(pipeline.conclude(&run, ending)? && !is_partial)
}

pub(super) fn run_collect(args: &FleetCollectArgs) -> Result<bool, Failure> {
    let Some(pipeline) = Pipeline::open(&args.output, "fleet", &args.run)? else { return Ok(true) };
    let (start, outcome) = collect(&server_plan(&args.server), &args.run).map_err(|error| refused(&error))?;
    pipeline.begin(&start)?;
    outcome.trials.iter().try_for_each(|trial| pipeline.trial(trial))?;
    let duration_s = outcome.trials.iter().map(|trial| trial.duration_s).sum();
    pipeline.conclude(&record(start, outcome, duration_s), Ending::default())
}

fn record(start: Start, outcome: FleetOutcome, duration_s: f64) -> Run {
    let FleetOutcome { trials, intervals, fleet, interrupted } = outcome;
    let end = End {
        duration_s,
        interrupted,
        pairs: PairSummary::of(&trials),
        throughput: found(&start, &trials),
        notes: notes(&fleet),
        trials,
        fleet: Some(fleet),
        ..End::default()
    };
    Run { schema: SCHEMA.into(), start, intervals, end }
}

/// What a reader must know to trust the numbers.
fn notes(fleet: &measure::FleetRun<Trial>) -> Vec<String> {
    let mut notes = Vec::new();
    for trial in &fleet.trials {
        let number = trial.trial;
        let us = |ns: u64| ns as f64 / 1e3;
        notes.push(format!(
            "Trial {number}: rates cover the {:.3} s in which all senders sent; they started within {:.0} us (known within {:.0} us).",
            trial.common_window_s,
            us(trial.start_spread_ns),
            us(trial.start_bound_ns)
        ));
        if let Some(weakest) = &trial.weakest {
            notes.push(format!("Trial {number}: {weakest} fell furthest behind its rate."));
        }
        if let Some([least, most]) = trial.loss_ratio_bounds {
            notes.push(format!(
                "Trial {number} is partial: without {}. Its loss is from {:.4} to {:.4} of the packets.",
                trial.missing.join(", "),
                least,
                most
            ));
        }
    }
    let voided = |voided: &measure::FleetVoided| {
        format!("Trial {}, attempt {} is void: {}.", voided.trial, voided.attempt, voided.reason)
    };
    notes.extend(fleet.voided.iter().map(voided));
    notes
}

struct Terminal<'p> {
    pipeline: &'p Pipeline,
    engines: [String; 2],
    loads: RefCell<Loads<'p>>,
    progress: RefCell<Progress>,
    broken_output: RefCell<Option<Failure>>,
}

impl Watcher for Terminal<'_> {
    fn go_on(&self) -> bool {
        signal::caught() == 0 && self.broken_output.borrow().is_none()
    }

    fn say(&self, words: &str) {
        self.progress.borrow().say(words);
    }

    fn preflight(&self, table: &Preflight) {
        let red = table.red();
        let agents: BTreeSet<&str> = table.rows.iter().map(|row| row.agent.as_str()).collect();
        if red == 0 {
            self.say(&format!("preflight: {} agents, {} checks, none red", agents.len(), table.rows.len()));
        }
        for row in table.rows.iter().filter(|row| row.is_red || row.is_notable) {
            let mark = if row.is_red { "RED " } else { "note" };
            self.say(&format!(
                "  {mark} {:<16} {:<12} has {}, needs {}",
                row.agent, row.what, row.has, row.needs
            ));
        }
    }

    fn next(&self, trials: &[Trial]) -> Option<FleetLoad> {
        self.loads.borrow_mut().next(trials)
    }

    fn begins(&self, number: u32, load: FleetLoad) {
        let [tx, rx] = self.engines.clone();
        self.progress.borrow_mut().begins(Ahead {
            index: number - 1,
            of: self.loads.borrow().count(),
            tx,
            rx,
            asked_pps: load.rate_pps,
            ..Ahead::default()
        });
    }

    fn is_watched(&self) -> bool {
        self.progress.borrow().is_watched()
    }

    fn looks(&self, tick: Tick) {
        self.progress.borrow_mut().looks(tick);
    }

    fn trial(&self, trial: &Trial) {
        self.progress.borrow_mut().ends(trial);
        if let Err(failure) = self.pipeline.trial(trial) {
            self.broken_output.replace(Some(failure));
        }
    }
}

/// A unique name for a run.
fn a_name() -> String {
    let now = jiff::Timestamp::now();
    format!("{}-{:x}", now.strftime("%Y%m%dT%H%M%SZ"), std::process::id())
}
