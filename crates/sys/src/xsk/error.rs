//! Errors of AF_XDP sockets.

use std::io;

/// An AF_XDP socket could not be opened, or a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XskError {
    /// A capability is missing.
    #[error("cannot {action}: needs {capability}")]
    Capability {
        /// What was tried.
        action: &'static str,
        /// The missing capability, as spelled in capabilities(7).
        capability: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel lacks a feature.
    #[error("this kernel has no {feature} (since Linux {since})")]
    Unsupported {
        /// What is missing.
        feature: &'static str,
        /// The first version that has it.
        since: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The driver cannot share the memory with the card.
    #[error("interface number {interface} refuses zero-copy on queue {queue}; copy mode works everywhere")]
    ZeroCopy {
        /// The interface's number.
        interface: u32,
        /// The queue.
        queue: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of interface number {interface} already has an AF_XDP socket")]
    QueueInUse {
        /// The interface's number.
        interface: u32,
        /// The queue.
        queue: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The interface or queue does not exist, or does not fit the rings.
    #[error("cannot bind to queue {queue} of interface number {interface}")]
    Bind {
        /// The interface's number.
        interface: u32,
        /// The queue.
        queue: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// More locked memory than the process may have (`ulimit -l`, unless it has CAP_IPC_LOCK), or than exists.
    #[error("cannot {action}: not enough lockable memory (ulimit -l)")]
    Memory {
        /// What was tried.
        action: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {action}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl XskError {
    /// Translates a kernel error of an `action` that needs `capability`.
    pub(super) fn of(action: &'static str, capability: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Capability { action, capability, source },
            Some(libc::ENOMEM | libc::ENOBUFS) => Self::Memory { action, source },
            Some(libc::EAFNOSUPPORT) => {
                Self::Unsupported { feature: "AF_XDP sockets", since: "4.18", source }
            }
            _ => Self::Refused { action, source },
        }
    }

    /// The kernel's reason.
    pub fn io(&self) -> &io::Error {
        match self {
            Self::Capability { source, .. }
            | Self::Unsupported { source, .. }
            | Self::ZeroCopy { source, .. }
            | Self::QueueInUse { source, .. }
            | Self::Bind { source, .. }
            | Self::Memory { source, .. }
            | Self::Refused { source, .. } => source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_missing() {
        let told = |code| {
            let source = io::Error::from_raw_os_error(code);
            XskError::of("open an AF_XDP socket", "CAP_NET_RAW", source).to_string()
        };
        assert_eq!(told(libc::EPERM), "cannot open an AF_XDP socket: needs CAP_NET_RAW");
        assert_eq!(told(libc::EAFNOSUPPORT), "this kernel has no AF_XDP sockets (since Linux 4.18)");
        let memory = "cannot open an AF_XDP socket: not enough lockable memory (ulimit -l)";
        assert_eq!(told(libc::ENOBUFS), memory);
        assert_eq!(told(libc::EIO), "cannot open an AF_XDP socket");
    }
}
