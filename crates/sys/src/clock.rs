//! Time from the kernel's clocks, in nanoseconds.

use std::{io, time::Duration};

/// Nanoseconds of `CLOCK_MONOTONIC`, which no step of the wall clock changes; one clock for all processes
/// of a machine.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970 of `CLOCK_REALTIME`.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// By how much the wall clock is ahead of the monotonic one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallOffset {
    /// `CLOCK_REALTIME` − `CLOCK_MONOTONIC` in nanoseconds.
    pub ahead_ns: u64,
    /// The two were read within so many nanoseconds, by which this may be wrong.
    pub within_ns: u64,
}

/// Reads both clocks as close together as three tries get them. Only a step of the wall clock changes the offset: what
/// disciplines it changes the rate of both.
pub fn wall_offset() -> WallOffset {
    let once = || {
        let before = monotonic_ns();
        let wall = realtime_ns();
        let within_ns = monotonic_ns() - before;
        WallOffset { ahead_ns: wall.wrapping_sub(before + within_ns / 2), within_ns }
    };
    (0..3).map(|_| once()).min_by_key(|offset| offset.within_ns).expect("three tries")
}

impl WallOffset {
    /// The same offset unless a later reading shows that the wall clock was set: readings differ a little.
    #[must_use]
    pub fn checked_by(self, later: Self) -> Self {
        let differ_ns = later.ahead_ns.wrapping_sub(self.ahead_ns) as i64;
        if differ_ns.unsigned_abs() > self.within_ns + later.within_ns { later } else { self }
    }
}

/// What the kernel says about how well its wall clock is disciplined (`adjtimex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discipline {
    /// Whether something keeps it together with a reference.
    pub is_synchronised: bool,
    /// The offset from the reference that is being corrected, in nanoseconds.
    pub offset_ns: i64,
    /// The largest error that the discipline allows for, in nanoseconds.
    pub most_error_ns: u64,
}

/// Asks the kernel about its wall clock; `None` when it does not say.
pub fn discipline() -> Option<Discipline> {
    let (state, timex) = timex()?;
    let unit_ns = if timex.status & libc::STA_NANO != 0 { 1 } else { 1000 };
    Some(Discipline {
        is_synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        offset_ns: timex.offset * unit_ns,
        most_error_ns: u64::try_from(timex.maxerror).unwrap_or(0) * 1000,
    })
}

/// By how many seconds TAI is ahead of UTC, as somebody told the kernel; 0 when nobody did.
pub(crate) fn tai_seconds() -> i32 {
    timex().map_or(0, |(_, timex)| timex.tai)
}

/// The state of the kernel's wall clock and what it knows of it.
fn timex() -> Option<(i32, libc::timex)> {
    // SAFETY: an all-zero timex asks for nothing to be changed.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is a valid timex for the call to write to.
    let state = unsafe { libc::adjtimex(&mut timex) };
    (state >= 0).then_some((state, timex))
}

/// What a look at the monotonic clock costs and tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LookCost {
    /// Mean time of a look in nanoseconds.
    pub read_ns: f64,
    /// The smallest step between two looks, in nanoseconds.
    pub resolution_ns: u64,
}

/// Looks at the clock many times in a row; of several such rows the fastest counts, for others may want the CPU too.
pub fn look_cost() -> LookCost {
    let rows = (0..8).map(|_| look_row());
    rows.min_by(|a, b| a.read_ns.total_cmp(&b.read_ns)).expect("eight rows")
}

fn look_row() -> LookCost {
    const LOOKS: u32 = 500;
    let start = monotonic_ns();
    let (mut last, mut resolution_ns) = (start, u64::MAX);
    for _ in 0..LOOKS {
        let now = monotonic_ns();
        if now > last {
            resolution_ns = resolution_ns.min(now - last);
        }
        last = now;
    }
    LookCost { read_ns: (last - start) as f64 / f64::from(LOOKS), resolution_ns }
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to write to.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "the kernel knows its standard clocks");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until `deadline_ns` of the monotonic clock; a signal may wake it earlier.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as _,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `deadline` is a valid timespec, and no remainder is asked for.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &deadline, std::ptr::null_mut())
    };
}

/// Lets timers of this thread fire when they are due instead of up to 50 µs later (`PR_SET_TIMERSLACK`).
///
/// # Errors
/// What the kernel said.
pub fn use_exact_timers() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    let status = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The seconds of a duration in nanoseconds, saturating.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_the_monotonic_one_and_the_offset() {
        let offset = wall_offset();
        let (before, wall, after) = (monotonic_ns(), realtime_ns(), monotonic_ns());
        let expected =
            before + offset.ahead_ns - offset.within_ns..=after + offset.ahead_ns + offset.within_ns;
        assert!(expected.contains(&wall), "{wall} in {expected:?}");
        let read_again = WallOffset { ahead_ns: offset.ahead_ns + offset.within_ns, ..offset };
        assert_eq!(offset.checked_by(read_again), offset);
        let set = WallOffset { ahead_ns: offset.ahead_ns + 1_000_000_000, ..offset };
        assert_eq!(offset.checked_by(set), set);
    }

    #[test]
    fn a_look_costs_something_and_the_kernel_knows_its_discipline() {
        let cost = look_cost();
        assert!(cost.read_ns > 0.0 && cost.resolution_ns > 0, "{cost:?}");
        assert!(discipline().is_some());
    }

    #[test]
    fn a_sleep_ends_at_its_deadline_and_not_before() {
        let deadline = monotonic_ns() + 2_000_000;
        sleep_until(deadline);
        assert!(monotonic_ns() >= deadline);
        sleep_until(0);
    }
}
