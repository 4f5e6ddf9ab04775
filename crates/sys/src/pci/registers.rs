//! A card's registers: a mapping of its first base address, and typed registers.

use std::{io, marker::PhantomData, os::fd::AsFd};

use crate::xsk::mapping::Mapping;

/// A register of 32 bits at an offset, which holds a `V`.
#[derive(Debug)]
pub struct Register<V = u32> {
    offset: u32,
    holds: PhantomData<V>,
}

impl<V> Clone for Register<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Register<V> {}

impl<V> Register<V> {
    /// The register at this offset of the first base address.
    ///
    /// # Panics
    /// When the offset is not a multiple of 4.
    pub const fn at(offset: u32) -> Self {
        assert!(offset.is_multiple_of(4), "registers have 4 bytes");
        Self { offset, holds: PhantomData }
    }
}

/// The registers of a card.
pub struct Registers {
    mapping: Mapping,
}

impl Registers {
    /// Bytes of the registers of these cards.
    pub const BYTES: usize = 128 << 10;

    /// The registers at an offset of a file: `resource0` of the card, or VFIO's.
    pub(super) fn of(file: impl AsFd, offset: u64) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::of_descriptor(file.as_fd(), Self::BYTES, offset)? })
    }

    /// Registers of a fake card: they hold what was written.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn pretended() -> io::Result<Self> {
        Ok(Self { mapping: Mapping::anonymous(Self::BYTES, false)? })
    }

    /// Reads a register; reading clears some of them.
    #[inline]
    pub fn read<V: From<u32>>(&self, register: Register<V>) -> V {
        let address = self.mapping.pointer::<u32>(register.offset as usize);
        // SAFETY: the address is aligned and mapped as long as `self` is; the card's registers may be read at any time.
        V::from(unsafe { address.read_volatile() })
    }

    /// Writes a register. The card sees all earlier writes to memory.
    #[inline]
    pub fn write<V: Into<u32>>(&self, register: Register<V>, value: V) {
        let address = self.mapping.pointer::<u32>(register.offset as usize);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: as in `read`. The card then writes only to buffers and tables that it was given.
        unsafe { address.write_volatile(value.into()) };
    }
}
