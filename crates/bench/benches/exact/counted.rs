//! What a loop is counted by.

use std::error::Error;

use serde::{Deserialize, Serialize};

pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What of a count is a loop's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// This program's own code, which is the same on every kernel.
    Own,
    /// The same where the kernel decides how much a call moves.
    OwnOfKernel,
    /// Everything that the thread executes, in the kernel and with softirqs on its back.
    Thread,
    /// What the kernel's trace points start.
    Traced,
}

/// A loop that was counted, in the order of the counts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) rounds: u32,
}

/// Counts a loop: its name, what of it counts, the smaller number of rounds, and what executes so many.
pub(super) type Count<'l> = dyn FnMut(&str, Part, u32, &mut dyn FnMut(u32)) + 'l;
