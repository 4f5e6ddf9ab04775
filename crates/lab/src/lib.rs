//! A private laboratory for packets: a veth pair between two unnamed network namespaces.
//!
//! ```text
//!   tx: namespace A                                rx: namespace B
//!   lab-tx  198.18.0.1 …  2001:2::1 …   <──────>   lab-rx  198.19.0.1 …  2001:2:0:1::1 …
//! ```
//!
//! It contains nothing else: no ARP, no neighbour discovery, no multicast reports. The counters of both ends
//! start at 0 and count only packets of the lab's user. Descriptors of this process hold everything,
//! which ends with them, even after a kill.
//!
//! ```no_run
//! use lab::{Lab, LabPlan};
//!
//! lab::gain_access()?; // while the process still has one thread
//! let lab = Lab::create(&LabPlan { queues: 4, ..LabPlan::default() })?;
//! let target = lab.rx().ipv4()[0];
//! lab.tx().run(|| std::net::UdpSocket::bind("0.0.0.0:0")?.send_to(b"hello", (target, 9)))??;
//! assert_eq!(lab.tx().link()?.stats.tx_packets, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where a lost packet is counted
//! | lost because | counted in |
//! |---|---|
//! | receive backlog full (no NAPI; `net.core.netdev_max_backlog`) | `dropped` of [`sys::procfs::softnet_stat`]; by the kernel's source also `rx_dropped` of lab-rx and `tx_dropped` of lab-tx |
//! | NAPI ring full (256 packets) | `tx_dropped` of lab-tx, and once more in `UdpSndbufErrors` or `Udp6SndbufErrors` of the sending side |
//! | an XDP program dropped it | `rx_queue_<n>_xdp_drops` of [`Side::driver_statistics`] |
//! | socket buffer full, no socket | `UdpRcvbufErrors`, `UdpNoPorts`, `Udp6…` of [`Side::net_counters`] of the receiving side |
//!
//! For a datagram to a port without a socket the receiver sends an ICMP error.
#![forbid(unsafe_code)]

mod access;
mod error;
mod lab;
mod plan;
mod qdisc;
mod side;
mod vm;

pub use access::{Access, gain_access};
pub use error::{LabError, NotFree, SideName};
pub use lab::Lab;
pub use plan::{Interfaces, LabPlan, LabQdisc, PlanError, Taken};
pub use side::Side;
pub use vm::{
    Accel, Kernel, KernelImage, NicModel, NicPair, Vm, VmError, VmHost, VmHosts, VmOutcome, VmPlan,
    VmPlanError, VmStatus, VmStore, VmStreams,
};
