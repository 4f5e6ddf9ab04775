//! The parts of a count that make up a loop's cost.

use std::error::Error;

use serde::{Deserialize, Serialize};

pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The part of a count that is a loop's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// This program's own code, which is the same on every kernel.
    Own,
    /// The same, if the kernel decides how much a call moves.
    OwnOfKernel,
    /// Everything that the thread executes, in the kernel and including softirqs on top of it.
    Thread,
    /// Code that the kernel's trace points start.
    Traced,
}

/// A counted loop, in the order of the counts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) rounds: u32,
}

/// Counts a loop: its name, its counted part, the smaller number of rounds, and a function that executes a number of rounds.
pub(super) type Count<'l> = dyn FnMut(&str, Part, u32, &mut dyn FnMut(u32)) + 'l;
