//! The built command as a user meets it.

mod bench;
mod pair;
mod profile;
mod refused;
mod support;
mod usage;
