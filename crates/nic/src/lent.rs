//! An interface that a command brings up and gives addresses for its own use, and that is as before afterwards.
//!
//! What was done is on disk before it is done, beside the journals of settings, so that what a killed command left can be
//! undone by the next one or by `linerate nic restore`.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sys::{
    NetlinkError,
    rtnetlink::{RouteSocket, flag},
};

use crate::{
    note::{self, boot, namespace},
    owner::Owner,
    session::error::SessionError,
};

const SCHEMA: &str = "linerate.lent-interface/1";

/// An interface in use; it is as before once this value goes.
#[derive(Debug)]
pub struct LentInterface {
    path: PathBuf,
    state: Lent,
}

/// The settings to restore, in their form on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lent {
    schema: String,
    interface: String,
    index: u32,
    namespace: u64,
    boot: String,
    owner: Owner,
    was_up: bool,
    addresses: Vec<(IpAddr, u8)>,
}

/// What a killed command had left of an interface, and is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoredInterface {
    /// Its name then.
    pub interface: String,
    /// The command.
    pub owner: Owner,
    /// Addresses that were removed.
    pub addresses: Vec<IpAddr>,
    /// Whether it was set down again.
    pub set_down: bool,
}

impl LentInterface {
    /// Brings an interface up.
    ///
    /// # Errors
    /// When there is none of this name, the note cannot be written, or it cannot be brought up.
    pub fn bring_up(state: &Path, interface: &str) -> Result<Self, SessionError> {
        let folder = folder(state);
        let mut route = RouteSocket::open()?;
        let link = route.link_by_name(interface)?;
        let namespace = namespace()?;
        let lent = Self {
            path: folder.join(format!("{namespace}-{}.json", link.index)),
            state: Lent {
                schema: SCHEMA.into(),
                interface: link.name,
                index: link.index,
                namespace,
                boot: boot(),
                owner: Owner::this(),
                was_up: link.flags & flag::UP != 0,
                addresses: Vec::new(),
            },
        };
        lent.write()?;
        route.change_flags(link.index, flag::UP, flag::UP)?;
        Ok(lent)
    }

    /// Gives it an address.
    ///
    /// # Errors
    /// When the note cannot be written, or the kernel refuses.
    pub fn add_address(&mut self, address: IpAddr, prefix: u8) -> Result<(), SessionError> {
        self.state.addresses.push((address, prefix));
        self.write()?;
        Ok(RouteSocket::open()?.add_address(self.state.index, address, prefix)?)
    }

    fn write(&self) -> Result<(), SessionError> {
        note::write(&self.path, &self.state)
    }
}

impl Drop for LentInterface {
    fn drop(&mut self) {
        // An interface that is gone took its addresses along.
        let _gone_either_way = self.state.undo();
        let _stays_without_effect = fs::remove_file(&self.path);
    }
}

impl Lent {
    fn undo(&self) -> Result<(), NetlinkError> {
        let mut route = RouteSocket::open()?;
        for (address, prefix) in &self.addresses {
            let _gone_either_way = route.delete_address(self.index, *address, *prefix);
        }
        if self.was_up { Ok(()) } else { route.change_flags(self.index, 0, flag::UP) }
    }
}

/// Undoes what killed commands left of interfaces that they had brought up, in this namespace and since the machine started.
///
/// # Errors
/// When a note cannot be read or removed.
pub fn restore_lent(state: &Path) -> Result<Vec<RestoredInterface>, SessionError> {
    let (namespace, boot) = (namespace()?, boot());
    let mut restored = Vec::new();
    for (path, lent) in note::read_all::<Lent>(&folder(state), SCHEMA)? {
        let is_of_now = lent.boot == boot;
        if is_of_now && (lent.namespace != namespace || lent.owner.is_alive()) {
            continue;
        }
        if is_of_now {
            let undone = lent.undo();
            restored.push(RestoredInterface {
                interface: lent.interface,
                owner: lent.owner,
                addresses: lent.addresses.iter().map(|(address, _)| *address).collect(),
                set_down: !lent.was_up && undone.is_ok(),
            });
        }
        note::remove(&path)?;
    }
    Ok(restored)
}

fn folder(state: &Path) -> PathBuf {
    state.join("lent")
}

#[cfg(test)]
mod tests {
    use sys::netns::NetNs;

    use super::*;

    /// Runs in a namespace of its own.
    fn in_a_namespace(work: impl FnOnce(&Path) + Send) {
        let Ok(namespace) = NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let state = tempfile::tempdir().unwrap();
        namespace.run(|| work(state.path())).unwrap();
    }

    fn interface() -> (RouteSocket, u32) {
        let mut route = RouteSocket::open().unwrap();
        route.create_bridge("lent0").unwrap();
        let index = route.link_by_name("lent0").unwrap().index;
        // a bridge is created up
        route.change_flags(index, 0, flag::UP).unwrap();
        (route, index)
    }

    #[test]
    fn an_interface_is_as_before_when_its_use_ends() {
        in_a_namespace(|state| {
            let (mut route, index) = interface();
            let mut lent = LentInterface::bring_up(state, "lent0").unwrap();
            lent.add_address([192, 168, 6, 2].into(), 24).unwrap();
            assert!(route.addresses(index).unwrap().contains(&[192, 168, 6, 2].into()));
            assert_eq!(restore_lent(state).unwrap(), [], "its owner lives");
            drop(lent);
            assert!(!route.addresses(index).unwrap().iter().any(IpAddr::is_ipv4));
            assert_eq!(route.link_by_index(index).unwrap().flags & flag::UP, 0);
            assert!(fs::read_dir(folder(state)).unwrap().next().is_none(), "no note stays");
        });
    }

    #[test]
    fn what_a_killed_command_left_is_undone() {
        in_a_namespace(|state| {
            let (mut route, index) = interface();
            let mut lent = LentInterface::bring_up(state, "lent0").unwrap();
            // a process that is no more: it never had this start
            lent.state.owner.start_ticks += 1;
            for last in 2..6 {
                lent.add_address([192, 168, 6, last].into(), 24).unwrap();
            }
            std::mem::forget(lent);
            let restored = restore_lent(state).unwrap();
            assert_eq!(restored.len(), 1);
            assert_eq!((restored[0].addresses.len(), restored[0].set_down), (4, true));
            assert!(!route.addresses(index).unwrap().iter().any(IpAddr::is_ipv4));
            assert_eq!(route.link_by_index(index).unwrap().flags & flag::UP, 0);
            assert_eq!(restore_lent(state).unwrap(), [], "once");
        });
    }
}
