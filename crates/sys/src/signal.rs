//! SIGINT and SIGTERM: the first requests a stop and a report, a second ends the process at once, as
//! by default. Descriptors hold everything that must not outlive the process, so the kernel cleans up then.

use std::{
    io, mem, ptr,
    sync::atomic::{AtomicU32, Ordering},
};

static CAUGHT: AtomicU32 = AtomicU32::new(0);

/// Signals SIGINT and SIGTERM received since [`catch`].
pub fn caught() -> u32 {
    CAUGHT.load(Ordering::Relaxed)
}

/// Counts the first SIGINT and the first SIGTERM from now on instead of ending the process. Blocking calls are
/// interrupted.
///
/// # Errors
/// What the kernel said.
pub fn catch() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is a valid value.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_flags = libc::SA_RESETHAND;
        action.sa_sigaction = count as *const () as libc::sighandler_t;
        // SAFETY: `action` is valid, `count` does nothing but an atomic add, which is async-signal-safe.
        let status = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

static HANGUPS: AtomicU32 = AtomicU32::new(0);

/// Whether SIGHUP arrived since the last call, after [`catch_hangup`].
pub fn hung_up() -> bool {
    HANGUPS.swap(0, Ordering::Relaxed) > 0
}

/// Records every SIGHUP from now on instead of ending the process: for services it means "reload your files".
///
/// # Errors
/// What the kernel said.
pub fn catch_hangup() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = note_hangup as *const () as libc::sighandler_t;
    // SAFETY: `action` is valid, `note_hangup` does nothing but an atomic add, which is async-signal-safe.
    let status = unsafe { libc::sigaction(libc::SIGHUP, &action, ptr::null_mut()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn note_hangup(_signal: libc::c_int) {
    HANGUPS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn count(_signal: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}
