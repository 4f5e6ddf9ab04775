//! Diversions in the lab: every packet is accounted for, and other traffic is not affected. As root; otherwise
//! skipped with a message.

mod arrival;
mod examples;
mod filters;
mod killed;
mod rules;
mod sets;
mod support;
