//! IOMMU groups: which cards VFIO lends together, and which addresses are free for their DMA.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::memory::HUGE_PAGE_BYTES;

/// The kernel's driver for cards of user space.
pub(super) const DRIVER: &str = "vfio-pci";

/// An IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) folder: PathBuf,
    pub(super) number: u32,
    /// The type of its domain.
    pub(super) kind: String,
}

impl Group {
    pub(super) fn of(folder: PathBuf) -> Option<Self> {
        let number = folder.file_name()?.to_str()?.parse().ok()?;
        let kind = fs::read_to_string(folder.join("type"));
        let kind = kind.map_or_else(|_| "of unknown type".into(), |kind| kind.trim().into());
        Some(Self { folder, number, kind })
    }

    /// In an identity domain the IOMMU passes physical addresses through.
    pub(super) fn translates(&self) -> bool {
        self.kind != "identity"
    }
}

/// The card's address of the first of these huge pages: below 4 GiB, because IOMMUs have 39 bits or more and cards at least 32.
/// `reserved` is the group's list: lines of first and last address, and a kind.
pub(super) fn free_addresses(reserved: &str, pages: usize) -> Option<u64> {
    const FIRST: u64 = 256 << 20;
    const END: u64 = 4 << 30;
    let number = |word: Option<&str>| u64::from_str_radix(word?.trim_start_matches("0x"), 16).ok();
    let taken: Vec<(u64, u64)> = reserved
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((number(words.next())?, number(words.next())?))
        })
        .collect();
    let bytes = (pages * HUGE_PAGE_BYTES) as u64;
    (FIRST..=END.checked_sub(bytes)?)
        .step_by(HUGE_PAGE_BYTES)
        .find(|first| taken.iter().all(|(begin, last)| first + bytes <= *begin || *last < *first))
}

/// Other cards of an IOMMU group that kernel drivers use: VFIO lends a group only as a whole.
pub(super) fn others_in_use(group: &Path, address: &str) -> Vec<String> {
    let members = fs::read_dir(group.join("devices")).into_iter().flatten().flatten();
    let used = members.filter_map(|member| {
        let name = member.file_name().into_string().ok().filter(|name| name != address)?;
        let driver = member.path().join("driver").canonicalize().ok()?;
        let driver = driver.file_name()?.to_str()?.to_owned();
        // Bridges may keep theirs.
        (!matches!(&*driver, DRIVER | "pcieport" | "pci-stub")).then(|| format!("{name} ({driver})"))
    });
    let mut used: Vec<String> = used.collect();
    used.sort();
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cards_addresses_avoid_what_the_machine_reserves() {
        const MIB: u64 = 1 << 20;
        let msi = "0x00000000fee00000 0x00000000feefffff msi\n";
        assert_eq!(free_addresses(msi, 5), Some(256 * MIB));
        assert_eq!(free_addresses("", 1), Some(256 * MIB));
        let low = format!("{msi}0x0000000010000000 0x00000000101fffff direct\n");
        assert_eq!(free_addresses(&low, 1), Some(258 * MIB));
        // A region that begins within the pages.
        let within = "0x0000000010300000 0x00000000103fffff direct\n";
        assert_eq!(free_addresses(within, 1), Some(256 * MIB));
        assert_eq!(free_addresses(within, 2), Some(260 * MIB));
        assert_eq!(free_addresses("0x0 0xffffffffffffffff reserved\n", 1), None);
        assert_eq!(free_addresses(msi, 1 << 20), None);
    }

    #[test]
    fn a_group_is_lent_as_a_whole() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("kernel/iommu_groups/4");
        fs::create_dir_all(group.join("devices")).unwrap();
        for (address, driver) in [
            ("0000:00:03.0", "e1000"),
            ("0000:00:03.1", "igb"),
            ("0000:00:03.2", "vfio-pci"),
            ("0000:00:1c.0", "pcieport"),
            ("0000:00:03.3", ""),
        ] {
            let device = root.path().join("devices").join(address);
            let drivers = root.path().join("drivers").join(driver);
            fs::create_dir_all(&device).unwrap();
            fs::create_dir_all(&drivers).unwrap();
            if !driver.is_empty() {
                symlink(&drivers, device.join("driver")).unwrap();
            }
            symlink(&device, group.join("devices").join(address)).unwrap();
        }
        assert_eq!(others_in_use(&group, "0000:00:03.0"), ["0000:00:03.1 (igb)"]);
        assert_eq!(others_in_use(&group, "0000:00:03.1"), ["0000:00:03.0 (e1000)"]);
    }
}
