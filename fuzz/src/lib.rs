//! The bodies of the fuzz targets.
//!
//! They do not depend on libFuzzer: the ordinary tests of their crates and `attack` run them too.

pub mod control;
pub mod files;
pub mod filter;
pub mod mutate;
pub mod nic;
pub mod targets;
pub mod wire;
