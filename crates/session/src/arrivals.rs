//! Waiting for packets that are on their way.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::message::Progress;

/// Packets are waited for until nothing has come for so long: on a busy machine whoever sends back or receives waits for a
/// CPU, too.
const QUIET: Duration = Duration::from_secs(1);
/// And this is enough where the sockets have dropped as many as are missing.
const QUIET_WHEN_DROPPED: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `expected` packets have come, none has come for a while, or it has taken the longest; returns what has come.
pub fn await_arrivals(expected: u64, longest: Duration, progress: impl Fn() -> Progress) -> Progress {
    let began = Instant::now();
    let (mut seen, mut changed) = (progress(), began);
    while seen.packets < expected && began.elapsed() < longest {
        let quiet = if seen.packets + seen.dropped < expected { QUIET } else { QUIET_WHEN_DROPPED };
        if changed.elapsed() >= quiet {
            break;
        }
        thread::sleep(LOOK);
        let now = progress();
        if now.packets != seen.packets {
            changed = Instant::now();
        }
        seen = now;
    }
    seen
}
