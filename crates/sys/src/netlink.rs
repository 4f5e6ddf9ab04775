//! Netlink: requests, answers, and the kernel's own error messages.
//!
//! Common parts of every netlink family; the families are [`crate::rtnetlink`] and [`crate::netdev`].
//! Formats: `linux/netlink.h`, <https://docs.kernel.org/userspace-api/netlink/intro.html>.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

mod message;

pub(crate) use message::{Attributes, Request, field};
use message::{Message, messages};

/// Errors of netlink requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// No socket: the family is missing, or the process has no descriptor left.
    #[error("cannot open a netlink socket")]
    Open {
        /// The cause.
        source: io::Error,
    },
    /// The request was sent and refused, or its answer could not be read.
    #[error("cannot {action} {object}{}", in_brackets(.kernel_says))]
    Refused {
        /// The action, as a verb.
        action: &'static str,
        /// The object of the action.
        object: String,
        /// The kernel's extended acknowledgement, if any.
        kernel_says: Option<String>,
        /// The cause.
        source: io::Error,
    },
    /// The kernel has no such generic netlink family, or one without this command.
    #[error("the kernel has no netlink family {family} (since Linux {since})")]
    Unsupported {
        /// The family's name.
        family: &'static str,
        /// The first kernel that has it.
        since: &'static str,
    },
}

fn in_brackets(text: &Option<String>) -> String {
    text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default()
}

/// Why a request failed, before the caller adds the action and its object.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kernel_says: Option<String>,
    pub(crate) source: io::Error,
}

impl Refusal {
    pub(crate) fn of(self, action: &'static str, object: impl Into<String>) -> NetlinkError {
        let Refusal { kernel_says, source } = self;
        NetlinkError::Refused { action, object: object.into(), kernel_says, source }
    }
}

impl From<io::Error> for Refusal {
    fn from(source: io::Error) -> Self {
        Self { kernel_says: None, source }
    }
}

/// A socket for one request at a time, in the network namespace where it was opened,
/// whichever thread uses it.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    answer: Vec<u8>,
}

impl Socket {
    /// The most that the kernel puts into one part of a dump (`netlink_recvmsg` in `af_netlink.c`).
    const ANSWER_BYTES: usize = 32 * 1024;

    pub(crate) fn open(protocol: libc::c_int) -> Result<Self, NetlinkError> {
        open(protocol)
            .map(|fd| Self { fd, sequence: 0, answer: vec![0; Self::ANSWER_BYTES] })
            .map_err(|source| NetlinkError::Open { source })
    }

    /// Sends `request` and calls `each` with the body of each message of the answer; returns once the kernel
    /// has acknowledged it or a dump has ended.
    pub(crate) fn ask(&mut self, mut request: Request, mut each: impl FnMut(&[u8])) -> Result<(), Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        self.send(request.finish(self.sequence))?;
        let mut interrupted = false;
        loop {
            let length = self.receive()?;
            for message in messages(&self.answer[..length]) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                interrupted |= message.is_of_an_interrupted_dump();
                match message.end()? {
                    None => each(message.body),
                    Some(()) if interrupted => return Err(io::Error::from(io::ErrorKind::Interrupted).into()),
                    Some(()) => return Ok(()),
                }
            }
        }
    }

    /// Sets one of the options `NETLINK_*` to a number.
    pub(crate) fn set_option(&self, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set_option(&self.fd, option, value)
    }

    /// Waits for a message, a signal or the timeout; discards messages.
    pub(crate) fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up: a wait that ends early would spin.
        let timeout = i32::try_from(at_most.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: one live `pollfd`, and a count of 1.
        let ready = unsafe { libc::poll(&raw mut poll, 1, timeout) };
        let error = io::Error::last_os_error();
        if ready < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        // Unread messages would fill the buffer until the next answer does not fit. ENOBUFS means that it was full.
        loop {
            match self.receive() {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of one live slice, which is only read.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Without waiting: the kernel answers within `send`, so a missing answer never arrives.
    fn receive(&mut self) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let buffer = self.answer.as_mut_ptr().cast();
        // SAFETY: the pointer and the length are those of `answer`, which nothing else uses meanwhile.
        let length = unsafe { libc::recv(self.fd.as_raw_fd(), buffer, self.answer.len(), flags) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        if length > self.answer.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer larger than the buffer"));
        }
        Ok(length)
    }
}

fn open(protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `socket` just created this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(&fd, libc::NETLINK_EXT_ACK, 1)?;
    // Errors need not include our request.
    set_option(&fd, libc::NETLINK_CAP_ACK, 1)?;
    Ok(fd)
}

fn set_option(fd: &OwnedFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the value is a live `c_int` of the given length.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_NETLINK, option, value, length) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Message<'_> {
    /// `None` while the answer continues, then its end: an acknowledgement or an error.
    fn end(&self) -> Result<Option<()>, Refusal> {
        let Some(errno) = self.errno()? else { return Ok(None) };
        if errno == 0 {
            return Ok(Some(()));
        }
        Err(Refusal {
            kernel_says: self.extended_ack(),
            source: io::Error::from_raw_os_error(errno.wrapping_neg()),
        })
    }
}
