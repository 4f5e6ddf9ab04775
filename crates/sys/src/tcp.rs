//! TCP streams for throughput: sending files and buffers without copying, and discarding received bytes without reading them.

use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Settings of a stream's socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// `SO_SNDBUF` in bytes, `None` for the system's own tuning.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF` in bytes, `None` for the system's own tuning.
    pub receive_buffer_bytes: Option<usize>,
    /// Enable `MSG_ZEROCOPY` (`SO_ZEROCOPY`).
    pub zero_copy: bool,
}

/// Listens; connections are accepted without waiting.
///
/// # Errors
/// The kernel's error: `EADDRINUSE`, `EADDRNOTAVAIL` …
pub fn listen(address: SocketAddr, options: &StreamOptions) -> io::Result<TcpListener> {
    let socket = stream(address, options)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Connects; a call that cannot send for `patience` returns `WouldBlock`.
///
/// # Errors
/// The kernel's error: `ECONNREFUSED`, `ENETUNREACH`, `EADDRINUSE` …
pub fn connect(
    local: SocketAddr,
    peer: SocketAddr,
    options: &StreamOptions,
    patience: Duration,
) -> io::Result<TcpStream> {
    let socket = stream(peer, options)?;
    socket.bind(&SockAddr::from(local))?;
    socket.connect(&SockAddr::from(peer))?;
    socket.set_write_timeout(Some(patience))?;
    // Each send leaves on its own, not merged with the next (TCP_NODELAY).
    socket.set_tcp_nodelay(true)?;
    if options.zero_copy {
        set_zero_copy(&socket)?;
    }
    Ok(socket.into())
}

fn stream(address: SocketAddr, options: &StreamOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

fn set_zero_copy(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int, and its length is given.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends up to `bytes` of a file from `offset` on without reading them; returns the number accepted.
///
/// # Errors
/// `WouldBlock` when the socket accepts nothing now; other errors of the kernel.
pub fn send_file(socket: &TcpStream, file: &File, offset: u64, bytes: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: both descriptors are open, and `offset` is a local that the call may write to.
    let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, bytes) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// A pipe between a file and a socket: pages go through it without being copied (`splice`).
#[derive(Debug)]
pub struct SplicePipe {
    from: io::PipeReader,
    into: io::PipeWriter,
    inside: usize,
}

impl SplicePipe {
    /// An empty pipe, with room for a megabyte where the kernel allows it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        const ROOM: libc::c_int = 1 << 20;
        let (from, into) = io::pipe()?;
        // SAFETY: no pointers. A refusal leaves the pipe with its usual room.
        unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM) };
        Ok(Self { from, into, inside: 0 })
    }

    /// Bytes in the pipe.
    pub fn inside(&self) -> usize {
        self.inside
    }

    /// Takes up to `bytes` of a file from `offset` on into the empty pipe; returns their number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn fill(&mut self, file: &File, offset: u64, bytes: usize) -> io::Result<usize> {
        let mut offset = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (from, into) = (file.as_raw_fd(), self.into.as_raw_fd());
        // SAFETY: both descriptors are open, `offset` is a local that the call may write to, and a pipe has no offset.
        let moved = unsafe {
            libc::splice(from, &raw mut offset, into, ptr::null_mut(), bytes, libc::SPLICE_F_NONBLOCK)
        };
        let moved = usize::try_from(moved).map_err(|_| io::Error::last_os_error())?;
        self.inside += moved;
        Ok(moved)
    }

    /// Moves bytes from the pipe to a socket; returns the number accepted.
    ///
    /// # Errors
    /// `WouldBlock` when the socket accepts nothing now; other errors of the kernel.
    pub fn empty(&mut self, socket: &TcpStream) -> io::Result<usize> {
        let (from, into) = (self.from.as_raw_fd(), socket.as_raw_fd());
        // SAFETY: both descriptors are open, and neither has an offset.
        let moved = unsafe { libc::splice(from, ptr::null_mut(), into, ptr::null_mut(), self.inside, 0) };
        let moved = usize::try_from(moved).map_err(|_| io::Error::last_os_error())?;
        self.inside -= moved;
        Ok(moved)
    }
}

/// Sends bytes that the kernel may read until a completion reports it done ([`completions`]); they must not change before, or
/// the peer receives the changed bytes.
///
/// # Errors
/// `ENOBUFS` when too many sends are unfinished; `WouldBlock`; other errors of the kernel.
pub fn send_zero_copy(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: pointer and length are those of one slice. The kernel only reads, and pins the pages it reads later.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The results of zero-copy sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completions {
    /// Sends that the kernel is done with.
    pub done: u64,
    /// Those of them whose bytes it copied after all.
    pub copied: u64,
}

/// Takes the completions that wait on a socket's error queue; never blocks.
///
/// # Errors
/// The kernel's error.
pub fn completions(socket: &TcpStream) -> io::Result<Completions> {
    let mut all = Completions::default();
    while let Some((first, last, copied)) = completion(socket)? {
        let sends = u64::from(last.wrapping_sub(first)) + 1;
        all.done += sends;
        all.copied += if copied { sends } else { 0 };
    }
    Ok(all)
}

/// Room for one completion: a header, an error with the address it is about, aligned as the kernel aligns them.
#[repr(C, align(8))]
struct Control([u8; 128]);

fn completion(socket: &TcpStream) -> io::Result<Option<(u32, u32, bool)>> {
    /// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` (linux/errqueue.h).
    const ZERO_COPY: u8 = 5;
    const COPIED: u8 = 1;
    let mut control = Control([0; 128]);
    // SAFETY: an all-zero msghdr is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: the header points to `control`, which lives on, and gives its length.
    let got = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if got < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    // cmsghdr is 16 bytes (length 8, level 4, type 4), then sock_extended_err: errno u32, origin u8, type u8, code u8,
    // pad u8, info u32, data u32 (linux/errqueue.h).
    let word = |at: usize| {
        u32::from_ne_bytes([control.0[at], control.0[at + 1], control.0[at + 2], control.0[at + 3]])
    };
    let is_whole = header.msg_controllen as usize >= 32;
    if !is_whole || control.0[20] != ZERO_COPY {
        return Err(io::Error::other("an error other than a completion waits on the socket"));
    }
    Ok(Some((word(24), word(28), control.0[22] == COPIED)))
}

/// Takes up to `at_most` received bytes out of the stream without copying them; 0 is the stream's end.
///
/// # Errors
/// `WouldBlock` when there are none; other errors of the kernel.
pub fn discard(socket: &TcpStream, at_most: usize) -> io::Result<usize> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC a stream's bytes are dropped in the kernel: the null pointer is not written to (tcp(7)).
    let got = unsafe { libc::recv(socket.as_raw_fd(), ptr::null_mut(), at_most, flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Waits for sockets, and reuses the memory for that.
#[derive(Debug, Default)]
pub struct Waiter {
    entries: Vec<libc::pollfd>,
}

impl Waiter {
    /// Waits until one of several sockets can be read or has ended, no longer than `at_most`; returns whether one can.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait_readable<'s>(
        &mut self,
        sockets: impl IntoIterator<Item = BorrowedFd<'s>>,
        at_most: Duration,
    ) -> io::Result<bool> {
        let entry = |socket: BorrowedFd<'_>| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        self.entries.clear();
        self.entries.extend(sockets.into_iter().map(entry));
        let timeout = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: pointer and count are those of one vector.
        let ready =
            unsafe { libc::poll(self.entries.as_mut_ptr(), self.entries.len() as libc::nfds_t, timeout) };
        match ready {
            0.. => Ok(ready > 0),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::fd::AsFd,
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn pair(options: &StreamOptions) -> (TcpStream, TcpStream) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listen(any, options).unwrap();
        let sender = connect(any, listener.local_addr().unwrap(), options, PATIENCE).unwrap();
        assert!(Waiter::default().wait_readable([listener.as_fd()], PATIENCE).unwrap());
        let (receiver, _) = listener.accept().unwrap();
        (sender, receiver)
    }

    fn received(mut socket: &TcpStream, bytes: usize) -> Vec<u8> {
        let mut all = vec![0; bytes];
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.read_exact(&mut all).unwrap();
        all
    }

    #[test]
    fn a_file_arrives_from_its_offset() {
        let (sender, receiver) = pair(&StreamOptions::default());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(send_file(&sender, &file, 4, 100).unwrap(), 6, "it ends with the file");
        assert_eq!(received(&receiver, 6), b"456789");
        assert_eq!(send_file(&sender, &file, 10, 1).unwrap(), 0);
    }

    #[test]
    fn a_file_goes_through_a_pipe_in_its_order() {
        let (sender, receiver) = pair(&StreamOptions::default());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut pipe = SplicePipe::new().unwrap();
        assert_eq!((pipe.fill(&file, 4, 100).unwrap(), pipe.inside()), (6, 6));
        assert_eq!((pipe.empty(&sender).unwrap(), pipe.inside()), (6, 0));
        assert_eq!(received(&receiver, 6), b"456789");
    }

    #[test]
    fn discarded_bytes_are_counted_and_gone() {
        let (mut sender, receiver) = pair(&StreamOptions::default());
        sender.write_all(b"0123456789").unwrap();
        assert!(Waiter::default().wait_readable([receiver.as_fd()], PATIENCE).unwrap());
        assert_eq!(discard(&receiver, 4).unwrap(), 4);
        assert_eq!(received(&receiver, 6), b"456789");
        assert_eq!(discard(&receiver, 4).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(sender);
        assert!(Waiter::default().wait_readable([receiver.as_fd()], PATIENCE).unwrap());
        assert_eq!(discard(&receiver, 4).unwrap(), 0, "the end");
    }

    #[test]
    fn every_zero_copy_send_is_completed_once() {
        let (sender, receiver) = pair(&StreamOptions { zero_copy: true, ..StreamOptions::default() });
        let bytes = vec![7; 20_000];
        for _ in 0..3 {
            assert_eq!(send_zero_copy(&sender, &bytes).unwrap(), bytes.len());
        }
        assert_eq!(received(&receiver, 60_000), vec![7; 60_000]);
        let until = std::time::Instant::now() + PATIENCE;
        let mut all = Completions::default();
        while all.done < 3 {
            assert!(std::time::Instant::now() < until, "completions come");
            let some = completions(&sender).unwrap();
            all = Completions { done: all.done + some.done, copied: all.copied + some.copied };
        }
        assert_eq!((all.done, all.copied <= 3), (3, true));
    }
}
