//! Memory that two sides change: this process, and the kernel or a test that plays it.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

/// A mapping, owned: unmapped with this value. Every access is checked against its length.
///
/// The rings track the ownership of bytes: they borrow bytes only between taking over a slot or block and returning it,
/// and store no word into borrowed bytes.
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and is not bound to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps the rings of a socket from the first byte on.
    pub(super) fn of_socket(socket: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map(libc::MAP_SHARED, socket.as_raw_fd(), len)
    }

    /// Zeroed memory without a kernel: a test plays its part.
    #[cfg(test)]
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, len)
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A word that the other side may change at any time; its earlier writes are visible from now on (acquire).
    #[inline]
    pub(super) fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Sets a word; a reader that sees it also sees all earlier writes (release).
    #[inline]
    pub(super) fn store(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Bytes that this side owns by the ring's rules.
    #[inline]
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let start = self.start(at, len);
        // SAFETY: `len` mapped, initialised bytes start there, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Bytes that this side owns by the ring's rules, mutable.
    #[inline]
    pub(super) fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        let start = self.start(at, len);
        // SAFETY: `len` mapped, initialised bytes start there, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "words are aligned");
        let start = self.start(at, 4).cast();
        // SAFETY: four mapped bytes start there, aligned because the mapping starts at a page, and they live as
        // long as `self`.
        unsafe { AtomicU32::from_ptr(start) }
    }

    #[inline]
    fn start(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{at}+{len} is outside of {} bytes", self.len);
        // SAFETY: `at` is within the mapping, as asserted.
        unsafe { self.base.as_ptr().add(at) }
    }

    fn map(flags: libc::c_int, fd: libc::c_int, len: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses an unused address.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unless requested");
        Ok(Self { base, len })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly this range was mapped, and every borrow of it has ended.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_the_same_memory() {
        let mut memory = Memory::anonymous(64).unwrap();
        memory.store(60, u32::from_ne_bytes(*b"tail"));
        assert_eq!(memory.bytes(60, 4), b"tail");
        memory.bytes_mut(0, 4).copy_from_slice(b"head");
        assert_eq!(memory.load(0), u32::from_ne_bytes(*b"head"));
    }

    #[test]
    fn nothing_outside_can_be_reached() {
        let reach = |at: usize, len: usize| {
            std::panic::catch_unwind(|| Memory::anonymous(64).unwrap().bytes(at, len).len()).is_ok()
        };
        assert!(reach(0, 64) && reach(64, 0));
        assert!(!reach(0, 65) && !reach(63, 2) && !reach(65, 0) && !reach(1, usize::MAX));
        assert!(std::panic::catch_unwind(|| Memory::anonymous(64).unwrap().load(62)).is_err());
    }
}
