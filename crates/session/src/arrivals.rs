//! Waiting for packets in flight.

use std::{
    convert::Infallible,
    thread,
    time::{Duration, Instant},
};

use crate::message::Progress;

/// How long the wait lasts after the last packet: on a busy machine the receiver may be waiting for a CPU.
const QUIET: Duration = Duration::from_secs(1);
/// The same, if the sockets have dropped as many packets as are missing.
const QUIET_WHEN_DROPPED: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(2);

/// Packets in flight at one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight<S> {
    /// Whether every packet is accounted for.
    pub is_complete: bool,
    /// How long `seen` may stay the same before the remaining packets count as lost.
    pub quiet: Duration,
    /// Counters that change while packets arrive.
    pub seen: S,
}

/// Waits for packets in flight: until a sample is complete, nothing has moved for a while, or `at_most` has passed. Returns
/// what the last sample saw.
///
/// # Errors
/// Those of `look`.
pub fn drain<S: PartialEq, E>(
    at_most: Duration,
    mut look: impl FnMut() -> Result<InFlight<S>, E>,
) -> Result<S, E> {
    let began = Instant::now();
    let mut now = look()?;
    let mut moved = Instant::now();
    while !now.is_complete && moved.elapsed() < now.quiet && began.elapsed() < at_most {
        thread::sleep(LOOK);
        let next = look()?;
        if next.seen != now.seen {
            moved = Instant::now();
        }
        now = next;
    }
    Ok(now.seen)
}

/// Packets in flight of `expected`, from those that arrived and those that the sockets dropped.
pub fn in_flight(expected: u64, progress: Progress) -> InFlight<u64> {
    let Progress { packets, dropped, .. } = progress;
    let quiet = if packets + dropped < expected { QUIET } else { QUIET_WHEN_DROPPED };
    InFlight { is_complete: packets >= expected, quiet, seen: packets }
}

/// Waits until `expected` packets have arrived, none has arrived for a while, or time is up; returns how many arrived.
pub(crate) fn await_arrivals(expected: u64, at_most: Duration, progress: impl Fn() -> Progress) -> Progress {
    let mut seen = Progress::default();
    let look = || -> Result<_, Infallible> {
        seen = progress();
        Ok(in_flight(expected, seen))
    };
    let Ok(_) = drain(at_most, look);
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripted samples: each entry is one sample, the last one repeats.
    fn drained(at_most: Duration, script: &[(bool, u64)], quiet: Duration) -> (u64, usize) {
        let mut looks = 0;
        let look = || -> Result<_, Infallible> {
            let (is_complete, seen) = script[looks.min(script.len() - 1)];
            looks += 1;
            Ok(InFlight { is_complete, quiet, seen })
        };
        let Ok(seen) = drain(at_most, look);
        (seen, looks)
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_drain_ends_when_nothing_is_missing() {
        assert_eq!(drained(LONG, &[(true, 7)], LONG), (7, 1));
        assert_eq!(drained(LONG, &[(false, 5), (false, 6), (true, 7)], LONG), (7, 3));
    }

    #[test]
    fn a_drain_ends_when_nothing_moves_or_time_is_up() {
        assert_eq!(drained(LONG, &[(false, 5)], Duration::ZERO), (5, 1));
        assert_eq!(drained(Duration::ZERO, &[(false, 5)], LONG), (5, 1));
    }

    #[test]
    fn drops_at_the_sockets_shorten_the_wait() {
        let at = |packets, dropped| in_flight(10, Progress { packets, dropped, ..Progress::default() });
        assert!(at(10, 0).is_complete && !at(9, 1).is_complete);
        assert_eq!((at(9, 0).quiet, at(9, 1).quiet), (QUIET, QUIET_WHEN_DROPPED));
    }
}
