//! Dropping a file from the page cache, so that the next read comes from the disk.

use std::{fs::File, io, os::fd::AsRawFd};

/// Writes the file's dirty pages back and drops all of its pages that nothing maps.
///
/// # Errors
/// The kernel's.
pub fn forget(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // SAFETY: no pointers; the descriptor is open.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
