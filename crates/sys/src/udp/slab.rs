//! One allocation cut into equal slots that the kernel reads and writes by address.

use std::ptr::NonNull;

/// Owns `slots × slot_bytes` bytes; slots are lent one at a time.
pub(super) struct Slab {
    bytes: NonNull<[u8]>,
    slot_bytes: usize,
}

// SAFETY: the slab is the only owner of its bytes.
unsafe impl Send for Slab {}

impl Slab {
    pub(super) fn new(slots: usize, slot_bytes: usize) -> Self {
        let bytes = Box::leak(vec![0u8; slots * slot_bytes].into_boxed_slice());
        Self { bytes: NonNull::from(bytes), slot_bytes }
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The address of a slot, for the kernel.
    pub(super) fn address(&self, slot: usize) -> *mut u8 {
        assert!((slot + 1) * self.slot_bytes <= self.bytes.len(), "slot {slot} is outside the slab");
        // SAFETY: the slot lies within the allocation, as asserted.
        unsafe { self.bytes.as_ptr().cast::<u8>().add(slot * self.slot_bytes) }
    }

    pub(super) fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        let address = self.address(slot);
        // SAFETY: `address` starts `slot_bytes` initialised bytes, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(address, self.slot_bytes) }
    }

    /// The first `len` bytes of a slot.
    pub(super) fn filled(&self, slot: usize, len: usize) -> &[u8] {
        assert!(len <= self.slot_bytes, "{len} bytes do not fit a slot");
        // SAFETY: `address` starts at least `len` initialised bytes, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts(self.address(slot), len) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the bytes came from a leaked box, and nothing else frees them.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}
