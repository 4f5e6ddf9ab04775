//! Common parts of the tests of all crates.
#![forbid(unsafe_code)]

mod browser;
mod cards;
mod documents;
mod hosts;
mod record;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use lab::{Access, Lab, LabPlan, Vm, VmError, VmOutcome, VmPlan, VmStatus};

pub use browser::Browser;
pub use cards::{FakeCard, FakeDriver};
pub use documents::{Shown, repository, shown_commands};
pub use hosts::{Hosts, in_namespace};
use record::is_all_required;
pub use record::{ATTEMPTS, repeat, skip};
use tempfile::TempDir;

thread_local! {
    static OWN_FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

/// A folder of the test that runs on this thread: libtest gives each test a thread, and the folder goes when that ends,
/// however the test ends.
pub fn own_folder() -> PathBuf {
    OWN_FOLDER.with(|folder| folder.path().to_owned())
}

/// `/run` is in the guest's memory.
const OWN_FOLDERS: &str = "mkdir -p /run/test/run\n\
    export TMPDIR=/run/test XDG_RUNTIME_DIR=/run/test/run XDG_STATE_HOME=/run/test\n";

/// A lab as root; otherwise skips with a reason such as "XDP needs root", like [`skip`].
///
/// # Panics
/// Like [`skip`], and when root cannot create a lab.
#[track_caller]
pub fn root_lab(plan: &LabPlan, why: &str) -> Option<Lab> {
    let is_root = matches!(lab::gain_access(), Ok(Access::Privileged));
    if !is_root {
        skip(why);
    }
    is_root.then(|| Lab::create(plan).expect("root gets a lab"))
}

/// A virtual machine; skips like [`skip`] when its packages are missing.
///
/// # Panics
/// Like [`skip`], and when it cannot be created for another reason.
#[track_caller]
pub fn machine(plan: &VmPlan) -> Option<Vm> {
    match Vm::prepare(plan) {
        Ok(vm) => Some(vm),
        Err(error @ VmError::NotThere { .. }) => {
            skip(format_args!("{error}; linerate lab vm --get downloads it"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a script in a machine, with separate folders for temporary files, sockets and state: it could see the host's,
/// which may hold those of other users. A machine that stalls or is lost is started again, and that counts as a repeat: in one of some
/// hundred emulated machines the interrupts of a serial line stop.
///
/// # Panics
/// When the machine does not start.
#[track_caller]
pub fn outcome_in(machine: &Vm, script: &str) -> VmOutcome {
    let required = if is_all_required() { "export LINERATE_REQUIRE_ALL=1\n" } else { "" };
    let script = format!("{OWN_FOLDERS}{required}{script}");
    let outcome = || machine.outcome(&script).expect("a machine starts");
    let first = outcome();
    if !matches!(first.status, VmStatus::Lost(_) | VmStatus::TimedOut(_)) {
        return first;
    }
    record::repeated(&format!("the virtual machine did not finish: {first:?}"));
    outcome()
}

/// The same; returns the script's output.
///
/// # Panics
/// When it ends with another status than 0.
#[track_caller]
pub fn run_in(machine: &Vm, script: &str) -> String {
    let seen = outcome_in(machine, script);
    assert_eq!(seen.status, VmStatus::Exited(0), "{}\n{}", seen.stdout, seen.stderr);
    seen.stdout
}

/// Waits for a change that the kernel makes asynchronously and does not announce; panics after 30 s.
pub fn wait_for(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !met() {
        assert!(Instant::now() < deadline, "waited 30 s for {what}");
        thread::yield_now();
    }
}
