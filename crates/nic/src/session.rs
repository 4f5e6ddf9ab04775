//! Changing a card so that it can be undone: journal, change in an order that works, read back, put back.

use std::{
    io,
    os::{linux::net::SocketAddrExt, unix::net},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;
use thiserror::Error;

use crate::{
    Card, NicError, Setting, Settings,
    journal::{Journal, Stage},
    setting::{Change, changes},
    settings::{kind_of, position, read_settings, resolve},
};

mod bring;

pub use bring::Left;
use bring::{bring, follows_a_reset, is_set_with};

/// A card that this process changes, and nobody else meanwhile.
///
/// Dropping it puts everything back to what it was when the session began; [`Session::keep`] leaves it, for
/// [`restore`] to undo later. What a kill leaves behind, [`restore`] undoes too.
#[derive(Debug)]
pub struct Session {
    card: Card,
    state: PathBuf,
    /// As it was when this session began.
    start: Settings,
    /// What is on disk once something has changed.
    journal: Journal,
    /// A journal that an earlier session left on purpose.
    earlier: Option<Journal>,
    changed: bool,
    _lock: net::UnixListener,
}

/// What became of one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// What was asked for.
    #[serde(flatten)]
    pub change: Change,
    /// The value read back; `None` where the setting is gone.
    pub now: Option<String>,
    /// What that means.
    pub verdict: Verdict,
}

/// How a value read back compares to what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As asked.
    Done,
    /// Changed, but to another value: the driver rounded it.
    Rounded,
    /// Accepted, and not done.
    Ignored,
}

/// What applying settings did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Each change and what became of it.
    pub outcomes: Vec<Outcome>,
    /// Other settings that the driver changed on the way and that were put back.
    pub put_back: Vec<Change>,
    /// Other settings that the driver changed on the way and that stay so.
    pub side_effects: Vec<Change>,
    /// Whether the link, up before, is up again.
    pub link_is_up: Option<bool>,
}

/// What putting back did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Settings that were put back.
    pub changes: Vec<Change>,
    /// Settings that could not be.
    pub left: Vec<Left>,
}

/// Why a card could not be changed, or not be put back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The card.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Settings that cannot be used; nothing was changed.
    #[error("{} of the settings cannot be used", .problems.len())]
    Problems {
        /// All of them.
        problems: Vec<NicError>,
    },
    /// Somebody else is at it.
    #[error("{interface} is being changed by {}", by(.pid))]
    Busy {
        /// The interface's name.
        interface: String,
        /// By this process, as its journal says.
        pid: Option<u32>,
    },
    /// An earlier change was cut off.
    #[error("an earlier change of {interface} was cut off in the middle")]
    Unfinished {
        /// The interface's name.
        interface: String,
    },
    /// There is no journal.
    #[error("nothing of {interface} is to be restored")]
    NothingToRestore {
        /// The interface's name.
        interface: String,
    },
    /// The journal.
    #[error("cannot {action} {}", .path.display())]
    Journal {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A change was refused and all others were taken back.
    #[error("{cause}; {}", outcome(.left))]
    RolledBack {
        /// The refusal.
        cause: Box<NicError>,
        /// What could not be taken back.
        left: Vec<Left>,
    },
    /// No lock could be had.
    #[error("cannot lock {interface}")]
    Lock {
        /// The interface's name.
        interface: String,
        /// The cause.
        source: io::Error,
    },
}

fn by(pid: &Option<u32>) -> String {
    pid.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

fn outcome(left: &[Left]) -> String {
    if left.is_empty() {
        return "everything is as it was".into();
    }
    let commands: Vec<String> = left.iter().map(Left::to_string).collect();
    format!("what could not be taken back: {}", commands.join("; "))
}

/// How long a link may take to come back.
const LINK_BACK: Duration = Duration::from_secs(10);

impl Session {
    /// Begins to change an interface; journals go below `state`. Changes nothing yet.
    ///
    /// # Errors
    /// [`SessionError::Busy`] while another process changes it, [`SessionError::Unfinished`] when one was cut off.
    pub fn begin(interface: &str, state: &Path) -> Result<Self, SessionError> {
        let mut card = Card::open(interface)?;
        let lock = lock(&card, state)?;
        let earlier = Journal::find(state, card.index())?;
        if earlier.as_ref().is_some_and(|journal| journal.stage == Stage::Changing) {
            return Err(SessionError::Unfinished { interface: card.name().into() });
        }
        let start = read_settings(&mut card)?.settings;
        let mut journal = Journal::new(&card, start.clone())?;
        if let Some(earlier) = &earlier {
            journal.former.clone_from(&earlier.former);
            journal.asked.clone_from(&earlier.asked);
        }
        Ok(Self { card, state: state.into(), start, journal, earlier, changed: false, _lock: lock })
    }

    /// The card.
    pub fn card(&mut self) -> &mut Card {
        &mut self.card
    }

    /// What would change, with values as they will read back. Changes nothing.
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
                    // The last word about a setting counts.
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
        // Ending what does not exist is no change.
        changes.retain(|change| change.to != "none" || change.from.is_some());
        changes.sort_by_key(|change| position(&change.name));
        Ok(changes)
    }

    /// Changes settings, in an order that works, and reads back what became of them. Needs CAP_NET_ADMIN.
    ///
    /// The journal is on disk before the first change. Where a change is refused, all of this call are taken back.
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
        self.journal.stage = Stage::Changing;
        self.journal.asked.extend(changes.iter().map(|change| change.name.clone()));
        self.journal.asked.sort();
        self.journal.asked.dedup();
        self.journal.write(&self.state)?;
        self.changed = true;
        if let Err(refusal) = write_in_order(&mut self.card, &changes) {
            let names: Vec<String> = changes.iter().map(|change| change.name.clone()).collect();
            let (_, left) = bring(&mut self.card, &before, &names)?;
            if left.is_empty() && before == self.start {
                self.forget()?;
            }
            return Err(SessionError::RolledBack { cause: Box::new(refusal), left });
        }
        let link_is_up = if was_up { Some(self.wait_for_link()?) } else { None };
        let (put_back, side_effects) = self.after_a_reset(&before, &changes)?;
        let now = read_settings(&mut self.card)?.settings;
        let outcomes = changes.into_iter().map(|change| judge(change, &before, &now)).collect();
        Ok(Applied { outcomes, put_back, side_effects, link_is_up })
    }

    /// Puts everything back to what it was when this session began.
    ///
    /// # Errors
    /// When the interface is gone; what could not be put back is in the answer.
    pub fn undo(&mut self) -> Result<Restored, SessionError> {
        if !self.changed {
            return Ok(Restored::default());
        }
        let was_up = self.card.link()?.operational;
        let (changes, left) = bring(&mut self.card, &self.start, &self.journal.asked)?;
        if was_up && !changes.is_empty() {
            self.wait_for_link()?;
        }
        if left.is_empty() {
            self.forget()?;
        }
        Ok(Restored { changes, left })
    }

    /// Leaves everything as it is now. The journal stays, for [`restore`].
    ///
    /// # Errors
    /// When the journal cannot be written; the session is then undone.
    pub fn keep(mut self) -> Result<(), SessionError> {
        if self.changed {
            self.journal.stage = Stage::Kept;
            self.journal.write(&self.state)?;
            self.changed = false;
        }
        Ok(())
    }

    /// As it was at the beginning: the journal is the earlier session's, or none.
    fn forget(&mut self) -> Result<(), SessionError> {
        self.changed = false;
        match &self.earlier {
            Some(earlier) => {
                self.journal.clone_from(earlier);
                earlier.write(&self.state)
            }
            None => {
                self.journal.asked.clear();
                self.journal.remove(&self.state)
            }
        }
    }

    /// A driver that reset the card may have forgotten other settings: those that still make sense are put back.
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
                // With another number of queues the driver's own new table is the right one.
                && !(channels && name.as_str() == "rss.table")
                && now.get(*name).is_some_and(|now| before.get(*name) != Some(now))
        };
        let names: Vec<String> = before.keys().filter(lost).cloned().collect();
        let wanted: Settings = before.clone().into_iter().filter(|(name, _)| names.contains(name)).collect();
        let put_back = if names.is_empty() { Vec::new() } else { bring(&mut self.card, &wanted, &names)?.0 };
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
        // What cannot be put back here stays in the journal, and `restore` says what it is.
        let _journal_keeps_the_rest = self.undo();
    }
}

/// Puts an interface back to what its journal says it was, and ends the journal.
///
/// # Errors
/// [`SessionError::Busy`] while a process is at it, [`SessionError::NothingToRestore`] without a journal.
pub fn restore(interface: &str, state: &Path) -> Result<Restored, SessionError> {
    let mut card = Card::open(interface)?;
    let _lock = lock(&card, state)?;
    let nothing = || SessionError::NothingToRestore { interface: interface.into() };
    let journal = Journal::find(state, card.index())?.ok_or_else(nothing)?;
    let was_up = card.link()?.operational;
    let (changes, left) = bring(&mut card, &journal.former, &journal.asked)?;
    if was_up && !changes.is_empty() {
        let index = card.index();
        card.route.wait_until_up(index, Instant::now() + LINK_BACK).map_err(NicError::from)?;
    }
    if left.is_empty() {
        journal.remove(state)?;
    }
    Ok(Restored { changes, left })
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
            Err(SessionError::Busy { interface, pid: journal.map(|journal| journal.pid) })
        }
        Err(source) => Err(SessionError::Lock { interface, source }),
    }
}

/// Writes changes kind by kind; they are in the order of kinds.
fn write_in_order(card: &mut Card, changes: &[Change]) -> Result<(), NicError> {
    for group in changes.chunk_by(|one, next| position(&one.name) == position(&next.name)) {
        write_group(card, group)?;
    }
    Ok(())
}

fn write_group(card: &mut Card, group: &[Change]) -> Result<(), NicError> {
    let Some(first) = group.first() else { return Ok(()) };
    let (kind, _) = kind_of(&first.name)?;
    let pairs: Vec<(&str, &str)> = group
        .iter()
        .filter_map(|change| Some((change.name.split_once('.')?.1, change.to.as_str())))
        .collect();
    kind.write(card, &pairs).map_err(|source| {
        let join = |part: fn(&Change) -> &str| group.iter().map(part).collect::<Vec<_>>().join(" and ");
        NicError::Refused {
            name: join(|change| &change.name),
            interface: card.name().into(),
            value: join(|change| &change.to),
            source: Box::new(source),
        }
    })
}

/// `rule.any` and `context.new` may be asked for several times, and get names of their own.
fn ends_with_any(name: &str) -> bool {
    matches!(name, "rule.any" | "context.new")
}

fn judge(change: Change, before: &Settings, now: &Settings) -> Outcome {
    if ends_with_any(&change.name) {
        let kind = change.name.split('.').next().unwrap_or_default();
        let came = now.iter().find(|(name, value)| {
            name.starts_with(kind) && **value == change.to && before.get(*name) != Some(value)
        });
        let verdict = if came.is_some() { Verdict::Done } else { Verdict::Ignored };
        return Outcome { now: came.map(|(name, value)| format!("{name}={value}")), change, verdict };
    }
    let value = now.get(&change.name).cloned();
    let gone = change.to == "none" && value.is_none();
    let verdict = match &value {
        Some(value) if *value == change.to => Verdict::Done,
        _ if gone => Verdict::Done,
        value if *value == change.from => Verdict::Ignored,
        _ => Verdict::Rounded,
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
        assert_eq!(verdict("100"), Verdict::Done);
        assert_eq!(verdict("104"), Verdict::Rounded);
        assert_eq!(verdict("256"), Verdict::Ignored);
    }

    #[test]
    fn what_is_ended_is_done_when_it_is_gone_and_what_came_is_named() {
        let gone = judge(change("rule.1", "udp4 drop", "none"), &Settings::new(), &Settings::new());
        assert_eq!(gone.verdict, Verdict::Done);
        let now = Settings::from([("rule.9".into(), "udp4 drop".into())]);
        let asked = Change { name: "rule.any".into(), from: None, to: "udp4 drop".into() };
        let came = judge(asked, &Settings::new(), &now);
        assert_eq!((came.verdict, came.now.as_deref()), (Verdict::Done, Some("rule.9=udp4 drop")));
    }
}
