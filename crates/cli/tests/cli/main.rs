//! The built command as a user meets it.

mod bench;
mod pair;
mod support;
mod usage;
