//! What each fuzz target does with a piece of random input.
//!
//! The bodies know nothing of libFuzzer: the ordinary tests of their crate run them too.

pub mod control;
pub mod filter;
pub mod nic;
pub mod wire;
