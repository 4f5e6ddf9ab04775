//! `linerate nic restore`: undo from the journals.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use nic::{Card, Entry, Journal, Restored, Saved, SessionError, restore, restore_killed, restore_lent};
use serde::Serialize;

use super::card::{refused, session_failure};
use crate::{
    args::RestoreArgs,
    failure::{Failure, Status},
    output::{printed, state_folder},
};

/// Which saved changes to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those of killed commands.
    Killed,
    /// All.
    Everything,
}

pub(crate) fn run(args: &RestoreArgs) -> Result<bool, Failure> {
    let state = state_folder();
    let failure = |error: SessionError| session_failure(&error);
    if !args.dry_run {
        for lent in restore_lent(&state).map_err(failure)? {
            let (count, down) = (lent.addresses.len(), if lent.set_down { " and set down" } else { "" });
            eprintln!("{}: {count} addresses removed{down}, left by {}", lent.interface, lent.owner);
        }
    }
    let (journals, running): (Vec<Journal>, Vec<Journal>) =
        Journal::all(&state).map_err(failure)?.into_iter().partition(|journal| !is_running(journal));
    let was_killed = |journal: &Journal| journal.newest().is_some_and(Entry::was_killed);
    let some_were_killed = journals.iter().any(was_killed);
    let which = if args.killed || args.interface.is_none() && some_were_killed {
        Which::Killed
    } else {
        Which::Everything
    };
    let interfaces = match &args.interface {
        Some(interface) => vec![interface.clone()],
        None => {
            for journal in running {
                let owner = &journal.newest().expect("a journal has an entry").owner;
                eprintln!("{}: being changed by {owner}, which undoes it", present_name(&journal));
            }
            let ending = journals.iter().filter(|journal| which == Which::Everything || was_killed(journal));
            ending.map(present_name).collect()
        }
    };
    if args.dry_run {
        return list(&interfaces, &journals, which, args.json);
    }
    let mut restored = Vec::new();
    let mut failures = Vec::new();
    for interface in interfaces {
        let undo = if which == Which::Killed { restore_killed } else { restore };
        match undo(&interface, &state) {
            Ok(done) => restored.push((interface, done)),
            Err(error) => failures.push(failure(error)),
        }
    }
    let mut out = io::stdout().lock();
    if failures.is_empty() || !restored.is_empty() {
        printed(if args.json { write_json(&restored, &mut out) } else { write_text(&restored, &mut out) })?;
    }
    if which == Which::Killed && args.interface.is_none() {
        for journal in journals.iter().filter(|journal| !was_killed(journal)) {
            say_what_stays(&present_name(journal), &journal.saved());
        }
    }
    restored.iter().for_each(|(interface, restored)| say_what_stays(interface, &restored.kept));
    let left = restored.iter().flat_map(|(_, restored)| &restored.left);
    failures.extend(left.map(|left| {
        let failure =
            Failure::new(Status::Refused, format!("cannot restore {} of {}", left.name, left.interface));
        failure.hint(left.to_string())
    }));
    Failure::all(failures).map_or(Ok(true), Err)
}

fn is_running(journal: &Journal) -> bool {
    journal.newest().is_some_and(|entry| entry.stage == nic::Stage::Changing && entry.owner.is_alive())
}

fn say_what_stays(interface: &str, kept: &[Saved]) {
    for saved in kept {
        eprintln!(
            "{interface}: kept the changes of {}; undo them with linerate nic restore {interface}",
            words(saved)
        );
    }
}

/// The interface's current name: it may have been renamed since.
fn present_name(journal: &Journal) -> String {
    let link = sys::rtnetlink::RouteSocket::open().and_then(|mut route| route.link_by_index(journal.index));
    link.map_or_else(|_| journal.interface.clone(), |link| link.name)
}

/// What would be undone on an interface.
#[derive(Debug, Serialize)]
struct Listed {
    undone: Vec<Saved>,
}

/// Prints what would be undone.
fn list(interfaces: &[String], journals: &[Journal], which: Which, json: bool) -> Result<bool, Failure> {
    let mut listed = Vec::new();
    for interface in interfaces {
        let card = Card::open(interface).map_err(|error| refused(&error))?;
        let journal = journals.iter().find(|journal| journal.index == card.index());
        let mut undone = journal.map(Journal::saved).unwrap_or_default();
        undone.retain(|saved| which == Which::Everything || saved.killed);
        if undone.is_empty() {
            return Err(session_failure(&SessionError::NothingToRestore { interface: interface.clone() }));
        }
        listed.push((interface.clone(), Listed { undone }));
    }
    let mut out = io::stdout().lock();
    if json {
        return printed(write_json(&listed, &mut out)).map(|()| true);
    }
    let written = (|| {
        if listed.is_empty() {
            return writeln!(out, "nothing to restore");
        }
        for (interface, listed) in &listed {
            writeln!(out, "{interface}:")?;
            for saved in &listed.undone {
                writeln!(out, "  {}: {}", words(saved), saved.settings.join(", "))?;
            }
        }
        Ok(())
    })();
    printed(written).map(|()| true)
}

fn words(saved: &Saved) -> String {
    let killed = if saved.killed { ", killed" } else { "" };
    format!("{} (process {}{killed})", saved.command, saved.pid)
}

fn write_json(restored: &[(String, impl Serialize)], out: &mut impl Write) -> io::Result<()> {
    let by_name: BTreeMap<&str, &_> = restored.iter().map(|(name, value)| (name.as_str(), value)).collect();
    serde_json::to_writer_pretty(&mut *out, &by_name)?;
    writeln!(out)
}

fn write_text(restored: &[(String, Restored)], out: &mut impl Write) -> io::Result<()> {
    if restored.is_empty() {
        return writeln!(out, "nothing to restore");
    }
    for (interface, restored) in restored {
        writeln!(out, "{interface}:")?;
        restored.undone.iter().try_for_each(|saved| writeln!(out, "  undoing {}", words(saved)))?;
        restored.changes.iter().try_for_each(|change| writeln!(out, "  {change}"))?;
        if restored.changes.is_empty() && restored.left.is_empty() {
            writeln!(out, "  everything was already as before")?;
        }
    }
    Ok(())
}
