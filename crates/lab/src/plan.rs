//! The plan of a lab: plain data.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use sys::rtnetlink::NewQdisc;

/// A lab to be created. Both sides get both address families from the blocks reserved for benchmarking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabPlan {
    /// Transmit and receive queues of each end. The receive queue of a packet is the transmit queue that the
    /// sender used; nothing is hashed.
    pub queues: u32,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Addresses of each family on each side.
    pub addresses: u16,
    /// Whether kernel threads (one per queue) process the receiving side's packets instead of the sender's own system
    /// calls. Turns GRO on at the receiving side, because veth has no NAPI without it; GRO merges TCP segments, but
    /// datagrams only if their socket requests `UDP_GRO`.
    pub threaded_napi: bool,
    /// The CPUs of those threads: queue n goes to entry n modulo their number. Empty: the scheduler chooses.
    /// Needs CAP_SYS_NICE over the machine.
    pub napi_cpus: Vec<u32>,
    /// Whether those threads outrank all others on their CPUs, as a card's softirq outranks an application; otherwise the
    /// scheduler shares the CPU. Ignored without CAP_SYS_NICE.
    pub napi_first: bool,
    /// Whether the ends accept packets larger than the MTU (TSO, GSO, `UDP_SEGMENT`). A veth never segments them: each
    /// counts and arrives as one packet. When off, the kernel segments them before the veth.
    pub gso: bool,
    /// Whether the ends merge received packets (GRO).
    pub gro: bool,
    /// Whether checksums are left to the veth, which never computes them: packets are cheaper than on a wire, and packet
    /// sockets and XDP see wrong checksums. When off, every frame is the same as on a wire.
    pub tx_checksum: bool,
    /// Whether packets may be scattered in memory (scatter-gather). When off, the kernel linearizes each before transmission.
    pub scatter_gather: bool,
    /// The sending interface's queueing discipline; `None` leaves the kernel's default, which is none on a veth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<LabQdisc>,
    /// Two real interfaces instead of a veth pair: queues, MTU and offloads are then those of the interfaces.
    pub interfaces: Option<Interfaces>,
}

/// Two interfaces of this machine whose cards are wired to each other, directly or by a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interfaces {
    /// The sending side's.
    pub tx: String,
    /// The receiving side's.
    pub rx: String,
    /// Whether they get IPv6 addresses; the kernel then sends a few packets at the start.
    pub ipv6: bool,
    /// Sides whose card is taken from the kernel: until then their interfaces stay in place, down.
    #[serde(default, skip_serializing_if = "Taken::is_none")]
    pub taken: Taken,
}

/// Sides whose card is taken from its kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// The sending side's.
    pub tx: bool,
    /// The receiving side's.
    pub rx: bool,
}

impl Taken {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for LabPlan {
    /// Two queues, 1500 bytes, four addresses; every frame as on a wire.
    fn default() -> Self {
        Self {
            queues: 2,
            mtu: 1500,
            addresses: 4,
            threaded_napi: false,
            napi_cpus: Vec::new(),
            napi_first: false,
            gso: false,
            gro: false,
            tx_checksum: false,
            scatter_gather: true,
            qdisc: None,
            interfaces: None,
        }
    }
}

/// A queueing discipline of a lab's sending interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabQdisc {
    /// Three bands by priority.
    PfifoFast,
    /// Fair queueing with pacing.
    Fq,
    /// Fair queueing with controlled delay.
    FqCodel,
    /// Random early detection.
    Red,
    /// A token bucket.
    Tbf {
        /// Bits of frames a second.
        bits_per_s: u64,
    },
}

impl LabQdisc {
    /// The kernel's name.
    pub fn kind(self) -> &'static str {
        self.for_kernel().kind()
    }

    pub(crate) fn for_kernel(self) -> NewQdisc {
        match self {
            Self::PfifoFast => NewQdisc::PfifoFast,
            Self::Fq => NewQdisc::Fq,
            Self::FqCodel => NewQdisc::FqCodel,
            Self::Red => NewQdisc::Red,
            Self::Tbf { bits_per_s } => NewQdisc::Tbf { bytes_per_s: (bits_per_s / 8).max(1) },
        }
    }
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The kernel allows 1 to 4096.
    #[error("queues of a lab must be 1 to {}, not {queues}", LabPlan::MAX_QUEUES)]
    Queues {
        /// The requested number.
        queues: u32,
    },
    /// IPv6 needs 1280 bytes; the kernel allows at most 65535.
    #[error("the MTU of a lab must be 1280 to 65535 bytes, not {mtu}")]
    Mtu {
        /// The requested MTU.
        mtu: u32,
    },
    /// None, or more than the address blocks have.
    #[error("addresses of a side must be 1 to {}, not {addresses}", LabPlan::MAX_ADDRESSES)]
    Addresses {
        /// The requested number.
        addresses: u16,
    },
    /// CPUs for threads that the plan does not request.
    #[error("napi-cpus needs threaded-napi: without it there are no threads to place")]
    CpusWithoutThreads,
    /// The kernel segments only packets that it also checksums.
    #[error("gso needs tx-checksum: the kernel allows segmentation only with checksum offload")]
    GsoWithoutChecksum,
    /// The kernel segments only packets that may be scattered.
    #[error("gso needs scatter-gather: the kernel allows segmentation only of scattered packets")]
    GsoWithoutScatterGather,
    /// A packet would have to leave and return through the same card.
    #[error("both sides of a lab cannot have the same interface {interface}")]
    SameInterface {
        /// Its name.
        interface: String,
    },
    /// Threads exist for the veth pair only.
    #[error("threaded-napi applies to the embedded veth pair: set it on real interfaces directly")]
    ThreadsOfRealInterfaces,
}

impl LabPlan {
    /// The most queues that the kernel gives an interface.
    pub const MAX_QUEUES: u32 = 4096;
    /// The most addresses of a side; the kernel's time grows faster than their number.
    pub const MAX_ADDRESSES: u16 = 1024;

    /// Every problem of this plan; none when it is valid.
    pub fn problems(&self) -> Vec<PlanError> {
        let Self { queues, mtu, addresses, .. } = *self;
        let rules = [
            ((1..=Self::MAX_QUEUES).contains(&queues), PlanError::Queues { queues }),
            ((1280..=65535).contains(&mtu), PlanError::Mtu { mtu }),
            ((1..=Self::MAX_ADDRESSES).contains(&addresses), PlanError::Addresses { addresses }),
            (self.threaded_napi || self.napi_cpus.is_empty(), PlanError::CpusWithoutThreads),
            (self.tx_checksum || !self.gso, PlanError::GsoWithoutChecksum),
            (self.scatter_gather || !self.gso, PlanError::GsoWithoutScatterGather),
            (self.interfaces.is_none() || !self.threaded_napi, PlanError::ThreadsOfRealInterfaces),
        ];
        let same = self.interfaces.iter().filter(|both| both.tx == both.rx);
        let same = same.map(|both| PlanError::SameInterface { interface: both.tx.clone() });
        rules.into_iter().filter(|(kept, _)| !kept).map(|(_, problem)| problem).chain(same).collect()
    }

    /// IPv4 addresses of the sending side: 198.18.0.1 and on, in the block of RFC 2544.
    pub(crate) fn tx_ipv4(&self) -> Vec<Ipv4Addr> {
        self.ipv4_from(Ipv4Addr::new(198, 18, 0, 0))
    }

    /// IPv4 addresses of the receiving side: 198.19.0.1 and on.
    pub(crate) fn rx_ipv4(&self) -> Vec<Ipv4Addr> {
        self.ipv4_from(Ipv4Addr::new(198, 19, 0, 0))
    }

    /// Whether the sides get IPv6 addresses.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.interfaces.as_ref().is_none_or(|both| both.ipv6)
    }

    /// IPv6 addresses of the sending side: 2001:2::1 and on, in the block of RFC 5180.
    pub(crate) fn tx_ipv6(&self) -> Vec<Ipv6Addr> {
        self.ipv6_from(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0))
    }

    /// IPv6 addresses of the receiving side: 2001:2:0:1::1 and on.
    pub(crate) fn rx_ipv6(&self) -> Vec<Ipv6Addr> {
        self.ipv6_from(Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 0))
    }

    fn ipv4_from(&self, base: Ipv4Addr) -> Vec<Ipv4Addr> {
        (1..=self.addresses).map(|host| Ipv4Addr::from_bits(base.to_bits() + u32::from(host))).collect()
    }

    fn ipv6_from(&self, base: Ipv6Addr) -> Vec<Ipv6Addr> {
        let addresses = if self.has_ipv6() { self.addresses } else { 0 };
        (1..=addresses).map(|host| Ipv6Addr::from_bits(base.to_bits() + u128::from(host))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plan_is_valid_and_survives_serialisation() {
        let plan = LabPlan::default();
        assert_eq!(plan.problems(), []);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<LabPlan>(&text).unwrap(), plan);
    }

    #[test]
    fn what_is_not_said_is_the_default_and_what_is_not_known_is_refused() {
        let plan: LabPlan = serde_json::from_str(r#"{"queues": 8}"#).unwrap();
        assert_eq!(plan, LabPlan { queues: 8, ..LabPlan::default() });
        assert!(serde_json::from_str::<LabPlan>(r#"{"queue": 8}"#).is_err());
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let plan = LabPlan {
            queues: 0,
            mtu: 1279,
            addresses: 0,
            napi_cpus: vec![1],
            gso: true,
            scatter_gather: false,
            ..LabPlan::default()
        };
        let told: Vec<String> = plan.problems().iter().map(PlanError::to_string).collect();
        assert_eq!(
            told,
            [
                "queues of a lab must be 1 to 4096, not 0",
                "the MTU of a lab must be 1280 to 65535 bytes, not 1279",
                "addresses of a side must be 1 to 1024, not 0",
                "napi-cpus needs threaded-napi: without it there are no threads to place",
                "gso needs tx-checksum: the kernel allows segmentation only with checksum offload",
                "gso needs scatter-gather: the kernel allows segmentation only of scattered packets",
            ]
        );
    }

    #[test]
    fn addresses_stay_in_the_benchmarking_blocks_and_never_meet() {
        let plan = LabPlan { addresses: LabPlan::MAX_ADDRESSES, ..LabPlan::default() };
        let four = [plan.tx_ipv4(), plan.rx_ipv4()].concat();
        let six = [plan.tx_ipv6(), plan.rx_ipv6()].concat();
        assert!(four.iter().all(|address| address.to_bits() >> 17 == 0xc612_0000 >> 17));
        assert!(six.iter().all(|address| address.segments()[..3] == [0x2001, 2, 0]));
        assert_eq!(four.iter().collect::<std::collections::HashSet<_>>().len(), 2048);
        assert_eq!(six.iter().collect::<std::collections::HashSet<_>>().len(), 2048);
        assert_eq!(four[0], Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(four[255], Ipv4Addr::new(198, 18, 1, 0));
    }
}
