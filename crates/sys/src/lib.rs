//! The Linux boundary: system calls made safe. The only crate with `unsafe` in it.
//!
//! Everything offered here can be called from safe code without breaking memory safety; what a call was
//! asked and on what stands in its error.

pub mod clock;
pub mod cpu;
pub mod cycles;
pub mod signal;
pub mod udp;
