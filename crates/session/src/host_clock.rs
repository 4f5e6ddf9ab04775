//! A host's clock, as both ends of a session use it.

use crate::message::KeptClock;

/// A host's clock.
pub trait HostClock: Send + Sync {
    /// Nanoseconds since its start, as probe packets have them.
    fn now_ns(&self) -> u64;

    /// By how much its wall clock is ahead of that.
    fn wall_ahead_ns(&self) -> u64;

    /// What a daemon that keeps it says, if one does.
    fn kept(&self) -> Option<KeptClock> {
        None
    }
}
