//! User namespaces: how a process without privileges becomes root over namespaces of its own.

use std::fs;
use std::io;

use super::NetNs;

/// Why this process cannot become root of a user namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserNamespaceError {
    /// Only a process with one thread may change its user namespace.
    #[error("cannot enter a user namespace: the process has {threads} threads, but must be single-threaded")]
    Threads {
        /// How many it has.
        threads: usize,
    },
    /// The system does not let this user create user namespaces.
    #[error(
        "cannot create a user namespace: this system does not allow it \
         (user.max_user_namespaces, kernel.unprivileged_userns_clone, a container's seccomp filter)"
    )]
    Disabled {
        /// The cause.
        source: io::Error,
    },
    /// The user namespace was created, but its users could not be mapped.
    #[error("cannot write {path}")]
    Map {
        /// The file.
        path: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The user namespace was created, but its root has no rights over networks.
    #[error(
        "cannot create a network namespace as root of a user namespace: this system withholds the \
         capabilities (kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Powerless {
        /// The cause.
        source: io::Error,
    },
}

/// Moves the process into a new user namespace as its root, where it may create network namespaces.
///
/// For processes without CAP_SYS_ADMIN and CAP_NET_ADMIN. Must be called while the process has one thread.
/// This cannot be undone. Access to files, BPF and existing interfaces stays that of the ordinary user.
pub fn become_root_in_user_namespace() -> Result<(), UserNamespaceError> {
    // SAFETY: no pointers, cannot fail.
    let user = unsafe { libc::geteuid() };
    // SAFETY: no pointers, cannot fail.
    let group = unsafe { libc::getegid() };
    // SAFETY: no pointers; the whole process moves, which the kernel allows only to a single thread.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } < 0 {
        return Err(refusal(io::Error::last_os_error()));
    }
    // A group may be mapped without privilege only once setgroups is disabled; user_namespaces(7).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write("/proc/self/gid_map", &format!("0 {group} 1"))?;
    NetNs::create().map(drop).map_err(|source| UserNamespaceError::Powerless { source })
}

fn refusal(source: io::Error) -> UserNamespaceError {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    match source.raw_os_error() {
        Some(libc::EINVAL) if threads > 1 => UserNamespaceError::Threads { threads },
        _ => UserNamespaceError::Disabled { source },
    }
}

fn write(path: &'static str, text: &str) -> Result<(), UserNamespaceError> {
    fs::write(path, text).map_err(|source| UserNamespaceError::Map { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_told_so_and_keeps_its_user() {
        // The test harness runs each test on a thread beside the main one.
        let refused = become_root_in_user_namespace().unwrap_err();
        let UserNamespaceError::Threads { threads } = refused else { panic!("{refused:?}") };
        assert!(threads > 1);
        assert_eq!(
            UserNamespaceError::Threads { threads: 3 }.to_string(),
            "cannot enter a user namespace: the process has 3 threads, but must be single-threaded"
        );
    }
}
