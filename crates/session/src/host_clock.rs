//! A host's clock, as both ends of a session read it.

use crate::message::KeptClock;

/// A host's clock.
pub trait HostClock: Send + Sync {
    /// Nanoseconds since the host's boot, as in probe packets.
    fn now_ns(&self) -> u64;

    /// How far its wall clock is ahead of that.
    fn wall_ahead_ns(&self) -> u64;

    /// The state of the daemon that synchronises it, if one does.
    fn kept(&self) -> Option<KeptClock> {
        None
    }
}
