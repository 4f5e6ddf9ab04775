//! Settings in kernel files that last only while this process needs them.
//!
//! The kernel does not restore such a file when a process is killed, so a second process, the guard, does: it holds the
//! files and their old values, and one end of a pipe whose other end closes when this process ends in any way. The guard
//! has its own session, so that signals to a terminal's processes do not reach it.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::FileExt,
    },
};

/// Files that keep their values until this is dropped, or the process ends.
#[derive(Debug)]
pub struct ForNow {
    files: Vec<(File, Vec<u8>)>,
    guard: libc::pid_t,
    alive: PipeWriter,
}

impl ForNow {
    /// Writes each value to its file, which must be open for reading and writing. A file that another process keeps this
    /// way is refused, with [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// The kernel's error, and the file; all files are then unchanged.
    pub fn set(changes: Vec<(File, String)>) -> Result<Self, (usize, io::Error)> {
        let mut files = Vec::new();
        let mut values = Vec::new();
        for (at, (file, value)) in changes.into_iter().enumerate() {
            let before = claim(&file).map_err(|error| (at, error))?;
            files.push((file, before));
            values.push(value);
        }
        let (end_of_us, alive) = io::pipe().map_err(|error| (0, error))?;
        // From here on a kill leaves no permanent change.
        let guard = fork(&end_of_us, &files).map_err(|error| (0, error))?;
        let kept = Self { files, guard, alive };
        for (at, value) in values.iter().enumerate() {
            kept.files[at].0.write_all_at(value.as_bytes(), 0).map_err(|error| (at, error))?;
        }
        Ok(kept)
    }
}

impl Drop for ForNow {
    fn drop(&mut self) {
        for (file, before) in &self.files {
            // A file that no longer exists needs no restore.
            file.write_all_at(before, 0).ok();
        }
        self.alive.write_all(b".").ok();
        // SAFETY: no status is requested; the process is our child, and nothing else waits for it.
        unsafe { libc::waitpid(self.guard, std::ptr::null_mut(), 0) };
    }
}

/// Locks a file, for this process and its guard together, and reads its value.
fn claim(file: &File) -> io::Result<Vec<u8>> {
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        std::fs::TryLockError::Error(error) => error,
    })?;
    let mut value = [0; 64];
    let len = file.read_at(&mut value, 0)?;
    Ok(value[..len].to_vec())
}

/// Starts the process that waits for the end of this one.
fn fork(end_of_us: &PipeReader, files: &[(File, Vec<u8>)]) -> io::Result<libc::pid_t> {
    let mut kept: Vec<RawFd> = files.iter().map(|(file, _)| file.as_raw_fd()).collect();
    kept.push(end_of_us.as_raw_fd());
    kept.sort_unstable();
    // SAFETY: the child only makes system calls, on memory allocated before, and never returns from `watch`: locks
    // that other threads held at the fork are not touched.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => watch(end_of_us.as_raw_fd(), files, &kept),
        guard => Ok(guard),
    }
}

/// The guard's life. Allocates nothing and takes no lock.
fn watch(end_of_parent: RawFd, files: &[(File, Vec<u8>)], kept: &[RawFd]) -> ! {
    // SAFETY: an all-zero set is a valid value, and is filled before it is used.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is live.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: the set is live, and the old one is not requested.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) };
    // SAFETY: no pointers.
    unsafe { libc::setsid() };
    // SAFETY: a name that ends with a zero byte.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"linerate-guard".as_ptr()) };
    // Inherited descriptors would stay open after the parent: pipes to other programs, sockets, namespaces.
    let mut from = 0;
    for fd in kept {
        if *fd > from {
            close_range(from as libc::c_uint, (*fd - 1) as libc::c_uint);
        }
        from = fd + 1;
    }
    close_range(from as libc::c_uint, libc::c_uint::MAX);
    let mut byte = 0u8;
    // SAFETY: one byte of live memory. No signal interrupts the call: all are blocked.
    let read = unsafe { libc::read(end_of_parent, (&raw mut byte).cast(), 1) };
    if read <= 0 {
        for (file, before) in files {
            // SAFETY: the bytes are live and have the given length.
            unsafe { libc::pwrite(file.as_raw_fd(), before.as_ptr().cast(), before.len(), 0) };
        }
    }
    // SAFETY: ends the process without the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: the descriptors are this process's own copies, and none of them is used after.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::process::CommandExt,
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    fn file(folder: &tempfile::TempDir, name: &str) -> File {
        let path = folder.path().join(name);
        if !path.exists() {
            fs::write(&path, "0\n").unwrap();
        }
        File::options().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn values_last_until_dropped_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let value = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        let change = |name, value: &str| (file(&folder, name), value.to_owned());
        let kept = ForNow::set(vec![change("a", "7\n"), change("b", "8\n")]).unwrap();
        assert_eq!((value("a"), value("b")), ("7\n".into(), "8\n".into()));
        let (at, refused) = ForNow::set(vec![change("c", "1\n"), change("b", "9\n")]).unwrap_err();
        assert_eq!((at, refused.kind()), (1, io::ErrorKind::WouldBlock));
        assert_eq!((value("b"), value("c")), ("8\n".into(), "0\n".into()));
        drop(kept);
        assert_eq!((value("a"), value("b")), ("0\n".into(), "0\n".into()));
        drop(ForNow::set(vec![change("b", "9\n")]).unwrap());
    }

    #[test]
    fn a_value_that_is_refused_leaves_all_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let read_only = File::open(folder.path().join("a")).or_else(|_| {
            fs::write(folder.path().join("a"), "0\n")?;
            File::open(folder.path().join("a"))
        });
        let changes = vec![(file(&folder, "b"), "1\n".into()), (read_only.unwrap(), "1\n".into())];
        let (at, refused) = ForNow::set(changes).unwrap_err();
        assert_eq!((at, refused.raw_os_error()), (1, Some(libc::EBADF)));
        assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "0\n");
    }

    /// Set for the process of the test below that is killed.
    const FOLDER: &str = "LINERATE_FOR_NOW";

    #[test]
    fn a_kill_sets_everything_back() {
        let change = |folder: &str, name: &str, value: &str| {
            let file = File::options().read(true).write(true).open(format!("{folder}/{name}")).unwrap();
            (file, value.to_owned())
        };
        if let Ok(folder) = std::env::var(FOLDER) {
            // Two of them: the second's guard must not hold the first's pipe.
            let _one = ForNow::set(vec![change(&folder, "a", "7\n")]).unwrap();
            let _two = ForNow::set(vec![change(&folder, "b", "8\n")]).unwrap();
            // SAFETY: no pointers; ends this process.
            unsafe { libc::kill(std::process::id() as libc::pid_t, libc::SIGKILL) };
        }
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        for path in [&a, &b] {
            fs::write(path, "0\n").unwrap();
        }
        let mut child = Command::new("/proc/self/exe");
        child.args(["sysfs::for_now::tests::a_kill_sets_everything_back", "--exact"]);
        child.env(FOLDER, folder.path()).stdout(Stdio::null()).process_group(0);
        let status = child.status().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        // Locked until the guard has done its work and ended.
        let deadline = Instant::now() + Duration::from_secs(20);
        for path in [&a, &b] {
            while File::open(path).unwrap().try_lock().is_err() {
                assert!(Instant::now() < deadline, "the guard does not end");
                std::thread::yield_now();
            }
            assert_eq!(fs::read_to_string(path).unwrap(), "0\n");
        }
    }
}
