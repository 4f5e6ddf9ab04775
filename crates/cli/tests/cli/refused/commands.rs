//! What is refused before any command.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[(&["frobnicate"], 2, &["unrecognized subcommand"])];
