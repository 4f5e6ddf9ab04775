//! The space of a search: read from the machine, narrowed by `--only` and `--never`, printed by `--dry-run`.

use std::io::{self, Write};

use bench::{Combination, Knob, Surroundings, TuneGoal, TunePlace, TunePlan, TuneSpace};
use lab::{Access, Lab};
use nic::{Card, Page};
use sys::clock;

use super::words::Words;
use crate::{
    args::TuneArgs,
    commands::bench::{cpu_order, explain, interfaces_of},
    failure::{Failure, Status},
    output::{self, printed},
};

/// The plan, or all its problems.
pub(super) fn plan(args: &TuneArgs, words: &Words, access: Access) -> Result<TunePlan, Failure> {
    let goal: TuneGoal = args.goal.into();
    let place = match (&args.hosts.peer, &args.lab.rx_interface) {
        (Some(_), _) => TunePlace::Peer,
        (None, Some(_)) => TunePlace::Interfaces,
        (None, None) => TunePlace::Lab,
    };
    let nothing = Combination::default();
    let mut pair = words.pair.clone();
    let (mut interface, mut rx_cpus, mut flows) = (None, Vec::new(), 1);
    if place == TunePlace::Peer {
        words.host_plan(&nothing)?;
    } else {
        let bench = words.bench_plan(&nothing, access)?;
        let Some(only) = bench.pairs.first() else {
            let reason = bench.skipped.first().map_or("no engine is left", |skipped| &skipped.reason);
            return Err(Failure::new(Status::Missing, format!("{pair} is unavailable: {reason}")));
        };
        pair = only.clone();
        rx_cpus = bench.trial.cpus.rx.clone();
        flows = bench.trial.flows;
        let page = match &args.lab.rx_interface {
            Some(name) => read(name),
            None => {
                let lab = Lab::create(&bench.trial.lab_for(only)).map_err(|error| explain(&error.into()))?;
                lab.rx().run(|| read(lab.rx().interface())).map_err(|error| explain(&error.into()))?
            }
        };
        interface = Some(page?);
    }
    // In a user namespace the machine's settings belong to another owner.
    let machine = (access == Access::Privileged).then(|| read(bench::LOOPBACK)).transpose()?;
    let threads = usize::from(args.paths.threads);
    let cpus = cpu_order(&interfaces_of(&args.lab));
    let around = Surroundings {
        goal,
        place,
        pair: &pair,
        given: &words.given(),
        threads: (threads, args.paths.rx_threads.map_or(threads, usize::from)),
        flows,
        cpus: &cpus,
        rx_cpus: &rx_cpus,
        interface: interface.as_ref(),
        machine: machine.as_ref(),
    };
    let mut space = TuneSpace::of(&around);
    narrow(args, &mut space)?;
    leave_out_unusable(words, access, place, &mut space);
    Ok(TunePlan {
        goal,
        place,
        pair: words.pair.clone(),
        budget_ns: clock::nanos(args.budget),
        trial_ns: clock::nanos(args.duration),
        seed: args.packets.seed,
        knobs: space.knobs,
        left_out: space.left_out,
        keep: args.keep,
        options: words.options().to_vec(),
        interface: args.lab.rx_interface.clone(),
        words: args.raw.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    })
}

fn read(interface: &str) -> Result<Page, Failure> {
    let page = Card::open(interface).and_then(|mut card| Page::read(&mut card));
    page.map_err(|error| Failure::of(Status::Refused, &error))
}

fn narrow(args: &TuneArgs, space: &mut TuneSpace) -> Result<(), Failure> {
    let names: Vec<String> = space.knobs.iter().map(|knob| knob.name.clone()).collect();
    let unknown = |option: &str, word: String| {
        let near = bench::nearest(&word, names.iter().map(String::as_str));
        let hint = near.map_or_else(
            || "linerate tune --dry-run lists the knobs".to_owned(),
            |near| format!("did you mean {near}? linerate tune --dry-run lists all"),
        );
        Failure::new(Status::Usage, format!("{option}: unknown knob '{word}'")).hint(hint)
    };
    space.only(&args.only).map_err(|word| unknown("--only", word))?;
    space.never(&args.never).map_err(|word| unknown("--never", word))
}

/// Excludes values that are refused when set alone.
fn leave_out_unusable(words: &Words, access: Access, place: TunePlace, space: &mut TuneSpace) {
    let mut left_out = Vec::new();
    for knob in &mut space.knobs {
        let mut reason = None;
        let mut is_first = true;
        knob.values.retain(|value| {
            let is_as_it_is = std::mem::replace(&mut is_first, false);
            let at = Combination::of(&value.sets);
            let refused = match place {
                _ if is_as_it_is => None,
                TunePlace::Peer => words.host_plan(&at).err().map(|failure| failure.words()),
                _ => match words.bench_plan(&at, access) {
                    Err(failure) => Some(failure.words()),
                    Ok(plan) if plan.pairs.is_empty() => {
                        Some(plan.skipped.first().map_or_else(String::new, |skipped| skipped.reason.clone()))
                    }
                    Ok(_) => None,
                },
            };
            let is_usable = refused.is_none();
            reason = reason.take().or(refused);
            is_usable
        });
        if knob.values.len() < 2 {
            left_out.push((knob.name.clone(), reason.unwrap_or_default()));
        }
    }
    space.knobs.retain(|knob| knob.values.len() > 1);
    space.left_out.extend(left_out);
}

/// Prints the space with its risks.
pub(super) fn print(plan: &TunePlan, json: bool) -> Result<bool, Failure> {
    if json {
        return output::print_plan(plan);
    }
    printed(write(plan, &mut io::stdout().lock())).map(|()| true)
}

fn write(plan: &TunePlan, out: &mut impl Write) -> io::Result<()> {
    let count = plan.space().combinations();
    writeln!(
        out,
        "{}: {} knobs, {count:.0} combinations; goal {}, {:.0} s. The first value of each is the current one.\n",
        plan.pair,
        plan.knobs.len(),
        plan.goal.name(),
        plan.budget_ns as f64 / 1e9
    )?;
    for Knob { name, about, values, risk, undone, .. } in &plan.knobs {
        let values: Vec<&str> = values.iter().map(|value| value.shown.as_str()).collect();
        writeln!(out, "{name}: {}", values.join(" | "))?;
        writeln!(out, "    {about}\n    risk: {risk}\n    undone: {undone}")?;
    }
    if !plan.left_out.is_empty() {
        writeln!(out, "\nExcluded")?;
    }
    plan.left_out.iter().try_for_each(|(name, reason)| writeln!(out, "{name}: {reason}"))
}
