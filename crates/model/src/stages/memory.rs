//! Main memory, which CPU and card share. The RDR paper's explanation of its gaps: while the driver frees and allocates
//! buffers, the card cannot reach memory. This stage closes memory to the card for a share of that time.

use serde::{Deserialize, Serialize};

use crate::parameter::{Parameter, Problems};

/// How long the CPU keeps the card off memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Share of buffer work (freeing, allocating) during which the card cannot reach memory.
    pub closed_ratio: f64,
}

pub(crate) const PARAMETERS: &[Parameter] = &[Parameter::new(
    "memory.closed_ratio",
    "ratio",
    "share of buffer work (freeing, allocating) during which the card cannot reach memory",
)
.short("contention")
.source("RDR paper: its explanation of the gaps, without a number")];

impl Memory {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.ratio("memory.closed_ratio", self.closed_ratio);
    }

    /// How long memory is closed during this much buffer work.
    pub(crate) fn closed_ps(&self, buffers_ps: u64) -> u64 {
        (buffers_ps as f64 * self.closed_ratio).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_closed_for_its_share_of_the_time_and_open_by_default() {
        assert_eq!(Memory::default().closed_ps(1_000_000), 0);
        assert_eq!(Memory { closed_ratio: 0.25 }.closed_ps(1_000_000), 250_000);
    }
}
