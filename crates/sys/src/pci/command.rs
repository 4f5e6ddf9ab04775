//! The command register of a card's configuration space, by sysfs.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use super::error::PciError;

/// The command register of a function's configuration space, and its bits.
pub(super) const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 2;
const BUS_MASTER: u16 = 4;

fn change_command(card: &Path, change: impl FnOnce(u16) -> u16) -> Result<(), PciError> {
    let path = card.join("config");
    let changed = File::options().read(true).write(true).open(&path).and_then(|config| {
        let mut bytes = [0; 2];
        config.read_exact_at(&mut bytes, COMMAND)?;
        config.write_all_at(&change(u16::from_le_bytes(bytes)).to_le_bytes(), COMMAND)
    });
    changed.map_err(PciError::step("write", path.display().to_string()))
}

/// The command register with what DMA and registers need.
pub(super) fn command_for_dma(command: u16) -> u16 {
    command | MEMORY_SPACE | BUS_MASTER
}

/// Lets the card read and write memory.
pub(super) fn start_dma(card: &Path) -> Result<(), PciError> {
    change_command(card, command_for_dma)
}

/// Keeps the card from reading and writing memory.
pub(super) fn stop_dma(card: &Path) -> Result<(), PciError> {
    change_command(card, |command| command & !BUS_MASTER)
}
