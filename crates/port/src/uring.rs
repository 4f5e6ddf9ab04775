//! The path through io_uring: batches of sends on connected UDP sockets, and a multishot receive into provided
//! buffers. The sockets are those of [`UdpTx`] and [`UdpRx`], and so are losses.

use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::LazyLock,
    time::Duration,
};

use sys::uring::{self, Features, MOST_SLOTS, ReceiveOptions, ReceiveRing, SendRing};

use crate::{
    Layer, Loss, PortError, Received, RxPort, Sent, TimeSource, TxPort, UdpRx, UdpRxOptions, UdpTx,
    UdpTxOptions, Wait,
};

/// How long a blocking call waits before it returns to check for a stop.
const TIMEOUT: Duration = Duration::from_millis(20);

/// How to open a [`UringTx`].
#[derive(Debug, Clone)]
pub struct UringTxOptions {
    /// The sockets and the batch; this path does not support GSO and returned packets.
    pub sockets: UdpTxOptions,
    /// A kernel thread submits the sends (`IORING_SETUP_SQPOLL`).
    pub sqpoll: bool,
}

/// Sends on connected UDP sockets through a ring.
pub struct UringTx {
    sockets: UdpTx,
    ring: SendRing,
    turn: usize,
    /// Slots filled but not yet accepted.
    waiting: Vec<u32>,
    /// Those of them that a call left over.
    left: Vec<u32>,
    peer: SocketAddr,
}

/// How to open a [`UringRx`].
#[derive(Debug, Clone)]
pub struct UringRxOptions {
    /// The socket and the batch; this path does not support GRO and per-packet drop counts.
    pub socket: UdpRxOptions,
    /// The longest datagram that is not truncated.
    pub datagram_bytes: usize,
}

/// Receives on a UDP socket through a ring.
pub struct UringRx {
    socket: UdpRx,
    ring: ReceiveRing,
    batch_size: usize,
    local: SocketAddr,
}

/// The first kernel that supports our sending rings (`IORING_SETUP_COOP_TASKRUN`).
const SENDS_SINCE: &str = "5.19";
/// The first kernel that supports our receiving rings (`IORING_SETUP_DEFER_TASKRUN`).
const RECEIVES_SINCE: &str = "6.1";

fn unavailable(since: &str) -> impl Fn(io::Error) -> PortError {
    move |source| lacking(source, since, uring::disabled())
}

fn lacking(source: io::Error, since: &str, disabled: Option<u32>) -> PortError {
    let needs = match (source.raw_os_error(), disabled) {
        (Some(libc::EPERM), Some(level)) => format!(" (sysctl kernel.io_uring_disabled is {level})"),
        (Some(libc::ENOSYS), _) => " (it needs a kernel with CONFIG_IO_URING)".into(),
        (Some(libc::EINVAL), _) => format!(" (it needs Linux {since} or later)"),
        _ => String::new(),
    };
    PortError::Facility { tried: "set up", facility: "io_uring", needs, source }
}

impl UringTx {
    /// Opens and connects the sockets, and creates their ring.
    ///
    /// # Errors
    /// As [`UdpTx::open`]; [`PortError::Facility`] when a ring cannot be created.
    pub fn open(options: &UringTxOptions) -> Result<Self, PortError> {
        let slots = options.sockets.batch_size.clamp(1, MOST_SLOTS);
        // The ring's slots replace those of the sockets.
        let sockets = UdpTx::open(&UdpTxOptions { batch_size: 1, gso: false, ..options.sockets.clone() })?;
        let room = (slots, options.sockets.payload_bytes);
        let ring =
            SendRing::new(sockets.sockets(), room, options.sqpoll).map_err(unavailable(SENDS_SINCE))?;
        let [waiting, left] = [(); 2].map(|()| Vec::with_capacity(slots));
        Ok(Self { sockets, ring, turn: 0, waiting, left, peer: options.sockets.peer })
    }

    /// Why this process cannot use such a port; tried once.
    pub fn why_not() -> Option<&'static str> {
        static WHY_NOT: LazyLock<Option<String>> = LazyLock::new(|| {
            SendRing::new(&[any_socket().ok()?], (1, 64), false).err().map(unavailable(SENDS_SINCE)).map(said)
        });
        WHY_NOT.as_deref()
    }

    /// The kernel's features for such a port.
    ///
    /// # Errors
    /// [`PortError::Facility`] when a ring cannot be created.
    pub fn probe() -> Result<String, PortError> {
        let features = Features::of_kernel().map_err(unavailable(SENDS_SINCE))?;
        let socket = any_socket()?;
        let ring = |sqpoll| SendRing::new(&[&socket], (1, 64), sqpoll);
        ring(false).map_err(unavailable(SENDS_SINCE))?;
        let sqpoll = ring(true).is_ok();
        let has = [("sqpoll", sqpoll), ("zero-copy (not used)", features.zero_copy)];
        let names = has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name);
        Ok(["batches"].into_iter().chain(names).collect::<Vec<_>>().join(", "))
    }

    /// The local addresses, one per flow.
    ///
    /// # Errors
    /// [`PortError::Option`] when the kernel does not report them.
    pub fn local_addresses(&self) -> Result<Vec<SocketAddr>, PortError> {
        self.sockets.local_addresses()
    }
}

/// A socket to try rings on.
fn any_socket() -> Result<UdpRx, PortError> {
    UdpRx::open(&UdpRxOptions { batch_size: 1, ..UdpRxOptions::at((Ipv4Addr::UNSPECIFIED, 0).into()) })
}

fn said(error: PortError) -> String {
    error.io().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl TxPort for UringTx {
    const LAYER: Layer = Layer::Payload;

    fn batch_size(&self) -> usize {
        self.ring.slots()
    }

    fn prime(&mut self, mut fill: impl FnMut(&mut [u8])) {
        (0..self.ring.slots()).for_each(|slot| fill(self.ring.slot_mut(slot)));
    }

    fn send(&mut self, packets: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        if self.waiting.is_empty() {
            sent.filled = packets.min(self.ring.slots());
            for slot in 0..sent.filled {
                let len = fill(self.ring.slot_mut(slot));
                self.ring.set_len(slot, len);
            }
            self.waiting.extend(0..sent.filled as u32);
            self.turn = (self.turn + 1) % self.sockets.sockets().len();
        }
        if self.waiting.is_empty() {
            return Ok(sent);
        }
        self.left.clear();
        let (left, mut broken) = (&mut self.left, None);
        let handed = self.ring.send(self.turn, &self.waiting, |slot, outcome| {
            let Err(source) = outcome else {
                sent.taken += 1;
                return;
            };
            left.push(slot);
            match source.raw_os_error() {
                Some(libc::ECONNREFUSED) => sent.refused += 1,
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => sent.turned_away = 1,
                _ => broken = Some(source),
            }
        });
        mem::swap(&mut self.waiting, &mut self.left);
        let lost = |source| PortError::Send { peer: self.peer, source };
        broken.map_or(handed, Err).map_err(lost)?;
        if sent.taken == 0 && sent.turned_away > 0 {
            self.sockets.sockets()[self.turn].wait_until_writable(TIMEOUT).map_err(lost)?;
        }
        Ok(sent)
    }
}

impl UringRxOptions {
    /// A separate socket at `local`, in batches of 512.
    pub fn at(local: SocketAddr) -> Self {
        Self { socket: UdpRxOptions::at(local), datagram_bytes: 2048 }
    }
}

impl UringRx {
    /// The fewest and the most buffers of a ring; in between twice the batch size.
    const BUFFERS: (usize, usize) = (256, 4096);

    /// Opens and binds a socket, and creates its ring.
    ///
    /// # Errors
    /// As [`UdpRx::open`]; [`PortError::Facility`] when a ring cannot be created.
    pub fn open(options: &UringRxOptions) -> Result<Self, PortError> {
        Self::over(UdpRx::open(&Self::of_socket(options))?, options)
    }

    /// A second port on the same socket, for another thread; only the first reports the socket's losses.
    ///
    /// # Errors
    /// As [`UringRx::open`].
    pub fn share(&self, options: &UringRxOptions) -> Result<Self, PortError> {
        Self::over(self.socket.share(&Self::of_socket(options))?, options)
    }

    /// The ring's buffers replace those of the socket.
    fn of_socket(options: &UringRxOptions) -> UdpRxOptions {
        UdpRxOptions { batch_size: 1, gro: false, drop_counts: false, ..options.socket.clone() }
    }

    fn over(socket: UdpRx, options: &UringRxOptions) -> Result<Self, PortError> {
        let (least, most) = Self::BUFFERS;
        let batch_size = options.socket.batch_size.max(1);
        let buffers = (2 * batch_size).clamp(least, most).next_power_of_two() as u16;
        let receive = ReceiveOptions {
            buffers,
            datagram_bytes: options.datagram_bytes,
            details: options.socket.times.is_some(),
        };
        let ring = ReceiveRing::new(socket.as_fd(), &receive).map_err(unavailable(RECEIVES_SINCE))?;
        let local = socket.local_address()?;
        Ok(Self { socket, ring, batch_size, local })
    }

    /// Why this process cannot use such a port; tried once.
    pub fn why_not() -> Option<&'static str> {
        static WHY_NOT: LazyLock<Option<String>> = LazyLock::new(|| {
            let options = ReceiveOptions { buffers: 1, datagram_bytes: 64, details: false };
            let ring = ReceiveRing::new(any_socket().ok()?.as_fd(), &options);
            ring.err().map(unavailable(RECEIVES_SINCE)).map(said)
        });
        WHY_NOT.as_deref()
    }

    /// The kernel's features for such a port.
    ///
    /// # Errors
    /// [`PortError::Facility`] when a ring cannot be created; [`PortError::Receive`] when it does not receive.
    pub fn probe() -> Result<String, PortError> {
        let mut port = Self::open(&UringRxOptions::at((Ipv4Addr::UNSPECIFIED, 0).into()))?;
        port.recv(Wait::Spin, |_| ())?;
        let bundles = Features::of_kernel().map_err(unavailable(RECEIVES_SINCE))?.bundles;
        let unused = if bundles { ", bundles (not for datagrams)" } else { "" };
        Ok(format!("multishot, provided buffers{unused}"))
    }

    /// The address bound to.
    ///
    /// # Errors
    /// As [`UdpRx::local_address`].
    pub fn local_address(&self) -> Result<SocketAddr, PortError> {
        self.socket.local_address()
    }
}

impl AsFd for UringRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl RxPort for UringRx {
    const LAYER: Layer = Layer::Payload;

    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        let by_card = self.socket.time_source() == TimeSource::Card;
        let wait = (wait == Wait::Block).then_some(TIMEOUT);
        let received = self.ring.recv(wait, self.batch_size, |datagram| {
            let arrived_ns = match datagram.times {
                Some(times) if by_card => times.card_ns,
                times => times.map(|times| times.kernel_ns),
            };
            let (bytes, truncated) = (datagram.bytes, datagram.truncated);
            sink(Received { bytes, truncated, arrived_ns, source: datagram.source });
        });
        received.map_err(|source| PortError::Receive { address: self.local, source })
    }

    fn time_source(&self) -> TimeSource {
        self.socket.time_source()
    }

    fn lost_seen(&self) -> u64 {
        self.socket.lost_seen()
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        self.socket.lost()
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        self.socket.losses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let error = |errno, disabled| lacking(io::Error::from_raw_os_error(errno), "6.1", disabled);
        for (errno, disabled, needs) in [
            (libc::EPERM, Some(2), " (sysctl kernel.io_uring_disabled is 2)"),
            (libc::EPERM, None, ""),
            (libc::ENOSYS, None, " (it needs a kernel with CONFIG_IO_URING)"),
            (libc::EINVAL, Some(1), " (it needs Linux 6.1 or later)"),
            (libc::ENOMEM, None, ""),
        ] {
            assert_eq!(error(errno, disabled).to_string(), format!("cannot set up io_uring{needs}"));
        }
        assert_eq!(
            said(error(libc::ENOSYS, None)),
            "cannot set up io_uring (it needs a kernel with CONFIG_IO_URING): Function not implemented (os error 38)"
        );
        assert_eq!((UringTx::why_not(), UringRx::why_not()), (None, None));
    }

    #[test]
    fn a_refused_packet_stays_in_the_port_and_is_sent_when_somebody_listens() {
        let rx = UringRx::open(&UringRxOptions::at("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = rx.local_address().unwrap();
        drop(rx);
        let sockets = UdpTxOptions { batch_size: 8, ..UdpTxOptions::to(address, 20) };
        let mut tx = UringTx::open(&UringTxOptions { sockets, sqpoll: false }).unwrap();
        let mut number = 0;
        let mut fill = |slot: &mut [u8]| {
            slot[0] = number;
            number += 1;
            20
        };
        // Loopback rejects each datagram before the next one is sent.
        assert_eq!(tx.send(1, &mut fill).unwrap(), Sent { filled: 1, taken: 1, ..Sent::default() });
        assert_eq!(tx.send(1, &mut fill).unwrap(), Sent { filled: 1, refused: 1, ..Sent::default() });
        let mut rx = UringRx::open(&UringRxOptions::at(address)).unwrap();
        assert_eq!(tx.send(5, &mut fill).unwrap(), Sent { taken: 1, ..Sent::default() });
        let mut seen = Vec::new();
        while seen.is_empty() {
            rx.recv(Wait::Block, |received| seen.push(received.bytes[0])).unwrap();
        }
        assert_eq!(seen, [1]);
    }

    #[test]
    fn a_full_receive_buffer_is_counted() {
        let mut options = UringRxOptions::at("127.0.0.1:0".parse().unwrap());
        options.socket.receive_buffer_bytes = Some(4096);
        let mut rx = UringRx::open(&options).unwrap();
        let mut second = rx.share(&options).unwrap();
        let sockets = UdpTxOptions { batch_size: 100, ..UdpTxOptions::to(rx.local_address().unwrap(), 1000) };
        let mut tx = UringTx::open(&UringTxOptions { sockets, sqpoll: false }).unwrap();
        assert_eq!(tx.send(100, |_| 1000).unwrap().taken, 100);
        let mut received = 0;
        loop {
            match rx.recv(Wait::Spin, |_| ()).unwrap() {
                0 => break,
                packets => received += packets as u64,
            }
        }
        assert_eq!((rx.lost().unwrap(), second.lost().unwrap()), (100 - received, 0));
        assert!(received > 0 && received < 100);
        assert_eq!(rx.losses().unwrap()[0].source, "socket SK_MEMINFO_DROPS");
    }
}
