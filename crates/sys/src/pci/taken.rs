//! A card that this process drives instead of the kernel.

use std::{fs, path::PathBuf};

use super::{
    card::Card,
    error::PciError,
    guard::{Guard, start_dma, stop_dma},
    memory::DmaMemory,
    registers::Registers,
};

/// A card without its kernel driver, which is bound again when this value is dropped or this process ends.
pub struct TakenCard {
    /// The card as it was.
    pub card: Card,
    /// Its registers.
    pub registers: Registers,
    folder: PathBuf,
    guard: Guard,
}

impl TakenCard {
    /// Takes a card from its driver, with memory for its DMA. `addresses` are its interface's. DMA is enabled, but the card
    /// has no address yet.
    ///
    /// # Errors
    /// As [`Card::check_free`], before any change; otherwise the step that failed.
    pub fn take(
        card: Card,
        addresses: &[std::net::IpAddr],
        (descriptors, buffers): (usize, usize),
    ) -> Result<(Self, DmaMemory), PciError> {
        card.check_free(addresses)?;
        let mut guard = Guard::start(&card)?;
        guard.reserve(DmaMemory::pages_for(descriptors, buffers))?;
        let memory = DmaMemory::huge(descriptors, buffers)?;
        guard.watch(&card, memory.file())?;
        let folder = card.folder();
        let unbind = format!("/sys/bus/pci/drivers/{}/unbind", card.driver);
        fs::write(&unbind, &card.address).map_err(PciError::step("write", unbind))?;
        let enable = folder.join("enable");
        fs::write(&enable, "1").map_err(PciError::step("write", enable.display().to_string()))?;
        start_dma(&folder)?;
        let resource = folder.join("resource0");
        let registers = fs::File::options()
            .read(true)
            .write(true)
            .open(&resource)
            .and_then(Registers::of)
            .map_err(PciError::step("map", resource.display().to_string()))?;
        Ok((Self { card, registers, folder, guard }, memory))
    }

    /// Returns the card to its driver.
    ///
    /// # Errors
    /// The step that the guard could not undo.
    pub fn release(mut self) -> Result<(), PciError> {
        stop_dma(&self.folder)?;
        self.guard.finish()
    }
}

impl Drop for TakenCard {
    fn drop(&mut self) {
        // Before the memory is freed; the guard does the same.
        stop_dma(&self.folder).ok();
        self.guard.finish().ok();
    }
}
