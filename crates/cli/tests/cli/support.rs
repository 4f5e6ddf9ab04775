//! Runs the built `linerate` as a user does.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// A busy machine prints what it prints within this time.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// Like [`own_folder`], for a user without privilege.
    static OF_NOBODY: TempDir = tempfile::tempdir().unwrap();
}

/// A linerate command with its state, sockets and temporary files in the test's own folder.
pub(crate) fn linerate(args: &[&str]) -> Command {
    started(Command::new(env!("CARGO_BIN_EXE_linerate")), args)
}

/// The same at real-time priority (`SCHED_FIFO`): timed commands must not wait for other tests.
pub(crate) fn linerate_first(args: &[&str]) -> Command {
    let mut first = Command::new("chrt");
    first.args(["--fifo", "1", env!("CARGO_BIN_EXE_linerate")]);
    started(first, args)
}

fn started(mut command: Command, args: &[&str]) -> Command {
    in_folder(&mut command, own_folder());
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn in_folder(command: &mut Command, folder: PathBuf) -> &mut Command {
    // Sockets need a folder that only its owner can read.
    let runtime = folder.join("run");
    std::fs::create_dir_all(&runtime).expect("a folder for sockets");
    command.env("XDG_STATE_HOME", &folder).env("TMPDIR", &folder).env("XDG_RUNTIME_DIR", runtime)
}

/// Exit status, standard output and standard error.
pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    words(linerate(args).output().expect("linerate starts"))
}

pub(crate) fn words(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("linerate prints UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The JSON document that a command prints.
pub(crate) fn json(args: &[&str]) -> (i32, Value) {
    json_of(linerate(args))
}

pub(crate) fn json_of(mut command: Command) -> (i32, Value) {
    let (status, out, err) = words(command.output().expect("the command starts"));
    let value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}"));
    (status, value)
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

pub(crate) use testing::{own_folder, skip};

/// A receiver on loopback, ended when dropped.
pub(crate) struct Recv {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// What it prints, line by line; threads share a receiver.
    lines: Mutex<Receiver<String>>,
}

impl Recv {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = linerate(&["recv", "127.0.0.1:0", "--no-save"]);
        command.args(args);
        Self::listening(command)
    }

    /// Starts a receiver and waits until it prints where it listens.
    pub(crate) fn listening(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (printed, lines) = channel();
        thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| printed.send(line)).ok();
        });
        let line = lines.recv_timeout(PATIENCE).unwrap_or_default();
        let address = line.strip_prefix("listening on UDP ").and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("the receiver prints where it listens: {line}"));
        Self { child, address: address.parse().unwrap(), lines: lines.into() }
    }

    /// Its status, output and remaining messages, after it ended on its own.
    pub(crate) fn finish(mut self) -> (ExitStatus, String, String) {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let err = self.lines.get_mut().unwrap().iter().map(|line| line + "\n").collect();
        (self.child.wait().unwrap(), out, err)
    }

    /// Waits until its messages contain `text`.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        loop {
            match self.lines.get_mut().unwrap().recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => said.push(line),
                Err(error) => panic!("it never prints '{text}' ({error}): {said:#?}"),
            }
        }
    }
}

impl Drop for Recv {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits for a process to end, for at most a minute.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if since.elapsed() > Duration::from_secs(60) {
            let threads = threads(child);
            child.kill().ok();
            panic!("still running after a minute: {threads}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The state of each thread of a process: name, state, and its place in the kernel (root only).
fn threads(child: &Child) -> String {
    let mut all = String::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten() {
        for file in ["comm", "stat", "syscall", "stack"] {
            let text = std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            all.push_str(&format!("\n{file}: {}", text.trim()));
        }
    }
    all
}

pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The same command as a user without privilege.
pub(crate) fn as_nobody(mut command: Command) -> Command {
    let folder = OF_NOBODY.with(|folder| folder.path().to_owned());
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
    in_folder(&mut command, folder).uid(65534).gid(65534);
    command
}
