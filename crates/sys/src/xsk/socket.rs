//! The socket that rings and memory belong to: options, binding, calls, counters.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    error::XskError,
    mapping::Mapping,
    queue::{RxQueue, TxQueue},
    ring::{Consumer, Producer, RingMemory, Slot},
    umem::Umem,
};

/// How to open an [`XskSocket`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskConfig {
    /// The interface's number in the calling thread's namespace.
    pub interface: u32,
    /// The queue.
    pub queue: u32,
    /// Whether the card reads and writes the UMEM itself.
    pub copy_mode: CopyMode,
    /// Slots of the RX ring, a power of two; 0 for a socket that only sends.
    pub rx_slots: u32,
    /// Slots of the TX ring, a power of two; 0 for a socket that only receives.
    pub tx_slots: u32,
    /// The frames that pass through this socket, a power of two: the completion ring gets this many slots, the
    /// fill ring twice as many.
    pub frames: u32,
    /// Poll the card from the socket's own calls instead of waiting for interrupts.
    pub busy_poll: Option<BusyPoll>,
}

/// Whether packets are copied between the UMEM and the driver's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// Zero-copy if the driver supports it, else copy; [`XskSocket::copy_mode`] returns the result.
    #[default]
    Auto,
    /// Copy mode, which works on every interface.
    Copy,
    /// Zero-copy or nothing.
    ZeroCopy,
}

/// Settings of a socket that polls its card: `SO_PREFER_BUSY_POLL` and its companions.
///
/// They belong to the socket and end with it. Without the interface's own settings (`napi_defer_hard_irqs`,
/// `gro_flush_timeout`) interrupts still come between two calls; ports set them, see [`ForNow`](crate::sysfs::ForNow).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a call polls, in microseconds (`SO_BUSY_POLL`).
    pub micros: u32,
    /// The most packets per poll (`SO_BUSY_POLL_BUDGET`).
    pub budget: u32,
}

/// A bound AF_XDP socket. Its frames pass through the queues opened with it.
#[derive(Debug)]
pub struct XskSocket {
    fd: OwnedFd,
    copy_mode: CopyMode,
}

/// A socket and its queues.
pub struct Opened {
    /// The socket.
    pub socket: XskSocket,
    /// Its receiving side, when it has RX slots.
    pub rx: Option<RxQueue>,
    /// Its sending side, when it has TX slots.
    pub tx: Option<TxQueue>,
}

/// The kernel's counts for a socket since it was opened (`struct xdp_statistics`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XskStatistics {
    /// Packets dropped because they were longer than a frame, or because no frame was available.
    pub rx_dropped: u64,
    /// Addresses in the fill ring that lie outside the UMEM; no packet is lost by that.
    pub rx_invalid_descs: u64,
    /// Descriptors in the TX ring that the kernel refused.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Times the kernel looked for a frame in an empty fill ring: in copy mode once per packet, which is in
    /// `rx_dropped` too.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the kernel looked for a packet in an empty TX ring; no loss.
    pub tx_ring_empty_descs: u64,
}

impl BusyPoll {
    /// The values of the kernel's AF_XDP documentation: 20 µs per call, 64 packets per poll.
    pub const USUAL: Self = Self { micros: 20, budget: 64 };
}

impl XskStatistics {
    /// Packets that this socket should have received and lost: the two counters that count packets, each once.
    pub fn rx_lost(&self) -> u64 {
        self.rx_dropped + self.rx_ring_full
    }

    /// The difference to an earlier reading of the same socket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            rx_invalid_descs: self.rx_invalid_descs.saturating_sub(earlier.rx_invalid_descs),
            tx_invalid_descs: self.tx_invalid_descs.saturating_sub(earlier.tx_invalid_descs),
            rx_ring_full: self.rx_ring_full.saturating_sub(earlier.rx_ring_full),
            rx_fill_ring_empty_descs: self
                .rx_fill_ring_empty_descs
                .saturating_sub(earlier.rx_fill_ring_empty_descs),
            tx_ring_empty_descs: self.tx_ring_empty_descs.saturating_sub(earlier.tx_ring_empty_descs),
        }
    }

    /// All six counters with the kernel's names.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("rx_dropped", self.rx_dropped),
            ("rx_invalid_descs", self.rx_invalid_descs),
            ("tx_invalid_descs", self.tx_invalid_descs),
            ("rx_ring_full", self.rx_ring_full),
            ("rx_fill_ring_empty_descs", self.rx_fill_ring_empty_descs),
            ("tx_ring_empty_descs", self.tx_ring_empty_descs),
        ]
    }
}

impl XskSocket {
    /// How long the kernel may take to release a queue after its socket was closed: 7 to 17 ms measured, and more
    /// than a second on a machine that is overloaded.
    const GIVEN_UP_AFTER: Duration = Duration::from_secs(3);

    /// Opens a socket over `umem` and binds it to a queue. With `share`, a socket that already registered this
    /// UMEM, the memory is not registered again and the copy mode is that socket's.
    ///
    /// # Errors
    /// [`XskError`]; [`XskError::Capability`] without CAP_NET_RAW.
    ///
    /// # Panics
    /// When the number of slots is not a power of two.
    pub fn open(config: &XskConfig, umem: &Arc<Umem>, share: Option<&Self>) -> Result<Opened, XskError> {
        let socket = Self::new()?;
        if share.is_none() {
            socket.register(umem)?;
        }
        // The kernel requires fill and completion rings of every socket, even if it never uses them.
        // The kernel shows packets before it reports their frames as taken from the fill ring (`xsk_flush`), so a
        // frame can come back while its old slot still looks used: at most all of them once more.
        let fill_slots = if config.rx_slots > 0 { 2 * config.frames } else { 1 };
        let completion_slots = if config.tx_slots > 0 { config.frames } else { 1 };
        socket.make_ring(libc::XDP_UMEM_FILL_RING, fill_slots, "make the fill ring")?;
        socket.make_ring(libc::XDP_UMEM_COMPLETION_RING, completion_slots, "make the completion ring")?;
        if config.rx_slots > 0 {
            socket.make_ring(libc::XDP_RX_RING, config.rx_slots, "make the RX ring")?;
        }
        if config.tx_slots > 0 {
            socket.make_ring(libc::XDP_TX_RING, config.tx_slots, "make the TX ring")?;
            socket.raise_budget(config.tx_slots);
        }
        if let Some(busy_poll) = config.busy_poll {
            socket.poll_busily(busy_poll)?;
        }
        let offsets = socket.ring_offsets()?;
        let rx = if config.rx_slots > 0 {
            let fill = socket.map(&offsets.fr, fill_slots, libc::XDP_UMEM_PGOFF_FILL_RING)?;
            let rx = socket.map(&offsets.rx, config.rx_slots, libc::XDP_PGOFF_RX_RING as u64)?;
            Some(RxQueue::new(Producer::new(fill), Consumer::new(rx), umem.clone()))
        } else {
            None
        };
        let tx = if config.tx_slots > 0 {
            let completion =
                socket.map(&offsets.cr, completion_slots, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
            let tx = socket.map(&offsets.tx, config.tx_slots, libc::XDP_PGOFF_TX_RING as u64)?;
            Some(TxQueue::new(Producer::new(tx), Consumer::new(completion), umem.clone()))
        } else {
            None
        };
        let socket = socket.bind(config, share)?;
        Ok(Opened { socket, rx, tx })
    }

    /// The copy mode in use: [`CopyMode::Copy`] or [`CopyMode::ZeroCopy`].
    pub fn copy_mode(&self) -> CopyMode {
        self.copy_mode
    }

    /// Makes the kernel send the contents of the TX ring.
    ///
    /// # Errors
    /// `EAGAIN`, `EBUSY`, `ENOBUFS`: it could not send all of it now, call again. `ENETDOWN`, `ENXIO`: the
    /// interface is down or gone.
    #[inline]
    pub fn kick_tx(&self) -> io::Result<()> {
        // SAFETY: no bytes and no address are passed.
        let sent =
            unsafe { libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Wakes a driver that waits for empty frames, or polls it.
    ///
    /// # Errors
    /// `ENETDOWN`, `ENXIO`: the interface is down or gone.
    #[inline]
    pub fn kick_rx(&self) -> io::Result<()> {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: the kernel writes neither bytes nor an address, as no room for either is given.
        let received =
            unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sleeps until a packet arrives or the timeout expires; returns whether there is one. It also wakes the driver.
    ///
    /// # Errors
    /// `Interrupted` by a signal.
    pub fn wait_readable(&self, at_most: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one live `pollfd`.
        let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
        if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(poll.revents & libc::POLLIN != 0) }
    }

    /// The kernel's counts since the socket was opened.
    ///
    /// # Errors
    /// When the kernel does not report them.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        // SAFETY: all-zero bytes are a valid value of this struct of integers.
        let mut counted: libc::xdp_statistics = unsafe { mem::zeroed() };
        self.ask(libc::XDP_STATISTICS, &mut counted)?;
        Ok(XskStatistics {
            rx_dropped: counted.rx_dropped,
            rx_invalid_descs: counted.rx_invalid_descs,
            tx_invalid_descs: counted.tx_invalid_descs,
            rx_ring_full: counted.rx_ring_full,
            rx_fill_ring_empty_descs: counted.rx_fill_ring_empty_descs,
            tx_ring_empty_descs: counted.tx_ring_empty_descs,
        })
    }

    fn new() -> Result<Self, XskError> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(XskError::of("open an AF_XDP socket", "CAP_NET_RAW", io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, copy_mode: CopyMode::Auto })
    }

    fn register(&self, umem: &Umem) -> Result<(), XskError> {
        let (start, len) = umem.region();
        // Zeroed, because newer kernels read more fields than older headers have.
        // SAFETY: all-zero bytes are a valid value of this struct of integers.
        let mut region: libc::xdp_umem_reg = unsafe { mem::zeroed() };
        region.addr = start.as_ptr() as u64;
        region.len = len;
        region.chunk_size = umem.frame_size();
        region.headroom = umem.config().headroom;
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
            .map_err(|source| XskError::of("register the UMEM", "CAP_IPC_LOCK", source))
    }

    fn make_ring(&self, ring: libc::c_int, slots: u32, action: &'static str) -> Result<(), XskError> {
        assert!(slots.is_power_of_two(), "a ring of {slots} slots");
        self.set(libc::SOL_XDP, ring, &slots).map_err(|source| XskError::of(action, "CAP_NET_RAW", source))
    }

    /// Lets one call send a whole ring instead of 32 packets. Kernels before 6.17 cannot: the caller calls more often.
    fn raise_budget(&self, tx_slots: u32) {
        const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9; // include/uapi/linux/if_xdp.h; libc lacks it
        drop(self.set(libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &tx_slots));
    }

    fn poll_busily(&self, busy_poll: BusyPoll) -> Result<(), XskError> {
        const SO_PREFER_BUSY_POLL: libc::c_int = 69; // include/uapi/asm-generic/socket.h; libc lacks both
        const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
        let settings = [
            (SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, busy_poll.micros),
            (SO_BUSY_POLL_BUDGET, busy_poll.budget),
        ];
        settings.into_iter().try_for_each(|(option, value)| {
            self.set(libc::SOL_SOCKET, option, &value).map_err(|source| match source.raw_os_error() {
                Some(libc::ENOPROTOOPT) => {
                    XskError::Unsupported { feature: "preferred busy polling", since: "5.11", source }
                }
                _ => XskError::of("set busy polling", "CAP_NET_ADMIN", source),
            })
        })
    }

    fn ring_offsets(&self) -> Result<libc::xdp_mmap_offsets, XskError> {
        // SAFETY: all-zero bytes are a valid value of this struct of integers.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
        self.ask(libc::XDP_MMAP_OFFSETS, &mut offsets)
            .map_err(|source| XskError::of("ask where the rings are", "CAP_NET_RAW", source))?;
        Ok(offsets)
    }

    fn map<S: Slot + Send + 'static>(
        &self,
        offsets: &libc::xdp_ring_offset,
        slots: u32,
        page_offset: u64,
    ) -> Result<RingMemory<S>, XskError> {
        let len = offsets.desc as usize + slots as usize * size_of::<S>();
        let mapping = Mapping::of_descriptor(self.fd.as_fd(), len, page_offset)
            .map_err(|source| XskError::of("map a ring", "CAP_NET_RAW", source))?;
        let indexes = [offsets.producer, offsets.consumer, offsets.flags]
            .map(|offset| mapping.pointer(offset as usize));
        let slots = mapping.slice(offsets.desc as usize, slots as usize);
        // SAFETY: all of it lies, aligned, within the mapping, whose address does not depend on where its
        // owner is; the kernel changes indexes, flags and slots word by word.
        Ok(unsafe { RingMemory::new(indexes, slots, Box::new(mapping)) })
    }

    fn bind(mut self, config: &XskConfig, share: Option<&Self>) -> Result<Self, XskError> {
        let XskConfig { interface, queue, copy_mode, .. } = *config;
        // Without a mode the kernel tries zero-copy first. A shared UMEM inherits all of it.
        let mode = match copy_mode {
            CopyMode::Auto => 0,
            CopyMode::Copy => libc::XDP_COPY,
            CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        let flags = if share.is_some() { libc::XDP_SHARED_UMEM } else { mode | libc::XDP_USE_NEED_WAKEUP };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: share.map_or(0, |other| other.fd.as_raw_fd() as u32),
        };
        if let Err(source) = self.bind_to(&address) {
            return Err(match source.raw_os_error() {
                Some(libc::EBUSY) => XskError::QueueInUse { interface, queue, source },
                Some(libc::EOPNOTSUPP) if copy_mode == CopyMode::ZeroCopy => {
                    XskError::ZeroCopy { interface, queue, source }
                }
                _ => XskError::Bind { interface, queue, source },
            });
        }
        let mut options = libc::xdp_options { flags: 0 };
        self.ask(libc::XDP_OPTIONS, &mut options)
            .map_err(|source| XskError::of("read the copy mode", "CAP_NET_RAW", source))?;
        let zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        self.copy_mode = if zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy };
        Ok(self)
    }

    /// Binds; a busy queue may just have been released, which the kernel completes some time after the
    /// socket was closed, without notice.
    fn bind_to(&self, address: &libc::sockaddr_xdp) -> io::Result<()> {
        let deadline = Instant::now() + Self::GIVEN_UP_AFTER;
        loop {
            let len = size_of_val(address) as libc::socklen_t;
            // SAFETY: the address is live and has the given length.
            let bound = unsafe { libc::bind(self.fd.as_raw_fd(), ptr::from_ref(address).cast(), len) };
            if bound == 0 {
                return Ok(());
            }
            let refusal = io::Error::last_os_error();
            if refusal.raw_os_error() != Some(libc::EBUSY) || Instant::now() > deadline {
                return Err(refusal);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is live, and the kernel reads no more than its length.
        let status =
            unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, ptr::from_ref(value).cast(), len) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Only for the kernel's own structs of integers, of which every bit pattern is a value.
    fn ask<T>(&self, option: libc::c_int, value: &mut T) -> io::Result<()> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is live, and the kernel writes no more than its length.
        let status = unsafe {
            let value = ptr::from_mut(value).cast();
            libc::getsockopt(self.fd.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut len)
        };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for XskSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for XskSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
