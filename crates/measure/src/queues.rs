//! What a trial's packets did to the interfaces' queues.

use serde::{Deserialize, Serialize};

/// Packets by queue, at both ends; a side whose driver and kernel tell nothing of its queues has none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueUse {
    /// Transmit queues of the sending interface.
    pub tx: Vec<QueueGrowth>,
    /// Receive queues of the receiving interface.
    pub rx: Vec<QueueGrowth>,
}

/// How far one queue's counters grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueGrowth {
    /// The queue's number.
    pub queue: u32,
    /// Packets, whoever they were from.
    pub packets: u64,
    /// Packets that the queue dropped.
    pub drops: u64,
}
