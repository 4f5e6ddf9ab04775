//! SIGINT and SIGTERM: the first requests a stop and a report, a second ends the process at once, as
//! by default. Descriptors hold everything that must not outlive the process, so the kernel cleans up then; a terminal
//! with a screen on it is restored before.

use std::{
    io, mem, ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use crate::terminal;

static CAUGHT: AtomicU32 = AtomicU32::new(0);
/// Whether SIGINT and SIGTERM have come.
static CAME: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Counts as a signal that came: a key that means the same.
pub fn ask_to_stop() {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

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
        action.sa_sigaction = count as *const () as libc::sighandler_t;
        // SAFETY: `action` is valid; `count` does atomic operations and async-signal-safe calls only.
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

extern "C" fn count(signal: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
    let came = &CAME[usize::from(signal == libc::SIGTERM)];
    if came.swap(true, Ordering::Relaxed) {
        terminal::restore();
        // SAFETY: both calls are async-signal-safe; the signal is blocked until this handler returns, and ends the process then.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: as above.
        unsafe { libc::raise(signal) };
    }
}
