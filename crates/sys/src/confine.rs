//! Privileges given up for good: a process that serves others keeps only the capabilities that it names, and is refused system
//! calls that only an intruder would make.

use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use thiserror::Error;

use crate::capability::Capability;

/// What could not be given up.
#[derive(Debug, Error)]
pub enum ConfineError {
    /// The capability sets stay as they were.
    #[error("cannot drop capabilities")]
    Capabilities(#[source] io::Error),
    /// The system calls stay allowed.
    #[error("cannot refuse system calls")]
    SystemCalls(#[source] seccompiler::Error),
}

/// Refused with EPERM. Other programs, namespaces, mounts, other processes' memory, kernel modules, keys, clocks, users.
const REFUSED: &[(&str, libc::c_long)] = &[
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("fsopen", libc::SYS_fsopen),
    ("fsmount", libc::SYS_fsmount),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("setuid", libc::SYS_setuid),
    ("setgid", libc::SYS_setgid),
    ("setresuid", libc::SYS_setresuid),
    ("setresgid", libc::SYS_setresgid),
    ("setgroups", libc::SYS_setgroups),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("keyctl", libc::SYS_keyctl),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("sethostname", libc::SYS_sethostname),
    ("acct", libc::SYS_acct),
    ("quotactl", libc::SYS_quotactl),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
];

/// The names of the refused system calls, without those that a process needs all the same.
pub fn refused_calls(needed: &[&str]) -> Vec<&'static str> {
    refused(needed).map(|(name, _)| *name).collect()
}

/// Gives up the system calls of [`refused_calls`] and every capability but those kept, on this thread and those that it will
/// start. Call it before there are others. `None` keeps all capabilities, for programs that are executed later.
///
/// # Errors
/// What the kernel refused. What was given up before stays so.
pub fn confine(kept: Option<&[Capability]>, needed: &[&str]) -> Result<(), ConfineError> {
    kept.map_or(Ok(()), keep_only).map_err(ConfineError::Capabilities)?;
    filter(needed).and_then(|program| seccompiler::apply_filter(&program)).map_err(ConfineError::SystemCalls)
}

fn refused(needed: &[&str]) -> impl Iterator<Item = &'static (&'static str, libc::c_long)> {
    REFUSED.iter().filter(move |(name, _)| !needed.contains(name))
}

fn filter(needed: &[&str]) -> Result<BpfProgram, seccompiler::Error> {
    let rules = refused(needed).map(|(_, number)| (*number, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()?)
}

fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let mask = kept.iter().fold(0u64, |mask, capability| mask | 1 << *capability as u64);
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong, 0)?;
    // The bounding set needs CAP_SETPCAP, which root has; without new privileges by execve it matters no more.
    for number in 0..64 {
        let has = prctl(libc::PR_CAPBSET_READ, number, 0).is_ok_and(|has| has == 1);
        if has && mask & 1 << number == 0 && prctl(libc::PR_CAPBSET_DROP, number, 0).is_err() {
            break;
        }
    }
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    Capability::reduce(mask)
}

fn prctl(option: libc::c_int, first: libc::c_ulong, second: libc::c_ulong) -> io::Result<libc::c_int> {
    let zero: libc::c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer.
    let answer = unsafe { libc::prctl(option, first, second, zero, zero) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, thread};

    use super::*;

    fn sets() -> Vec<(String, u64)> {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let sets = status.lines().filter_map(|line| line.strip_prefix("Cap")?.split_once(":\t"));
        sets.map(|(name, mask)| (name.to_owned(), u64::from_str_radix(mask, 16).unwrap())).collect()
    }

    #[test]
    fn a_confined_thread_and_its_children_keep_only_what_was_named_and_execute_nothing() {
        let work = || {
            confine(Some(&[Capability::NetRaw]), &[]).unwrap();
            thread::scope(|scope| {
                let child = scope.spawn(|| (sets(), Command::new("/bin/true").status()));
                child.join().unwrap()
            })
        };
        let refuses = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("Seccomp")).map(str::to_owned)
        };
        let (before, refused_before) = (sets(), refuses());
        let (after, executed) = thread::spawn(work).join().unwrap();
        let held = |sets: &[(String, u64)], name: &str| sets.iter().find(|set| set.0 == name).unwrap().1;
        let raw = 1u64 << Capability::NetRaw as u64;
        for name in ["Eff", "Prm"] {
            assert_eq!(held(&after, name), held(&before, name) & raw, "{name}");
        }
        assert_eq!((held(&after, "Inh"), held(&after, "Amb")), (0, 0));
        assert_eq!(executed.unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(refuses(), refused_before, "other threads are as they were");
    }
}
