//! A UDP socket and the options that matter for packet rates.

use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A bound UDP socket.
pub struct UdpSocket {
    socket: Socket,
}

/// Options set before a socket is bound.
#[derive(Debug, Clone, Default)]
pub struct SocketOptions {
    /// `SO_BINDTODEVICE`: only this interface sends and receives.
    pub interface: Option<String>,
    /// `SO_REUSEPORT`: several sockets on one port, packets spread over them by flow.
    pub reuse_port: bool,
    /// `SO_RCVBUF` in bytes (beyond `rmem_max` with CAP_NET_ADMIN); `None` leaves the default.
    pub receive_buffer_bytes: Option<usize>,
    /// `SO_SNDBUF` in bytes (beyond `wmem_max` with CAP_NET_ADMIN); `None` leaves the default.
    pub send_buffer_bytes: Option<usize>,
    /// `UDP_SEGMENT`: the kernel segments each message into datagrams of this many payload bytes.
    pub segment_bytes: Option<u16>,
    /// `UDP_GRO`: the kernel may merge datagrams of one flow into one message.
    pub gro: bool,
    /// `SO_TIMESTAMPING`: each message carries its receive time, by the kernel's wall clock and, if the card was
    /// set to stamp packets, by the card's clock.
    pub timestamps: bool,
    /// `SO_RXQ_OVFL`: each message may carry the number of packets dropped so far.
    pub drop_counts: bool,
}

impl UdpSocket {
    /// Opens, sets and binds a socket.
    ///
    /// # Errors
    /// The kernel's error: `EADDRINUSE`, `EADDRNOTAVAIL`, `ENOPROTOOPT` ...
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        if let Some(interface) = &options.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        let this = Self { socket };
        if let Some(bytes) = options.receive_buffer_bytes {
            this.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            this.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)?;
        }
        if let Some(bytes) = options.segment_bytes {
            this.set_int(libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())?;
        }
        if options.gro {
            this.set_int(libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        if options.drop_counts {
            this.set_int(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        }
        if options.timestamps {
            let wanted = libc::SOF_TIMESTAMPING_RX_SOFTWARE
                | libc::SOF_TIMESTAMPING_SOFTWARE
                | libc::SOF_TIMESTAMPING_RX_HARDWARE
                | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
            this.set_int(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, wanted as libc::c_int)?;
        }
        this.socket.bind(&SockAddr::from(address))?;
        Ok(this)
    }

    /// `SO_BUSY_POLL`: calls that would block first poll the card for this long.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn set_busy_poll(&self, micros: u32) -> io::Result<()> {
        let micros = libc::c_int::try_from(micros).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.set_int(libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)
    }

    /// Fixes the peer: sends need no address, and ICMP errors are reported.
    ///
    /// # Errors
    /// `ENETUNREACH`, `EACCES` (broadcast) ...
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(&SockAddr::from(peer))
    }

    /// A second descriptor of the same socket, for another thread.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }

    /// The address bound to, with the port the kernel chose for 0.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Drops everything received from now on (`SO_ATTACH_FILTER`, a program that returns 0).
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) fn drop_all(&self) -> io::Result<()> {
        const BPF_RET: u16 = 0x06; // BPF_RET | BPF_K, include/uapi/linux/bpf_common.h
        self.socket.attach_filter(&[socket2::SockFilter::new(BPF_RET, 0, 0, 0)])
    }

    /// Drops packets from one IPv4 address from now on (`SO_ATTACH_FILTER`).
    ///
    /// # Errors
    /// What the kernel said.
    pub fn drop_source(&self, address: Ipv4Addr) -> io::Result<()> {
        // include/uapi/linux/filter.h and bpf_common.h
        const NETWORK_HEADER: u32 = -0x0010_0000i32 as u32;
        const SOURCE_AT: u32 = 12;
        const LOAD_WORD: u16 = 0x20;
        const JUMP_IF_EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        let instruction = socket2::SockFilter::new;
        self.socket.attach_filter(&[
            instruction(LOAD_WORD, 0, 0, NETWORK_HEADER + SOURCE_AT),
            instruction(JUMP_IF_EQUAL, 0, 1, address.to_bits()),
            instruction(RETURN, 0, 0, 0),
            instruction(RETURN, 0, 0, u32::MAX),
        ])
    }

    /// Lets a blocking receive and a blocking send return `WouldBlock` after this long.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))?;
        self.socket.set_write_timeout(Some(timeout))
    }

    /// Waits until half of the send buffer is free, for at most this long; for senders that do not block (`MSG_DONTWAIT`).
    ///
    /// # Errors
    /// The kernel's error; a signal ends the wait early.
    pub fn wait_until_writable(&self, at_most: Duration) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let millis = at_most.as_millis() as libc::c_int;
        // SAFETY: the kernel reads and writes this one entry.
        let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
        match io::Error::last_os_error() {
            error if ready < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// The size of the receive buffer in bytes as accounted by the kernel (twice the requested size).
    ///
    /// # Errors
    /// What the kernel said.
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Packets that this socket has dropped so far, wrapping at 2^32 (`SO_MEMINFO`, `SK_MEMINFO_DROPS`).
    ///
    /// # Errors
    /// What the kernel said.
    pub fn dropped(&self) -> io::Result<u32> {
        const SK_MEMINFO_DROPS: usize = 8; // include/uapi/linux/sock_diag.h
        let mut values = [0u32; SK_MEMINFO_DROPS + 1];
        let mut len = mem::size_of_val(&values) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `values`, and sets `len`.
        let status = unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &mut len,
            )
        };
        if status == 0 { Ok(values[SK_MEMINFO_DROPS]) } else { Err(io::Error::last_os_error()) }
    }

    fn set_buffer(&self, force: libc::c_int, plain: libc::c_int, bytes: usize) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The forced option needs CAP_NET_ADMIN; the plain one is capped by the sysctl.
        self.set_int(libc::SOL_SOCKET, force, bytes).or_else(|_| self.set_int(libc::SOL_SOCKET, plain, bytes))
    }

    fn set_int(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let len = mem::size_of_val(&value) as libc::socklen_t;
        // SAFETY: `value` lives through the call and is `len` bytes long.
        let status = unsafe {
            libc::setsockopt(self.as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), len)
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
