//! The path through XDP, on the lab. As root; else skipped loudly.

#[path = "xdp/frames.rs"]
mod frames;
#[path = "xdp/killed.rs"]
mod killed;
#[path = "xdp/support.rs"]
mod support;
#[path = "xdp/traffic.rs"]
mod traffic;
