//! What an interface was like before it was changed, on disk before the first change.
//!
//! One file an interface, named by namespace and interface number, in the folder `nic` of the state directory. It
//! is written beside its place, synced and renamed: whoever looks finds the old one, the new one or none.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sys::netns::NetNs;

use crate::{Card, Settings, session::SessionError};

/// What has to be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The format: `linerate.nic-journal/1`.
    pub schema: String,
    /// The interface's name when it was changed.
    pub interface: String,
    /// Its number in its namespace.
    pub index: u32,
    /// The namespace's number.
    pub namespace: u64,
    /// The machine's start that the numbers belong to: after another one the settings are gone by themselves.
    pub boot: String,
    /// The process that changed it.
    pub pid: u32,
    /// How far the change went.
    pub stage: Stage,
    /// Every setting as it was.
    pub former: Settings,
    /// The settings that were asked to change.
    pub asked: Vec<String>,
}

/// How far a change went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Begun; whoever did it is at it, or was cut off.
    Changing,
    /// Done, and to stay until it is restored.
    Kept,
}

const SCHEMA: &str = "linerate.nic-journal/1";

/// Where journals are, below the state directory.
pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join("nic")
}

impl Journal {
    /// A journal of a card as it is, before its first change.
    pub(crate) fn new(card: &Card, former: Settings) -> Result<Self, SessionError> {
        Ok(Self {
            schema: SCHEMA.into(),
            interface: card.name().into(),
            index: card.index(),
            namespace: namespace()?,
            boot: boot(),
            pid: std::process::id(),
            stage: Stage::Changing,
            former,
            asked: Vec::new(),
        })
    }

    /// The journal of an interface, if there is one that still means something; what an earlier start of the
    /// machine left is removed.
    pub(crate) fn find(state: &Path, index: u32) -> Result<Option<Self>, SessionError> {
        let path = path(state, namespace()?, index);
        let journal = match fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", &path, source)),
        };
        if journal.boot == boot() {
            return Ok(Some(journal));
        }
        fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
        Ok(None)
    }

    /// Every journal of this namespace since the machine was started.
    ///
    /// # Errors
    /// When the folder or one of them cannot be read.
    pub fn all(state: &Path) -> Result<Vec<Self>, SessionError> {
        let folder = folder(state);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(failed("read", &folder, source)),
        };
        let (namespace, boot) = (namespace()?, boot());
        let mut journals = Vec::new();
        for entry in
            entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
        {
            let path = entry.path();
            let text = fs::read_to_string(&path).map_err(|source| failed("read", &path, source))?;
            journals.push(parse(&path, &text)?);
        }
        journals.retain(|journal| journal.namespace == namespace && journal.boot == boot);
        journals.sort_by_key(|journal| journal.index);
        Ok(journals)
    }

    /// Puts it on disk and waits until it is there.
    pub(crate) fn write(&self, state: &Path) -> Result<(), SessionError> {
        let path = path(state, self.namespace, self.index);
        let folder = folder(state);
        let write = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            let mut file = tempfile::Builder::new().prefix(".journal-").tempfile_in(&folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            fs::File::open(&folder)?.sync_all()
        };
        write().map_err(|source| failed("write", &path, source))
    }

    /// Takes it off the disk.
    pub(crate) fn remove(&self, state: &Path) -> Result<(), SessionError> {
        let path = path(state, self.namespace, self.index);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, error)),
            _ => Ok(()),
        }
    }
}

fn path(state: &Path, namespace: u64, index: u32) -> PathBuf {
    folder(state).join(format!("{namespace}-{index}.json"))
}

fn parse(path: &Path, text: &str) -> Result<Journal, SessionError> {
    let wrong = |why: String| failed("read", path, io::Error::new(io::ErrorKind::InvalidData, why));
    let journal: Journal = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if journal.schema == SCHEMA {
        return Ok(journal);
    }
    Err(wrong(format!("its format is {}, not {SCHEMA}", journal.schema)))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> SessionError {
    SessionError::Journal { action, path: path.into(), source }
}

fn namespace() -> Result<u64, SessionError> {
    let path = Path::new("/proc/thread-self/ns/net");
    NetNs::current().and_then(|namespace| namespace.inode()).map_err(|source| failed("read", path, source))
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(boot: String) -> Journal {
        Journal {
            schema: SCHEMA.into(),
            interface: "eth0".into(),
            index: 7,
            namespace: namespace().unwrap(),
            boot,
            pid: 1,
            stage: Stage::Changing,
            former: Settings::from([("ring.rx".into(), "256".into())]),
            asked: vec!["ring.rx".into()],
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
        written.remove(state.path()).unwrap();
        written.remove(state.path()).unwrap();
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
        for damaged in [&text[..text.len() / 2], "", "{}", &text.replace("journal/1", "journal/9")] {
            fs::write(&path, damaged).unwrap();
            let error = Journal::find(state.path(), 7).unwrap_err().to_string();
            assert_eq!(error, format!("cannot read {}", path.display()));
        }
    }
}
