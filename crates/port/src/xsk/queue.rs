//! Both directions of one queue through AF_XDP: a packet is read in place, and returns to the card as
//! an empty frame or as a packet to send. It attaches no program: the caller decides which packets reach it.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use sys::xsk::{
    CopyMode, Received as XskReceived, RxQueue, TxQueue, Umem, UmemConfig, XskConfig, XskError, XskSocket,
    XskStatistics,
};

use super::{
    XskGot, XskShape, interface,
    kick::{Kick, push_through},
};
use crate::{PortError, Wait};

/// How long a blocking turn waits before it returns.
const TIMEOUT: Duration = Duration::from_millis(20);

/// How to open an [`XskQueue`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskQueueOptions {
    /// The interface's name in the calling thread's namespace.
    pub interface: String,
    /// The queue.
    pub queue: u32,
    /// Memory and rings; the TX ring is as large as the RX ring.
    pub shape: XskShape,
    /// The most packets per turn.
    pub batch_size: u32,
    /// Whether the card reads and writes the frames itself.
    pub copy_mode: CopyMode,
}

/// One queue of an interface, both directions.
pub struct XskQueue {
    socket: XskSocket,
    rx: RxQueue,
    tx: TxQueue,
    options: XskQueueOptions,
    unsent: u64,
}

/// The fate of a packet that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Its frame takes the next packet.
    Recycle,
    /// It leaves on this queue, with this many bytes.
    Send(usize),
}

/// The result of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// Packets read.
    pub received: usize,
    /// Of those, packets passed to the card for sending.
    pub sent: usize,
    /// Whether no empty frame was left for the next packet when these were read.
    pub starved: bool,
}

impl XskQueueOptions {
    /// Batches of 128, two polls of a driver, zero-copy if the driver supports it.
    pub fn on(interface: &str, queue: u32) -> Self {
        Self {
            interface: interface.into(),
            queue,
            shape: XskShape::receiving(interface),
            batch_size: 128,
            copy_mode: CopyMode::Auto,
        }
    }
}

impl XskQueue {
    /// Opens the queue's socket with all its frames passed to the kernel. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// [`PortError::NoQueue`], [`PortError::Link`], [`PortError::Xsk`].
    ///
    /// # Panics
    /// When the shape is not made of powers of two.
    pub fn open(options: &XskQueueOptions) -> Result<Self, PortError> {
        let link = interface(&options.interface, options.queue)?;
        let XskShape { frame_size, frames, ring_slots } = options.shape;
        let refused =
            |source| PortError::Xsk { interface: options.interface.clone(), queue: options.queue, source };
        let (umem, empty) = Umem::new(UmemConfig { frames, frame_size, headroom: 0 })
            .map_err(|source| refused(XskError::Memory { action: "map the UMEM", source }))?;
        let config = XskConfig {
            interface: link.index,
            queue: options.queue,
            copy_mode: options.copy_mode,
            rx_slots: ring_slots,
            tx_slots: ring_slots,
            frames,
            busy_poll: None,
        };
        let opened = XskSocket::open(&config, &umem, None).map_err(refused)?;
        let mut rx = opened.rx.expect("a socket with RX slots receives");
        let tx = opened.tx.expect("a socket with TX slots sends");
        for frame in empty {
            rx.refill(frame).expect("the fill ring has two slots for every frame");
        }
        rx.publish();
        Ok(Self { socket: opened.socket, rx, tx, options: options.clone(), unsent: 0 })
    }

    /// Lends each available packet, at most a batch: the bytes from its start to the end of its frame, and its
    /// length. A packet to send may be changed in place and become longer; its start stays.
    ///
    /// # Errors
    /// [`PortError::XskBroken`]: the interface is down or gone.
    #[inline]
    pub fn turn(
        &mut self,
        wait: Wait,
        mut look: impl FnMut(&mut [u8], usize) -> After,
    ) -> Result<Turn, PortError> {
        self.turn_whole(wait, |frame, packet| look(&mut frame[packet.start..], packet.len()))
    }

    /// The same with the whole frame lent, and the packet's range in it.
    #[inline]
    pub(super) fn turn_whole(
        &mut self,
        wait: Wait,
        mut look: impl FnMut(&mut [u8], Range<usize>) -> After,
    ) -> Result<Turn, PortError> {
        self.reclaim();
        let mut available = self.rx.available();
        if available == 0 {
            if self.rx.needs_wakeup() {
                self.kick_rx()?;
            }
            if wait == Wait::Block {
                self.wait()?;
            }
            available = self.rx.available();
        }
        let mut turn = Turn::default();
        let umem = self.rx.umem().clone();
        while turn.received < available.min(self.options.batch_size) as usize {
            let Some(XskReceived { mut frame, range }) = self.rx.pop() else { break };
            let start = range.start;
            let longest = umem.frame_size() as usize - start;
            turn.received += 1;
            let after = look(umem.bytes_mut(&mut frame), range);
            let returned = match after {
                After::Send(len) if (1..=longest).contains(&len) => {
                    let pushed = self.tx.push_range(frame, start..start + len);
                    turn.sent += usize::from(pushed.is_ok());
                    self.unsent += u64::from(pushed.is_err());
                    pushed.err()
                }
                After::Send(_) => {
                    self.unsent += 1;
                    Some(frame)
                }
                After::Recycle => Some(frame),
            };
            if let Some(frame) = returned {
                self.rx.refill(frame).expect("the fill ring has two slots for every frame");
            }
        }
        turn.starved = self.rx.unused() == 0;
        self.rx.publish();
        self.tx.publish();
        if self.rx.needs_wakeup() && turn.received > 0 {
            self.kick_rx()?;
        }
        if self.tx.outstanding() > 0 && (turn.sent > 0 || self.tx.needs_wakeup()) {
            self.kick_tx()?;
        }
        Ok(turn)
    }

    /// Calls the kernel while it accepts packets: in copy mode it accepts a few per call.
    pub(super) fn push_through(&mut self) -> Result<(), PortError> {
        let waiting = self.tx.waiting();
        push_through(waiting, || {
            let kicked = self.kick_tx()?;
            Ok((kicked, self.tx.waiting()))
        })
        .map(drop)
    }

    /// Packets that could not be sent: the TX ring was full, or they did not fit their frame.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// The most packets of a turn.
    pub fn batch_size(&self) -> usize {
        self.options.batch_size as usize
    }

    /// What the socket got.
    pub fn got(&self) -> XskGot {
        XskGot { copy_mode: self.socket.copy_mode(), pages: self.rx.umem().pages() }
    }

    /// The queue.
    pub fn queue(&self) -> u32 {
        self.options.queue
    }

    /// The kernel's counters of this socket.
    ///
    /// # Errors
    /// [`PortError::XskBroken`] when the kernel does not report them.
    pub fn statistics(&self) -> Result<XskStatistics, PortError> {
        self.socket.statistics().map_err(|source| self.broken("read the counters of", source))
    }

    /// Sent frames are empty again.
    fn reclaim(&mut self) {
        if self.tx.outstanding() > 0 {
            let rx = &mut self.rx;
            self.tx.complete(|frame| rx.refill(frame).expect("the fill ring has two slots for every frame"));
        }
    }

    fn wait(&self) -> Result<(), PortError> {
        match self.socket.wait_readable(TIMEOUT) {
            Ok(_) => Ok(()),
            Err(source) if source.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(source) => Err(self.broken("wait on", source)),
        }
    }

    fn kick_rx(&self) -> Result<Kick, PortError> {
        Kick::of(self.socket.kick_rx()).map_err(|source| self.broken("receive on", source))
    }

    fn kick_tx(&self) -> Result<Kick, PortError> {
        Kick::of(self.socket.kick_tx()).map_err(|source| self.broken("send on", source))
    }

    fn broken(&self, action: &'static str, source: io::Error) -> PortError {
        let XskQueueOptions { interface, queue, .. } = &self.options;
        PortError::XskBroken { action, interface: interface.clone(), queue: *queue, source }
    }
}

impl AsFd for XskQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
