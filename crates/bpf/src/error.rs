//! Errors: what was tried, on what, and why it failed.

use std::{error::Error, io};

use sys::{capability::Capability, rtnetlink::RouteSocket};
use thiserror::Error;

use crate::mode::Mode;

/// An opaque cause: the loader's or the kernel's.
pub type Cause = Box<dyn Error + Send + Sync>;

/// A program could not be loaded, attached, run or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BpfError {
    /// A capability over the whole machine is missing; root of a user namespace does not have it.
    #[error("cannot {action}: it needs {capability} over the whole machine")]
    MissingCapability {
        /// What was tried.
        action: String,
        /// What is missing, such as `CAP_BPF`.
        capability: &'static str,
        /// The kernel's reason.
        source: Cause,
    },
    /// The interface has another XDP program, which stays.
    #[error("cannot attach to {interface}: the XDP program '{program}' (id {id}) is already there")]
    InUse {
        /// The interface.
        interface: String,
        /// The other program's name.
        program: String,
        /// The kernel's number of the other program.
        id: u32,
        /// The kernel's reason.
        source: Cause,
    },
    /// The driver or this kernel does not support it.
    #[error("{feature} is not supported {on}")]
    Unsupported {
        /// What is not supported.
        feature: String,
        /// `by eth0`, or `here (since Linux 5.18)`.
        on: String,
        /// The kernel's reason.
        source: Cause,
    },
    /// The kernel refused a program.
    #[error("cannot load the BPF program '{program}'")]
    Load {
        /// The program.
        program: &'static str,
        /// The loader's or the verifier's reason.
        source: Cause,
    },
    /// A program was not attached.
    #[error("cannot attach XDP to {interface} ({mode})")]
    Attach {
        /// The interface.
        interface: String,
        /// How.
        mode: Mode,
        /// The kernel's reason.
        source: Cause,
    },
    /// A trace point was not attached to.
    #[error("cannot watch the trace point {point}")]
    Trace {
        /// The trace point.
        point: &'static str,
        /// The kernel's reason.
        source: Cause,
    },
    /// A program could not be attached to a socket.
    #[error("cannot attach the BPF program '{program}' to a socket")]
    Filter {
        /// The program.
        program: &'static str,
        /// The kernel's reason.
        source: Cause,
    },
    /// A program could not replace another one.
    #[error("cannot replace the attached BPF program by '{program}'")]
    Replace {
        /// The program.
        program: &'static str,
        /// The kernel's reason.
        source: Cause,
    },
    /// A map was not read or written.
    #[error("cannot {action}")]
    Map {
        /// What was tried.
        action: String,
        /// The kernel's reason.
        source: Cause,
    },
    /// `BPF_PROG_RUN` failed.
    #[error("cannot run the BPF program '{program}'")]
    ProgramRun {
        /// The program.
        program: &'static str,
        /// The kernel's reason.
        source: Cause,
    },
}

impl BpfError {
    /// The kernel's error number, when the kernel gave one.
    pub fn os_error(&self) -> Option<i32> {
        errno(self)
    }

    /// `other`, or the missing capability when that is what the kernel said.
    pub(crate) fn or_capability(
        action: impl Into<String>,
        source: Cause,
        other: impl FnOnce(Cause) -> Self,
    ) -> Self {
        if !matches!(errno(&*source), Some(EPERM | EACCES)) {
            return other(source);
        }
        let capability = match (Capability::Bpf.held(), Capability::NetAdmin.held()) {
            (true, false) => "CAP_NET_ADMIN",
            _ => "CAP_BPF",
        };
        Self::MissingCapability { action: action.into(), capability, source }
    }

    /// A map operation that failed.
    pub(crate) fn map(action: impl Into<String>) -> impl FnOnce(aya::maps::MapError) -> Self {
        let action = action.into();
        |source| Self::Map { action, source: source.into() }
    }
}

pub(crate) const EPERM: i32 = 1;
pub(crate) const EINTR: i32 = 4;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EOPNOTSUPP: i32 = 95;

/// The error number at the root of an error.
pub(crate) fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(errno);
        }
        at = error.source();
    }
    None
}

/// The name of an interface of the calling thread's namespace, for messages.
pub(crate) fn interface_name(index: u32) -> String {
    let link = RouteSocket::open().and_then(|mut route| route.link_by_index(index));
    link.map_or_else(|_| format!("interface number {index}"), |link| link.name)
}
