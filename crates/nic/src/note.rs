//! What a command must undo, as a JSON file in the state directory: written before the change, complete or as it was, read by
//! the command that undoes it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use sys::{netns::NetNs, output::OutputFile};

use crate::session::error::SessionError;

/// Writes a note, its folder too, and syncs both.
pub(crate) fn write(path: &Path, note: &impl Serialize) -> Result<(), SessionError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = OutputFile::create(path)?;
        serde_json::to_writer_pretty(&mut file, note)?;
        file.finish()?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(|source| failed("write", path, source))
}

/// The note at a path, if there is one; another format is an error.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<Option<T>, SessionError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path, source)),
    };
    let wrong = |why: String| failed("read", path, io::Error::new(io::ErrorKind::InvalidData, why));
    let note: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match note.get("schema").and_then(|found| found.as_str()) {
        Some(found) if found != schema => Err(wrong(format!("its format is {found}, expected {schema}"))),
        _ => serde_json::from_value(note).map(Some).map_err(|error| wrong(error.to_string())),
    }
}

/// The notes of a folder with their paths; one that another command removes meanwhile is left out.
pub(crate) fn read_all<T: DeserializeOwned>(
    folder: &Path,
    schema: &str,
) -> Result<Vec<(PathBuf, T)>, SessionError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed("read", folder, source)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let notes = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    notes.filter_map(|path| Some(read(&path, schema).transpose()?.map(|note| (path, note)))).collect()
}

/// Removes a note, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), SessionError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        _ => Ok(()),
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> SessionError {
    SessionError::Journal { action, path: path.into(), source }
}

/// This thread's network namespace.
pub(crate) fn namespace() -> Result<u64, SessionError> {
    let path = Path::new("/proc/thread-self/ns/net");
    NetNs::current().and_then(|namespace| namespace.inode()).map_err(|source| failed("read", path, source))
}

/// This boot of the machine: notes of earlier ones have nothing to undo.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
