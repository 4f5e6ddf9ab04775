//! The built command as a user meets it.

mod bench;
mod divert;
mod lab;
mod ledger;
mod nic;
mod pair;
mod peers;
mod predict;
mod profile;
mod refused;
mod search;
mod stats;
mod support;
mod usage;
mod verdicts;
