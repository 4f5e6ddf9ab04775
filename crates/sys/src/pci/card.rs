//! The PCI card behind an interface as sysfs describes it, and whether it may be taken from the kernel.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    error::PciError,
    group::{self, Group},
};

/// Vendor and device of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardId {
    /// The vendor: 0x8086 is Intel.
    pub vendor: u16,
    /// The vendor's number of the device.
    pub device: u16,
}

/// How a card is reached without its kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By sysfs: DMA to physical addresses, no interrupts.
    Sysfs,
    /// By VFIO: DMA through the IOMMU, interrupts as events.
    Vfio,
}

impl Way {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sysfs => "sysfs",
            Self::Vfio => "vfio",
        }
    }
}

/// The card behind an interface while the kernel's driver owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// The interface's name.
    pub interface: String,
    /// Domain, bus, device and function: `0000:00:03.0`.
    pub address: String,
    /// Vendor and device.
    pub id: CardId,
    /// Vendor of the board: 0x1af4 is QEMU.
    pub subsystem_vendor: u16,
    /// The kernel's driver.
    pub driver: String,
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// The interface's MTU.
    pub mtu: u32,
    /// Whether the interface is up.
    is_up: bool,
    /// The bond, bridge or team that it is a port of.
    owner: Option<String>,
    /// Its IOMMU group, where it has one.
    iommu: Option<Group>,
}

/// `IFF_UP` of `linux/if.h`.
const IFF_UP: u32 = libc::IFF_UP as u32;

impl Card {
    /// The card behind an interface of the namespace that `/sys` shows.
    ///
    /// # Errors
    /// [`PciError::NotPci`]; [`PciError::Step`] when sysfs cannot be read.
    pub fn of_interface(interface: &str) -> Result<Self, PciError> {
        Self::in_sysfs(Path::new("/sys"), interface)
    }

    fn in_sysfs(sysfs: &Path, interface: &str) -> Result<Self, PciError> {
        let net = sysfs.join("class/net").join(interface);
        let not_pci = |source| PciError::NotPci { interface: interface.into(), source };
        let device = net.join("device").canonicalize().map_err(not_pci)?;
        let is_pci = device.join("subsystem").canonicalize().is_ok_and(|path| path.ends_with("bus/pci"));
        if !is_pci || interface.contains('/') {
            return Err(not_pci(io::ErrorKind::InvalidInput.into()));
        }
        let address = name_of(&device).ok_or_else(|| not_pci(io::ErrorKind::InvalidData.into()))?;
        let driver = device.join("driver").canonicalize().map_err(not_pci)?;
        let mac = text(&net.join("address"))?;
        let iommu = device.join("iommu_group").canonicalize().ok().and_then(Group::of);
        Ok(Self {
            interface: interface.into(),
            id: CardId {
                vendor: number(&device.join("vendor"))? as u16,
                device: number(&device.join("device"))? as u16,
            },
            subsystem_vendor: number(&device.join("subsystem_vendor"))? as u16,
            driver: name_of(&driver).unwrap_or_default(),
            mac: mac_of(&mac).ok_or_else(|| not_pci(io::ErrorKind::InvalidData.into()))?,
            mtu: number(&net.join("mtu"))?,
            is_up: number(&net.join("flags"))? & IFF_UP != 0,
            owner: net.join("master").canonicalize().ok().as_deref().and_then(name_of),
            iommu,
            address,
        })
    }

    /// VFIO where the card has an IOMMU group, otherwise sysfs.
    pub fn best_way(&self) -> Way {
        if self.iommu.is_some() { Way::Vfio } else { Way::Sysfs }
    }

    /// Checks whether the card can be taken from the kernel in this way. `addresses` are the interface's.
    ///
    /// # Errors
    /// The reason.
    pub fn check_free(&self, addresses: &[std::net::IpAddr], way: Way) -> Result<(), PciError> {
        let interface = self.interface.clone();
        if self.is_up {
            return Err(PciError::Up { interface });
        }
        if !addresses.is_empty() {
            let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(PciError::Addressed { interface, addresses });
        }
        if let Some(owner) = self.owner.clone() {
            return Err(PciError::Enslaved { interface, owner });
        }
        match (way, &self.iommu) {
            (Way::Sysfs, Some(group)) if group.translates() => {
                Err(PciError::Iommu { interface, kind: group.kind.clone() })
            }
            (Way::Sysfs, _) => Ok(()),
            (Way::Vfio, None) => Err(PciError::NoIommu { interface }),
            (Way::Vfio, Some(group)) => {
                let others = group::others_in_use(&group.folder, &self.address);
                if others.is_empty() {
                    return Ok(());
                }
                Err(PciError::SharedGroup { interface, group: group.number, others: others.join(", ") })
            }
        }
    }

    /// The number of its IOMMU group.
    ///
    /// # Errors
    /// [`PciError::NoIommu`].
    pub(super) fn group(&self) -> Result<u32, PciError> {
        let number = self.iommu.as_ref().map(|group| group.number);
        number.ok_or_else(|| PciError::NoIommu { interface: self.interface.clone() })
    }

    /// The address of the first of these huge pages behind the IOMMU.
    ///
    /// # Errors
    /// [`PciError::NoIommu`], [`PciError::Step`].
    pub(super) fn address_behind_iommu(&self, pages: usize) -> Result<u64, PciError> {
        let group =
            self.iommu.as_ref().ok_or_else(|| PciError::NoIommu { interface: self.interface.clone() })?;
        let list = group.folder.join("reserved_regions");
        let reserved = text(&list)?;
        let none = PciError::step("find free addresses in", list.display().to_string());
        group::free_addresses(&reserved, pages).ok_or_else(|| none(io::ErrorKind::AddrNotAvailable.into()))
    }

    /// The card's folder.
    pub(super) fn folder(&self) -> PathBuf {
        Path::new("/sys/bus/pci/devices").join(&self.address)
    }
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn text(path: &Path) -> Result<String, PciError> {
    let text = fs::read_to_string(path).map_err(PciError::step("read", path.display().to_string()))?;
    Ok(text.trim().to_owned())
}

/// A number as sysfs writes it: `0x8086` or `1500`.
fn number(path: &Path) -> Result<u32, PciError> {
    let text = text(path)?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| PciError::step("read", path.display().to_string())(io::ErrorKind::InvalidData.into()))
}

fn mac_of(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs with one card.
    fn sysfs(flags: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("devices/pci0000:00/0000:00:03.0");
        let net = device.join("net/eth7");
        for folder in [&net, &root.path().join("bus/pci/drivers/e1000"), &root.path().join("class/net")] {
            fs::create_dir_all(folder).unwrap();
        }
        for (file, text) in [
            (device.join("vendor"), "0x8086\n"),
            (device.join("device"), "0x100e\n"),
            (device.join("subsystem_vendor"), "0x1af4\n"),
            (net.join("address"), "52:54:00:00:01:0b\n"),
            (net.join("mtu"), "1500\n"),
            (net.join("flags"), flags),
        ] {
            fs::write(file, text).unwrap();
        }
        symlink(root.path().join("bus/pci"), device.join("subsystem")).unwrap();
        symlink(root.path().join("bus/pci/drivers/e1000"), device.join("driver")).unwrap();
        symlink(&device, net.join("device")).unwrap();
        symlink(&net, root.path().join("class/net/eth7")).unwrap();
        root
    }

    fn group(root: &Path, kind: &str) {
        let group = root.join("kernel/iommu_groups/4");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("type"), kind).unwrap();
        symlink(&group, root.join("devices/pci0000:00/0000:00:03.0/iommu_group")).unwrap();
    }

    #[test]
    fn a_card_is_what_sysfs_says_of_it() {
        let root = sysfs("0x1002\n");
        let card = Card::in_sysfs(root.path(), "eth7").unwrap();
        assert_eq!((card.address.as_str(), card.driver.as_str()), ("0000:00:03.0", "e1000"));
        assert_eq!(card.id, CardId { vendor: 0x8086, device: 0x100e });
        assert_eq!((card.mac, card.mtu), ([0x52, 0x54, 0, 0, 1, 0x0b], 1500));
        assert!(card.check_free(&[], Way::Sysfs).is_ok());
        let error = Card::in_sysfs(root.path(), "eth8").unwrap_err().to_string();
        assert_eq!(error, "cannot take eth8: it is not a PCI card in this network namespace");
    }

    #[test]
    fn an_interface_in_use_is_refused() {
        let root = sysfs("0x1003\n");
        let card = Card::in_sysfs(root.path(), "eth7").unwrap();
        let error = card.check_free(&[], Way::Sysfs).unwrap_err().to_string();
        assert_eq!(error, "cannot take eth7 from the kernel: it is up (ip link set dev eth7 down)");
        let root = sysfs("0x1002\n");
        let card = Card::in_sysfs(root.path(), "eth7").unwrap();
        let error = card.check_free(&["192.0.2.1".parse().unwrap()], Way::Sysfs).unwrap_err().to_string();
        assert_eq!(error, "cannot take eth7 from the kernel: it has addresses (192.0.2.1)");
        let bond = root.path().join("devices/virtual/net/bond0");
        fs::create_dir_all(&bond).unwrap();
        symlink(&bond, root.path().join("class/net/eth7/master")).unwrap();
        let card = Card::in_sysfs(root.path(), "eth7").unwrap();
        let error = card.check_free(&[], Way::Sysfs).unwrap_err().to_string();
        assert_eq!(error, "cannot take eth7 from the kernel: it belongs to bond0");
    }

    #[test]
    fn a_card_behind_a_translating_iommu_is_refused_before_it_faults() {
        for (kind, is_free) in [("DMA-FQ\n", false), ("DMA\n", false), ("identity\n", true)] {
            let root = sysfs("0x1002\n");
            group(root.path(), kind);
            let card = Card::in_sysfs(root.path(), "eth7").unwrap();
            let error = card.check_free(&[], Way::Sysfs).err().map(|error| error.to_string());
            assert_eq!(error.is_none(), is_free, "{error:?}");
            if let Some(error) = error {
                let begin = format!(
                    "cannot take eth7 by sysfs: the IOMMU translates the card's DMA ({})",
                    kind.trim()
                );
                assert!(error.starts_with(&begin), "{error}");
                assert!(error.contains("--card-access vfio"), "{error}");
            }
            assert_eq!(card.best_way(), Way::Vfio);
            assert!(card.check_free(&[], Way::Vfio).is_ok());
        }
    }

    #[test]
    fn vfio_needs_an_iommu_group_without_other_users() {
        let root = sysfs("0x1002\n");
        let card = Card::in_sysfs(root.path(), "eth7").unwrap();
        assert_eq!(card.best_way(), Way::Sysfs);
        let error = card.check_free(&[], Way::Vfio).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot take eth7 by VFIO: it has no IOMMU group (boot with intel_iommu=on or amd_iommu=on)"
        );
        group(root.path(), "DMA\n");
        let device = root.path().join("devices/pci0000:00/0000:00:03.1");
        let driver = root.path().join("bus/pci/drivers/igb");
        let members = root.path().join("kernel/iommu_groups/4/devices");
        for folder in [&device, &driver, &members] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink(&driver, device.join("driver")).unwrap();
        symlink(&device, members.join("0000:00:03.1")).unwrap();
        let card = Card::in_sysfs(root.path(), "eth7").unwrap();
        let error = card.check_free(&[], Way::Vfio).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot take eth7 by VFIO: kernel drivers use other cards of its IOMMU group 4: 0000:00:03.1 (igb)"
        );
    }
}
