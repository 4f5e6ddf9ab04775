//! Errors of labs.

use std::fmt;
use std::io;
use std::time::Duration;

use sys::NetlinkError;
use sys::ethtool::EthtoolError;
use sys::procfs::ProcError;

use crate::plan::PlanError;

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideName {
    /// The sending side.
    Tx,
    /// The receiving side.
    Rx,
}

impl fmt::Display for SideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tx => "sending",
            Self::Rx => "receiving",
        })
    }
}

/// Why a lab could not be created or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The plan is invalid.
    #[error("invalid plan of a lab: {}", one_after_the_other(.problems))]
    Plan {
        /// Every reason.
        problems: Vec<PlanError>,
    },
    /// No namespace: CAP_SYS_ADMIN is missing (see [`gain_access`](crate::gain_access)), or there are too many.
    #[error("cannot create the network namespace of the lab's {side} side")]
    Namespace {
        /// Which side.
        side: SideName,
        /// The cause.
        source: io::Error,
    },
    /// No thread could be started in, or moved to, a side's namespace.
    #[error("cannot work in the network namespace of the lab's {side} side")]
    Enter {
        /// Which side.
        side: SideName,
        /// The cause.
        source: io::Error,
    },
    /// A kernel setting of a side's namespace could not be read or changed.
    #[error("cannot set {setting} on the lab's {side} side")]
    Setting {
        /// Which side.
        side: SideName,
        /// The setting's name.
        setting: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Links, addresses, neighbours.
    #[error("cannot set up or read the lab's {side} side")]
    Netlink {
        /// Which side.
        side: SideName,
        /// What was tried, and the cause.
        source: NetlinkError,
    },
    /// The sending side's queueing discipline. `NotFound`: the kernel lacks its module `sch_KIND`, or must not load it for a
    /// process that is not root.
    #[error("the queueing discipline {kind} is not available here (module sch_{kind})")]
    Qdisc {
        /// Its name.
        kind: &'static str,
        /// What was tried, and the cause.
        source: NetlinkError,
    },
    /// Offloads and the driver's counters.
    #[error("cannot set up or read the lab's {side} side")]
    Ethtool {
        /// Which side.
        side: SideName,
        /// What was tried, and the cause.
        source: EthtoolError,
    },
    /// Protocol counters.
    #[error("cannot set up or read the lab's {side} side")]
    Proc {
        /// Which side.
        side: SideName,
        /// What was tried, and the cause.
        source: ProcError,
    },
    /// A real interface cannot be used for the lab.
    #[error("cannot use {interface} for the lab's {side} side: {reason}")]
    NotFree {
        /// Which side.
        side: SideName,
        /// Its name.
        interface: String,
        /// Why not.
        reason: NotFree,
    },
    /// The interface did not start, or an address was not accepted.
    #[error("the lab's {side} side was not ready after {after:?}")]
    NotReady {
        /// Which side.
        side: SideName,
        /// How long was waited.
        after: Duration,
    },
    /// sysfs cannot be mounted, so NAPI cannot be threaded. `PermissionDenied`: a container hides parts of `/sys`;
    /// run outside of it, or without threaded NAPI.
    #[error("cannot reach sysfs of the lab's receiving side, which threaded NAPI needs")]
    ThreadedNapiOutOfReach {
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused to thread NAPI: it is older than 5.12.
    #[error("cannot thread NAPI on the lab's receiving side (since Linux 5.12, on veth 5.13)")]
    ThreadedNapiRefused {
        /// The cause.
        source: io::Error,
    },
    /// A NAPI thread cannot be placed: CAP_SYS_NICE over the machine is missing, there is no such CPU, or a PID
    /// namespace hides the thread.
    #[error("cannot place a NAPI thread on CPU {cpu}")]
    PinNapi {
        /// The CPU.
        cpu: u32,
        /// The cause.
        source: io::Error,
    },
}

/// Why a real interface cannot be used for a lab.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFree {
    /// It would lose its addresses and routes.
    #[error("it is up, and so may be in use")]
    Up,
    /// It would not survive the end of the lab's namespace.
    #[error("it is virtual ({kind}), and would be deleted with the lab")]
    Virtual {
        /// `veth`, `vlan`, …
        kind: String,
    },
    /// The lab does not change it.
    #[error("its MTU is {mtu}, but the frames need {needed}")]
    Mtu {
        /// The present MTU in bytes.
        mtu: u32,
        /// The MTU needed.
        needed: u32,
    },
    /// Their users need the kernel's driver.
    #[error("it has addresses ({})", .addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Addressed {
        /// Its addresses.
        addresses: Vec<std::net::IpAddr>,
    },
    /// No Ethernet.
    #[error("it has no Ethernet address")]
    NoMac,
}

fn one_after_the_other(problems: &[PlanError]) -> String {
    problems.iter().map(PlanError::to_string).collect::<Vec<_>>().join("; ")
}
