//! A peer's process: started inside the lab, bounded in time, and never left behind.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    panic::resume_unwind,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::Side;
use sys::child::{self, Ties};

use super::program::Peer;
use crate::error::PeerError;

/// A process that runs inside the lab and ends with this one.
pub(super) struct PeerProcess {
    keeper: Option<JoinHandle<Result<String, PeerError>>>,
    stop: mpsc::Sender<()>,
}

/// The role of a peer's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its end ends the trial.
    Sends,
    /// It waits for the sender.
    Receives,
}

/// The most output of a peer that is kept.
const MOST_WORDS_BYTES: u64 = 256 * 1024;
/// Interval of checks on a running peer.
const LOOK: Duration = Duration::from_millis(5);
/// The longest time for an interrupted peer to end.
const PATIENCE: Duration = Duration::from_secs(2);

impl PeerProcess {
    /// Starts `line` on `side`, on `cpus` if any are given, for at most `at_most`.
    ///
    /// The kernel ends it with the thread that keeps it, and that thread ends with this process: no load outlives it.
    ///
    /// # Errors
    /// When the namespace's descriptor cannot be copied. [`PeerProcess::outcome`] reports why the program could not
    /// start.
    pub(super) fn start(
        peer: Peer,
        role: Role,
        side: &Side,
        cpus: &[u32],
        task: (Duration, &[String]),
    ) -> io::Result<Self> {
        let (at_most, line) = task;
        let words = enclosed(peer, cpus, line);
        let namespace = side.namespace().try_clone()?;
        let (stop, stopped) = mpsc::channel();
        let keeper = thread::Builder::new().name(peer.name().into()).spawn(move || {
            let cannot = |source| PeerError::NotStarted { program: words[0].clone(), source };
            let deadline = Instant::now() + at_most;
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.process_group(0);
            child::tie(&mut command, Ties { namespace: Some(namespace), descriptors: Vec::new() });
            let mut child = command.spawn().map_err(cannot)?;
            // Held open: testpmd ends when it closes.
            let _stdin = child.stdin.take();
            let (out, err) = (child.stdout.take(), child.stderr.take());
            let errors = thread::spawn(move || read_all(err));
            let output = thread::spawn(move || read_all(out));
            if role == Role::Receives {
                // Not reaped before it is requested to end, so that its CPU time does not count as the sender's.
                stopped.recv_timeout(at_most).ok();
                end_gently(&mut child, peer.receiver_ends_itself());
            }
            let mut ended = role == Role::Receives;
            let status = loop {
                if let Some(status) = child.try_wait().map_err(cannot)? {
                    break status;
                }
                let is_asked = stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
                if is_asked || Instant::now() > deadline {
                    ended = true;
                    end_gently(&mut child, false);
                }
            };
            let said = [output, errors].map(|reader| reader.join().unwrap_or_default()).concat();
            judge(peer, status, ended, said)
        })?;
        Ok(Self { keeper: Some(keeper), stop })
    }

    /// Whether it has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.keeper.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it now, if it still runs.
    pub(super) fn end(&self) {
        self.stop.send(()).ok();
    }

    /// Its output, once it has ended; a failure is an error.
    pub(super) fn outcome(mut self) -> Result<String, PeerError> {
        let keeper = self.keeper.take().expect("only this and drop take it");
        keeper.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        self.end();
        if let Some(keeper) = self.keeper.take() {
            keeper.join().ok();
        }
    }
}

/// Interrupts a peer as a user would, after waiting for its own end if that is near; kills it if it does not end.
fn end_gently(child: &mut Child, ends_itself: bool) {
    if ends_itself && ends_within(child, PATIENCE) {
        return;
    }
    signal_group(child, "INT");
    if !ends_within(child, PATIENCE) {
        signal_group(child, "KILL");
    }
}

/// Signals the peer's whole process group: trafgen sends from a process of its own.
fn signal_group(child: &Child, signal: &str) {
    Command::new("kill").args(["-s", signal, "--", &format!("-{}", child.id())]).status().ok();
}

fn ends_within(child: &mut Child, at_most: Duration) -> bool {
    let deadline = Instant::now() + at_most;
    while Instant::now() < deadline {
        // The caller's next check finds an error again and reports it.
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        thread::sleep(LOOK);
    }
    false
}

/// The command line in a process namespace of its own, so that its children end with it, and on the given
/// CPUs, if any; testpmd places its threads itself.
fn enclosed(peer: Peer, cpus: &[u32], line: &[String]) -> Vec<String> {
    let mut words: Vec<String> =
        ["unshare", "--pid", "--fork", "--kill-child=KILL", "--"].map(Into::into).into();
    if !cpus.is_empty() && peer != Peer::Testpmd {
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        words.extend(["taskset".into(), "-c".into(), list.join(",")]);
    }
    words.extend_from_slice(line);
    words
}

/// Its output; its exit status counts only if the trial did not end it.
fn judge(peer: Peer, status: ExitStatus, ended: bool, said: String) -> Result<String, PeerError> {
    if status.success() || ended {
        return Ok(said);
    }
    let words = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
    Err(PeerError::Failed { peer: peer.name(), status, words: words.trim().into() })
}

/// The output of a pipe until it closes; output beyond the limit is read and dropped.
fn read_all(pipe: Option<impl Read>) -> String {
    let mut said = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(MOST_WORDS_BYTES).read_to_end(&mut said).ok();
        io::copy(&mut pipe, &mut io::sink()).ok();
    }
    String::from_utf8_lossy(&said).into_owned()
}
