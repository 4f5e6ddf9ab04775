//! A card that this process drives instead of the kernel.

use std::{fs, io, path::PathBuf, time::Duration};

use super::{
    card::{Card, Way},
    command::{start_dma, stop_dma},
    error::PciError,
    guard::{Guard, enter_vfio},
    memory::{DmaAddresses, DmaMemory},
    registers::Registers,
    vfio::{self, Vfio},
};

/// A card without its kernel driver, which is bound again when this value is dropped or this process ends.
pub struct TakenCard {
    /// The card as it was.
    pub card: Card,
    // Dropped in this order: VFIO's driver keeps the card while its registers are mapped.
    /// Its registers.
    pub registers: Registers,
    vfio: Option<Vfio>,
    folder: PathBuf,
    _guard: Guard,
}

impl TakenCard {
    /// Takes a card from its driver, with memory for the DMA of so many descriptors and buffers. `addresses` are its
    /// interface's. DMA is enabled, but the card has no address yet.
    ///
    /// # Errors
    /// As [`Card::check_free`] and [`PciError::NoVfio`], before any change; otherwise the step that failed.
    pub fn take(
        card: Card,
        addresses: &[std::net::IpAddr],
        way: Way,
        room: (usize, usize),
    ) -> Result<(Self, DmaMemory), PciError> {
        card.check_free(addresses, way)?;
        let pages = DmaMemory::pages_for(room.0, room.1);
        let addresses = match way {
            Way::Sysfs => DmaAddresses::Physical,
            Way::Vfio => {
                vfio::load_driver(&card)?;
                DmaAddresses::From(card.address_behind_iommu(pages)?)
            }
        };
        let mut guard = Guard::start(&card)?;
        guard.reserve(pages)?;
        let memory = DmaMemory::huge(room, addresses)?;
        guard.watch(&card, memory.file(), way)?;
        let folder = card.folder();
        let unbind = format!("/sys/bus/pci/drivers/{}/unbind", card.driver);
        fs::write(&unbind, &card.address).map_err(PciError::step("write", unbind))?;
        let (vfio, registers) = match way {
            Way::Sysfs => (None, by_sysfs(&folder)?),
            Way::Vfio => {
                enter_vfio(&folder)?;
                let vfio = Vfio::open(&card, card.group()?, &memory)?;
                let registers = vfio.registers().map_err(PciError::step("map", "the registers by VFIO"))?;
                (Some(vfio), registers)
            }
        };
        Ok((Self { card, registers, vfio, folder, _guard: guard }, memory))
    }

    /// How the card is reached.
    pub fn way(&self) -> Way {
        if self.vfio.is_some() { Way::Vfio } else { Way::Sysfs }
    }

    /// Turns the card's interrupts into events.
    ///
    /// # Errors
    /// [`PciError::NoInterrupts`]; the kernel's error.
    pub fn use_interrupts(&mut self) -> Result<(), PciError> {
        let interface = self.card.interface.clone();
        match &mut self.vfio {
            None => Err(PciError::NoInterrupts { interface }),
            Some(vfio) => vfio.use_interrupts().map_err(PciError::step("use interrupts of", interface)),
        }
    }

    /// Waits for an interrupt; returns whether one came.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// Without [`TakenCard::use_interrupts`].
    pub fn wait_for_interrupt(&self, at_most: Duration) -> io::Result<bool> {
        self.vfio.as_ref().expect("interrupts were requested").wait_for_interrupt(at_most)
    }

    /// Allows the next interrupt, once the cause of the last one was cleared.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn allow_interrupt(&self) -> io::Result<()> {
        self.vfio.as_ref().map_or(Ok(()), Vfio::allow_interrupt)
    }
}

/// Lets the card read and write memory, and maps its registers.
fn by_sysfs(folder: &std::path::Path) -> Result<Registers, PciError> {
    let enable = folder.join("enable");
    fs::write(&enable, "1").map_err(PciError::step("write", enable.display().to_string()))?;
    start_dma(folder)?;
    let resource = folder.join("resource0");
    fs::File::options()
        .read(true)
        .write(true)
        .open(&resource)
        .and_then(|file| Registers::of(file, 0))
        .map_err(PciError::step("map", resource.display().to_string()))
}

impl Drop for TakenCard {
    fn drop(&mut self) {
        // Before the memory is freed; the guard does the same, and VFIO when its descriptors are closed.
        if self.vfio.is_none() {
            stop_dma(&self.folder).ok();
        }
    }
}
