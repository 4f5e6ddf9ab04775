//! linerate on real network drivers: each test boots a virtual machine and does as much as possible in it.

mod bench;
mod divert;
mod exact;
mod hosts;
mod inside;
mod lab_vm;
mod ledger;
mod links;
mod nic;
mod pci;
mod probe;
mod stats;
mod support;
mod tune;
mod uring;
