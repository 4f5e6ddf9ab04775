//! The bodies of the fuzz targets.
//!
//! They do not depend on libFuzzer: the ordinary tests of their crates run them too.

pub mod control;
pub mod filter;
pub mod nic;
pub mod wire;
