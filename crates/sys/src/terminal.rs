//! The controlling terminal as a screen of a program: keys come one by one and unechoed, and the terminal is as it was
//! when [`Terminal`] is dropped or a second signal ends the process.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Read, Seek, Write},
    mem::{self, MaybeUninit},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering},
    time::Duration,
};

use crate::memory_file::memory_file;

/// What turns a screen on: the alternate screen, no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// What turns it off: attributes reset, the cursor, the main screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// The terminal of a screen that is on, for the signal handler; -1 where there is none.
static SCREEN: AtomicI32 = AtomicI32::new(-1);
/// Its former modes.
static FORMER: AtomicPtr<libc::termios> = AtomicPtr::new(ptr::null_mut());

/// The controlling terminal, taken for a screen. Ctrl-C still raises SIGINT; Ctrl-Z and Ctrl-\ do nothing.
pub struct Terminal {
    file: File,
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Where the process has none, or one that cannot be set.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        // SAFETY: no pointers; the descriptor is open.
        let foreground = unsafe { libc::tcgetpgrp(file.as_raw_fd()) };
        // SAFETY: no arguments, cannot fail.
        let own = unsafe { libc::getpgrp() };
        if foreground != own {
            // Changing its modes would stop this process.
            return Err(io::Error::other("this process is in the background of its terminal"));
        }
        let former = modes(file.as_fd())?;
        let mut keys = former;
        keys.c_lflag &= !(libc::ICANON | libc::ECHO);
        keys.c_cc[libc::VMIN] = 0;
        keys.c_cc[libc::VTIME] = 0;
        for sign in [libc::VSUSP, libc::VQUIT] {
            keys.c_cc[sign] = libc::_POSIX_VDISABLE;
        }
        let kept = Box::into_raw(Box::new(former));
        // One box a screen is never freed: a signal handler may be reading it.
        FORMER.store(kept, Ordering::Release);
        SCREEN.store(file.as_raw_fd(), Ordering::Release);
        let mut terminal = Self { file };
        set_modes(terminal.file.as_fd(), &keys)?;
        terminal.file.write_all(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        // SAFETY: an all-zero winsize is a valid value.
        let mut size: libc::winsize = unsafe { mem::zeroed() };
        // SAFETY: the descriptor is open, and TIOCGWINSZ writes one winsize.
        let status = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
        if status == 0 { Ok((size.ws_col, size.ws_row)) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes of the keys that were pressed; waits for the first one for this long.
    ///
    /// # Errors
    /// What the kernel said; a signal is no error.
    pub fn keys(&mut self, at_most: Duration) -> io::Result<Vec<u8>> {
        let mut wanted = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = at_most.as_millis().min(i32::MAX as u128) as i32;
        // SAFETY: one pollfd is given.
        let ready = unsafe { libc::poll(&mut wanted, 1, ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(Vec::new()) } else { Err(error) };
        }
        if ready == 0 {
            return Ok(Vec::new());
        }
        if wanted.revents & libc::POLLIN == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = [0; 64];
        let read = self.file.read(&mut bytes)?;
        Ok(bytes[..read].to_vec())
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back, if a screen has it: before the process exits without dropping it. Async-signal-safe.
pub fn restore() {
    let terminal = SCREEN.swap(-1, Ordering::AcqRel);
    if terminal < 0 {
        return;
    }
    // SAFETY: the bytes live as long as the program; a failed write changes nothing that could be mended here.
    unsafe { libc::write(terminal, LEAVE.as_ptr().cast(), LEAVE.len()) };
    let former = FORMER.load(Ordering::Acquire);
    // SAFETY: `former` was made by `Terminal::open` before `SCREEN` was set, and is never freed.
    unsafe { libc::tcsetattr(terminal, libc::TCSANOW, former) };
}

fn modes(terminal: BorrowedFd<'_>) -> io::Result<libc::termios> {
    let mut modes = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the descriptor is open, and `modes` is as large as what is written.
    let status = unsafe { libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so all of it was written.
    Ok(unsafe { modes.assume_init() })
}

fn set_modes(terminal: BorrowedFd<'_>, modes: &libc::termios) -> io::Result<()> {
    // SAFETY: the descriptor is open, and `modes` is a whole value.
    let status = unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, modes) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Standard output and error, kept in a file in memory while a screen has the terminal; dropped, they are as they were and
/// what was written meanwhile is printed. Streams that are no terminal are left alone.
pub struct HeldOutput {
    kept: File,
    former: Vec<(i32, OwnedFd)>,
    shown_bytes: u64,
}

impl HeldOutput {
    /// Begins to keep what is written.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn begin() -> io::Result<Self> {
        let kept = memory_file(c"linerate-output", &[])?;
        let mut held = Self { kept, former: Vec::new(), shown_bytes: 0 };
        for (stream, is_terminal) in [
            (libc::STDOUT_FILENO, io::stdout().is_terminal()),
            (libc::STDERR_FILENO, io::stderr().is_terminal()),
        ] {
            if is_terminal {
                held.former.push((stream, duplicate(stream)?));
                replace(stream, held.kept.as_fd())?;
            }
        }
        Ok(held)
    }

    /// Text that was written since this was asked last.
    pub fn news(&mut self) -> String {
        let mut bytes = Vec::new();
        // Writers move the offset that this file shares with them, so it is read by position.
        let read = File::open(format!("/proc/self/fd/{}", self.kept.as_raw_fd())).and_then(|mut file| {
            file.seek(io::SeekFrom::Start(self.shown_bytes))?;
            file.read_to_end(&mut bytes)
        });
        self.shown_bytes += read.unwrap_or(0) as u64;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for HeldOutput {
    fn drop(&mut self) {
        io::stdout().flush().ok();
        for (stream, former) in self.former.drain(..) {
            replace(stream, former.as_fd()).ok();
        }
        self.shown_bytes = 0;
        let text = self.news();
        io::stderr().write_all(text.as_bytes()).ok();
    }
}

fn duplicate(stream: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the kernel checks the descriptor.
    let copy = unsafe { libc::fcntl(stream, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made the descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn replace(stream: i32, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; standard streams are owned by nobody.
    let status = unsafe { libc::dup2(by.as_raw_fd(), stream) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
