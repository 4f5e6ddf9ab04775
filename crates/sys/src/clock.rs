//! Time from the kernel's clocks, in nanoseconds.

use std::{io, time::Duration};

/// Nanoseconds of `CLOCK_MONOTONIC`, unaffected by steps of the wall clock; one clock for all processes
/// of a machine.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970 of `CLOCK_REALTIME`.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// The lead of the wall clock over the monotonic one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallOffset {
    /// `CLOCK_REALTIME` − `CLOCK_MONOTONIC` in nanoseconds.
    pub ahead_ns: u64,
    /// The time between the two readings in nanoseconds, the error bound.
    pub within_ns: u64,
}

/// Reads both clocks, the closest of three tries. Only a step of the wall clock changes the offset:
/// clock discipline changes the rate of both.
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
    /// The same offset, unless a later reading shows that the wall clock was set: readings differ slightly.
    #[must_use]
    pub fn checked_by(self, later: Self) -> Self {
        let differ_ns = later.ahead_ns.wrapping_sub(self.ahead_ns) as i64;
        if differ_ns.unsigned_abs() > self.within_ns + later.within_ns { later } else { self }
    }
}

/// The state of the wall clock's discipline (`adjtimex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discipline {
    /// Whether it is synchronised to a reference.
    pub is_synchronised: bool,
    /// The offset from the reference still being corrected, in nanoseconds.
    pub offset_ns: i64,
    /// The largest error according to the discipline, in nanoseconds.
    pub most_error_ns: u64,
}

/// Reads the state from the kernel; `None` when it is not available.
pub fn discipline() -> Option<Discipline> {
    let (state, timex) = timex()?;
    let unit_ns = if timex.status & libc::STA_NANO != 0 { 1 } else { 1000 };
    Some(Discipline {
        is_synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        offset_ns: timex.offset * unit_ns,
        most_error_ns: u64::try_from(timex.maxerror).unwrap_or(0) * 1000,
    })
}

/// The lead of TAI over UTC in seconds, as set in the kernel; 0 when not set.
pub(crate) fn tai_seconds() -> i32 {
    timex().map_or(0, |(_, timex)| timex.tai)
}

/// The state of the kernel's wall clock, and its parameters.
fn timex() -> Option<(i32, libc::timex)> {
    // SAFETY: an all-zero timex requests no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is a valid timex for the call to write to.
    let state = unsafe { libc::adjtimex(&mut timex) };
    (state >= 0).then_some((state, timex))
}

/// The cost and the resolution of reading the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LookCost {
    /// Mean time of one read in nanoseconds.
    pub read_ns: f64,
    /// The smallest step between two reads, in nanoseconds.
    pub resolution_ns: u64,
}

/// Reads the clock many times in a row; the fastest of several such rows counts, because other work may use the CPU.
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
    assert_eq!(status, 0, "every kernel has the standard clocks");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until `deadline_ns` of the monotonic clock; a signal may wake it earlier.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as _,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `deadline` is a valid timespec, and no remainder is requested.
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
