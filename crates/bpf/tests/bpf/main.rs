//! What the programs promise, on the lab. As root; else skipped loudly.

mod attach;
mod divert;
mod drops;
mod inject;
mod send;
mod settings;
mod softirq;
mod support;
mod witness;
