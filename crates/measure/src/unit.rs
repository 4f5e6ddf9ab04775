//! The unit of a counter of losses.

use serde::{Deserialize, Serialize};

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One count is one packet as counted by the receiver.
    #[default]
    Packets,
    /// One count is one frame on the wire.
    Frames,
    /// One count is one kernel buffer, which may hold many segments (GSO, GRO).
    Buffers,
}

impl Unit {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Frames => "frames",
            Self::Buffers => "buffers",
        }
    }
}
