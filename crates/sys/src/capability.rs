//! Which capabilities the calling thread holds, according to the kernel, and giving them up.

use std::io;

/// A capability of Linux that linerate can need; see capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// Write files whatever their permissions.
    DacOverride = 1,
    /// Bind ports below 1024.
    NetBindService = 10,
    /// Change interfaces, addresses, neighbours and offloads.
    NetAdmin = 12,
    /// Open packet sockets.
    NetRaw = 13,
    /// Lock memory beyond the limit.
    IpcLock = 14,
    /// Create and enter namespaces, mount file systems.
    SysAdmin = 21,
    /// Place other processes' threads on CPUs.
    SysNice = 23,
    /// Read the kernel's addresses.
    Syslog = 34,
    /// Read hardware counters and trace points.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

impl Capability {
    /// Whether the calling thread holds it (in its effective set) over its own user namespace.
    ///
    /// An error counts as "no".
    pub fn held(self) -> bool {
        let bit = self as u32;
        sets().is_some_and(|words| words[bit as usize / 32].effective & 1 << (bit % 32) != 0)
    }

    /// Its name in capabilities(7).
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }

    /// Gives up what is not in the mask, on the calling thread, and everything inheritable.
    pub(crate) fn reduce(mask: u64) -> io::Result<()> {
        let mut sets = sets().ok_or_else(io::Error::last_os_error)?;
        for (set, kept) in sets.iter_mut().zip([mask as u32, (mask >> 32) as u32]) {
            let permitted = set.permitted & kept;
            *set = Sets { effective: set.effective & permitted, permitted, inheritable: 0 };
        }
        let header = Header { version: VERSION_3, pid: 0 };
        // SAFETY: version 3 makes the kernel read one header and exactly two records; both outlive the call and have the
        // layout of linux/capability.h.
        let answer = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`: 64 capabilities in two records.
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn sets() -> Option<[Sets; 2]> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 makes the kernel read and write one header and write exactly two records; both
    // outlive the call and have the layout of linux/capability.h.
    let answer = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    (answer == 0).then_some(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same through the text interface, as a second source.
    fn held_by_proc(capability: Capability) -> bool {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & 1 << capability as u32 != 0
    }

    #[test]
    fn capget_and_proc_say_the_same() {
        use Capability::*;
        for capability in [NetAdmin, NetRaw, IpcLock, SysAdmin, SysNice, Perfmon, Bpf] {
            assert_eq!(capability.held(), held_by_proc(capability), "{capability:?}");
        }
    }
}
