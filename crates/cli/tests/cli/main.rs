//! The built command as a user meets it.

mod bench;
mod nic;
mod lab;
mod pair;
mod peers;
mod refused;
mod support;
mod usage;
