//! Diversions in the lab: every packet is accounted for, and what is not diverted does not notice. As root; else
//! skipped loudly.

mod arrival;
mod examples;
mod filters;
mod killed;
mod rules;
mod sets;
mod support;
