//! The frames that a queue has passed to the kernel: only those are returned, each once, whatever the kernel reports.

use std::sync::Arc;

use super::umem::{Frame, Umem};

/// The frames that one queue has lent to the kernel.
pub(super) struct Lent {
    umem: Arc<Umem>,
    is_lent: Box<[bool]>,
    count: usize,
}

impl Lent {
    pub(super) fn none_of(umem: Arc<Umem>) -> Self {
        let is_lent = vec![false; umem.frames() as usize].into();
        Self { umem, is_lent, count: 0 }
    }

    pub(super) fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Frames with the kernel.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes a frame from its owner, to pass it to the kernel.
    #[inline]
    pub(super) fn lend(&mut self, frame: Frame) {
        let index = self.umem.surrender(frame);
        self.is_lent[index as usize] = true;
        self.count += 1;
    }

    /// The frame at an address that the kernel returned, and the address's offset in it; `None` when the
    /// kernel does not have that frame.
    #[inline]
    pub(super) fn take_back(&mut self, address: u64) -> Option<(Frame, u32)> {
        let (index, offset) = self.umem.locate(address)?;
        let is_lent = self.is_lent.get_mut(index as usize).filter(|is_lent| **is_lent)?;
        *is_lent = false;
        self.count -= 1;
        Some((self.umem.restore(index), offset))
    }
}
