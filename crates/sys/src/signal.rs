//! SIGINT and SIGTERM as a number that grows: one asks to stop and report, a second to leave at once.

use std::{
    io, mem, ptr,
    sync::atomic::{AtomicU32, Ordering},
};

static CAUGHT: AtomicU32 = AtomicU32::new(0);

/// How many of SIGINT and SIGTERM have come since [`catch`].
pub fn caught() -> u32 {
    CAUGHT.load(Ordering::Relaxed)
}

/// From now on counts SIGINT and SIGTERM instead of dying of them. Blocking calls are interrupted.
///
/// # Errors
/// What the kernel said.
pub fn catch() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is a valid value.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = count as *const () as libc::sighandler_t;
        // SAFETY: `action` is valid, `count` does nothing but an atomic add, which is async-signal-safe.
        let status = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn count(_signal: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}
