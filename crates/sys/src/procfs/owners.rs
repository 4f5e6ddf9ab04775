//! Which process holds a socket, by `/proc/<pid>/fd`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its short name (`comm`).
    pub command: String,
}

/// The processes that hold these sockets, by inode; for a process and its children only the process itself. Processes of other
/// users are not shown without CAP_SYS_PTRACE. Scans all processes: too slow to do per packet.
pub fn socket_owners(inodes: &[u64]) -> BTreeMap<u64, Owner> {
    let mut holders: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    if inodes.is_empty() {
        return BTreeMap::new();
    }
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for inode in descriptors.filter_map(|entry| socket_inode(&entry.path())) {
            if inodes.contains(&inode) {
                holders.entry(inode).or_default().insert(pid);
            }
        }
    }
    let owner = |(inode, pids)| {
        let pid = eldest(&pids, parent)?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some((inode, Owner { pid, command: command.trim_end().to_owned() }))
    };
    holders.into_iter().filter_map(owner).collect()
}

/// The first of these processes whose parent is none of them: a child has its parent's sockets until it starts another
/// program.
fn eldest(pids: &BTreeSet<u32>, parent: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let is_child = |pid: u32| parent(pid).is_some_and(|parent| pids.contains(&parent));
    pids.iter().copied().find(|pid| pids.len() == 1 || !is_child(*pid))
}

/// The parent of a process: the second field after its name, which may contain any characters (`proc_pid_stat(5)`).
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The n of `socket:[n]`.
fn socket_inode(descriptor: &Path) -> Option<u64> {
    let target = fs::read_link(descriptor).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::fs::MetadataExt};

    use super::*;

    #[test]
    fn this_process_holds_its_own_sockets_and_nobody_holds_none() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino();
        let owners = socket_owners(&[inode, 1]);
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[&inode].pid, std::process::id());
        assert!(!owners[&inode].command.is_empty());
        assert!(socket_owners(&[]).is_empty());
    }

    #[test]
    fn of_a_process_and_its_children_the_process_holds_a_socket() {
        // A child's id may be smaller: ids wrap.
        let parents = BTreeMap::from([(7, 90), (8, 7), (90, 1)]);
        let owner = |pids: &[u32]| eldest(&pids.iter().copied().collect(), |pid| parents.get(&pid).copied());
        assert_eq!(
            (owner(&[7, 8, 90]), owner(&[7, 8]), owner(&[8]), owner(&[])),
            (Some(90), Some(7), Some(8), None)
        );
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
