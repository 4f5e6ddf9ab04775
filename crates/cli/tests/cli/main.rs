//! The built command as a user meets it.

mod asked;
mod bench;
mod divert;
mod documents;
mod fuzz;
mod hostile;
mod hosts;
mod keys;
mod lab;
mod ledger;
mod live;
mod nic;
mod outputs;
mod pair;
mod peers;
mod predict;
mod profile;
mod record;
mod refused;
mod search;
mod stats;
mod support;
mod tune;
mod usage;
mod verdicts;
mod wire;
