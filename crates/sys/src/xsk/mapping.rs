//! Memory mappings that end with their owner.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
};

/// Mapped, readable and writable bytes.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is the process's, not a thread's, and only its owner unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping only exposes its address and length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` zeroed private bytes, on huge pages if requested.
    pub(crate) fn anonymous(len: usize, huge: bool) -> io::Result<Self> {
        if huge && cfg!(miri) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let huge = if huge { libc::MAP_HUGETLB } else { 0 };
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge, -1, 0)
    }

    /// `len` zeroed private bytes on normal pages, which the kernel merges into huge ones if it supports that on request
    /// and finds free ones.
    pub(crate) fn joined(len: usize) -> io::Result<Self> {
        if cfg!(miri) {
            return Self::anonymous(len, false);
        }
        let mapping = Self::map_with(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        // A kernel without huge page merging returns an error, without harm.
        mapping.advise(libc::MADV_HUGEPAGE).ok();
        mapping.advise(libc::MADV_POPULATE_WRITE)?;
        Ok(mapping)
    }

    /// The memory of a socket or a BPF map at an offset.
    pub(crate) fn of_descriptor(socket: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED, socket.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: libc::c_int, fd: libc::c_int, offset: u64) -> io::Result<Self> {
        // Populated now, to avoid page faults during a measurement.
        let flags = if cfg!(miri) { flags } else { flags | libc::MAP_POPULATE };
        Self::map_with(len, flags, fd, offset)
    }

    fn map_with(len: usize, flags: libc::c_int, fd: libc::c_int, offset: u64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing of ours.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset as libc::off_t) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?, len })
    }

    /// Keeps the memory out of processes made by fork: pinned pages would have to be copied for them.
    pub(crate) fn not_for_children(&self) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        self.advise(libc::MADV_DONTFORK)
    }

    /// Only for advice that does not change the bytes.
    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: these are the bytes that `map` got; this process keeps them unchanged.
        let status = unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, advice) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of a `T` that is `offset` bytes after the start.
    ///
    /// # Panics
    /// When it is not whole within the mapping, or not aligned.
    pub(crate) fn pointer<T>(&self, offset: usize) -> NonNull<T> {
        self.slice::<T>(offset, 1).cast()
    }

    /// The address of `count` of `T` that start `offset` bytes after the start.
    ///
    /// # Panics
    /// When they are not all within the mapping, or not aligned.
    pub(crate) fn slice<T>(&self, offset: usize, count: usize) -> NonNull<[T]> {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len), "{count} at {offset} do not fit {} bytes", self.len);
        // SAFETY: `offset` lies within the mapping, as asserted.
        let first = unsafe { self.start.add(offset) }.cast::<T>();
        assert!(first.is_aligned(), "{offset} is not aligned");
        NonNull::slice_from_raw_parts(first, count)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these are the bytes that `map` got, and every borrow of them has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
