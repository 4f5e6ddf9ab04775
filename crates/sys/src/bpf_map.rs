//! The values of a BPF array, as memory of this process.

use std::{io, os::fd::BorrowedFd};

use crate::xsk::mapping::Mapping;

/// The mapped values of an array that was made with `BPF_F_MMAPABLE`.
///
/// A program reads what was written here when it runs next. Who shares it with a program that runs at the same time
/// must not mind whether that sees a value half written: then this is the wrong type.
pub struct ArrayMemory {
    mapping: Mapping,
    value_bytes: usize,
}

impl ArrayMemory {
    /// Maps `values` values of `value_bytes` bytes, a multiple of 8.
    ///
    /// # Errors
    /// What the kernel said: the array is smaller, or not made for it.
    pub fn map(array: BorrowedFd<'_>, values: usize, value_bytes: usize) -> io::Result<Self> {
        const PAGE: usize = 4096;
        let len = (values * value_bytes).next_multiple_of(PAGE);
        Ok(Self { mapping: Mapping::of_descriptor(array, len, 0)?, value_bytes })
    }

    /// One value.
    ///
    /// # Panics
    /// When it lies behind the end.
    #[inline]
    pub fn value_mut(&mut self, index: usize) -> &mut [u8] {
        let mut bytes = self.mapping.slice::<u8>(index * self.value_bytes, self.value_bytes);
        // SAFETY: the bytes lie within the mapping, as `slice` asserts, and are initialised; the only right to them
        // in this process is lent out with `self`, and programs read them only while their runner has that right.
        unsafe { bytes.as_mut() }
    }
}
