//! Why a session cannot begin, change or undo.

use std::{io, path::PathBuf};

use sys::NetlinkError;
use thiserror::Error;

use super::bring::Left;
use crate::{NicError, owner::Owner};

/// Why a card could not be changed or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The card.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// An interface that is lent.
    #[error(transparent)]
    Link(#[from] NetlinkError),
    /// Settings that cannot be used; nothing was changed.
    #[error("{} of the settings cannot be used", .problems.len())]
    Problems {
        /// All of them.
        problems: Vec<NicError>,
    },
    /// Another process is changing it.
    #[error("{interface} is being changed by {}", by(.pid))]
    Busy {
        /// The interface's name.
        interface: String,
        /// The process named in the journal.
        pid: Option<u32>,
    },
    /// An earlier command was killed, or could not undo everything.
    #[error("{owner} ended without undoing its changes of {interface}")]
    Unfinished {
        /// The interface's name.
        interface: String,
        /// The command.
        owner: Owner,
    },
    /// No journal, or no entry of this kind in it.
    #[error("no saved settings for {interface}")]
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
    /// A change was refused and all others were rolled back.
    #[error("{cause}; {}", outcome(.left))]
    RolledBack {
        /// The refusal.
        cause: Box<NicError>,
        /// What could not be rolled back.
        left: Vec<Left>,
    },
    /// The lock could not be taken.
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
        return "all settings are unchanged".into();
    }
    let commands: Vec<String> = left.iter().map(Left::to_string).collect();
    format!("could not be rolled back: {}", commands.join("; "))
}
