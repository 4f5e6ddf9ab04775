//! The path through XDP: frames built by a BPF program (`BPF_PROG_RUN`, live frames), and counted by one.
//!
//! Neither side lends frames, because they never reach user space. So these are not a [`TxPort`](crate::TxPort) and an
//! [`RxPort`](crate::RxPort): the caller passes the sender a number of packets to make, and reads the receiver's counts.

use std::sync::Arc;

use bpf::{
    BpfError, Count, CountOptions, Counts, Measure, MeasureOptions, Measured, MeasuringCost, Mode, Pass,
    QueuePackets, SendPath, Sender, WayBack,
};
use sys::{clock, ethtool::EthtoolSocket, rtnetlink::RouteSocket};
use wire::{ProbeClock, Recipe};

use crate::{PortError, ReturnList, Sent};

mod call;
mod plan;
mod probe;

use call::CallSize;
pub use probe::{XdpAbilities, probe_xdp};

/// How to open an [`XdpTx`].
#[derive(Debug, Clone)]
pub struct XdpTxOptions {
    /// The number of the interface in the calling thread's network namespace.
    pub interface: u32,
    /// Frames that the kernel builds before it passes them on, 1..=256.
    pub batch_size: u32,
    /// How frames leave.
    pub path: SendPath,
}

/// Sends packets that a program makes from a recipe; one thread each.
#[derive(Debug)]
pub struct XdpTx {
    sender: Sender,
    clock: ProbeClock,
    batch_size: u32,
    next: u32,
    call: CallSize,
    /// On a veth, until the first frames have arrived.
    unproven: Option<VethXmit>,
    origin: Origin,
}

/// The interface, prepared for all senders on it.
#[derive(Debug, Clone)]
struct Origin {
    options: XdpTxOptions,
    _rings: Option<Arc<Pass>>,
}

/// Counts what arrives, in XDP.
#[derive(Debug)]
pub struct XdpRx {
    count: Count,
}

/// Measures what arrives, in XDP.
#[derive(Debug)]
pub struct XdpMeter {
    measure: Measure,
    /// On a veth that returns packets, until the first have left.
    unproven: Option<VethXmit>,
}

impl XdpTxOptions {
    /// Frames that [`XdpTxOptions::on`] lets the kernel build before it passes them on.
    pub const USUAL_BATCH_SIZE: u32 = 128;

    /// The fastest size without loss; `make bench-xdp` shows the cost of others. A veth's ring of 256 holds two
    /// batches when its other end is late.
    pub fn on(interface: u32) -> Self {
        Self { interface, batch_size: Self::USUAL_BATCH_SIZE, path: SendPath::Tx }
    }
}

impl XdpTx {
    /// Nanoseconds between calls that leave other callers their share of the kernel's limit.
    pub const LEAST_GAP_NS: u64 = bpf::LIVE_RUN_GAP_NS;

    /// Loads the program. A card sends XDP frames only while a program is attached to it (a veth always does):
    /// it gets a program that passes everything, until its last sender is dropped, unless it already has one.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn open(recipe: &Recipe, options: &XdpTxOptions) -> Result<Self, PortError> {
        let veth = VethXmit::of(options.interface);
        let rings = if veth.is_some() { None } else { rings(options.interface)? };
        Self::load(recipe, veth, Origin { options: options.clone(), _rings: rings.map(Arc::new) })
    }

    /// A second sender on the same interface, for another thread and stream.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn beside(&self, recipe: &Recipe) -> Result<Self, PortError> {
        Self::load(recipe, VethXmit::of(self.origin.options.interface), self.origin.clone())
    }

    fn load(recipe: &Recipe, unproven: Option<VethXmit>, origin: Origin) -> Result<Self, PortError> {
        let options = &origin.options;
        let plan = plan::of(recipe);
        let mut sender = Sender::load(&plan, options.interface, options.path).map_err(PortError::Bpf)?;
        // Reports now if the interface is not in this namespace.
        sender.frame(0, 0).map_err(PortError::Bpf)?;
        let unproven = unproven.filter(|_| options.path != SendPath::Dropped);
        Ok(Self {
            sender,
            clock: recipe.clock,
            batch_size: options.batch_size.clamp(1, Sender::MOST_BATCH),
            next: 0,
            call: CallSize::new(),
            unproven,
            origin,
        })
    }

    /// Frames that the kernel builds before it passes them on.
    pub fn batch_size(&self) -> usize {
        self.batch_size as usize
    }

    /// Packets for a call of [`XdpTx::send`] with a small fixed cost and a duration of about a millisecond, as far as earlier calls
    /// tell.
    pub fn worthwhile_packets(&self) -> usize {
        self.call.packets()
    }

    /// The sequence number of the next packet.
    pub fn next_sequence(&self) -> u32 {
        self.next
    }

    /// Builds and sends the next `packets` packets, all with send time `time_ns` of the sender's clock. Call it
    /// in the interface's network namespace; thousands of packets per call are fastest. What a driver refuses
    /// is lost, and only its own counters show it. After some 65,000 calls in a second, from any process, none is accepted for a
    /// while.
    ///
    /// # Errors
    /// [`PortError::Bpf`] and [`PortError::NoReceiveRings`].
    pub fn send(&mut self, packets: usize, time_ns: u64) -> Result<Sent, PortError> {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let raw_time = self.clock.encode(time_ns);
        let start_ns = clock::monotonic_ns();
        let made = self.sender.send(self.next, packets, self.batch_size, raw_time).map_err(PortError::Bpf)?;
        self.call = self.call.after(made as usize, clock::monotonic_ns() - start_ns);
        self.next = self.next.wrapping_add(made);
        if made > 0
            && let Some(veth) = self.unproven.take()
            && veth.is_as_before()
        {
            return Err(PortError::NoReceiveRings { interface: veth.interface });
        }
        Ok(Sent { filled: made as usize, taken: made as usize, ..Sent::default() })
    }

    /// Builds a packet as [`XdpTx::send`] would, without sending it.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn frame(&mut self, sequence: u32, time_ns: u64) -> Result<Vec<u8>, PortError> {
        self.sender.frame(sequence, self.clock.encode(time_ns)).map_err(PortError::Bpf)
    }
}

impl XdpRx {
    /// Attaches to the interface of this number in the calling thread's network namespace, until dropped.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn open(interface: u32, mode: Mode, options: &CountOptions) -> Result<Self, PortError> {
        Count::attach(interface, mode, options).map(|count| Self { count }).map_err(PortError::Bpf)
    }

    /// The counts so far.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn read(&self) -> Result<Counts, PortError> {
        self.count.read().map_err(PortError::Bpf)
    }

    /// The counts of each CPU so far.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn read_cpus(&self) -> Result<Vec<Counts>, PortError> {
        self.count.read_cpus().map_err(PortError::Bpf)
    }

    /// Counted packets by receive queue, as many as the options requested.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn read_queues(&self) -> Result<Vec<QueuePackets>, PortError> {
        self.count.read_queues().map_err(PortError::Bpf)
    }
}

impl XdpMeter {
    /// Attaches to the interface of this number in the calling thread's network namespace, until dropped.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn open(interface: u32, mode: Mode, options: &MeasureOptions) -> Result<Self, PortError> {
        let wall = clock::wall_offset();
        let is_redirecting = options.returns == Some(WayBack::Redirect);
        let unproven = is_redirecting.then(|| VethXmit::of(interface)).flatten();
        let measure = Measure::attach(interface, mode, options, wall.ahead_ns).map_err(PortError::Bpf)?;
        Ok(Self { measure, unproven })
    }

    /// The program's time per packet; `None` when times are not measured.
    pub fn cost(&self) -> Option<MeasuringCost> {
        self.measure.cost()
    }

    /// Returns probes to the senders on the list, if [`MeasureOptions::returns`] was set; call it once.
    pub fn keep(&mut self, list: &ReturnList) {
        list.keep(self.measure.take_returns().expect("they were not taken before"));
    }

    /// The measurements of each CPU so far.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn read(&self) -> Result<Vec<Measured>, PortError> {
        self.measure.read().map_err(PortError::Bpf)
    }

    /// The same, and restarts the measurement.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn take(&mut self) -> Result<Vec<Measured>, PortError> {
        self.measure.take(clock::wall_offset().ahead_ns).map_err(PortError::Bpf)
    }

    /// Packets, payload bytes, foreign packets and returned packets so far.
    ///
    /// # Errors
    /// [`PortError::Bpf`]; [`PortError::NoReceiveRings`] when packets were returned on a veth and none left.
    pub fn read_counts(&mut self) -> Result<[u64; 4], PortError> {
        let counts = self.measure.read_counts().map_err(PortError::Bpf)?;
        if counts[3] > 0
            && let Some(veth) = self.unproven.take()
            && veth.is_as_before()
        {
            return Err(PortError::NoReceiveRings { interface: veth.interface });
        }
        Ok(counts)
    }

    /// Packets and payload bytes by stream tag so far, one entry per sender and CPU.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn read_streams(&self) -> Result<Vec<(u16, u64, u64)>, PortError> {
        self.measure.read_streams().map_err(PortError::Bpf)
    }

    /// Packets by receive queue so far.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn read_queues(&self) -> Result<Vec<QueuePackets>, PortError> {
        self.measure.read_queues().map_err(PortError::Bpf)
    }
}

/// Prepares a card to send XDP frames; with a program attached it already is.
pub(crate) fn rings(interface: u32) -> Result<Option<Pass>, PortError> {
    match Pass::attach(interface, Mode::Native) {
        Ok(pass) => Ok(Some(pass)),
        Err(BpfError::InUse { .. }) => Ok(None),
        Err(error) => Err(PortError::Bpf(error)),
    }
}

/// Frames that a veth tried to pass to its peer from XDP. It counts nothing when the peer has no rings.
#[derive(Debug)]
struct VethXmit {
    interface: String,
    ethtool: EthtoolSocket,
    before: u64,
}

impl VethXmit {
    /// The count so far; `None` when the interface is not a veth.
    fn of(interface: u32) -> Option<Self> {
        let link = RouteSocket::open().ok()?.link_by_index(interface).ok()?;
        let ethtool = EthtoolSocket::open().ok()?;
        let before = Self::tried(&ethtool, &link.name).filter(|_| link.kind.as_deref() == Some("veth"))?;
        Some(Self { interface: link.name, ethtool, before })
    }

    fn tried(ethtool: &EthtoolSocket, interface: &str) -> Option<u64> {
        let counters = ethtool.statistics(interface).ok()?;
        let of_xmit = counters.iter().filter(|(name, _)| name.contains("_xdp_xmit"));
        Some(of_xmit.map(|(_, frames)| frames).sum())
    }

    fn is_as_before(&self) -> bool {
        Self::tried(&self.ethtool, &self.interface) == Some(self.before)
    }
}
