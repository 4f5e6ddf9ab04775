//! The path through XDP, on the lab. As root; otherwise skipped loudly.

#[path = "xdp/chosen.rs"]
mod chosen;
#[path = "xdp/frames.rs"]
mod frames;
#[path = "xdp/rights.rs"]
mod rights;
#[path = "xdp/support.rs"]
mod support;
#[path = "xdp/traffic.rs"]
mod traffic;
