//! Fleets on this machine, over a real nats-server: agents in namespaces (as root), or on loopback.
#![cfg(feature = "fleet")]

mod access;
mod divert;
mod faults;
mod proxy;
mod runs;
mod soak;
mod support;
