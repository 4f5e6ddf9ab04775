//! What the tests of all crates have in common.
#![forbid(unsafe_code)]

use std::{
    env,
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

use lab::{Access, Lab, LabPlan, Vm, VmError, VmOutcome, VmPlan, VmStatus};

/// A lab as root; without, says what needs it, for example "XDP needs root", as [`skip`] does.
///
/// # Panics
/// As [`skip`], and when root gets no lab.
pub fn root_lab(plan: &LabPlan, why: &str) -> Option<Lab> {
    let is_root = matches!(lab::gain_access(), Ok(Access::Privileged));
    if !is_root {
        skip(why);
    }
    is_root.then(|| Lab::create(plan).expect("root gets a lab"))
}

/// A virtual machine; where its packages are missing none, and what [`skip`] does.
///
/// # Panics
/// As [`skip`], and when it cannot be made for another reason.
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

/// Runs a script in a machine. One that stood still or was lost gets a second chance, and a loud word: of some hundred
/// emulated ones a line's interrupts stop in one.
///
/// # Panics
/// When the machine does not start.
pub fn outcome_in(machine: &Vm, script: &str) -> VmOutcome {
    let outcome = || machine.outcome(script).expect("a machine starts");
    let first = outcome();
    if !matches!(first.status, VmStatus::Lost(_) | VmStatus::TimedOut(_)) {
        return first;
    }
    eprintln!("ONCE MORE: {first:?}");
    outcome()
}

/// The same, and returns what the script wrote.
///
/// # Panics
/// When it ends with another status than 0.
pub fn run_in(machine: &Vm, script: &str) -> String {
    let seen = outcome_in(machine, script);
    assert_eq!(seen.status, VmStatus::Exited(0), "{}\n{}", seen.stdout, seen.stderr);
    seen.stdout
}

/// Says that a test cannot run here. Panics where nothing may be skipped: `LINERATE_REQUIRE_ALL` is set.
pub fn skip(why: impl Display) {
    assert!(env::var_os("LINERATE_REQUIRE_ALL").is_none(), "may not be skipped here: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Waits for what the kernel does in its own time and tells nobody about; panics after 30 s.
pub fn wait_for(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !met() {
        assert!(Instant::now() < deadline, "waited 30 s in vain for {what}");
        thread::yield_now();
    }
}
