//! Files that users name for output: a regular file is written whole or not at all; a device or a pipe is written to,
//! never replaced.
//!
//! A regular file is written under another name in the same folder, synced and renamed, so that its readers find the old
//! content or the new one, even after a kill or on a full disk. Symbolic links are followed.

use std::{
    env, fs,
    io::{self, Seek, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::procfs::Process;

/// A destination that appears writable.
#[derive(Debug)]
pub struct Destination(Target);

#[derive(Debug)]
enum Target {
    /// An existing or new regular file.
    File { target: PathBuf, writes: Writes },
    /// A device, a pipe, or a descriptor of this process: kept open, because the reader of a pipe
    /// treats closing as the end.
    Open(fs::File),
}

#[derive(Debug, Clone, Copy)]
enum Writes {
    /// Under another name in the same folder, then renamed.
    Beside,
    /// Elsewhere, then copied: the file is writable, its folder is not.
    Elsewhere,
}

/// A file being written. Dropped without [`OutputFile::finish`], it leaves no file.
#[derive(Debug)]
pub struct OutputFile(Begun);

#[derive(Debug)]
enum Begun {
    Beside { file: NamedTempFile, target: PathBuf },
    Elsewhere { file: fs::File, target: PathBuf },
    Open(fs::File),
}

/// The name prefix of unfinished files, followed by their process.
const UNFINISHED: &str = ".linerate-";
/// The most symbolic links that the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

impl Destination {
    /// Makes sure that a file can be written; leaves nothing behind.
    ///
    /// # Errors
    /// The folder is missing or not writable, the path is a folder, or no process reads the pipe.
    pub fn check(path: &Path) -> io::Result<Self> {
        let (target, is_open_here) = followed(path)?;
        let found = match fs::metadata(&target) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_open_here => None,
            // An open descriptor may have no name.
            Err(_) if is_open_here => Some(fs::metadata(path)?),
            Err(error) => return Err(error),
        };
        let Some(found) = found else {
            drop(unfinished(folder_of(&target))?);
            return Ok(Self(Target::File { target, writes: Writes::Beside }));
        };
        let kind = found.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut writing = fs::OpenOptions::new();
        writing.write(true);
        if kind.is_fifo() {
            // A blocking open would wait for a reader forever.
            let first = writing.custom_flags(libc::O_NONBLOCK).open(path);
            let _held = first.map_err(|error| match error.raw_os_error() {
                Some(libc::ENXIO) => io::Error::new(error.kind(), "no process reads this pipe"),
                _ => error,
            })?;
            let blocking = fs::OpenOptions::new().write(true).open(path)?;
            return Ok(Self(Target::Open(blocking)));
        }
        if !kind.is_file() || is_open_here {
            let file = writing.append(kind.is_file()).open(path)?;
            return Ok(Self(Target::Open(file)));
        }
        writing.open(&target)?;
        let writes = match unfinished(folder_of(&target)) {
            Ok(_removed_at_once) => Writes::Beside,
            Err(error) if is_closed_folder(&error) => Writes::Elsewhere,
            Err(error) => return Err(error),
        };
        Ok(Self(Target::File { target, writes }))
    }

    /// Whether it is a regular file, or will be one.
    pub fn is_file(&self) -> bool {
        matches!(self.0, Target::File { .. })
    }

    /// Begins to write it.
    ///
    /// # Errors
    /// When that has become impossible since [`Destination::check`].
    pub fn begin(self) -> io::Result<OutputFile> {
        Ok(OutputFile(match self.0 {
            Target::Open(file) => Begun::Open(file),
            Target::File { target, writes: Writes::Beside } => {
                Begun::Beside { file: unfinished(folder_of(&target))?, target }
            }
            Target::File { target, writes: Writes::Elsewhere } => {
                Begun::Elsewhere { file: tempfile::tempfile_in(env::temp_dir())?, target }
            }
        }))
    }
}

impl OutputFile {
    /// [`Destination::check`] and [`Destination::begin`].
    ///
    /// # Errors
    /// As those.
    pub fn create(path: &Path) -> io::Result<Self> {
        Destination::check(path)?.begin()
    }

    /// Truncates to the first `len` bytes; a device or a pipe cannot be truncated.
    ///
    /// # Errors
    /// The kernel's.
    pub fn truncate(&mut self, len: u64) -> io::Result<()> {
        let file = match &mut self.0 {
            Begun::Beside { file, .. } => file.as_file_mut(),
            Begun::Elsewhere { file, .. } => file,
            Begun::Open(_) => return Ok(()),
        };
        file.set_len(len)?;
        file.seek(io::SeekFrom::End(0)).map(drop)
    }

    /// Moves it into place; it stays open for more.
    ///
    /// # Errors
    /// When it cannot be moved into place: an older file is then unchanged.
    pub fn finish(self) -> io::Result<fs::File> {
        match self.0 {
            Begun::Open(file) => Ok(file),
            Begun::Elsewhere { file, target } => copy(file, &target),
            Begun::Beside { file, target } => {
                if let Ok(old) = fs::metadata(&target) {
                    let own = file.as_file().metadata()?;
                    if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
                        // Only root may.
                        std::os::unix::fs::fchown(file.as_file(), Some(old.uid()), Some(old.gid())).ok();
                    }
                    file.as_file().set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
                }
                file.as_file().sync_all()?;
                match file.persist(&target) {
                    Ok(file) => Ok(file),
                    // A mount point (as in containers) cannot be replaced.
                    Err(error) if error.error.kind() == io::ErrorKind::ResourceBusy => {
                        copy(error.file.reopen()?, &target)
                    }
                    Err(error) => Err(error.error),
                }
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            // The user did not choose the name of the unfinished file, which its own errors would have.
            Begun::Beside { file, .. } => file.as_file_mut().write(bytes),
            Begun::Elsewhere { file, .. } | Begun::Open(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a whole file.
///
/// # Errors
/// When it cannot be written: an older file is then unchanged.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(content)?;
    file.finish().map(drop)
}

/// Removes unfinished files of killed processes in a folder; those of running processes stay.
pub fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner_of);
        if owner.is_some_and(|owner| !owner.is_alive()) {
            remove_unlocked(&entry.path());
        }
    }
}

/// Removes a file unless a process has it locked: one of another host or container, whose process ids mean nothing here.
fn remove_unlocked(path: &Path) {
    if fs::File::open(path).is_ok_and(|file| file.try_lock().is_ok()) {
        fs::remove_file(path).ok();
    }
}

/// The process in the name of an unfinished file.
fn owner_of(name: &str) -> Option<Process> {
    let mut parts = name.strip_prefix(UNFINISHED)?.splitn(3, '-');
    let (pid, start_ticks) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| Process { pid, start_ticks })
}

fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    remove_leftovers(folder);
    let Process { pid, start_ticks } = Process::this();
    let file = tempfile::Builder::new()
        .prefix(&format!("{UNFINISHED}{pid}-{start_ticks}-"))
        // Reduced by the umask, like for every new file.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        // The user did not choose the name of the unfinished file.
        .map_err(|error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error))?;
    // File systems without locks are not shared with other hosts.
    file.as_file().try_lock().ok();
    Ok(file)
}

/// The target of a path, and whether it names a descriptor of this process (`/dev/stdout`, `/dev/fd/3`).
fn followed(path: &Path) -> io::Result<(PathBuf, bool)> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let folder = fs::canonicalize(folder_of(&path))?;
        if folder.starts_with("/proc") {
            return Ok((path, true));
        }
        match fs::read_link(&path) {
            Ok(next) => path = folder.join(next),
            Err(_) => return Ok((path, false)),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_closed_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Copies a finished file over an existing one, once there is room for all of it.
fn copy(mut from: fs::File, target: &Path) -> io::Result<fs::File> {
    let mut to = fs::OpenOptions::new().write(true).open(target)?;
    let len = from.metadata()?.len();
    reserve(&to, len)?;
    from.rewind()?;
    io::copy(&mut from, &mut to)?;
    to.set_len(len)?;
    to.sync_all()?;
    Ok(to)
}

/// Reserves disk space for a file's first `len` bytes without changing it.
fn reserve(file: &fs::File, len: u64) -> io::Result<()> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if len == 0 {
        return Ok(());
    }
    // SAFETY: no pointers; the descriptor is open.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, len) };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(()),
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests;
