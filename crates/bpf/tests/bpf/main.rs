//! What the programs promise, on the lab. As root; otherwise skipped with a message.

mod attach;
mod divert;
mod drops;
mod inject;
mod send;
mod settings;
mod softirq;
mod support;
mod witness;
