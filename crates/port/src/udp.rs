//! The path through UDP sockets: `sendmmsg` on connected sockets, `recvmmsg` on shared or separate ones.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use measure::Place;
use sys::udp::{Message, RecvBatch, SendBatch, SocketOptions, UdpSocket};

use crate::{Joined, Layer, Loss, PortError, Received, RxPort, Sent, TimeSource, TxPort, Wait};

mod reflect;

pub use reflect::UdpReflector;

/// How long a blocking call waits before it returns to check for a stop.
const TIMEOUT: Duration = Duration::from_millis(20);
/// The most datagrams that the kernel merges into or segments from one message (`UDP_MAX_SEGMENTS` of the oldest kernels).
const MOST_SEGMENTS: usize = 64;
/// The most payload bytes of one message, with room for IPv6 and UDP headers.
const MOST_MESSAGE_BYTES: usize = 65_000;

/// How to open a [`UdpTx`].
#[derive(Debug, Clone)]
pub struct UdpTxOptions {
    /// Where to send.
    pub peer: SocketAddr,
    /// The local address; port 0 chooses any.
    pub local: SocketAddr,
    /// The interface to send from, regardless of routes.
    pub interface: Option<String>,
    /// Sockets, each with its own source port, round robin per batch.
    pub flows: usize,
    /// The longest payload in bytes.
    pub payload_bytes: usize,
    /// The most packets per call.
    pub batch_size: usize,
    /// Pass up to 64 datagrams to the kernel as one message (GSO); every payload then has `payload_bytes`.
    pub gso: bool,
    /// `SO_SNDBUF` in bytes.
    pub send_buffer_bytes: Option<usize>,
    /// Packets are expected to return: the sockets reserve buffers for them and stamp them.
    pub returns: bool,
}

/// Sends on connected UDP sockets.
pub struct UdpTx {
    sockets: Vec<UdpSocket>,
    turn: usize,
    batch: SendBatch,
    waiting: Range<usize>,
    fixed_len: bool,
    peer: SocketAddr,
}

/// How to open a [`UdpRx`].
#[derive(Debug, Clone)]
pub struct UdpRxOptions {
    /// The local address.
    pub local: SocketAddr,
    /// Receive only from this interface.
    pub interface: Option<String>,
    /// One socket per thread on the same port (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Let the kernel merge datagrams (GRO); each is still counted.
    pub gro: bool,
    /// Let each batch carry the number of packets dropped so far (`SO_RXQ_OVFL`), instead of requesting it now and
    /// then; it costs the kernel a read of the count for every packet.
    pub drop_counts: bool,
    /// Let each packet carry its sender's address and its receive time, by this clock.
    pub times: Option<TimeSource>,
    /// The most messages per call.
    pub batch_size: usize,
    /// `SO_RCVBUF` in bytes.
    pub receive_buffer_bytes: Option<usize>,
    /// `SO_BUSY_POLL` in microseconds; needs CAP_NET_ADMIN.
    pub busy_poll_micros: Option<u32>,
}

/// Receives on a UDP socket.
pub struct UdpRx {
    socket: UdpSocket,
    batch: RecvBatch,
    local: SocketAddr,
    lost: u64,
    shares_socket: bool,
    times: TimeSource,
    /// With GRO.
    joined: Option<Joined>,
}

impl UdpTxOptions {
    /// One flow to `peer` from any local address, in batches of 1024.
    pub fn to(peer: SocketAddr, payload_bytes: usize) -> Self {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self {
            peer,
            local: (any, 0).into(),
            interface: None,
            flows: 1,
            payload_bytes,
            batch_size: 1024,
            gso: false,
            send_buffer_bytes: None,
            returns: false,
        }
    }
}

impl UdpTx {
    /// Room for returned packets, per socket.
    const RETURN_BUFFER_BYTES: usize = 8 << 20;
    /// The most returned packets per call.
    const RETURN_BATCH: usize = 128;

    /// Opens and connects the sockets.
    ///
    /// # Errors
    /// [`PortError::Bind`] and [`PortError::Connect`].
    pub fn open(options: &UdpTxOptions) -> Result<Self, PortError> {
        let segments = if options.gso {
            (MOST_MESSAGE_BYTES / options.payload_bytes).clamp(1, MOST_SEGMENTS).min(options.batch_size)
        } else {
            1
        };
        let socket_options = SocketOptions {
            interface: options.interface.clone(),
            send_buffer_bytes: options.send_buffer_bytes,
            segment_bytes: (segments > 1).then_some(options.payload_bytes as u16),
            receive_buffer_bytes: options.returns.then_some(Self::RETURN_BUFFER_BYTES),
            timestamps: options.returns,
            ..SocketOptions::default()
        };
        let peer = options.peer;
        let sockets = (0..options.flows.max(1))
            .map(|flow| {
                let mut local = options.local;
                if local.port() > 0 {
                    local.set_port(local.port().saturating_add(flow as u16));
                }
                let socket = UdpSocket::bind(local, &socket_options)
                    .map_err(|source| bind_error(local, options.interface.as_deref(), source))?;
                socket.connect(peer).map_err(|source| PortError::Connect { peer, source })?;
                socket
                    .set_timeouts(TIMEOUT)
                    .map_err(|source| PortError::Option { option: "SO_SNDTIMEO", source })?;
                Ok(socket)
            })
            .collect::<Result<Vec<_>, PortError>>()?;
        let messages = options.batch_size.div_ceil(segments);
        Ok(Self {
            sockets,
            turn: 0,
            batch: SendBatch::new(messages, segments, options.payload_bytes),
            waiting: 0..0,
            fixed_len: segments > 1,
            peer,
        })
    }

    /// The local addresses, one per flow.
    ///
    /// # Errors
    /// [`PortError::Option`] when the kernel does not report them.
    pub fn local_addresses(&self) -> Result<Vec<SocketAddr>, PortError> {
        let unsaid = |source| PortError::Option { option: "getsockname", source };
        self.sockets.iter().map(|socket| socket.local_address().map_err(unsaid)).collect()
    }

    /// A port per flow that receives its returned packets, stamped by the kernel; for sockets opened with
    /// [`UdpTxOptions::returns`].
    ///
    /// # Errors
    /// [`PortError::Option`] when no descriptor is left.
    pub fn return_ports(&self) -> Result<Vec<UdpRx>, PortError> {
        let port = |socket: &UdpSocket| {
            let socket = socket.try_clone().map_err(|source| PortError::Option { option: "dup", source })?;
            let options = UdpRxOptions {
                times: Some(TimeSource::Kernel),
                batch_size: Self::RETURN_BATCH,
                ..UdpRxOptions::at(self.peer)
            };
            UdpRx::over(socket, &options, false)
        };
        self.sockets.iter().map(port).collect()
    }

    /// The sockets, one per flow, for another way to pass datagrams to them.
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    fn fill(&mut self, packets: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        let packets = packets.min(self.batch.slots());
        for slot in 0..packets {
            let len = fill(self.batch.slot_mut(slot));
            if !self.fixed_len {
                self.batch.set_len(slot, len);
            }
        }
        self.waiting = 0..packets;
        self.turn = (self.turn + 1) % self.sockets.len();
        packets
    }
}

impl TxPort for UdpTx {
    const LAYER: Layer = Layer::Payload;

    fn batch_size(&self) -> usize {
        self.batch.slots()
    }

    fn prime(&mut self, mut fill: impl FnMut(&mut [u8])) {
        (0..self.batch.slots()).for_each(|slot| fill(self.batch.slot_mut(slot)));
    }

    fn send(&mut self, packets: usize, fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        if self.waiting.is_empty() {
            sent.filled = self.fill(packets, fill);
        }
        if self.waiting.is_empty() {
            return Ok(sent);
        }
        match self.batch.send(&self.sockets[self.turn], self.waiting.start, self.waiting.end) {
            Ok(taken) => {
                sent.taken = taken;
                self.waiting.start += taken;
            }
            Err(source) => match source.raw_os_error() {
                Some(libc::ECONNREFUSED) => sent.refused = 1,
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => sent.turned_away = 1,
                _ => return Err(PortError::Send { peer: self.peer, source }),
            },
        }
        Ok(sent)
    }
}

fn bind_error(address: SocketAddr, interface: Option<&str>, source: io::Error) -> PortError {
    match (interface, source.raw_os_error()) {
        (Some(interface), Some(libc::ENODEV)) => {
            PortError::NoInterface { interface: interface.into(), source }
        }
        _ => PortError::Bind { address, source },
    }
}

impl UdpRxOptions {
    /// A separate socket at `local`, in batches of 512.
    pub fn at(local: SocketAddr) -> Self {
        Self {
            local,
            interface: None,
            reuse_port: false,
            gro: false,
            drop_counts: false,
            times: None,
            batch_size: 512,
            receive_buffer_bytes: None,
            busy_poll_micros: None,
        }
    }
}

impl UdpRx {
    /// The longest datagram that is not truncated when the kernel merges none.
    const SLOT_BYTES: usize = 2048;
    /// The most messages per call with GRO: each has room for 64 KiB.
    const MOST_GRO_MESSAGES: usize = 64;

    /// Opens and binds a socket.
    ///
    /// # Errors
    /// [`PortError::Bind`].
    pub fn open(options: &UdpRxOptions) -> Result<Self, PortError> {
        let socket_options = SocketOptions {
            interface: options.interface.clone(),
            reuse_port: options.reuse_port,
            receive_buffer_bytes: options.receive_buffer_bytes,
            gro: options.gro,
            drop_counts: options.drop_counts,
            timestamps: matches!(options.times, Some(TimeSource::Kernel | TimeSource::Card)),
            ..SocketOptions::default()
        };
        let socket = UdpSocket::bind(options.local, &socket_options)
            .map_err(|source| bind_error(options.local, options.interface.as_deref(), source))?;
        socket.set_timeouts(TIMEOUT).map_err(|source| PortError::Option { option: "SO_RCVTIMEO", source })?;
        if let Some(micros) = options.busy_poll_micros {
            let refused = |source| PortError::Option { option: "SO_BUSY_POLL", source };
            socket.set_busy_poll(micros).map_err(refused)?;
        }
        Self::over(socket, options, false)
    }

    /// A second port on the same socket, for another thread; only the first reports the socket's losses.
    ///
    /// # Errors
    /// [`PortError::Option`] when no descriptor is left.
    pub fn share(&self, options: &UdpRxOptions) -> Result<Self, PortError> {
        let socket = self.socket.try_clone().map_err(|source| PortError::Option { option: "dup", source })?;
        Self::over(socket, options, true)
    }

    fn over(socket: UdpSocket, options: &UdpRxOptions, shares_socket: bool) -> Result<Self, PortError> {
        let batch = if options.gro {
            RecvBatch::new(options.batch_size.min(Self::MOST_GRO_MESSAGES), 65_536).with_segments()
        } else {
            RecvBatch::new(options.batch_size, Self::SLOT_BYTES)
        };
        let times = options.times.unwrap_or_default();
        let batch = if options.times.is_some() { batch.with_sources() } else { batch };
        let batch = if times == TimeSource::Loop { batch } else { batch.with_times() };
        let local =
            socket.local_address().map_err(|source| PortError::Option { option: "getsockname", source })?;
        let joined = options.gro.then(Joined::default);
        Ok(Self { socket, batch, local, lost: 0, shares_socket, times, joined })
    }

    /// The address bound to.
    ///
    /// # Errors
    /// None today; the signature leaves room for ports that must query the kernel.
    pub fn local_address(&self) -> Result<SocketAddr, PortError> {
        Ok(self.local)
    }

    /// The receive buffer in bytes as accounted by the kernel.
    ///
    /// # Errors
    /// [`PortError::Option`] when the kernel does not report it.
    pub fn receive_buffer_bytes(&self) -> Result<usize, PortError> {
        self.socket.receive_buffer_bytes().map_err(|source| PortError::Option { option: "SO_RCVBUF", source })
    }

    /// Both drop counts are 32 bits wide and wrap; ours continues. A lagging count changes nothing.
    fn advance_lost(&mut self, count: u32) {
        let more = count.wrapping_sub(self.lost as u32) as i32;
        self.lost += u64::try_from(more).unwrap_or(0);
    }
}

impl AsFd for UdpRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl RxPort for UdpRx {
    const LAYER: Layer = Layer::Payload;

    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        let messages = match self.batch.recv(&self.socket, wait == Wait::Block) {
            Ok(messages) => messages,
            Err(source) if matches!(source.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => return Ok(0),
            Err(source) if source.raw_os_error() == Some(libc::ECONNREFUSED) => return Ok(0),
            Err(source) => return Err(PortError::Receive { address: self.local, source }),
        };
        if let Some(count) = self.batch.dropped().filter(|_| !self.shares_socket) {
            self.advance_lost(count);
        }
        let mut packets = 0;
        let mut joined = Joined::default();
        for index in 0..messages {
            let message = self.batch.message(index);
            let arrived_ns = match self.times {
                TimeSource::Card => message.times.and_then(|times| times.card_ns),
                _ => message.times.map(|times| times.kernel_ns),
            };
            let Message { truncated, source, .. } = message;
            match message.segment_bytes {
                None => {
                    packets += 1;
                    sink(Received { bytes: message.bytes, truncated, arrived_ns, source });
                }
                Some(segment) => {
                    joined.add(1, message.bytes.len().div_ceil(segment) as u64);
                    for bytes in message.bytes.chunks(segment) {
                        packets += 1;
                        sink(Received { bytes, truncated, arrived_ns, source });
                    }
                }
            }
        }
        if let Some(all) = &mut self.joined {
            // A buffer of one datagram has no segment size.
            joined.add(messages as u64 - joined.buffers, 1);
            *all = all.plus(joined);
        }
        Ok(packets)
    }

    fn time_source(&self) -> TimeSource {
        self.times
    }

    fn joined(&self) -> Option<Joined> {
        self.joined
    }

    fn lost_seen(&self) -> u64 {
        self.lost
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        if self.shares_socket {
            return Ok(0);
        }
        let count = self
            .socket
            .dropped()
            .map_err(|source: io::Error| PortError::Option { option: "SO_MEMINFO", source })?;
        self.advance_lost(count);
        Ok(self.lost)
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        Ok(vec![Loss {
            place: Place::ReceiveBuffer,
            packets: self.lost()?,
            source: "socket SK_MEMINFO_DROPS",
            remedy: "the reader does not keep up: more threads with reuseport, or a larger --receive-buffer",
        }])
    }
}

#[cfg(test)]
mod tests;
