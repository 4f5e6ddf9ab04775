//! The first files of the guest: an archive that the kernel unpacks into RAM, with the first process in it.

use std::fs;
use std::path::Path;

use super::cables::Seat;
use super::cpio::{Archive, Device};
use super::error::VmError;
use super::plan::{NicModel, VmPlan};
use super::store::Parts;

/// The work of the first process once the machine is up.
pub(crate) struct First<'f> {
    /// Run by the host's `/bin/sh`.
    pub(crate) script: &'f str,
    /// The script's working directory, if the guest has that folder.
    pub(crate) folder: &'f Path,
    /// Which one of two machines this is.
    pub(crate) seat: Option<&'f Seat<'f>>,
}

/// Builds the archive.
pub(crate) fn initramfs(parts: &Parts, plan: &VmPlan, first: &First<'_>) -> Result<Vec<u8>, VmError> {
    let read = |path: &Path| fs::read(path).map_err(|source| VmError::File { path: path.to_owned(), source });
    let mut archive = Archive::default();
    for name in ["bin", "sbin", "proc", "sys", "dev", "modules", "host", "new"] {
        archive.folder(name);
    }
    archive.character_device("dev/console", &Device { major: 5, minor: 1 });
    archive.character_device("dev/null", &Device { major: 1, minor: 3 });
    archive.file("bin/busybox", &read(&parts.busybox)?);
    archive.file("init", include_bytes!("guest/init.sh"));
    archive.file("sbin/modprobe", include_bytes!("guest/modprobe.sh"));
    archive.file("script", first.script.as_bytes());
    archive.file("folder", first.folder.as_os_str().as_encoded_bytes());
    if let Some(packages) = &parts.packages {
        archive.file("packages", packages.as_os_str().as_encoded_bytes());
    }
    let mut drivers: Vec<&str> = plan.pairs.iter().map(|pair| pair.model.driver()).collect();
    if let Some(seat) = first.seat {
        archive.file("side", format!("{}\n", seat.side().letter()).as_bytes());
        archive.file("sbin/cable", include_bytes!("guest/cable.sh"));
        drivers.extend(seat.models().map(NicModel::driver));
    }
    if plan.iommu {
        drivers.extend(["vfio_pci", "vfio_iommu_type1"]);
    }
    archive.file("modules/at-start", parts.modules.at_start(&drivers).join("\n").as_bytes());
    let by_name = parts.modules.by_any_name();
    let by_name: String = by_name.map(|(name, order)| format!("{name} {}\n", order.join(" "))).collect();
    archive.file("modules/by-name", by_name.as_bytes());
    for name in parts.modules.names() {
        let file = format!("{name}.ko");
        archive.file(&format!("modules/{file}"), &read(&parts.modules_folder.join(&file))?);
    }
    Ok(archive.finish())
}
