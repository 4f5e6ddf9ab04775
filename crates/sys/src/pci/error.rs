//! Why a card cannot be driven from user space.

use std::io;

use thiserror::Error;

/// A card could not be taken, or does not answer.
#[derive(Debug, Error)]
pub enum PciError {
    /// Not a PCI card's interface, or in another network namespace.
    #[error("cannot take {interface}: it is not a PCI card in this network namespace")]
    NotPci {
        /// The interface.
        interface: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It is up and may carry traffic.
    #[error("cannot take {interface} from the kernel: it is up (ip link set dev {interface} down)")]
    Up {
        /// The interface.
        interface: String,
    },
    /// Users of its addresses need the kernel's driver.
    #[error("cannot take {interface} from the kernel: it has addresses ({addresses})")]
    Addressed {
        /// The interface.
        interface: String,
        /// Its addresses.
        addresses: String,
    },
    /// The card is a port of another interface, or another function's.
    #[error("cannot take {interface} from the kernel: it belongs to {owner}")]
    Enslaved {
        /// The interface.
        interface: String,
        /// The bond, bridge or team.
        owner: String,
    },
    /// Physical addresses mean nothing to a card behind an IOMMU.
    #[error(
        "cannot take {interface} by sysfs: the IOMMU translates the card's DMA ({kind}), and blocks physical addresses; \
         use --card-access vfio, or boot with iommu=pt"
    )]
    Iommu {
        /// The interface.
        interface: String,
        /// The type of its IOMMU group's domain.
        kind: String,
    },
    /// VFIO needs an IOMMU.
    #[error(
        "cannot take {interface} by VFIO: it has no IOMMU group (boot with intel_iommu=on or amd_iommu=on)"
    )]
    NoIommu {
        /// The interface.
        interface: String,
    },
    /// VFIO lends IOMMU groups only as a whole.
    #[error(
        "cannot take {interface} by VFIO: kernel drivers use other cards of its IOMMU group {group}: {others}"
    )]
    SharedGroup {
        /// The interface.
        interface: String,
        /// The group's number.
        group: u32,
        /// Cards and their drivers.
        others: String,
    },
    /// The kernel's driver for cards of user space is missing.
    #[error("cannot take {interface} by VFIO: the kernel has no driver vfio-pci (modprobe vfio-pci)")]
    NoVfio {
        /// The interface.
        interface: String,
    },
    /// The kernel's part of VFIO that maps memory is missing.
    #[error(
        "cannot take {interface} by VFIO: needs the kernel module vfio_iommu_type1 (modprobe vfio_iommu_type1)"
    )]
    NoVfioIommu {
        /// The interface.
        interface: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Only VFIO turns interrupts into events.
    #[error(
        "cannot use interrupts of {interface}: sysfs gives user space none; use --card-access vfio, which needs an IOMMU, \
         or poll"
    )]
    NoInterrupts {
        /// The interface.
        interface: String,
    },
    /// No guard would bind the driver again.
    #[error(
        "cannot take {interface} from the kernel: this program has no guard that would bind its driver again"
    )]
    NoGuard {
        /// The interface.
        interface: String,
    },
    /// The guard did not start, or could not bind the driver again.
    #[error("the guard of {address} failed: {said}")]
    Guard {
        /// The card's address.
        address: String,
        /// What it said.
        said: String,
    },
    /// A step on the card failed.
    #[error("cannot {tried} {object}")]
    Step {
        /// What was tried.
        tried: &'static str,
        /// On what: a file, mostly.
        object: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Memory for the card's DMA.
    #[error("cannot get {pages} huge pages of 2 MiB for the card's DMA (/proc/sys/vm/nr_hugepages)")]
    NoHugePages {
        /// How many.
        pages: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel hides physical addresses.
    #[error("cannot read physical addresses in /proc/self/pagemap: needs CAP_SYS_ADMIN over the machine")]
    NoPhysicalAddresses,
}

impl PciError {
    /// The kernel's reason, where it gave one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::NotPci { source, .. }
            | Self::Step { source, .. }
            | Self::NoHugePages { source, .. }
            | Self::NoVfioIommu { source, .. } => Some(source),
            _ => None,
        }
    }

    pub(super) fn step(tried: &'static str, object: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let object = object.into();
        move |source| Self::Step { tried, object, source }
    }
}
