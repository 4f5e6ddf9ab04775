//! Files in memory (`memfd_create`): files without a folder that a child process can open.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Write},
    os::fd::{FromRawFd, OwnedFd},
};

/// A file with this content; `name` shows in `/proc`. It is not inherited by programs that this process starts.
///
/// # Errors
/// What the kernel said.
pub fn memory_file(name: &CStr, content: &[u8]) -> io::Result<File> {
    // SAFETY: the name ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created the descriptor, and nothing else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    file.write_all(content)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_was_written_can_be_opened_by_descriptor() {
        let file = memory_file(c"some-bytes", b"content").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        assert!(std::fs::read_link(&path).unwrap().to_string_lossy().contains("some-bytes"));
    }
}
