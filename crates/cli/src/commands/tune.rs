//! `linerate tune`: finds the fastest settings for a path, and verifies them.

mod peer;
mod space;
mod words;

use std::fs;

use bench::{Bed, LocalBed, TunePlan, read_lab_interfaces, run_tune};
use lab::Access;
use measure::{Origin, Run};
use nic::Journal;

use crate::{
    access::gain_access,
    args::TuneArgs,
    commands::bench::{explain, origin},
    failure::{Failure, Status, in_words},
    output::state_folder,
    pipeline::{Ending, Pipeline},
    quiet,
    start::opening,
};
use words::Words;

pub(crate) fn run(args: &TuneArgs) -> Result<bool, Failure> {
    match &args.resume {
        Some(_) => resume(args),
        None => begin(args, None),
    }
}

/// Plans, searches, prints.
fn begin(args: &TuneArgs, earlier: Option<Run>) -> Result<bool, Failure> {
    let access = gain_access()?;
    let words = Words::of(args)?;
    let is_peer = args.hosts.peer.is_some();
    let plan = space::plan(args, &words, access)?;
    if args.output.dry_run {
        return space::print(&plan, args.output.json.is_some());
    }
    quiet::warn();
    if plan.knobs.is_empty() {
        return Err(Failure::new(Status::Usage, "no setting to search")
            .hint("linerate tune --dry-run lists the excluded settings, and why"));
    }
    if is_peer {
        let mut start = opening("tune", Origin::Hosts, &plan);
        start.machine.interfaces = words.baseline_of_peer()?;
        let bed = peer::PeerBed::new(&words);
        return conclude(args, &plan, bed, start, earlier, crate::failure::unsent);
    }
    let planner = |at: &bench::Combination| words.bench_plan(at, access).map_err(|failure| failure.words());
    let lab = words.bench_plan(&plan.combination(&vec![0; plan.knobs.len()]), access)?.trial.lab;
    let mut start = opening("tune", origin(&lab), &plan);
    start.machine.interfaces = read_lab_interfaces(&lab).map_err(|error| explain(&error.into()))?;
    let bed = LocalBed::new(&planner, state_folder());
    let done = conclude(args, &plan, bed, start, earlier, explain)?;
    warn_of_user_namespace(access);
    Ok(done)
}

fn warn_of_user_namespace(access: Access) {
    if access == Access::UserNamespace {
        eprintln!("note: without root, the machine's settings and engines that need BPF are excluded");
    }
}

/// Searches on a bed, then saves and prints.
fn conclude<B: Bed>(
    args: &TuneArgs,
    plan: &TunePlan,
    mut bed: B,
    start: measure::Start,
    earlier: Option<Run>,
    explain: impl Fn(&B::Error) -> Failure,
) -> Result<bool, Failure> {
    let pipeline = Pipeline::of(&args.output, "tune")?;
    pipeline.begin(&start)?;
    let mut progress = pipeline.progress(&start, earlier.as_ref())?;
    let outcome = run_tune(plan, &mut bed, start, earlier, &mut progress);
    // Before printing, which may end the process.
    drop(bed);
    let broken_output = progress.finish().err();
    let (run, failure) = match outcome {
        Ok(run) => (run, None),
        Err((run, error)) => (*run, Some(explain(&error))),
    };
    let failure = broken_output.or(failure);
    match failure {
        Some(failure) if run.end.trials.is_empty() => Err(failure),
        failure => pipeline.conclude(&run, Ending { failure, ..Ending::default() }),
    }
}

/// The rest of an interrupted search, after restoring what a killed one left behind.
fn resume(args: &TuneArgs) -> Result<bool, Failure> {
    let Some(file) = &args.resume else { return Ok(true) };
    let name = file.display();
    let refused = |words: String| Failure::new(Status::Refused, words);
    let text = fs::read_to_string(file).map_err(|error| {
        refused(format!("cannot read {name}: {error}")).hint("a killed search leaves FILE.partial")
    })?;
    let run = report::read_json(&text).map_err(|error| refused(format!("{name}: {}", in_words(&error))))?;
    let asked = serde_json::Value::Object(run.start.asked.clone().into_iter().collect());
    let plan: TunePlan = (run.start.command == "tune")
        .then(|| serde_json::from_value(asked).ok())
        .flatten()
        .ok_or_else(|| refused(format!("{name}: cannot resume: not a run of linerate tune")))?;
    if !run.end.interrupted {
        return Err(refused(format!("{name}: that search is complete"))
            .hint("linerate report shows it; omit --resume to search again"));
    }
    let (now, then) = (bench::read_machine(), &run.start.machine);
    if (&now.kernel, &now.cpu_model, now.cpus) != (&then.kernel, &then.cpu_model, then.cpus) {
        return Err(refused(format!("{name}: that search started on another machine or kernel"))
            .hint("a record covers one machine: search again"));
    }
    let mut then = words::parse(&plan.words)?;
    undo_killed(plan.interface.as_deref())?;
    let own = file.extension().is_some_and(|extension| extension == "partial");
    then.output = args.output.clone();
    then.output.save =
        args.output.save.clone().or_else(|| (own && !args.output.no_save).then(|| file.with_extension("")));
    let done = run.end.trials.iter().filter(|trial| !trial.interrupted).count();
    eprintln!("resuming after {done} trials");
    begin(&then, Some(run))
}

/// Restores what a killed search left changed on the interface, or on the machine.
fn undo_killed(interface: Option<&str>) -> Result<(), Failure> {
    let interface = interface.unwrap_or(bench::LOOPBACK);
    let journals = Journal::all(&state_folder()).map_err(|error| super::nic::session_failure(&error))?;
    let is_left = |journal: &Journal| {
        journal.interface == interface && journal.newest().is_some_and(|entry| entry.was_killed())
    };
    if journals.iter().any(is_left) {
        let restored = nic::restore_killed(interface, &state_folder())
            .map_err(|error| super::nic::session_failure(&error))?;
        restored.changes.iter().for_each(|change| eprintln!("restored {interface} {change}"));
    }
    Ok(())
}
