//! Which process holds a socket, by `/proc/<pid>/fd`.

use std::{collections::BTreeMap, fs, path::Path};

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its short name (`comm`).
    pub command: String,
}

/// The processes that hold these sockets, by inode; those of other users are not shown without CAP_SYS_PTRACE. Looks
/// through every process: not for every packet.
pub fn socket_owners(inodes: &[u64]) -> BTreeMap<u64, Owner> {
    let mut owners = BTreeMap::new();
    if inodes.is_empty() {
        return owners;
    }
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let folder = format!("/proc/{pid}");
        let descriptors = fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten();
        for inode in descriptors.filter_map(|entry| socket_inode(&entry.path())) {
            if inodes.contains(&inode) && !owners.contains_key(&inode) {
                let command = fs::read_to_string(format!("{folder}/comm")).unwrap_or_default();
                owners.insert(inode, Owner { pid, command: command.trim_end().to_owned() });
            }
        }
        if owners.len() == inodes.len() {
            break;
        }
    }
    owners
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
}
