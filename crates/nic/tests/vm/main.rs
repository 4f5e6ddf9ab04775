//! Real drivers in virtual machines: the guest runs this same program with the name of its part.

mod guest;
mod igb;
mod others;
#[path = "../support.rs"]
mod support;
mod virtio;
