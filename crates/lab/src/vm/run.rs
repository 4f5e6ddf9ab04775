//! Starts a virtual machine, passes on its output, and ends it.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use sys::child::{self, Ties};
use sys::netns::NetNs;

use super::cables::{CableOrder, OpenCables, Seat};
use super::counter;
use super::error::VmError;
use super::guest::{self, First};
use super::plan::VmPlan;
use super::qemu::{self, Descriptors};
use super::store::{Parts, VmStore};
use super::wires::Wires;

/// A virtual machine that can be started.
#[derive(Debug)]
pub struct Vm {
    plan: VmPlan,
    parts: Parts,
}

/// How a script in the guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VmStatus {
    /// It exited, with this status.
    Exited(u8),
    /// It exceeded the plan's time. Holds the last output of the emulator and the guest's console.
    TimedOut(String),
    /// The caller cancelled it.
    Stopped,
    /// The machine ended without a report: a panic, or the emulator refused to start. Holds the last output of the emulator and the
    /// guest's console said last.
    Lost(String),
}

/// A script's output and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmOutcome {
    /// How it ended.
    pub status: VmStatus,
    /// Standard output; invalid UTF-8 is replaced.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Where the script's output goes while it runs.
pub struct VmStreams<'w> {
    /// Its standard output.
    pub stdout: &'w mut (dyn Write + Send),
    /// Its standard error.
    pub stderr: &'w mut (dyn Write + Send),
}

/// Messages of the threads that read the guest's serial lines.
enum Event {
    /// The guest is about to run the script.
    Up,
    /// The guest could not be prepared; its console shows why.
    Failed,
    /// The script ended with this status.
    Exited(u8),
    /// It requests that a cable between two machines be pulled or plugged in.
    Cable(CableOrder),
    /// The output could not be passed on.
    Unread,
    /// The emulator is gone.
    End,
}

impl Vm {
    /// Time for the emulator to flush the script's output after its end; it needs milliseconds.
    const LAST_WORDS_AT_MOST: Duration = Duration::from_secs(10);

    /// A machine is up after 2 to 7 seconds; ten times that on a busy host.
    const UP_WITHIN: Duration = Duration::from_secs(60);

    /// Checks the plan and finds the machine's parts. Downloads nothing; see [`VmStore::get`].
    pub fn prepare(plan: &VmPlan) -> Result<Self, VmError> {
        let problems = plan.problems();
        if !problems.is_empty() {
            return Err(VmError::Plan { problems });
        }
        let store = VmStore::of_user()?;
        let mut parts =
            plan.image.as_ref().map_or_else(|| store.parts(plan.kernel), |own| store.parts_of(own))?;
        if !plan.packages.is_empty() {
            parts.packages = Some(store.packages(&plan.packages)?);
        }
        Ok(Self { plan: plan.clone(), parts })
    }

    /// The version of its kernel.
    pub fn kernel_version(&self) -> &str {
        &self.parts.version
    }

    /// Starts the machine, runs a script of `/bin/sh` in it as root and ends it; `go_on` is called ten times a
    /// second. Needs CAP_SYS_ADMIN; see [`gain_access`](crate::gain_access).
    ///
    /// The script starts in the caller's folder. The machine ends with the calling thread in every case.
    pub fn run(
        &self,
        script: &str,
        streams: VmStreams<'_>,
        go_on: impl FnMut() -> bool,
    ) -> Result<VmStatus, VmError> {
        self.run_at(None, script, streams, go_on)
    }

    /// The same, as one of two machines.
    pub(crate) fn run_at(
        &self,
        seat: Option<&Seat<'_>>,
        script: &str,
        mut streams: VmStreams<'_>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<VmStatus, VmError> {
        let mut life = Life { seat, script, go_on: &mut go_on };
        let deadline = Instant::now() + self.plan.time_limit;
        // Of some hundred machines, two stalled before their kernel's first output: nothing had run in them yet.
        if let Some(status) = self.run_once(&mut life, &mut streams, deadline, Some(Self::UP_WITHIN))? {
            return Ok(status);
        }
        let again = self.run_once(&mut life, &mut streams, deadline, None)?;
        Ok(again.unwrap_or(VmStatus::Stopped))
    }

    /// One machine's life; `None` when it did not boot in time.
    fn run_once(
        &self,
        life: &mut Life<'_>,
        streams: &mut VmStreams<'_>,
        deadline: Instant,
        up_within: Option<Duration>,
    ) -> Result<Option<VmStatus>, VmError> {
        let mut up_by = up_within.map(|within| Instant::now() + within);
        let mut machine = self.start(life.script, life.seat)?;
        let mut request = life.seat.and_then(|seat| Some((seat, machine.console.try_clone().ok()?)));
        thread::scope(|scope| {
            let (tell, events) = mpsc::channel();
            let (console, marks, tell_marks) = (machine.console, machine.marks, tell.clone());
            let console = scope.spawn(move || read_console(console));
            let marks = scope.spawn(move || read_marks(marks, &tell_marks));
            let output = |from: UnixStream, to, tell: Sender<Event>| {
                scope.spawn(move || pass_on(from, to).inspect_err(|_| drop(tell.send(Event::Unread))))
            };
            let stdout = output(machine.stdout, &mut *streams.stdout, tell.clone());
            let stderr = output(machine.stderr, &mut *streams.stderr, tell);
            let mut status = loop {
                let now = Instant::now();
                if now >= deadline {
                    break Some(VmStatus::TimedOut(String::new()));
                }
                if up_by.is_some_and(|up_by| now >= up_by) {
                    break None;
                }
                if !(life.go_on)() {
                    break Some(VmStatus::Stopped);
                }
                if let Some((_, mut console)) = request.take_if(|(seat, _)| seat.is_to_end()) {
                    // Fails only when the machine has ended.
                    console.write_all(b"end\n").ok();
                }
                match events.recv_timeout((deadline - now).min(Duration::from_millis(100))) {
                    Ok(Event::Up) => up_by = None,
                    Ok(Event::Exited(status)) => break Some(VmStatus::Exited(status)),
                    Ok(Event::Cable(order)) => life.seat.into_iter().for_each(|seat| seat.carry_out(order)),
                    Ok(Event::Unread) => break Some(VmStatus::Stopped),
                    Ok(Event::Failed | Event::End) | Err(RecvTimeoutError::Disconnected) => {
                        break Some(VmStatus::Lost(String::new()));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            };
            if matches!(status, Some(VmStatus::Exited(_))) {
                // Now the guest ends the emulator, which ends the readers.
                let end = Instant::now() + Self::LAST_WORDS_AT_MOST;
                let left = || end.saturating_duration_since(Instant::now());
                while !matches!(events.recv_timeout(left()), Ok(Event::End) | Err(_)) {}
            }
            machine.emulator.end();
            let last_words = joined(console);
            joined(marks);
            joined(stdout).and(joined(stderr)).map_err(|source| VmError::Output { source })?;
            if let Some(VmStatus::Lost(words) | VmStatus::TimedOut(words)) = &mut status {
                *words = [machine.emulator.words(), last_words].concat();
            }
            Ok(status)
        })
    }

    /// Runs a script and collects its output.
    pub fn outcome(&self, script: &str) -> Result<VmOutcome, VmError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = self.run(script, VmStreams { stdout: &mut stdout, stderr: &mut stderr }, || true)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(VmOutcome { status, stdout: text(stdout), stderr: text(stderr) })
    }

    fn start(&self, script: &str, seat: Option<&Seat<'_>>) -> Result<Machine, VmError> {
        let program = self.parts.emulator.display().to_string();
        let refused = |source| VmError::Start { program: program.clone(), source };
        let folder = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let archive = guest::initramfs(&self.parts, &self.plan, &First { script, folder: &folder, seat })?;
        let mut initramfs = tempfile::tempfile().map_err(refused)?;
        initramfs.write_all(&archive).and_then(|()| initramfs.rewind()).map_err(refused)?;
        let (console, console_end) = UnixStream::pair().map_err(refused)?;
        let (marks, marks_end) = UnixStream::pair().map_err(refused)?;
        let (stdout, stdout_end) = UnixStream::pair().map_err(refused)?;
        let (stderr, stderr_end) = UnixStream::pair().map_err(refused)?;
        let namespace = NetNs::create().map_err(|source| VmError::Namespace { source })?;
        let wires = Wires::lay(&self.plan, &namespace)?;
        let counter = counter::of(&self.plan).map_err(refused)?;
        let cables = seat.map(Seat::open).transpose().map_err(refused)?;
        let at = Descriptors {
            console: console_end.as_raw_fd(),
            marks: marks_end.as_raw_fd(),
            stdout: stdout_end.as_raw_fd(),
            stderr: stderr_end.as_raw_fd(),
            initramfs: initramfs.as_raw_fd(),
            counter: counter.as_ref().map(AsRawFd::as_raw_fd),
            wires: wires.numbers(),
            cables: cables.as_ref().map(OpenCables::numbers),
        };
        let mut command = Command::new(&self.parts.emulator);
        command
            .args(qemu::arguments(&self.plan, &self.parts, &at))
            .env("LD_LIBRARY_PATH", &self.parts.libraries)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let lines = [console_end, marks_end, stdout_end, stderr_end].map(Into::into);
        let files = [Some(initramfs), counter].into_iter().flatten().map(Into::into);
        let descriptors = lines.into_iter().chain(files).chain(wires.into_descriptors());
        let descriptors =
            descriptors.chain(cables.into_iter().flat_map(OpenCables::into_descriptors)).collect();
        child::tie(&mut command, Ties { namespace: Some(namespace), descriptors });
        // The terminal's interrupt is ours to handle; we end the emulator ourselves.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(refused)?;
        Ok(Machine { emulator: Emulator { child }, console, marks, stdout, stderr })
    }
}

/// What a machine runs, and whether to continue.
struct Life<'l> {
    seat: Option<&'l Seat<'l>>,
    script: &'l str,
    go_on: &'l mut dyn FnMut() -> bool,
}

/// A running machine, with our ends of its serial lines.
struct Machine {
    emulator: Emulator,
    console: UnixStream,
    marks: UnixStream,
    stdout: UnixStream,
    stderr: UnixStream,
}

/// The emulator's process; it ends with this value.
struct Emulator {
    child: Child,
}

impl Emulator {
    fn end(&mut self) {
        // Both fail only when it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Its error output; valid once it has ended.
    fn words(&mut self) -> String {
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut words).ok();
        }
        words
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.end();
    }
}

/// Parses the first process's marks, as `guest/init.sh` writes them.
fn read_marks(marks: UnixStream, tell: &Sender<Event>) {
    let mut marks = BufReader::new(marks).bytes().map_while(Result::ok);
    while let Some(mark) = marks.next() {
        let event = match mark {
            b'u' => Event::Up,
            b's' => marks.next().map_or(Event::End, Event::Exited),
            order if order >= CableOrder::FIRST => Event::Cable(CableOrder::of(order)),
            _ => Event::Failed,
        };
        tell.send(event).ok();
    }
    tell.send(Event::End).ok();
}

/// Returns the end of the console output.
fn read_console(console: UnixStream) -> String {
    // A whole panic report has about fifty.
    const KEPT_LINES: usize = 120;
    let mut kept = std::collections::VecDeque::new();
    for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
        let line: String =
            String::from_utf8_lossy(&line).chars().filter(|letter| !letter.is_control()).collect();
        kept.push_back(line + "\n");
        if kept.len() > KEPT_LINES {
            kept.pop_front();
        }
    }
    kept.into_iter().collect()
}

/// Copies whole lines until the emulator ends: two streams may end on one terminal, and the kernel cuts them anywhere. The
/// start of a line, such as a prompt, is passed on when its end does not follow at once.
fn pass_on(mut from: UnixStream, to: &mut (dyn Write + Send)) -> io::Result<()> {
    const LONGEST: usize = 64 << 10;
    from.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut held, mut piece) = (Vec::new(), [0; 8192]);
    loop {
        let (ready, is_end) = match from.read(&mut piece) {
            Ok(0) => (held.len(), true),
            Ok(length) => {
                held.extend_from_slice(&piece[..length]);
                let whole = held.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                (if held.len() > LONGEST { held.len() } else { whole }, false)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                (held.len(), false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if ready > 0 {
            to.write_all(&held[..ready])?;
            to.flush()?;
            held.drain(..ready);
        }
        if is_end {
            return Ok(());
        }
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call as a piece.
    struct Pieces(Sender<Vec<u8>>);

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_passed_on_whole_and_a_prompt_without_its_end() {
        let (mut guest, host) = UnixStream::pair().unwrap();
        let (passed, pieces) = mpsc::channel();
        let copying = thread::spawn(move || pass_on(host, &mut Pieces(passed)));
        guest.write_all(b"first\nsecond\nprompt> ").unwrap();
        assert_eq!(pieces.recv().unwrap(), b"first\nsecond\n");
        assert_eq!(pieces.recv().unwrap(), b"prompt> ", "while the guest still runs");
        guest.write_all(&[b'x', 0xff]).unwrap();
        drop(guest);
        assert_eq!(pieces.iter().collect::<Vec<_>>().concat(), [b'x', 0xff]);
        copying.join().unwrap().unwrap();
    }
}
