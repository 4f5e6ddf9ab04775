//! The settings of an interface before its first change, saved on disk before that change.
//!
//! One file per interface, named by namespace and interface number, in the folder `nic` of the state directory. It holds
//! one entry for each command that changed the interface, oldest first, so that the changes of a killed command can be
//! undone without undoing what a finished one meant to keep. It is written to a temporary file, synced and renamed:
//! readers find the old file, the new one or none.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sys::clock;

use crate::{
    Card, Settings,
    note::{self, boot, namespace},
    owner::Owner,
    session::error::SessionError,
    setting::Change,
};

/// The settings to restore on one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The format: `linerate.nic-journal/2`.
    pub schema: String,
    /// The interface's name when it was changed.
    pub interface: String,
    /// Its number in its namespace.
    pub index: u32,
    /// The namespace's number.
    pub namespace: u64,
    /// The boot that the numbers belong to: a reboot ends the settings.
    pub boot: String,
    /// What each command changed, oldest first.
    pub entries: Vec<Entry>,
}

/// What one command changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The command.
    pub owner: Owner,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// How far it went.
    pub stage: Stage,
    /// Every setting before the command.
    pub former: Settings,
    /// What it changed, in the order of changing.
    pub changes: Vec<Change>,
}

/// How far a change went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Started: the command is still running, or was killed.
    Changing,
    /// Done: the changes stay until they are restored.
    Kept,
}

impl Entry {
    /// An entry of this process, before its first change.
    pub(crate) fn new(former: Settings) -> Self {
        Self {
            owner: Owner::this(),
            began_ns: clock::realtime_ns(),
            stage: Stage::Changing,
            former,
            changes: Vec::new(),
        }
    }

    /// Whether the command that wrote it died halfway: it did not finish, and no longer runs.
    pub fn was_killed(&self) -> bool {
        self.stage == Stage::Changing && !self.owner.is_alive()
    }
}

const SCHEMA: &str = "linerate.nic-journal/2";

/// Where journals are, below the state directory.
pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join("nic")
}

impl Journal {
    /// The journal of an unchanged card.
    pub(crate) fn new(card: &Card) -> Result<Self, SessionError> {
        Ok(Self {
            schema: SCHEMA.into(),
            interface: card.name().into(),
            index: card.index(),
            namespace: namespace()?,
            boot: boot(),
            entries: Vec::new(),
        })
    }

    /// The newest entry, which is the only one that may be unfinished.
    pub fn newest(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// The journal of an interface, if a valid one exists; a journal from an earlier boot of the
    /// machine left is removed.
    pub(crate) fn find(state: &Path, index: u32) -> Result<Option<Self>, SessionError> {
        let path = path(state, namespace()?, index);
        let Some(journal) = note::read::<Self>(&path, SCHEMA)? else { return Ok(None) };
        if journal.boot == boot() {
            return Ok(Some(journal));
        }
        note::remove(&path)?;
        Ok(None)
    }

    /// Every journal of this namespace since boot, the most recently written first.
    ///
    /// # Errors
    /// When the folder or one of them cannot be read.
    pub fn all(state: &Path) -> Result<Vec<Self>, SessionError> {
        let (namespace, boot) = (namespace()?, boot());
        let notes = note::read_all::<Self>(&folder(state), SCHEMA)?;
        let mut journals: Vec<Self> = notes.into_iter().map(|(_, journal)| journal).collect();
        journals.retain(|journal| journal.namespace == namespace && journal.boot == boot);
        journals.sort_by_key(|journal| std::cmp::Reverse(journal.newest().map(|entry| entry.began_ns)));
        Ok(journals)
    }

    /// Writes it to disk and syncs; an empty journal is removed.
    pub(crate) fn write(&self, state: &Path) -> Result<(), SessionError> {
        let path = path(state, self.namespace, self.index);
        if self.entries.is_empty() { note::remove(&path) } else { note::write(&path, self) }
    }
}

fn path(state: &Path, namespace: u64, index: u32) -> PathBuf {
    folder(state).join(format!("{namespace}-{index}.json"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn journal(boot: String) -> Journal {
        Journal {
            schema: SCHEMA.into(),
            interface: "eth0".into(),
            index: 7,
            namespace: namespace().unwrap(),
            boot,
            entries: vec![Entry::new(Settings::from([("ring.rx".into(), "256".into())]))],
        }
    }

    #[test]
    fn what_is_written_is_found_until_it_is_removed() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(Journal::find(state.path(), 7).unwrap(), None);
        let written = journal(boot());
        written.write(state.path()).unwrap();
        assert_eq!(Journal::find(state.path(), 7).unwrap().as_ref(), Some(&written));
        assert_eq!(Journal::find(state.path(), 8).unwrap(), None);
        assert_eq!(Journal::all(state.path()).unwrap(), std::slice::from_ref(&written));
        let ended = Journal { entries: Vec::new(), ..written };
        ended.write(state.path()).unwrap();
        ended.write(state.path()).unwrap();
        assert_eq!(Journal::all(state.path()).unwrap(), []);
    }

    #[test]
    fn a_restart_ends_what_was_changed_before_it() {
        let state = tempfile::tempdir().unwrap();
        journal("another start".into()).write(state.path()).unwrap();
        assert_eq!(Journal::all(state.path()).unwrap(), []);
        assert_eq!(Journal::find(state.path(), 7).unwrap(), None);
        assert_eq!(fs::read_dir(folder(state.path())).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_journal_is_an_error_that_names_the_file() {
        let state = tempfile::tempdir().unwrap();
        journal(boot()).write(state.path()).unwrap();
        let path = path(state.path(), namespace().unwrap(), 7);
        let text = fs::read_to_string(&path).unwrap();
        for damaged in [&text[..text.len() / 2], "", "{}", &text.replace("journal/2", "journal/9")] {
            fs::write(&path, damaged).unwrap();
            let error = Journal::find(state.path(), 7).unwrap_err().to_string();
            assert_eq!(error, format!("cannot read {}", path.display()));
        }
    }

    #[test]
    fn an_entry_is_a_killed_command_s_when_that_ended_in_the_middle() {
        let mut entry = Entry::new(Settings::new());
        assert!(entry.owner.is_alive() && !entry.was_killed());
        assert_eq!(entry.owner.pid, std::process::id());
        // A process with the same id that started at another time.
        entry.owner.start_ticks += 1;
        assert!(entry.was_killed());
        entry.stage = Stage::Kept;
        assert!(!entry.was_killed());
    }
}
