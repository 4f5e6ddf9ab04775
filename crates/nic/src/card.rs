//! One interface, and the kernel interfaces to query it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sys::{
    ethtool::{EthtoolNetlink, EthtoolSocket},
    netdev::NetdevSocket,
    netns::NetNs,
    rtnetlink::{Link, RouteSocket},
    sysfs::Sysfs,
};

use crate::NicError;

/// An interface in the namespace of the thread that opened it. Reading changes nothing.
#[derive(Debug)]
pub struct Card {
    name: String,
    index: u32,
    pub(crate) route: RouteSocket,
    pub(crate) ethtool: EthtoolSocket,
    /// `None` before Linux 5.6.
    pub(crate) netlink: Option<EthtoolNetlink>,
    /// Opened on first use; `Some(None)` before Linux 6.8.
    netdev: Option<Option<NetdevSocket>>,
    sysfs: Option<PathBuf>,
    /// A mount of sysfs of our own, when none shows this namespace.
    _own_sysfs: Option<Sysfs>,
}

impl Card {
    /// The interface of this name in the calling thread's namespace.
    ///
    /// # Errors
    /// When there is no such interface, or no socket.
    pub fn open(name: &str) -> Result<Self, NicError> {
        let ethtool = EthtoolSocket::open()?;
        Ok(Self { netlink: EthtoolNetlink::open().ok(), ..Self::over(name, ethtool)? })
    }

    /// The interface of this name, whose card answers through this socket alone, without ethtool's netlink.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn over(name: &str, ethtool: EthtoolSocket) -> Result<Self, NicError> {
        let mut route = RouteSocket::open()?;
        let link = route.link_by_name(name)?;
        let own = if shows("/sys".as_ref(), &link) { None } else { own_sysfs() };
        let root = own.as_ref().map_or_else(|| PathBuf::from("/sys"), Sysfs::path);
        let sysfs = shows(&root, &link).then_some(root);
        Ok(Self {
            name: link.name,
            index: link.index,
            route,
            ethtool,
            netlink: None,
            netdev: None,
            sysfs,
            _own_sysfs: own,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's number in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The link as it is now.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn link(&mut self) -> Result<Link, NicError> {
        Ok(self.route.link_by_index(self.index)?)
    }

    /// The kernel's netdev family; `None` when it has none. Call it on a thread in the card's namespace.
    pub(crate) fn netdev(&mut self) -> Option<&mut NetdevSocket> {
        self.netdev.get_or_insert_with(|| NetdevSocket::open().ok()).as_mut()
    }

    /// Updates the interface's name after a rename: ioctls and files use the name.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn refresh_name(&mut self) -> Result<&str, NicError> {
        self.name = self.link()?.name;
        Ok(&self.name)
    }

    /// The interface's folder in sysfs.
    ///
    /// # Errors
    /// [`NicError::ForeignSysfs`] when sysfs shows another namespace.
    pub(crate) fn folder(&self) -> Result<PathBuf, NicError> {
        let root =
            self.sysfs.as_ref().ok_or_else(|| NicError::ForeignSysfs { interface: self.name.clone() })?;
        Ok(root.join("class/net").join(&self.name))
    }

    /// Queues of a direction that the driver uses: it may have prepared more. `None` where sysfs is of another namespace.
    pub(crate) fn queues_in_use(&self, receives: bool) -> Option<u32> {
        let prefix = if receives { "rx-" } else { "tx-" };
        let queues = fs::read_dir(self.folder().ok()?.join("queues")).ok()?.flatten();
        let of_it = queues.filter(|queue| queue.file_name().to_string_lossy().starts_with(prefix));
        Some(of_it.count() as u32)
    }

    /// The text of a file in the interface's folder.
    pub(crate) fn read(&self, file: &str) -> Result<String, NicError> {
        read(&self.folder()?.join(file))
    }

    /// Writes a file in the interface's folder.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), NicError> {
        write(&self.folder()?.join(file), text)
    }

    /// The numbers N of the folders `queues/SIDE-N`, ascending.
    pub(crate) fn queues(&self, side: &str) -> Result<Vec<u32>, NicError> {
        let folder = self.folder()?.join("queues");
        let entries = fs::read_dir(&folder).map_err(|source| NicError::File {
            action: "read",
            path: folder.clone(),
            source,
        })?;
        let number = |name: &str| name.strip_prefix(side)?.strip_prefix('-')?.parse().ok();
        let mut numbers: Vec<u32> =
            entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// The text of a file, without blanks around it.
pub(crate) fn read(path: &Path) -> Result<String, NicError> {
    let failed = |source| NicError::File { action: "read", path: path.into(), source };
    Ok(fs::read_to_string(path).map_err(failed)?.trim().to_owned())
}

/// Writes a file in one call, as the kernel's files require.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), NicError> {
    let failed = |source| NicError::File { action: "write", path: path.into(), source };
    let mut file = fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

/// Whether sysfs at `root` is that of the link's namespace: number and hardware address must be the link's.
fn shows(root: &Path, link: &Link) -> bool {
    let folder = root.join("class/net").join(&link.name);
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_owned();
    let mac = link.mac.map(|mac| wire::MacAddr(mac).to_string());
    text("ifindex") == link.index.to_string() && mac.is_none_or(|mac| text("address") == mac)
}

fn own_sysfs() -> Option<Sysfs> {
    Sysfs::of(&NetNs::current().ok()?).ok()
}
