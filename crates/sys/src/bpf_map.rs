//! The values of a BPF array, as memory of this process.

use std::{io, os::fd::BorrowedFd};

use crate::xsk::mapping::Mapping;

/// The mapped values of an array that was made with `BPF_F_MMAPABLE`.
///
/// A program reads these values when it runs next. If a program may run at the same time, it may
/// see a half-written value: do not use this type then.
pub struct ArrayMemory {
    mapping: Mapping,
    value_bytes: usize,
}

impl ArrayMemory {
    /// Maps `values` values of `value_bytes` bytes, a multiple of 8.
    ///
    /// # Errors
    /// The kernel's error: the array is smaller, or not mappable.
    pub fn map(array: BorrowedFd<'_>, values: usize, value_bytes: usize) -> io::Result<Self> {
        const PAGE: usize = 4096;
        let len = (values * value_bytes).next_multiple_of(PAGE);
        Ok(Self { mapping: Mapping::of_descriptor(array, len, 0)?, value_bytes })
    }

    /// One value.
    ///
    /// # Panics
    /// When it is out of range.
    #[inline]
    pub fn value_mut(&mut self, index: usize) -> &mut [u8] {
        let mut bytes = self.mapping.slice::<u8>(index * self.value_bytes, self.value_bytes);
        // SAFETY: the bytes lie within the mapping, as `slice` asserts, and are initialised; the only access to them
        // in this process is borrowed through `self`, and programs read them only while their runner has that access.
        unsafe { bytes.as_mut() }
    }
}
