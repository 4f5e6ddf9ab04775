//! A trial's packets by interface queue.

use serde::{Deserialize, Serialize};

/// Packets by queue, at both ends; empty for a side whose driver and kernel report no queue counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueUse {
    /// Transmit queues of the sending interface.
    pub tx: Vec<QueueGrowth>,
    /// Receive queues of the receiving interface.
    pub rx: Vec<QueueGrowth>,
}

/// The growth of one queue's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueGrowth {
    /// The queue's number.
    pub queue: u32,
    /// Packets from all sources.
    pub packets: u64,
    /// Packets that the queue dropped.
    pub drops: u64,
}
