//! A packet socket and the options that matter for packet rates.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use super::{
    memory::Memory,
    receive::{RxRing, RxRingLayout},
    transmit::{TxRing, TxRingLayout},
};

/// A packet socket in the network namespace of the thread that opened it.
pub struct PacketSocket {
    socket: Socket,
}

/// How the sockets of a fanout group share an interface's packets (`PACKET_FANOUT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FanoutMode {
    /// By flow hash.
    Hash = libc::PACKET_FANOUT_HASH,
    /// In turn.
    LoadBalance = libc::PACKET_FANOUT_LB,
    /// By the CPU that receives.
    Cpu = libc::PACKET_FANOUT_CPU,
    /// The first, until its ring is full, then the next.
    Rollover = libc::PACKET_FANOUT_ROLLOVER,
    /// At random.
    Random = libc::PACKET_FANOUT_RND,
    /// By receive queue.
    QueueMapping = libc::PACKET_FANOUT_QM,
}

/// Counters of a receiving socket (`PACKET_STATISTICS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Packets for the socket, including those it lost.
    pub packets: u64,
    /// Packets lost because no block of the ring was free.
    pub drops: u64,
    /// Times that all blocks of the ring were full.
    pub freezes: u64,
}

impl Statistics {
    /// Both together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            packets: self.packets + more.packets,
            drops: self.drops + more.drops,
            freezes: self.freezes + more.freezes,
        }
    }
}

impl PacketSocket {
    /// Opens a socket that receives nothing and is not bound; needs CAP_NET_RAW.
    ///
    /// # Errors
    /// `PermissionDenied` (EPERM) without the capability.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(Domain::PACKET, Type::RAW, None)? })
    }

    /// Sends through this interface from now on; the socket still receives nothing.
    ///
    /// # Errors
    /// `ENODEV` when there is none with this index.
    pub fn bind_to_send(&self, interface: u32) -> io::Result<()> {
        self.bind(interface, 0)
    }

    /// Receives packets of any protocol from this interface from now on.
    ///
    /// # Errors
    /// `ENODEV` when there is none with this index.
    pub fn bind_to_receive(&self, interface: u32) -> io::Result<()> {
        self.set(libc::PACKET_IGNORE_OUTGOING, &1)?;
        self.bind(interface, libc::ETH_P_ALL as u16)
    }

    /// Joins a fanout group instead of receiving everything; replaces [`PacketSocket::bind_to_receive`].
    ///
    /// All members of a group have the same mode and interface.
    ///
    /// # Errors
    /// `EINVAL` when the group exists with another mode or interface, `ENOSPC` when it has 256 members.
    pub fn bind_to_share(&self, interface: u32, group: u16, mode: FanoutMode) -> io::Result<()> {
        // A socket must be bound before it can join; until then the filter keeps packets of other members away.
        self.hear_nothing()?;
        self.bind_to_receive(interface)?;
        // The group has its own receive hook, which does not know the socket's PACKET_IGNORE_OUTGOING.
        let kind = mode as u32 | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        self.set(libc::PACKET_FANOUT, &(u32::from(group) | kind << 16))?;
        self.set_at(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
    }

    /// Whether frames bypass the queueing discipline.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_qdisc_bypass(&self, bypass: bool) -> io::Result<()> {
        self.set(libc::PACKET_QDISC_BYPASS, &libc::c_int::from(bypass))
    }

    /// Requests the card's timestamps in the receive ring, if the card was set to stamp packets.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn ask_card(&self) -> io::Result<()> {
        self.set(libc::PACKET_TIMESTAMP, &libc::SOF_TIMESTAMPING_RAW_HARDWARE)
    }

    /// Gives the socket a transmit ring, which [`PacketSocket::transmit`] sends from.
    ///
    /// # Errors
    /// `EBUSY` when the socket has a ring, `ENOMEM`.
    pub fn transmit_ring(&self, layout: TxRingLayout) -> io::Result<TxRing> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        self.set(libc::PACKET_VNET_HDR, &1)?;
        self.set(libc::PACKET_TX_RING, &layout.request())?;
        Ok(TxRing::over(Memory::of_socket(self.as_fd(), layout.bytes())?, layout))
    }

    /// Gives the socket a receive ring; before it is bound, so that no packet goes elsewhere.
    ///
    /// # Errors
    /// `EBUSY` when the socket has a ring, `EINVAL` when the kernel cannot make blocks of this size, `ENOMEM`.
    pub fn receive_ring(&self, layout: RxRingLayout) -> io::Result<RxRing> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        self.set(libc::PACKET_RX_RING, &layout.request())?;
        Ok(RxRing::over(Memory::of_socket(self.as_fd(), layout.bytes())?, layout))
    }

    /// Makes the kernel take the filled slots of the transmit ring, without waiting for completion.
    /// [`TxRing::count_taken`] says how many it took, also after an error.
    ///
    /// # Errors
    /// `ENOBUFS` when the interface refused a frame, which then stays in its slot, `EAGAIN` when the socket's
    /// send buffer is full, `EMSGSIZE` or `EINVAL` when a frame cannot be sent at all.
    #[inline]
    pub fn transmit(&self) -> io::Result<()> {
        self.socket.send_with_flags(&[], libc::MSG_DONTWAIT).map(drop)
    }

    /// Sleeps until a block of the receive ring is ready; false when none is within `timeout` or a signal came.
    ///
    /// # Errors
    /// `ENETDOWN` when the interface went down.
    pub fn wait_for_block(&self, timeout: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `poll` is one live entry, and the count is 1.
        if unsafe { libc::poll(&raw mut poll, 1, timeout) } < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
        }
        if poll.revents & libc::POLLERR != 0
            && let Some(error) = self.socket.take_error()?
        {
            return Err(error);
        }
        Ok(poll.revents & libc::POLLIN != 0)
    }

    /// Counters since the last call, which resets them. For sockets with a receive ring.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn take_statistics(&self) -> io::Result<Statistics> {
        let mut counters = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut len = mem::size_of_val(&counters) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `counters`, and sets `len`.
        let status = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counters).cast(),
                &raw mut len,
            )
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Statistics {
            packets: counters.tp_packets.into(),
            drops: counters.tp_drops.into(),
            freezes: counters.tp_freeze_q_cnt.into(),
        })
    }

    fn bind(&self, interface: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: an all-zero sockaddr_ll is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = libc::c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` lives through the call and is `len` bytes long.
        let status = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), len) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Attaches a filter that accepts no packet; its drops are not losses and not counted.
    fn hear_nothing(&self) -> io::Result<()> {
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let mut program = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        self.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(libc::SOL_PACKET, option, value)
    }

    fn set_at<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let len = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` lives through the call and is `len` bytes long; the kernel only reads it and what it
        // points to, which lives as long.
        let status = unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
