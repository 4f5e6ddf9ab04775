//! `linerate nic apply`: diff, consent, change, readback.

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Write},
};

use nic::{
    Applied, Change, NicError, Readback, Restored, Session, SessionError, Setting, connections_through,
    interrupts_the_link,
};
use serde::Serialize;

use super::{
    card::{irqbalance_runs, refused, session_failure},
    measure::{self, Gain},
};
use crate::{
    args::ApplyArgs,
    failure::{Failure, Status},
    output::{printed, state_folder},
};

/// The requested changes, and their results.
#[derive(Debug, Serialize)]
struct Report<'a> {
    interface: &'a str,
    diff: &'a [Change],
    #[serde(flatten)]
    done: Option<Done>,
}

/// The result of a change.
#[derive(Debug, Serialize)]
struct Done {
    #[serde(flatten)]
    applied: Applied,
    /// Rates before and after it, with `--measure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Gain>,
    /// Whether the change stays.
    kept: bool,
    /// What was restored, if it does not stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_back: Option<Restored>,
}

impl Done {
    /// A goal is missed if the driver ignored a value, or if the change brought no gain.
    fn is_what_was_asked(&self) -> bool {
        self.kept
            && self.applied.link_is_up != Some(false)
            && self.applied.outcomes.iter().all(|outcome| outcome.verdict != Readback::Ignored)
    }
}

pub(crate) fn run(args: &ApplyArgs) -> Result<bool, Failure> {
    let wanted = wanted(args)?;
    let mut session =
        Session::begin(&args.interface, &state_folder()).map_err(|error| session_failure(&error))?;
    let diff = session.diff(&wanted).map_err(|error| session_failure(&error))?;
    if !args.json {
        print(|out| write_diff(&args.interface, &diff, out))?;
    }
    let mut done = None;
    if !args.dry_run && !diff.is_empty() {
        consent(args, &mut session, &diff)?;
        if diff.iter().any(|change| change.name.starts_with("irq.")) && irqbalance_runs() {
            eprintln!(
                "warning: irqbalance runs and may move the interrupts again; systemctl stop irqbalance"
            );
        }
        done = Some(change(args, session, &wanted)?);
    }
    let as_asked = done.as_ref().is_none_or(Done::is_what_was_asked);
    if args.json {
        let report = Report { interface: &args.interface, diff: &diff, done };
        print(|out| {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)
        })?;
    } else if let Some(done) = &done {
        print(|out| write_done(&args.interface, done, out))?;
    }
    Ok(as_asked)
}

/// Changes, measures if requested, and keeps or reverts the change.
fn change(args: &ApplyArgs, mut session: Session, wanted: &[Setting]) -> Result<Done, Failure> {
    let before = args.measure.then(|| measure::rates(session.card(), args.duration)).transpose()?;
    let applied = session.apply(wanted).map_err(|error| session_failure(&error))?;
    let measured = before
        .map(|before| Ok(Gain::of(&before, &measure::rates(session.card(), args.duration)?)))
        .transpose()?;
    let failed = |error: SessionError| session_failure(&error);
    if sys::signal::caught() > 0 {
        session.undo().map_err(failed)?;
        return Err(Failure::new(Status::GoalMissed, "interrupted; all changes are undone"));
    }
    if measured.as_ref().is_some_and(|gain| !gain.is_better()) {
        let taken_back = Some(session.undo().map_err(failed)?);
        return Ok(Done { applied, measured, kept: false, taken_back });
    }
    session.keep().map_err(failed)?;
    Ok(Done { applied, measured, kept: true, taken_back: None })
}

fn print(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> Result<(), Failure> {
    printed(write(&mut io::stdout().lock()))
}

fn wanted(args: &ApplyArgs) -> Result<Vec<Setting>, Failure> {
    let mut settings = Vec::new();
    if let Some(path) = &args.plan {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display()))
                .hint("a plan is a TOML file of settings: \"ring.rx\" = 512")
        })?;
        settings = Setting::from_toml(&text).map_err(|error| refused(&error))?;
    }
    let given: Result<Vec<Setting>, NicError> = args.settings.iter().map(|text| text.parse()).collect();
    settings.extend(given.map_err(|error| refused(&error))?);
    Ok(settings)
}

/// Asks before a change cuts connections through the interface; without a terminal, the answer is no.
fn consent(args: &ApplyArgs, session: &mut Session, diff: &[Change]) -> Result<(), Failure> {
    let cutting: Vec<&str> =
        diff.iter().map(|change| change.name.as_str()).filter(|name| interrupts_the_link(name)).collect();
    if args.yes || cutting.is_empty() {
        return Ok(());
    }
    let ends = connections_through(session.card()).map_err(|error| refused(&error))?;
    if ends.is_empty() {
        return Ok(());
    }
    let ends: Vec<String> = ends.iter().map(ToString::to_string).collect();
    let danger = format!(
        "changing {} may take {} down for a moment, and connections go through it: {}",
        cutting.join(", "),
        args.interface,
        ends.join(", ")
    );
    let no = || Failure::new(Status::Refused, &danger).hint("add --yes to allow that");
    if !io::stdin().is_terminal() {
        return Err(no());
    }
    eprint!("{danger}\nContinue? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).ok();
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(no()) }
}

fn write_diff(interface: &str, diff: &[Change], out: &mut impl Write) -> io::Result<()> {
    if diff.is_empty() {
        return writeln!(out, "{interface} already has these settings");
    }
    writeln!(out, "{interface}:")?;
    diff.iter().try_for_each(|change| writeln!(out, "  {change}"))
}

fn write_done(interface: &str, done: &Done, out: &mut impl Write) -> io::Result<()> {
    let applied = &done.applied;
    for outcome in &applied.outcomes {
        let now = outcome.now.as_deref().unwrap_or("gone");
        let name = &outcome.change.name;
        match outcome.verdict {
            Readback::Done => {}
            Readback::Rounded => writeln!(out, "{name}: the driver changed it to {now}")?,
            Readback::Ignored => {
                writeln!(out, "{name}: the driver accepted the value, but it is still {now}")?
            }
        }
    }
    for change in &applied.put_back {
        writeln!(out, "{}: reset by the driver, restored to {}", change.name, change.to)?;
    }
    for change in &applied.side_effects {
        writeln!(out, "{change}  (by the driver)")?;
    }
    if applied.link_is_up == Some(false) {
        writeln!(out, "the link has not come back")?;
    }
    if let Some(measured) = &done.measured {
        writeln!(out, "{measured}")?;
    }
    match &done.taken_back {
        Some(back) if back.left.is_empty() => writeln!(out, "reverted: everything is as it was"),
        Some(back) => {
            writeln!(out, "reverted, except:")?;
            back.left.iter().try_for_each(|left| writeln!(out, "  {left}"))
        }
        None => writeln!(out, "done; linerate nic restore {interface} undoes it"),
    }
}
