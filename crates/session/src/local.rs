//! The control socket of a running command for the same user's other terminals: a Unix socket in the runtime directory, one
//! JSON line each way. Only the user can reach it: the directory has mode 0700, the socket 0600.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use thiserror::Error;

use crate::{deadline::Within, lines::MOST_LINE_BYTES};

/// Time limit for a client's request, and for reading the answer.
const VISITOR_PATIENCE: Duration = Duration::from_secs(1);
/// A command answers between two ticks; one that takes longer than this hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// The socket of a running command; removed when dropped.
pub struct ControlSocket {
    path: PathBuf,
    requests: mpsc::Receiver<ControlRequest>,
    stop: Arc<AtomicBool>,
    acceptor: Option<thread::JoinHandle<()>>,
}

/// A request to this process.
pub struct ControlRequest {
    /// The request as received.
    pub body: Value,
    visitor: UnixStream,
}

/// A running command that accepts requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its process ID.
    pub pid: u32,
    /// Its socket.
    pub path: PathBuf,
}

/// The local control socket cannot be used.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The runtime directory cannot be created.
    #[error("cannot use the runtime directory {}", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The runtime directory belongs to another user, or is open to others.
    #[error("the runtime directory {} is not private to this user", path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The process does not answer.
    #[error("process {pid} does not answer")]
    Silent {
        /// Its process ID.
        pid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The process answers with something other than JSON.
    #[error("process {pid} does not answer with JSON")]
    Malformed {
        /// Its process ID.
        pid: u32,
        /// The parser's reason.
        source: serde_json::Error,
    },
}

/// The folder of control sockets: `$XDG_RUNTIME_DIR/linerate`; without that variable, `/run/linerate` for root and a
/// private directory below the temporary directory for other users.
#[must_use]
pub fn runtime_folder() -> PathBuf {
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match (given, user()) {
        (Some(folder), _) => folder.join("linerate"),
        (None, Some(0)) => PathBuf::from("/run/linerate"),
        (None, Some(user)) => env::temp_dir().join(format!("linerate-{user}")),
        (None, None) => env::temp_dir().join("linerate"),
    }
}

/// The running commands called `name`, with their process IDs; removes sockets of dead ones.
#[must_use]
pub fn running(folder: &Path, name: &str) -> Vec<Running> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<Running> = entries
        .filter_map(|entry| {
            let file = entry.file_name();
            let pid = file.to_str()?.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".sock")?;
            Some(Running { pid: pid.parse().ok()?, path: entry.path() })
        })
        .filter(|running| answers_or_is_removed(&running.path, running.pid))
        .collect();
    found.sort_by_key(|running| running.pid);
    found
}

/// Removes sockets of dead commands, whatever their name.
fn remove_dead(folder: &Path) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock"));
        if let Some(pid) = name.and_then(|name| name.rsplit('-').next()?.parse().ok()) {
            answers_or_is_removed(&path, pid);
        }
    }
}

/// Whether somebody listens at a socket; a dead process's is removed. One that another command has made and not opened yet
/// refuses connections too.
fn answers_or_is_removed(path: &Path, pid: u32) -> bool {
    let answer = UnixStream::connect(path);
    let is_refused = answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_refused && !Path::new("/proc").join(pid.to_string()).exists() {
        fs::remove_file(path).ok();
    }
    answer.is_ok()
}

impl Running {
    /// Sends a request, and waits up to 10 s for the answer.
    ///
    /// # Errors
    /// [`ControlError::Silent`] and [`ControlError::Malformed`].
    pub fn ask(&self, request: &Value) -> Result<Value, ControlError> {
        let silent = |source| ControlError::Silent { pid: self.pid, source };
        let stream = UnixStream::connect(&self.path).map_err(silent)?;
        let mut stream = Within::of(&stream, ANSWER_PATIENCE);
        write_line(&mut stream, request).map_err(silent)?;
        let mut answer = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut answer).map_err(silent)?;
        if answer.is_empty() {
            return Err(silent(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&answer).map_err(|source| ControlError::Malformed { pid: self.pid, source })
    }
}

impl ControlSocket {
    /// Listens for requests as `name` of this process in `folder`, which is created if missing.
    ///
    /// # Errors
    /// [`ControlError::Folder`], [`ControlError::NotOurs`] and [`ControlError::Listen`].
    pub fn open(folder: &Path, name: &str) -> Result<Self, ControlError> {
        make_private(folder)?;
        remove_dead(folder);
        let path = folder.join(format!("{name}-{}.sock", std::process::id()));
        let cannot = |source| ControlError::Listen { path: path.clone(), source };
        // Only a dead process with this process's ID can have left it.
        fs::remove_file(&path).ok();
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        let (sender, requests) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                for visitor in listener.incoming() {
                    if stopping.load(Relaxed) {
                        return;
                    }
                    // A client that sends nothing, or no JSON, loses only its own connection.
                    let request = visitor.ok().and_then(|visitor| read_request(visitor).ok());
                    if request.is_some_and(|request| sender.send(request).is_err()) {
                        return;
                    }
                }
            })
            .map_err(cannot)?;
        Ok(Self { path, requests, stop, acceptor: Some(acceptor) })
    }

    /// Requests since the last call; never waits.
    pub fn requests(&self) -> impl Iterator<Item = ControlRequest> + '_ {
        self.requests.try_iter()
    }

    /// Path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Wakes the accepting thread, which then sees `stop`.
        UnixStream::connect(&self.path).ok();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().ok();
        }
        fs::remove_file(&self.path).ok();
    }
}

impl ControlRequest {
    /// Answers; a client that has gone is not an error.
    pub fn answer(self, answer: &Value) {
        write_line(&mut Within::of(&self.visitor, VISITOR_PATIENCE), answer).ok();
    }
}

fn read_request(visitor: UnixStream) -> io::Result<ControlRequest> {
    let mut line = Vec::new();
    let words = Within::of(&visitor, VISITOR_PATIENCE).take(MOST_LINE_BYTES as u64);
    BufReader::new(words).read_until(b'\n', &mut line)?;
    Ok(ControlRequest { body: serde_json::from_slice(&line)?, visitor })
}

fn write_line(stream: &mut impl Write, value: &Value) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Creates a directory that only this user can enter, or checks an existing one.
fn make_private(folder: &Path) -> Result<(), ControlError> {
    let cannot = |source| ControlError::Folder { path: folder.into(), source };
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(cannot)?;
    let private = found.is_dir() && found.mode() & 0o077 == 0 && user() == Some(found.uid());
    if private { Ok(()) } else { Err(ControlError::NotOurs { path: folder.into() }) }
}

/// The effective user, which owns this process's directory in `/proc`.
fn user() -> Option<u32> {
    fs::metadata("/proc/self").map(|found| found.uid()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("linerate-control-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        folder
    }

    fn next(socket: &ControlSocket) -> ControlRequest {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(request) = socket.requests().next() {
                return request;
            }
            assert!(Instant::now() < deadline, "no request came");
            thread::yield_now();
        }
    }

    #[test]
    fn a_running_command_is_found_asked_and_gone() {
        let folder = folder("asked");
        let socket = ControlSocket::open(&folder, "recv").unwrap();
        let found = running(&folder, "recv");
        assert_eq!(found, [Running { pid: std::process::id(), path: socket.path().into() }]);
        assert_eq!(running(&folder, "divert"), []);
        let asking = thread::spawn(move || found[0].ask(&json!({"ask": "status"})).unwrap());
        let request = next(&socket);
        assert_eq!(request.body, json!({"ask": "status"}));
        request.answer(&json!({"received": 3}));
        assert_eq!(asking.join().unwrap(), json!({"received": 3}));
        drop(socket);
        assert_eq!(running(&folder, "recv"), []);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn clients_that_send_nonsense_lose_only_their_connection() {
        let folder = folder("nonsense");
        let socket = ControlSocket::open(&folder, "recv").unwrap();
        for nonsense in [&b""[..], b"\n", b"{", b"\xff\xff\n", &[b'x'; 70_000]] {
            let mut visitor = UnixStream::connect(socket.path()).unwrap();
            visitor.write_all(nonsense).ok();
        }
        let found = running(&folder, "recv");
        let asking = thread::spawn(move || found[0].ask(&json!(1)).unwrap());
        let request = next(&socket);
        assert_eq!(request.body, json!(1));
        request.answer(&json!(2));
        assert_eq!(asking.join().unwrap(), json!(2));
        drop(socket);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn sockets_of_killed_processes_are_removed() {
        let folder = folder("left");
        make_private(&folder).unwrap();
        let left = folder.join("recv-4000000.sock");
        drop(UnixListener::bind(&left).unwrap());
        assert!(left.exists());
        assert_eq!(running(&folder, "recv"), []);
        assert!(!left.exists());
        let other = folder.join("divert-4000000.sock");
        drop(UnixListener::bind(&other).unwrap());
        let unlike = folder.join("recv-x.sock");
        drop(UnixListener::bind(&unlike).unwrap());
        drop(ControlSocket::open(&folder, "recv").unwrap());
        assert!(!other.exists(), "the next command removes those of every name");
        assert!(unlike.exists(), "and only its own kind");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_the_user_can_reach_it() {
        let folder = folder("private");
        let socket = ControlSocket::open(&folder, "recv").unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(socket.path()).unwrap().mode() & 0o777, 0o600);
        drop(socket);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = ControlSocket::open(&folder, "recv").err().unwrap();
        assert!(refused.to_string().ends_with("is not private to this user"), "{refused}");
        fs::remove_dir(&folder).unwrap();
    }
}
