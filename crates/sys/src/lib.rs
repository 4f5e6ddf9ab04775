//! The Linux boundary with a safe interface: the only crate with `unsafe`.
//!
//! One module per kernel interface, each named after it; nothing here knows what a lab, a port or a run is.

pub mod accounting;
pub mod bpf_map;
pub mod bpf_program;
pub mod btf;
pub mod capability;
pub mod child;
pub mod clock;
pub mod confine;
pub mod counting;
pub mod cpu;
pub mod cpu_control;
pub mod cycles;
pub mod ethtool;
pub mod file_cache;
mod genl;
pub mod known;
pub mod memory_file;
pub mod netdev;
mod netlink;
pub mod netns;
pub mod open_files;
pub mod output;
pub mod packet;
pub mod pci;
pub mod procfs;
pub mod profile;
pub mod ptp;
pub mod rtnetlink;
pub mod signal;
pub mod sock_diag;
pub mod sysfs;
pub mod tap;
pub mod tcp;
pub mod terminal;
pub mod topology;
pub mod udp;
pub mod uring;
pub mod xsk;

pub use netlink::NetlinkError;
