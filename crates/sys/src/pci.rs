//! PCI network cards without their kernel driver: identity, memory for their DMA, registers, and a guard process that binds
//! the driver again however the owner of a card ends.
//!
//! A card is reached by sysfs: its registers are a mapping of `resource0`, and its DMA goes to physical addresses of huge
//! pages; or by VFIO, where an IOMMU translates addresses that this process chooses. Kernel documentation:
//! `Documentation/PCI/sysfs-pci.rst`, `Documentation/admin-guide/mm/pagemap.rst`, `Documentation/driver-api/vfio.rst`.

mod card;
mod command;
mod error;
mod group;
mod guard;
mod memory;
mod registers;
mod ring;
mod taken;
mod vfio;

pub use card::{Card, CardId, Way};
pub use error::PciError;
pub use guard::{GUARD, run_guard, set_guard_program};
pub use memory::{BUFFER_BYTES, Buffer, DmaAddresses, DmaMemory, DmaParts, HUGE_PAGE_BYTES, Table};
pub use registers::{Register, Registers};
pub use ring::{Done, RxRing, TxRing, rx, tx};
pub use taken::TakenCard;
