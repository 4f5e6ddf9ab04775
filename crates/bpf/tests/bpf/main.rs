//! What the programs promise, on the lab. As root; else skipped loudly.

mod attach;
mod softirq;
mod support;
