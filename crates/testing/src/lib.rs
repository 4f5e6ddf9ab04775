//! What the tests of all crates have in common.
#![forbid(unsafe_code)]

use std::{
    env,
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

use lab::{Access, Lab, LabPlan};

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
