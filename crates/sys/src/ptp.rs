//! Clocks under PTP: hardware clocks (`/dev/ptp*`) compared to the wall clock, and the daemon's report about them.

use std::{
    fs::{self, File},
    io, mem,
    os::fd::AsRawFd,
};

use libc::ptp_clock_time as Time;

mod daemon;

pub use daemon::{ClockIdentity, Following, PTP4L_SOCKET, PortState, following};

/// A hardware clock compared to the wall clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtpClock {
    /// Its file.
    pub device: String,
    /// Its driver's name for it.
    pub name: String,
    /// Its lead over the wall clock, less the whole seconds between TAI and UTC if it counts TAI.
    pub ahead_ns: i64,
    /// The time between the two readings of the wall clock around its own reading: half of it is the error bound of `ahead_ns`.
    pub within_ns: u64,
}

/// All hardware clocks that can be opened and read.
pub fn clocks() -> Vec<PtpClock> {
    let entries = fs::read_dir("/sys/class/ptp").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.iter().filter_map(|name| clock(name).ok()).collect()
}

fn clock(name: &str) -> io::Result<PtpClock> {
    let device = format!("/dev/{name}");
    let words = fs::read_to_string(format!("/sys/class/ptp/{name}/clock_name"))?;
    let samples = offsets(&File::open(&device)?)?;
    let (ahead_ns, within_ns) = best(&samples).ok_or(io::ErrorKind::InvalidData)?;
    let ahead_ns = without_leaps(ahead_ns, crate::clock::tai_seconds());
    Ok(PtpClock { device, name: words.trim().into(), ahead_ns, within_ns })
}

/// Nanoseconds of a clock.
fn ns(time: Time) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}

/// Reads the wall clock, the hardware clock and the wall clock again, several times.
fn offsets(file: &File) -> io::Result<Vec<[Time; 3]>> {
    const SAMPLES: usize = 9;
    // SAFETY: all-zero bytes are a valid value.
    let mut offsets: libc::ptp_sys_offset_extended = unsafe { mem::zeroed() };
    offsets.n_samples = SAMPLES as u32;
    // SAFETY: the request matches the type of `offsets`, which the kernel reads and writes.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::PTP_SYS_OFFSET_EXTENDED, &raw mut offsets) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(offsets.ts[..SAMPLES].to_vec()) }
}

/// From the sample with the closest two readings of the wall clock: the lead of the hardware clock over their midpoint.
fn best(samples: &[[Time; 3]]) -> Option<(i64, u64)> {
    let read = samples.iter().map(|[before, clock, after]| {
        let within = ns(*after) - ns(*before);
        (within, ns(*clock) - ns(*before) - within / 2)
    });
    let (within, ahead) = read.filter(|(within, _)| *within >= 0).min_by_key(|(within, _)| *within)?;
    Some((i64::try_from(ahead).ok()?, u64::try_from(within).ok()?))
}

/// A clock that counts TAI is some whole seconds ahead of UTC.
fn without_leaps(ahead_ns: i64, tai_seconds: i32) -> i64 {
    // The default when the kernel was not given it: the value since 2017.
    const LEAPS: i32 = 37;
    let leaps = if tai_seconds == 0 { LEAPS } else { tai_seconds };
    let without = ahead_ns.saturating_sub(i64::from(leaps) * 1_000_000_000);
    if without.unsigned_abs() < ahead_ns.unsigned_abs() { without } else { ahead_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ns: i64) -> Time {
        Time { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) as u32, reserved: 0 }
    }

    #[test]
    fn the_closest_look_counts() {
        let looks = [[100, 5200, 900], [2_000_000_000, 2_000_005_100, 2_000_000_200], [3000, 9000, 4000]];
        let looks = looks.map(|look| look.map(time));
        assert_eq!(best(&looks), Some((5000, 200)));
        assert_eq!(best(&[[9, 5, 1].map(time)]), None, "the wall clock was set between");
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn whole_seconds_between_tai_and_utc_are_no_offset() {
        assert_eq!(without_leaps(37_000_000_120, 37), 120);
        assert_eq!(without_leaps(37_000_000_120, 0), 120, "the kernel was not given it");
        assert_eq!(without_leaps(-80, 37), -80);
        assert_eq!(without_leaps(5_000_000_000, 37), 5_000_000_000);
    }

    #[test]
    fn every_clock_that_is_there_is_read() {
        let there = fs::read_dir("/sys/class/ptp").map_or(0, Iterator::count);
        let read = clocks();
        assert!(read.len() <= there);
        assert!(read.iter().all(|clock| clock.device.starts_with("/dev/ptp") && !clock.name.is_empty()));
    }
}
