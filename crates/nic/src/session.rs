//! Reversible changes to a card: write the journal, change in an order that works, read back, restore.

use std::{
    io,
    os::{linux::net::SocketAddrExt, unix::net},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    Card, NicError, Setting, Settings,
    journal::{Entry, Journal, Stage},
    owner::Owner,
    setting::{Change, changes},
    settings::{position, read_settings, resolve},
};

mod bring;
pub(crate) mod error;

pub use bring::Left;
use bring::{bring, follows_a_reset, is_set_with, write_group};
pub use error::SessionError;

/// A card that this process changes, locked against other processes.
///
/// Dropping it restores the settings from the session's begin; [`Session::keep`] keeps the changes, for
/// [`restore`] to undo later. After a kill, [`restore`] undoes the changes too.
#[derive(Debug)]
pub struct Session {
    card: Card,
    state: PathBuf,
    /// The settings at the session's begin.
    start: Settings,
    /// The settings after the last change.
    reached: Settings,
    /// The changes that earlier sessions kept.
    journal: Journal,
    /// This session's changes; on disk after the others once a setting has changed.
    own: Entry,
    changed: bool,
    _lock: net::UnixListener,
}

/// The outcome of one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The requested change.
    #[serde(flatten)]
    pub change: Change,
    /// The value read back; `None` when the setting no longer exists.
    pub now: Option<String>,
    /// What that means.
    pub verdict: Readback,
}

/// How a value read back compares to the requested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readback {
    /// As requested.
    Done,
    /// Changed, but to another value: the driver rounded it.
    Rounded,
    /// Accepted, and not done.
    Ignored,
}

/// What applying settings did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Each change and its outcome.
    pub outcomes: Vec<Outcome>,
    /// Other settings that the driver changed as a side effect and that were restored.
    pub put_back: Vec<Change>,
    /// Other settings that the driver changed as a side effect and that stay changed.
    pub side_effects: Vec<Change>,
    /// Whether a link that was up is up again.
    pub link_is_up: Option<bool>,
}

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Restored settings.
    pub changes: Vec<Change>,
    /// Settings that could not be restored.
    pub left: Vec<Left>,
}

/// A command whose changes are saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// The command with its arguments.
    pub command: String,
    /// Its process.
    pub pid: u32,
    /// Whether it was killed, or finished and kept its changes.
    pub killed: bool,
    /// The settings it changed, by name.
    pub settings: Vec<String>,
}

/// What putting back did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The commands whose changes were undone, newest first; a command with a remaining change is not listed.
    pub undone: Vec<Saved>,
    /// The commands whose changes stay, newest first.
    pub kept: Vec<Saved>,
    /// Restored settings.
    pub changes: Vec<Change>,
    /// Settings that could not be restored.
    pub left: Vec<Left>,
}

const TABLE: &str = "rss.table";

/// How long a link may take to come up again.
const LINK_BACK: Duration = Duration::from_secs(10);

impl Session {
    /// Begins to change an interface; journals go below `state`. Changes nothing yet.
    ///
    /// # Errors
    /// [`SessionError::Busy`] while another process changes it, [`SessionError::Unfinished`] when a killed one left changes.
    pub fn begin(interface: &str, state: &Path) -> Result<Self, SessionError> {
        Self::with(Card::open(interface)?, state)
    }

    /// As [`Session::begin`], for a card that is already open.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn with(mut card: Card, state: &Path) -> Result<Self, SessionError> {
        let lock = lock(&card, state)?;
        let journal = match Journal::find(state, card.index())? {
            Some(journal) => journal,
            None => Journal::new(&card)?,
        };
        if let Some(entry) = journal.newest().filter(|entry| entry.stage == Stage::Changing) {
            let owner = entry.owner.clone();
            return Err(SessionError::Unfinished { interface: card.name().into(), owner });
        }
        let start = read_settings(&mut card)?.settings;
        let own = Entry::new(start.clone());
        let reached = start.clone();
        Ok(Self { card, state: state.into(), start, reached, journal, own, changed: false, _lock: lock })
    }

    /// The card.
    pub fn card(&mut self) -> &mut Card {
        &mut self.card
    }

    /// The changes to make, with values as they will read back. Changes nothing.
    ///
    /// # Errors
    /// Every setting that cannot be used, at once.
    pub fn diff(&mut self, wanted: &[Setting]) -> Result<Vec<Change>, SessionError> {
        let now = read_settings(&mut self.card)?.settings;
        let mut problems = Vec::new();
        let mut resolved: Vec<Setting> = Vec::new();
        for setting in wanted {
            match resolve(&mut self.card, setting) {
                Ok(setting) => {
                    // The last value of a setting counts.
                    resolved.retain(|known| known.name != setting.name || ends_with_any(&setting.name));
                    resolved.push(setting);
                }
                Err(error) => problems.push(error),
            }
        }
        if !problems.is_empty() {
            return Err(SessionError::Problems { problems });
        }
        let mut changes = changes(&now, &resolved);
        // Deleting a setting that does not exist is not a change.
        changes.retain(|change| change.to != "none" || change.from.is_some());
        changes.sort_by_key(|change| position(&change.name));
        Ok(changes)
    }

    /// Changes settings in an order that works, and reads back the results. Needs CAP_NET_ADMIN.
    ///
    /// The journal is on disk before the first change. If a change is refused, all changes of this call are rolled back.
    ///
    /// # Errors
    /// [`SessionError::Problems`] before anything changed, [`SessionError::RolledBack`] after.
    pub fn apply(&mut self, wanted: &[Setting]) -> Result<Applied, SessionError> {
        let changes = self.diff(wanted)?;
        if changes.is_empty() {
            return Ok(Applied::default());
        }
        let before = read_settings(&mut self.card)?.settings;
        let was_up = self.card.link()?.operational;
        self.own.changes.extend_from_slice(&changes);
        self.save()?;
        if let Err(refusal) = self.write(&before, &changes)? {
            let left = self.take_back(&before, &changes)?;
            if left.is_empty() {
                self.own.changes.truncate(self.own.changes.len() - changes.len());
                if self.own.changes.is_empty() { self.forget()? } else { self.save()? }
            }
            return Err(SessionError::RolledBack { cause: Box::new(refusal), left });
        }
        let link_is_up = if was_up { Some(self.wait_for_link()?) } else { None };
        let (put_back, side_effects) = self.after_a_reset(&before, &changes)?;
        let now = read_settings(&mut self.card)?.settings;
        let outcomes = changes.into_iter().map(|change| judge(change, &before, &now)).collect();
        self.reached = now;
        Ok(Applied { outcomes, put_back, side_effects, link_is_up })
    }

    /// Restores what a reset of the card changed since this session's last change: tables, contexts and rules.
    /// Drivers reset a card for a program or a zero-copy socket. Settings that others added since then stay. A table that a
    /// driver may report although the card lost it is written in any case.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn repair(&mut self) -> Result<Repaired, SessionError> {
        let now = read_settings(&mut self.card)?.settings;
        self.write_unreliable_table(&now)?;
        let is_steering =
            |name: &str| ["rss.", "context.", "rule."].iter().any(|kind| name.starts_with(kind));
        let lost = self.reached.iter().filter(|(name, was)| is_steering(name) && now.get(*name) != Some(was));
        let wanted: Settings = lost.map(|(name, was)| (name.clone(), was.clone())).collect();
        if wanted.is_empty() {
            return Ok(Repaired::default());
        }
        let names: Vec<String> = wanted.keys().cloned().collect();
        let (changes, left) = bring(&mut self.card, &wanted, &names, &[])?;
        Ok(Repaired { changes, left })
    }

    /// Attaching a program makes Linux's virtio driver send `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`, upon which a device (QEMU's at
    /// least) spreads packets without a table that was set; the driver still reports the table.
    fn write_unreliable_table(&mut self, now: &Settings) -> Result<(), NicError> {
        let driver = self.card.ethtool.driver(self.card.name()).map(|driver| driver.name);
        let table = self.reached.get(TABLE).filter(|table| self.start.get(TABLE) != Some(table));
        match table {
            Some(table) if driver.is_ok_and(|name| name == "virtio_net") && now.get(TABLE) == Some(table) => {
                let again = Change { name: TABLE.into(), from: Some(table.clone()), to: table.clone() };
                write_group(&mut self.card, &[again])
            }
            _ => Ok(()),
        }
    }

    /// Writes changes in the order of kinds. When a change is refused that could be made earlier, it moves to the front:
    /// a queue's polling cannot be changed once the feature that polls it is off.
    fn write(&mut self, before: &Settings, changes: &[Change]) -> Result<Result<(), NicError>, NicError> {
        let mut groups: Vec<&[Change]> = changes.chunk_by(|one, next| kind(one) == kind(next)).collect();
        let Err((at, refusal)) = write_groups(&mut self.card, &groups) else { return Ok(Ok(())) };
        if at == 0 || !self.take_back(before, changes)?.is_empty() {
            return Ok(Err(refusal));
        }
        groups[..=at].rotate_right(1);
        Ok(write_groups(&mut self.card, &groups).map_err(|_| refusal))
    }

    fn take_back(&mut self, before: &Settings, changes: &[Change]) -> Result<Vec<Left>, NicError> {
        Ok(bring(&mut self.card, before, &names(changes), changes)?.1)
    }

    /// Writes the journal to disk with this session's entry.
    fn save(&mut self) -> Result<(), SessionError> {
        let mut journal = self.journal.clone();
        journal.entries.push(self.own.clone());
        journal.write(&self.state)?;
        self.changed = true;
        Ok(())
    }

    /// Restores everything to the state at this session's begin.
    ///
    /// # Errors
    /// When the interface is gone; the result lists what could not be restored.
    pub fn undo(&mut self) -> Result<Restored, SessionError> {
        if !self.changed {
            return Ok(Restored::default());
        }
        let was_up = self.card.link()?.operational;
        let log = &self.own.changes;
        let (changes, left) = bring(&mut self.card, &self.start, &names(log), log)?;
        if was_up && !changes.is_empty() {
            self.wait_for_link()?;
        }
        let undone = vec![saved(&self.own)];
        if left.is_empty() {
            self.forget()?;
        }
        Ok(Restored { undone, kept: newest_first(&self.journal.entries), changes, left })
    }

    /// Keeps the current settings. The journal stays, for [`restore`].
    ///
    /// # Errors
    /// When the journal cannot be written; the session is then undone.
    pub fn keep(mut self) -> Result<(), SessionError> {
        if self.changed {
            self.own.stage = Stage::Kept;
            self.save()?;
            self.changed = false;
        }
        Ok(())
    }

    /// Back at the initial state: the journal holds only earlier sessions.
    fn forget(&mut self) -> Result<(), SessionError> {
        self.changed = false;
        self.own.changes.clear();
        self.journal.write(&self.state)
    }

    /// A driver that reset the card may have lost other settings: those that still apply are restored.
    fn after_a_reset(
        &mut self,
        before: &Settings,
        changes: &[Change],
    ) -> Result<(Vec<Change>, Vec<Change>), SessionError> {
        let asked =
            |name: &str| changes.iter().any(|change| change.name == name || is_set_with(name, &change.name));
        let channels = changes.iter().any(|change| change.name.starts_with("channels."));
        let now = read_settings(&mut self.card)?.settings;
        let lost = |name: &&String| {
            follows_a_reset(name)
                && !asked(name)
                // With another number of queues, the driver's new default table is right.
                && !(channels && name.as_str() == "rss.table")
                && now.get(*name).is_some_and(|now| before.get(*name) != Some(now))
        };
        let names: Vec<String> = before.keys().filter(lost).cloned().collect();
        let wanted: Settings = before.clone().into_iter().filter(|(name, _)| names.contains(name)).collect();
        let put_back =
            if names.is_empty() { Vec::new() } else { bring(&mut self.card, &wanted, &names, &[])?.0 };
        let after = read_settings(&mut self.card)?.settings;
        let differs = |(name, was): (&String, &String)| {
            let now = after.get(name).filter(|now| *now != was && !asked(name))?;
            Some(Change { name: name.clone(), from: Some(was.clone()), to: now.clone() })
        };
        Ok((put_back, before.iter().filter_map(differs).collect()))
    }

    fn wait_for_link(&mut self) -> Result<bool, SessionError> {
        let deadline = Instant::now() + LINK_BACK;
        let index = self.card.index();
        Ok(self.card.route.wait_until_up(index, deadline).map_err(NicError::from)?)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Settings that cannot be restored here stay in the journal, and `restore` lists them.
        let _journal_keeps_the_rest = self.undo();
    }
}

/// Restores an interface to the state before all saved changes, and deletes its journal.
///
/// # Errors
/// [`SessionError::Busy`] while a process is changing it, [`SessionError::NothingToRestore`] without a journal.
pub fn restore(interface: &str, state: &Path) -> Result<Restored, SessionError> {
    restore_newest(interface, state, |_| true)
}

/// Changes settings of an interface that ends with this process, like a lab's: nothing to restore, so no
/// journal. Returns what has changed.
///
/// # Errors
/// Every setting that cannot be used, before anything is changed; or the first change that is refused.
pub fn set_without_journal(interface: &str, wanted: &[Setting]) -> Result<Vec<Change>, SessionError> {
    let mut card = Card::open(interface)?;
    let now = read_settings(&mut card)?.settings;
    let (mut problems, mut resolved) = (Vec::new(), Vec::new());
    for setting in wanted {
        match resolve(&mut card, setting) {
            Ok(setting) => resolved.push(setting),
            Err(error) => problems.push(error),
        }
    }
    if !problems.is_empty() {
        return Err(SessionError::Problems { problems });
    }
    let mut changes = changes(&now, &resolved);
    changes.sort_by_key(|change| position(&change.name));
    let groups: Vec<&[Change]> = changes.chunk_by(|one, next| kind(one) == kind(next)).collect();
    write_groups(&mut card, &groups).map_err(|(_, error)| error)?;
    Ok(changes)
}

/// Undoes changes of killed commands, and keeps those of finished ones.
///
/// # Errors
/// As [`restore`].
pub fn restore_killed(interface: &str, state: &Path) -> Result<Restored, SessionError> {
    restore_newest(interface, state, Entry::was_killed)
}

/// As [`restore_killed`], for a card that is already open.
///
/// # Errors
/// As [`restore`].
pub fn restore_killed_of(card: Card, state: &Path) -> Result<Restored, SessionError> {
    restore_newest_of(card, state, Entry::was_killed)
}

fn restore_newest(
    interface: &str,
    state: &Path,
    shall_end: impl Fn(&Entry) -> bool,
) -> Result<Restored, SessionError> {
    restore_newest_of(Card::open(interface)?, state, shall_end)
}

fn restore_newest_of(
    mut card: Card,
    state: &Path,
    shall_end: impl Fn(&Entry) -> bool,
) -> Result<Restored, SessionError> {
    let interface = card.name().to_owned();
    let _lock = lock(&card, state)?;
    let nothing = || SessionError::NothingToRestore { interface: interface.clone() };
    let mut journal = Journal::find(state, card.index())?.ok_or_else(nothing)?;
    let ending = journal.entries.iter().rev().take_while(|entry| shall_end(entry)).count();
    let entries = journal.entries.split_off(journal.entries.len() - ending);
    let oldest = entries.first().ok_or_else(nothing)?;
    let was_up = card.link()?.operational;
    let log: Vec<Change> = entries.iter().flat_map(|entry| entry.changes.clone()).collect();
    let (changes, left) = bring(&mut card, &oldest.former, &names(&log), &log)?;
    if was_up && !changes.is_empty() {
        let index = card.index();
        card.route.wait_until_up(index, Instant::now() + LINK_BACK).map_err(NicError::from)?;
    }
    if left.is_empty() {
        journal.write(state)?;
    }
    Ok(Restored { undone: newest_first(&entries), kept: newest_first(&journal.entries), changes, left })
}

/// The saved changes of each command, newest first.
fn newest_first(entries: &[Entry]) -> Vec<Saved> {
    entries.iter().rev().map(saved).collect()
}

fn saved(entry: &Entry) -> Saved {
    let mut settings = names(&entry.changes);
    settings.sort();
    settings.dedup();
    let Owner { command, pid, .. } = entry.owner.clone();
    Saved { command, pid, killed: entry.was_killed(), settings }
}

impl Journal {
    /// The saved changes of each command, newest first.
    pub fn saved(&self) -> Vec<Saved> {
        newest_first(&self.entries)
    }
}

fn names(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| change.name.clone()).collect()
}

/// An abstract socket is a lock that belongs to the network namespace and ends with the process, however it ends.
fn lock(card: &Card, state: &Path) -> Result<net::UnixListener, SessionError> {
    let interface = card.name().to_owned();
    let name = format!("linerate-nic-{}", card.index());
    let address = net::SocketAddr::from_abstract_name(name)
        .map_err(|source| SessionError::Lock { interface: interface.clone(), source })?;
    match net::UnixListener::bind_addr(&address) {
        Ok(lock) => Ok(lock),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let journal = Journal::find(state, card.index()).unwrap_or_default();
            let at_it = journal.as_ref().and_then(Journal::newest).filter(|entry| entry.owner.is_alive());
            Err(SessionError::Busy { interface, pid: at_it.map(|entry| entry.owner.pid) })
        }
        Err(source) => Err(SessionError::Lock { interface, source }),
    }
}

/// Writes changes group by group; reports the refused one.
fn write_groups(card: &mut Card, groups: &[&[Change]]) -> Result<(), (usize, NicError)> {
    groups
        .iter()
        .enumerate()
        .try_for_each(|(at, group)| write_group(card, group).map_err(|error| (at, error)))
}

fn kind(change: &Change) -> usize {
    position(&change.name)
}

/// `rule.any` and `context.new` may occur several times, and get unique names.
fn ends_with_any(name: &str) -> bool {
    matches!(name, "rule.any" | "context.new")
}

fn judge(change: Change, before: &Settings, now: &Settings) -> Outcome {
    if ends_with_any(&change.name) {
        let kind = change.name.split('.').next().unwrap_or_default();
        let came = now.iter().find(|(name, value)| {
            name.starts_with(kind) && **value == change.to && before.get(*name) != Some(value)
        });
        let verdict = if came.is_some() { Readback::Done } else { Readback::Ignored };
        return Outcome { now: came.map(|(name, value)| format!("{name}={value}")), change, verdict };
    }
    let value = now.get(&change.name).cloned();
    let gone = change.to == "none" && value.is_none();
    let verdict = match &value {
        Some(value) if *value == change.to => Readback::Done,
        _ if gone => Readback::Done,
        value if *value == change.from => Readback::Ignored,
        _ => Readback::Rounded,
    };
    Outcome { change, now: value, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, from: &str, to: &str) -> Change {
        Change { name: name.into(), from: Some(from.into()), to: to.into() }
    }

    #[test]
    fn what_was_rounded_or_not_done_is_told_apart() {
        let verdict = |now: &str| {
            let now = Settings::from([("ring.rx".into(), now.into())]);
            judge(change("ring.rx", "256", "100"), &Settings::new(), &now).verdict
        };
        assert_eq!(verdict("100"), Readback::Done);
        assert_eq!(verdict("104"), Readback::Rounded);
        assert_eq!(verdict("256"), Readback::Ignored);
    }

    #[test]
    fn what_is_ended_is_done_when_it_is_gone_and_what_came_is_named() {
        let gone = judge(change("rule.1", "udp4 drop", "none"), &Settings::new(), &Settings::new());
        assert_eq!(gone.verdict, Readback::Done);
        let now = Settings::from([("rule.9".into(), "udp4 drop".into())]);
        let asked = Change { name: "rule.any".into(), from: None, to: "udp4 drop".into() };
        let came = judge(asked, &Settings::new(), &now);
        assert_eq!((came.verdict, came.now.as_deref()), (Readback::Done, Some("rule.9=udp4 drop")));
    }
}
