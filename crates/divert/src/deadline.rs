//! How long the kernel's program diverts a queue without a renewal by its thread.

use std::time::Duration;

/// How often a diversion renews the deadlines of its queues; [`Diversion::beat`](crate::Diversion::beat) must be called at
/// least so often.
pub const BEAT: Duration = Duration::from_millis(100);
/// After this time without a renewal, packets of a queue go to the kernel again.
pub const DEADLINE: Duration = Duration::from_millis(450);
