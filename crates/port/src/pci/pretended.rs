//! A fake card over the same rings: for tests, and for measuring the cost of buffers on this CPU.

use sys::pci::{DmaMemory, Done, Registers, rx};

use super::{
    PciOptions, PciRx, PciTx,
    card::{IntelCard, MPC, RDH, RDT, RNBC, TDT},
};
use crate::PortError;

/// The card's side of a fake card's ring: the head, which only the card moves.
#[derive(Debug, Default)]
pub struct PretendedCard {
    head: u32,
}

impl PretendedCard {
    fn parts(options: &PciOptions, spare: usize) -> Result<(IntelCard, DmaMemory), PortError> {
        options.check()?;
        let pretend = |source| PortError::Facility {
            tried: "get",
            facility: "memory for a pretended card",
            needs: String::new(),
            source,
        };
        let slots = options.ring_slots as usize;
        let memory = DmaMemory::pretended(slots, slots + spare).map_err(pretend)?;
        Ok((IntelCard::pretended(Registers::pretended().map_err(pretend)?), memory))
    }

    /// A receiving port with such a card.
    ///
    /// # Errors
    /// Invalid options, or no memory.
    pub fn receiving(options: &PciOptions) -> Result<(Self, PciRx), PortError> {
        let (card, memory) = Self::parts(options, options.buffers.spare(options.ring_slots))?;
        Ok((Self::default(), PciRx::over(card, memory, options)))
    }

    /// A sending port with such a card.
    ///
    /// # Errors
    /// As [`PretendedCard::receiving`].
    pub fn sending(options: &PciOptions) -> Result<(Self, PciTx), PortError> {
        let (card, memory) = Self::parts(options, 0)?;
        Ok((Self::default(), PciTx::over(card, memory, options)))
    }

    /// A frame arrives: into the next descriptor, or counted as missed without one.
    pub fn deliver(&mut self, port: &mut PciRx, frame: &[u8]) -> bool {
        let status = rx::DONE | rx::END_OF_PACKET;
        self.write(port, frame, Done { length: frame.len() as u16, status, errors: 0 })
    }

    /// Part of a frame arrives, with this descriptor.
    pub fn write(&mut self, port: &mut PciRx, bytes: &[u8], done: Done) -> bool {
        let registers = port.card.registers();
        if self.head == registers.read(RDT) {
            for counter in [MPC, RNBC] {
                registers.write(counter, registers.read(counter) + 1);
            }
            return false;
        }
        port.ring.pretend(self.head, bytes, done);
        self.head = (self.head + 1) % port.ring.slots();
        port.card.registers().write(RDH, self.head);
        true
    }

    /// Sends frames that the port has passed on, up to this number.
    pub fn send(&mut self, port: &mut PciTx, at_most: usize, mut wire: impl FnMut(&[u8])) {
        let tail = port.card.registers().read(TDT);
        for _ in 0..at_most {
            if self.head == tail {
                return;
            }
            wire(port.ring.pretend(self.head));
            self.head = (self.head + 1) % port.ring.slots();
        }
    }
}
