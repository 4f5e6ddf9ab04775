//! The built command as a user meets it.

mod bench;
mod pair;
mod refused;
mod stats;
mod support;
mod usage;
