//! `linerate nic apply`: diff, consent, change, read back.

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Write},
};

use nic::{Applied, Change, NicError, Session, Setting, Verdict, connections_through, interrupts_the_link};
use serde::Serialize;

use super::{measure, refused, session_failure};
use crate::{
    args::ApplyArgs,
    failure::{Failure, Status},
    output::{printed, state_folder},
};

/// What was asked, and what became of it.
#[derive(Debug, Serialize)]
struct Report<'a> {
    interface: &'a str,
    diff: &'a [Change],
    #[serde(flatten)]
    applied: Option<&'a Applied>,
}

pub(crate) fn run(args: &ApplyArgs) -> Result<bool, Failure> {
    let wanted = wanted(args)?;
    let mut session =
        Session::begin(&args.interface, &state_folder()).map_err(|error| session_failure(&error))?;
    let diff = session.diff(&wanted).map_err(|error| session_failure(&error))?;
    if !args.json {
        print(|out| write_diff(&args.interface, &diff, out))?;
    }
    let mut applied = None;
    if !args.dry_run && !diff.is_empty() {
        consent(args, &mut session, &diff)?;
        let before = args.measure.then(|| measure::rates(session.card(), args.duration)).transpose()?;
        let done = session.apply(&wanted).map_err(|error| session_failure(&error))?;
        if let Some(before) = before {
            let gain = measure::Gain::of(&before, &measure::rates(session.card(), args.duration)?);
            eprintln!("{gain}");
            if !gain.is_better() {
                let restored = session.undo().map_err(|error| session_failure(&error))?;
                eprintln!("taken back: {} settings", restored.changes.len());
                return Ok(false);
            }
        }
        session.keep().map_err(|error| session_failure(&error))?;
        if !args.json {
            print(|out| write_applied(&args.interface, &done, out))?;
        }
        applied = Some(done);
    }
    if args.json {
        let report = Report { interface: &args.interface, diff: &diff, applied: applied.as_ref() };
        print(|out| {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)
        })?;
    }
    // What the driver took and did not do is a goal missed.
    Ok(applied.is_none_or(|applied| {
        applied.link_is_up != Some(false)
            && applied.outcomes.iter().all(|outcome| outcome.verdict != Verdict::Ignored)
    }))
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

/// Asks before a change cuts connections through the interface; where nobody can be asked, the answer is no.
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
    let no = || Failure::new(Status::Refused, &danger).hint("add --yes if that may happen");
    if !io::stdin().is_terminal() {
        return Err(no());
    }
    eprint!("{danger}\nGo on? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).ok();
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(no()) }
}

fn write_diff(interface: &str, diff: &[Change], out: &mut impl Write) -> io::Result<()> {
    if diff.is_empty() {
        return writeln!(out, "{interface} is as asked already");
    }
    writeln!(out, "{interface}:")?;
    diff.iter().try_for_each(|change| writeln!(out, "  {change}"))
}

fn write_applied(interface: &str, applied: &Applied, out: &mut impl Write) -> io::Result<()> {
    for outcome in &applied.outcomes {
        let now = outcome.now.as_deref().unwrap_or("gone");
        let name = &outcome.change.name;
        match outcome.verdict {
            Verdict::Done => {}
            Verdict::Rounded => writeln!(out, "{name}: the driver made it {now}")?,
            Verdict::Ignored => writeln!(out, "{name}: the driver accepted it, and it stays {now}")?,
        }
    }
    for change in &applied.put_back {
        writeln!(out, "{}: reset by the driver, put back to {}", change.name, change.to)?;
    }
    for change in &applied.side_effects {
        writeln!(out, "{change}  (the driver's doing)")?;
    }
    if applied.link_is_up == Some(false) {
        writeln!(out, "the link has not come back")?;
    }
    writeln!(out, "done; linerate nic restore {interface} undoes it")
}
