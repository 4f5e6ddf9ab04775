//! `linerate nic restore`: undo from the journal.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use nic::{Journal, Restored, SessionError, restore};

use super::session_failure;
use crate::{
    args::RestoreArgs,
    failure::{Failure, Status},
    output::{printed, state_folder},
};

pub(crate) fn run(args: &RestoreArgs) -> Result<bool, Failure> {
    let state = state_folder();
    let failure = |error: SessionError| session_failure(&error);
    let interfaces = match &args.interface {
        Some(interface) => vec![interface.clone()],
        None => {
            let journals = Journal::all(&state).map_err(failure)?;
            journals.iter().map(present_name).collect()
        }
    };
    let mut restored = BTreeMap::new();
    let mut failures = Vec::new();
    for interface in interfaces {
        match restore(&interface, &state) {
            Ok(done) => {
                restored.insert(interface, done);
            }
            Err(error) => failures.push(failure(error)),
        }
    }
    let mut out = io::stdout().lock();
    if failures.is_empty() || !restored.is_empty() {
        printed(if args.json { write_json(&restored, &mut out) } else { write_text(&restored, &mut out) })?;
    }
    let left = restored.values().flat_map(|restored| &restored.left);
    failures.extend(left.map(|left| {
        let failure =
            Failure::new(Status::Refused, format!("cannot restore {} of {}", left.name, left.interface));
        failure.hint(left.to_string())
    }));
    Failure::all(failures).map_or(Ok(true), Err)
}

/// The interface's name today: it may have been renamed since.
fn present_name(journal: &Journal) -> String {
    let link = sys::rtnetlink::RouteSocket::open().and_then(|mut route| route.link_by_index(journal.index));
    link.map_or_else(|_| journal.interface.clone(), |link| link.name)
}

fn write_json(restored: &BTreeMap<String, Restored>, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, restored)?;
    writeln!(out)
}

fn write_text(restored: &BTreeMap<String, Restored>, out: &mut impl Write) -> io::Result<()> {
    if restored.is_empty() {
        return writeln!(out, "nothing to restore");
    }
    for (interface, restored) in restored {
        writeln!(out, "{interface}:")?;
        restored.changes.iter().try_for_each(|change| writeln!(out, "  {change}"))?;
        if restored.changes.is_empty() && restored.left.is_empty() {
            writeln!(out, "  everything is as it was already")?;
        }
    }
    Ok(())
}
