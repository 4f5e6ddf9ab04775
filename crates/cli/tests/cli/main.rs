//! The built command as a user meets it.

mod bench;
mod lab;
mod pair;
mod peers;
mod refused;
mod search;
mod support;
mod usage;
