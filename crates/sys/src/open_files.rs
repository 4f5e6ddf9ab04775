//! The limit on a process's open files (`RLIMIT_NOFILE`).

use std::io;

/// Raises this process's limit as far as that many files need, if it may; programs that it starts inherit the limit.
///
/// # Errors
/// What the kernel said: only root raises the hard limit, and nobody above the sysctl `fs.nr_open`.
pub fn allow(files: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is as large as what is written.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur >= files {
        return Ok(());
    }
    let wanted = libc::rlimit { rlim_cur: files, rlim_max: limit.rlim_max.max(files) };
    // SAFETY: `wanted` is a whole value.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_already_changes_nothing_and_what_no_kernel_allows_is_refused() {
        allow(1).unwrap();
        let error = allow(u64::MAX / 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(std::fs::File::open("/dev/null").is_ok());
    }
}
