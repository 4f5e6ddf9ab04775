//! What the programs promise, on the lab. As root; else skipped loudly.

mod attach;
mod drops;
mod support;
