//! Receiving through AF_XDP.

use std::{io, sync::Arc, time::Duration};

use bpf::{BpfError, Mode, Redirect, RedirectOptions, Stamp, Stamping};
use sys::{
    clock,
    xsk::{
        BusyPoll, CopyMode, Frame, Received as XskReceived, RxQueue, Umem, UmemConfig, XskConfig, XskError,
        XskSocket, XskStatistics,
    },
};

use super::{XskGot, XskShape, interface, napi::Polled, receive_losses};
use crate::{Layer, Loss, PortError, Received, RxPort, TimeSource, Wait};

/// How long a blocking call waits before it returns to check for a stop.
const TIMEOUT: Duration = Duration::from_millis(20);

/// How to open [`XskRx`] ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskRxOptions {
    /// The interface's name in the calling thread's namespace.
    pub interface: String,
    /// The queues, each of which gets a port.
    pub queues: Vec<u32>,
    /// Takes UDP datagrams to this port, everything else goes to the kernel; 0 takes every frame.
    pub dst_port: u16,
    /// Of those, only datagrams with a probe header.
    pub only_probes: bool,
    /// The timestamp source: the reading loop, the program with a clock read per packet or per poll, or the
    /// card, whose stamps the driver passes to the program.
    pub stamp: TimeSource,
    /// Memory and ring of each port.
    pub shape: XskShape,
    /// The most packets per call.
    pub batch_size: usize,
    /// Whether the card writes the frames itself.
    pub copy_mode: CopyMode,
    /// Where the program runs; `None` is native if the driver supports it, else generic.
    pub mode: Option<Mode>,
    /// Poll the card from the socket's own calls, with the interface's interrupts off in between.
    pub busy_poll: Option<BusyPoll>,
    /// One memory for all queues instead of one each: each queue still has its own share of the frames.
    pub shared_umem: bool,
}

/// Receives what arrives on one queue of an interface.
///
/// Dropping the last port of an interface detaches the XDP program.
pub struct XskRx {
    socket: XskSocket,
    queue: RxQueue,
    batch_size: u32,
    lost: u64,
    recycling: Recycling,
    mode: Mode,
    stamp: TimeSource,
    busy: bool,
    name: FrameRange,
    _redirect: Arc<Redirect>,
    _polled: Option<Arc<Polled>>,
}

/// Interface and queue, for messages.
struct FrameRange {
    interface: String,
    queue: u32,
}

/// How frames went round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recycling {
    /// Frames returned through the fill ring.
    pub refilled: u64,
    /// How often a batch found the fill ring empty when it returned frames: the next packet would
    /// have been lost.
    pub found_empty: u64,
    /// Packets with an invalid descriptor, whose bytes were not read.
    pub misplaced: u64,
}

impl XskRxOptions {
    /// Every frame of one queue, in batches of 256, native and zero-copy if
    /// the driver can.
    pub fn on(interface: &str, queue: u32) -> Self {
        Self {
            interface: interface.into(),
            queues: vec![queue],
            dst_port: 0,
            only_probes: false,
            stamp: TimeSource::Loop,
            shape: XskShape::receiving(interface),
            batch_size: 256,
            copy_mode: CopyMode::Auto,
            mode: None,
            busy_poll: None,
            shared_umem: false,
        }
    }
}

impl XskRx {
    /// Opens a port for each queue and attaches the program that redirects to them. Needs CAP_NET_RAW, CAP_BPF
    /// and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`PortError::Bpf`], also when the interface has another program, which stays;
    /// [`PortError::NoQueue`], [`PortError::Interface`], [`PortError::Xsk`]; with busy polling [`PortError::Napi`] and
    /// [`PortError::NapiInUse`]. Then nothing is left open.
    ///
    /// # Panics
    /// When the shape is not made of powers of two.
    pub fn open(options: &XskRxOptions) -> Result<Vec<Self>, PortError> {
        let polled = options.busy_poll.map(|_| Polled::set_up(&options.interface)).transpose()?.map(Arc::new);
        let mut opened: Vec<(XskSocket, u32, RxQueue)> = Vec::new();
        let mut index = 0;
        let mut shared: Option<Memory> = None;
        for queue in options.queues.iter().copied() {
            let link = interface(&options.interface, queue)?;
            index = link.index;
            let memory = match shared.take().filter(|_| options.shared_umem) {
                Some(memory) => memory,
                None => map(options, queue)?,
            };
            let first = opened.first().map(|(socket, ..)| socket).filter(|_| options.shared_umem);
            let (socket, rx, rest) = open_queue(options, index, queue, memory, first)?;
            opened.push((socket, queue, rx));
            shared = Some(rest);
        }
        let slots = options.queues.iter().max().map_or(0, |queue| queue + 1);
        let (mut redirect, mode) = attach(options, index, slots).map_err(PortError::Bpf)?;
        for (socket, queue, _) in &opened {
            redirect.insert(*queue, socket).map_err(PortError::Bpf)?;
        }
        let redirect = Arc::new(redirect);
        let port = |(socket, queue, rx)| Self {
            socket,
            queue: rx,
            batch_size: u32::try_from(options.batch_size.max(1)).unwrap_or(u32::MAX),
            lost: 0,
            recycling: Recycling::default(),
            mode,
            stamp: options.stamp,
            busy: options.busy_poll.is_some(),
            name: FrameRange { interface: options.interface.clone(), queue },
            _redirect: redirect.clone(),
            _polled: polled.clone(),
        };
        Ok(opened.into_iter().map(port).collect())
    }

    /// What the socket got.
    pub fn got(&self) -> XskGot {
        XskGot { copy_mode: self.socket.copy_mode(), pages: self.queue.umem().pages() }
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The queue.
    pub fn queue(&self) -> u32 {
        self.name.queue
    }

    /// The recycling of frames so far.
    pub fn recycling(&self) -> Recycling {
        Recycling { misplaced: self.queue.misplaced(), ..self.recycling }
    }

    /// The kernel's counters of this socket.
    ///
    /// # Errors
    /// [`PortError::XskBroken`] when the kernel does not report them.
    pub fn statistics(&self) -> Result<XskStatistics, PortError> {
        self.socket.statistics().map_err(|source| self.broken("read the counters of", source))
    }

    fn wait(&self) -> Result<(), PortError> {
        match self.socket.wait_readable(TIMEOUT) {
            Ok(_) => Ok(()),
            Err(source) if source.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(source) => Err(self.broken("wait on", source)),
        }
    }

    fn kick(&self) -> Result<(), PortError> {
        match self.socket.kick_rx() {
            Ok(()) => Ok(()),
            Err(source) => match source.raw_os_error() {
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
                _ => Err(self.broken("receive on", source)),
            },
        }
    }

    fn broken(&self, action: &'static str, source: io::Error) -> PortError {
        let FrameRange { interface, queue } = &self.name;
        PortError::XskBroken { action, interface: interface.clone(), queue: *queue, source }
    }
}

impl RxPort for XskRx {
    const LAYER: Layer = Layer::Frame;

    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        let mut packets = self.queue.available();
        if packets == 0 {
            if self.busy || self.queue.needs_wakeup() {
                self.kick()?;
            }
            if wait == Wait::Block {
                self.wait()?;
            }
            packets = self.queue.available();
            if packets == 0 {
                return Ok(0);
            }
        }
        self.queue.fetch();
        let mut seen = 0;
        let read_ns = (self.stamp != TimeSource::Loop).then(clock::monotonic_ns);
        let umem = self.queue.umem().clone();
        // Decoded when it changes: most packets have the stamp of the previous one.
        let (mut last, mut arrived_ns) = (None, None);
        while seen < packets.min(self.batch_size) {
            let Some(XskReceived { frame, range }) = self.queue.pop() else { break };
            let bytes = &umem.bytes(&frame)[range];
            if let Some(now_ns) = read_ns
                && let stamp = Stamp::of(bytes)
                && stamp != last
            {
                (last, arrived_ns) = (stamp, stamp.map(|stamp| stamp.arrival_ns(now_ns)));
            }
            sink(Received { bytes, truncated: false, arrived_ns, source: None });
            self.queue.refill(frame).expect("the fill ring has two slots for every frame");
            seen += 1;
        }
        // Before the frames are published: what the kernel had left while this batch was read.
        self.recycling.found_empty += u64::from(self.queue.unused() == 0);
        self.recycling.refilled += u64::from(seen);
        self.queue.publish();
        if self.queue.needs_wakeup() {
            self.kick()?;
        }
        Ok(seen as usize)
    }

    fn time_source(&self) -> TimeSource {
        self.stamp
    }

    fn queue(&self) -> Option<u32> {
        Some(self.name.queue)
    }

    fn lost_seen(&self) -> u64 {
        self.lost
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        self.lost = self.statistics()?.rx_lost();
        Ok(self.lost)
    }

    /// The interface may count the same packets as dropped (veth: `rx_queue_<n>_drops`, in the link's
    /// `rx_dropped`): only one of them belongs in a ledger.
    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        let counted = self.statistics()?;
        self.lost = counted.rx_lost();
        Ok(receive_losses(&counted).to_vec())
    }
}

/// Memory, and its unassigned frames.
type Memory = (Arc<Umem>, Vec<Frame>);

/// Memory for one queue, or for all.
fn map(options: &XskRxOptions, queue: u32) -> Result<Memory, PortError> {
    let XskShape { frame_size, frames, .. } = options.shape;
    let queues = if options.shared_umem { options.queues.len() as u32 } else { 1 };
    Umem::new(UmemConfig { frames: frames * queues, frame_size, headroom: 0 }).map_err(|source| {
        PortError::Xsk {
            interface: options.interface.clone(),
            queue,
            source: XskError::Memory { action: "map the UMEM", source },
        }
    })
}

/// Opens a socket on a queue, and gives it its share of the memory's frames; returns the rest.
fn open_queue(
    options: &XskRxOptions,
    interface: u32,
    queue: u32,
    (umem, mut free): Memory,
    first: Option<&XskSocket>,
) -> Result<(XskSocket, RxQueue, Memory), PortError> {
    let XskShape { frames, ring_slots, .. } = options.shape;
    let refused = |source| PortError::Xsk { interface: options.interface.clone(), queue, source };
    let config = XskConfig {
        interface,
        queue,
        copy_mode: options.copy_mode,
        rx_slots: ring_slots,
        tx_slots: 0,
        frames,
        busy_poll: options.busy_poll,
    };
    let opened = XskSocket::open(&config, &umem, first).map_err(refused)?;
    let mut rx = opened.rx.expect("a socket with RX slots receives");
    for frame in free.drain(free.len() - frames as usize..) {
        rx.refill(frame).expect("the fill ring has two slots for every frame");
    }
    rx.publish();
    Ok((opened.socket, rx, (umem, free)))
}

/// Attaches the program in the requested mode, or in the best mode of the driver.
pub(super) fn attach(
    options: &XskRxOptions,
    interface: u32,
    queues: u32,
) -> Result<(Redirect, Mode), BpfError> {
    let &XskRxOptions { dst_port, only_probes, stamp, .. } = options;
    let stamps = match stamp {
        TimeSource::Loop | TimeSource::Kernel => None,
        TimeSource::Program => Some(Stamping::Packet),
        TimeSource::Poll => Some(Stamping::Poll),
        TimeSource::Card => Some(Stamping::Card),
    };
    let redirect = RedirectOptions { dst_port, only_probes, stamps, queues };
    let attach = |mode| Redirect::attach(interface, mode, &redirect).map(|redirect| (redirect, mode));
    match options.mode {
        Some(mode) => attach(mode),
        None => match attach(Mode::Native) {
            // Only a driver passes a card's stamps on.
            refused @ Err(BpfError::Unsupported { .. }) if stamps == Some(Stamping::Card) => refused,
            Err(BpfError::Unsupported { .. }) => attach(Mode::Generic),
            attached => attached,
        },
    }
}
