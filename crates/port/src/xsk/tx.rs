//! Sending through AF_XDP.

use std::{
    io,
    time::{Duration, Instant},
};

use bpf::Pass;
use sys::xsk::{
    BusyPoll, CopyMode, Frame, TxQueue, Umem, UmemConfig, XskConfig, XskError, XskSocket, XskStatistics,
};

use super::{
    XskGot, XskShape, interface,
    kick::{Kick, push_through},
    napi::Polled,
};
use crate::{Layer, PortError, Sent, TxPort, xdp::rings};

/// How to open an [`XskTx`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskTxOptions {
    /// The interface's name in the calling thread's namespace.
    pub interface: String,
    /// The queue to transmit on.
    pub queue: u32,
    /// Memory and ring.
    pub shape: XskShape,
    /// The longest frame without FCS, in bytes.
    pub longest_frame: usize,
    /// The most packets per call, limited by the ring's slots.
    pub batch_size: usize,
    /// Whether the card reads the frames itself.
    pub copy_mode: CopyMode,
    /// Poll the card from the socket's own calls, with the interface's interrupts off in between.
    pub busy_poll: Option<BusyPoll>,
}

/// Sends on one queue of an interface.
///
/// In copy mode a packet counts as accepted when the kernel has read it from the ring, which happens only
/// during a call: a call to send without new packets continues with the rest. With zero-copy a packet
/// counts as accepted when it is in the ring, from where the card fetches it.
pub struct XskTx {
    socket: XskSocket,
    queue: TxQueue,
    free: Vec<Frame>,
    batch_size: usize,
    /// In the ring and not yet accepted.
    waiting: usize,
    options: XskTxOptions,
    /// Drivers read a socket's frames themselves only while a program is attached to them.
    _rings: Option<Pass>,
    _polled: Option<Polled>,
}

impl XskTxOptions {
    /// Batches of 256 from 2048-byte frames, zero-copy if the driver supports it.
    pub fn on(interface: &str, queue: u32) -> Self {
        Self {
            interface: interface.into(),
            queue,
            shape: XskShape::USUAL,
            longest_frame: 1514,
            batch_size: 256,
            copy_mode: CopyMode::Auto,
            busy_poll: None,
        }
    }
}

impl XskTx {
    /// How long closing a port waits for the kernel or the card to fetch the packets in the ring.
    const DRAIN: Duration = Duration::from_millis(100);

    /// Opens a socket on the queue. Needs CAP_NET_RAW, and CAP_IPC_LOCK if the memory lock limit is low; zero-copy
    /// also CAP_BPF and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`PortError::FrameTooLong`], [`PortError::NoQueue`], [`PortError::Interface`], [`PortError::Xsk`],
    /// [`PortError::Bpf`]; with busy polling [`PortError::Napi`] and [`PortError::NapiInUse`].
    ///
    /// # Panics
    /// When the shape is not made of powers of two.
    pub fn open(options: &XskTxOptions) -> Result<Self, PortError> {
        let XskShape { frame_size, frames, ring_slots } = options.shape;
        if options.longest_frame > frame_size as usize {
            let (bytes, most) = (options.longest_frame, frame_size as usize);
            return Err(PortError::FrameBeyondSlot { bytes, most });
        }
        let interface = interface(&options.interface, options.queue)?;
        let polled = options.busy_poll.map(|_| Polled::set_up(&options.interface)).transpose()?;
        let refused =
            |source| PortError::Xsk { interface: options.interface.clone(), queue: options.queue, source };
        let (umem, free) = Umem::new(UmemConfig { frames, frame_size, headroom: 0 })
            .map_err(|source| refused(XskError::Memory { action: "map the UMEM", source }))?;
        let config = XskConfig {
            interface: interface.index,
            queue: options.queue,
            copy_mode: options.copy_mode,
            rx_slots: 0,
            tx_slots: ring_slots,
            frames,
            busy_poll: options.busy_poll,
        };
        let opened = XskSocket::open(&config, &umem, None).map_err(refused)?;
        let zero_copy = opened.socket.copy_mode() == CopyMode::ZeroCopy;
        let rings = if zero_copy { rings(interface.index)? } else { None };
        Ok(Self {
            _rings: rings,
            _polled: polled,
            socket: opened.socket,
            queue: opened.tx.expect("a socket with TX slots sends"),
            free,
            batch_size: options.batch_size.clamp(1, ring_slots.min(frames) as usize),
            waiting: 0,
            options: options.clone(),
        })
    }

    /// What the socket got.
    pub fn got(&self) -> XskGot {
        XskGot { copy_mode: self.socket.copy_mode(), pages: self.queue.umem().pages() }
    }

    /// The kernel's counters of this socket; `tx_invalid_descs` is the one that counts losses here.
    ///
    /// # Errors
    /// [`PortError::XskBroken`] when the kernel does not report them.
    pub fn statistics(&self) -> Result<XskStatistics, PortError> {
        self.socket.statistics().map_err(|source| self.broken("read the counters of", source))
    }

    /// Frames that the kernel has not returned.
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// Passes the kernel a descriptor that it must refuse and count, to test that it does.
    ///
    /// # Errors
    /// [`PortError::XskBroken`].
    pub fn send_invalid(&mut self) -> Result<(), PortError> {
        assert!(self.queue.push_invalid(), "no room for an invalid descriptor");
        self.queue.publish();
        self.kick().map(drop)
    }

    fn reclaim(&mut self) {
        let free = &mut self.free;
        self.queue.complete(|frame| free.push(frame));
    }

    fn fill(&mut self, packets: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        let most = packets.min(self.batch_size).min(self.free.len());
        let packets = most.min(self.queue.room(most as u32) as usize);
        for mut frame in self.free.drain(self.free.len() - packets..) {
            let len = fill(self.queue.umem().bytes_mut(&mut frame));
            self.queue.push(frame, len).expect("the ring reported room");
        }
        self.queue.publish();
        packets
    }

    fn kick(&self) -> Result<Kick, PortError> {
        Kick::of(self.socket.kick_tx()).map_err(|source| self.broken("send on", source))
    }

    /// Calls the kernel while it accepts packets; returns the number accepted.
    fn push_through(&mut self) -> Result<usize, PortError> {
        let left = push_through(self.waiting as u32, || {
            let kicked = self.kick()?;
            Ok((kicked, self.queue.waiting()))
        })?;
        let taken = self.waiting.saturating_sub(left as usize);
        self.waiting -= taken;
        Ok(taken)
    }

    fn takes_when_queued(&self) -> bool {
        self.socket.copy_mode() == CopyMode::ZeroCopy
    }

    fn broken(&self, action: &'static str, source: io::Error) -> PortError {
        let XskTxOptions { interface, queue, .. } = &self.options;
        PortError::XskBroken { action, interface: interface.clone(), queue: *queue, source }
    }
}

impl TxPort for XskTx {
    const LAYER: Layer = Layer::Frame;

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn prime(&mut self, mut fill: impl FnMut(&mut [u8])) {
        self.reclaim();
        let umem = self.queue.umem();
        self.free.iter_mut().for_each(|frame| fill(umem.bytes_mut(frame)));
    }

    fn send(&mut self, packets: usize, fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        self.reclaim();
        if self.waiting == 0 {
            sent.filled = self.fill(packets, fill);
        }
        if self.takes_when_queued() {
            sent.taken = sent.filled;
            if self.queue.outstanding() > 0 && self.queue.needs_wakeup() {
                self.kick()?;
            }
        } else {
            self.waiting += sent.filled;
            // Also without new packets in the ring: the kernel only makes progress during a call.
            if self.queue.outstanding() > 0 {
                sent.taken = self.push_through()?;
            }
        }
        sent.turned_away = usize::from(sent.taken == 0 && (packets > 0 || self.waiting > 0));
        Ok(sent)
    }

    /// Waits until the kernel has taken what is in the ring: of packets that wait there it may have taken some already.
    fn settle(&mut self) -> Result<usize, PortError> {
        let deadline = Instant::now() + Self::DRAIN;
        let mut taken = 0;
        while !self.takes_when_queued() && self.waiting > 0 && Instant::now() < deadline {
            self.reclaim();
            taken += self.push_through()?;
        }
        Ok(taken)
    }
}

impl Drop for XskTx {
    /// Lets the card fetch the rest.
    fn drop(&mut self) {
        let deadline = Instant::now() + Self::DRAIN;
        while self.takes_when_queued() && self.queue.outstanding() > 0 && Instant::now() < deadline {
            if self.kick().is_err() {
                return;
            }
            self.reclaim();
        }
    }
}
