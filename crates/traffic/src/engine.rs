//! An engine as the rest of the program sees it: an object with settings, and plain facts about it.
//!
//! An engine's details are in its file in `engines/`; all other code calls the object, at most once per worker
//! and never per packet.

use std::{fmt, sync::Arc};

use measure::{Place, StatisticsLevel};
use port::{Buffers, CardAccess, FileChoice, ReturnList, TimeSource};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use wire::StreamTags;

use crate::{
    error::EngineError,
    plan::{MOST_SOURCE_PORTS, RxTraffic, TxTraffic},
    receiver::{Receiver, RxContext},
    sender::Sender,
    sender_clocks::SenderClocks,
    worker::Placement,
};

/// A sending engine with its settings, which are saved whole and read back.
pub(crate) trait TxEngine:
    fmt::Debug + Clone + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The name without switches.
    const NAME: &'static str;

    /// The switches that are on, in the order of the registry.
    fn switches(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The same engine with the given options; the engine ignores those that it does not have.
    #[must_use]
    fn configured(&self, _: &TxOptions) -> Self {
        self.clone()
    }

    /// The options that [`TxEngine::configured`] uses.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// What it is like.
    fn facts(&self) -> TxFacts;

    /// Why it cannot run under these conditions, if it cannot.
    fn why_not(&self, _: &Conditions) -> Option<String> {
        None
    }

    /// Opens a port per worker and prepares the workers; nothing is sent before [`Sender::begin`].
    ///
    /// # Errors
    /// The first port or worker that could not be created; then nothing is left open.
    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError>;
}

/// A receiving engine with its settings, which are saved whole and read back.
pub(crate) trait RxEngine:
    fmt::Debug + Clone + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The name without switches.
    const NAME: &'static str;

    /// The switches that are on, in the order of the registry.
    fn switches(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The same engine with the given options; the engine ignores those that it does not have.
    #[must_use]
    fn configured(&self, _: &RxOptions) -> Self {
        self.clone()
    }

    /// The options that [`RxEngine::configured`] uses.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// What it is like.
    fn facts(&self) -> RxFacts;

    /// Why it cannot run under these conditions, if it cannot.
    fn why_not(&self, _: &Conditions) -> Option<String> {
        None
    }

    /// Opens all ports and starts the workers; packets are counted from now on. Probes of those on the context's list
    /// are returned to them.
    ///
    /// # Errors
    /// The first port or worker that could not be created; then nothing is left open.
    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError>;
}

/// A sending engine with its settings. Its text form is the ladder's label, `udp+gso`; serialised it holds all settings.
#[derive(Debug, Clone)]
pub struct TxSpec(Arc<dyn AnyTxEngine>);

/// A receiving engine with its settings. Its text form is the ladder's label, `udp+gro`; serialised it holds all settings.
#[derive(Debug, Clone)]
pub struct RxSpec(Arc<dyn AnyRxEngine>);

/// Options of sending engines besides the engine's name; `None` and `false` mean not given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxOptions {
    /// `SO_SNDBUF` in bytes.
    pub send_buffer_bytes: Option<usize>,
    /// Bytes per message of a stream.
    pub message_bytes: Option<u32>,
    /// The file that messages of a stream come from.
    pub source: Option<FileChoice>,
    /// Receive the probes that targets return ([`Sender::take_returns`]).
    pub returns: bool,
    /// Options of rings without a kernel driver.
    pub rings: RingOptions,
    /// Frames that the kernel's generator passes on before it notifies the card.
    pub burst: Option<u32>,
    /// How often the kernel's generator repeats each packet before it builds the next.
    pub clones: Option<u32>,
}

/// Options of receiving engines besides the engine's name; `None` means not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxOptions {
    /// `SO_RCVBUF` in bytes.
    pub receive_buffer_bytes: Option<usize>,
    /// `SO_BUSY_POLL` in microseconds.
    pub busy_poll_micros: Option<u32>,
    /// Bytes per message of a stream.
    pub message_bytes: Option<u32>,
    /// Options of rings without a kernel driver.
    pub rings: RingOptions,
}

/// Options of engines that drive a card's rings themselves; `None` and `false` mean not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingOptions {
    /// Consent to take the card from the kernel.
    pub take_device: bool,
    /// How the card is reached.
    pub access: Option<CardAccess>,
    /// Sleep until the card interrupts.
    pub interrupts: bool,
    /// Descriptors of a ring.
    pub ring_slots: Option<u32>,
    /// Descriptors passed by one write of the tail register.
    pub tail_batch: Option<u32>,
    /// The buffer policy for received frames.
    pub buffers: Option<Buffers>,
    /// Descriptors ahead whose frames the CPU is asked to load early.
    pub prefetch: Option<u32>,
    /// Note head, tail and missed frames poll by poll.
    pub trace: bool,
}

/// Properties of a sending engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxFacts {
    /// It builds whole frames, and so needs MAC addresses and an interface.
    pub makes_frames: bool,
    /// It moves streams: its packets are messages of this many bytes.
    pub message_bytes: Option<u32>,
    /// It passes on messages of many packets, which the kernel or the interface segments (UDP GSO).
    pub hands_over_many: bool,
    /// It needs an interface with a queue per worker.
    pub queue_per_worker: bool,
    /// Its frames reach a veth's peer only through a ring, which NAPI or a native XDP program there provides.
    pub needs_ring_at_peer: bool,
    /// Its frames return to it once a receiver has freed them, which takes extra time on another CPU.
    pub frames_come_back: bool,
    /// The interface counts refused frames as drops, but they are sent later.
    pub retries_interface_drops: bool,
    /// Each of its frames takes a whole page of the receiver's socket buffer.
    pub page_per_frame: bool,
    /// The kernel frees sent packets as if they were dropped.
    pub frees_look_like_drops: bool,
    /// It receives the probes that targets return.
    pub returns: bool,
    /// It writes no stream tag into its packets.
    pub is_untagged: bool,
    /// Its packets pass tc on their way out; others go directly to the driver.
    pub passes_tc: bool,
    /// It takes the card from its kernel driver: the interface does not exist while it runs.
    pub takes_device: bool,
}

/// Properties of a receiving engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxFacts {
    /// Where it takes packets from.
    pub reads: RxLayer,
    /// It is opened on one interface.
    pub needs_interface: bool,
    /// Its number of workers.
    pub workers: RxWorkers,
    /// The kernel merges datagrams for it (GRO).
    pub joins_datagrams: bool,
    /// It attaches a native XDP program, which provides a veth's rings.
    pub brings_ring: bool,
    /// It may let the kernel choose a port.
    pub chooses_port: bool,
    /// It can return probes to their senders.
    pub reflects: bool,
    /// The most time, in nanoseconds, that each packet may keep it busy in place of an application; 0 is none.
    pub work_at_most_ns: u64,
    /// Sources of receive timestamps.
    pub stamps: &'static [TimeSource],
    /// Where its own ring or socket loses packets, and the kernel's counter of them.
    pub own_loss: Option<(Place, &'static str)>,
}

/// Where a receiving engine takes packets from, as needed by the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxLayer {
    /// A UDP socket: packets pass the whole protocol stack.
    Socket,
    /// A packet socket: it gets copies, and the kernel still gets the packets.
    Copies,
    /// An AF_XDP socket.
    XdpSocket,
    /// An XDP program, which drops what it counted.
    XdpProgram,
    /// TCP streams.
    Stream,
    /// The card's descriptor ring: neither kernel driver nor interface exist while it runs.
    Card,
}

/// The number of workers of a receiving engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxWorkers {
    /// As many as requested.
    Asked,
    /// One per receive queue of the interface.
    PerQueue,
    /// One.
    One,
}

/// The run's requirements on engines, and the privileges of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// All packets have one size.
    pub is_one_size: bool,
    /// No packet is larger than the MTU.
    pub fits_mtu: bool,
    /// It may open raw sockets in the lab.
    pub raw_sockets: bool,
    /// It may load and attach BPF programs.
    pub bpf: bool,
    /// It is root of the machine.
    pub root: bool,
    /// The ends are interfaces of real cards.
    pub real_interfaces: bool,
    /// Cards may be taken from their kernel drivers.
    pub take_device: bool,
}

/// Why frames must fit the MTU.
pub(crate) const NEEDS_MTU: &str =
    "packets are larger than the MTU, and only sockets fragment and reassemble them";
/// What BPF programs need.
pub(crate) const NEEDS_BPF: &str = "needs CAP_BPF and CAP_NET_ADMIN over the machine: run as root";
/// What raw sockets need.
pub(crate) const NEEDS_RAW: &str = "needs CAP_NET_RAW: run as root, or allow user namespaces";

impl Conditions {
    /// What keeps an engine that builds or reads whole frames from running; `rest` is checked next.
    pub(crate) fn of_frames(&self, rest: impl FnOnce() -> Option<&'static str>) -> Option<String> {
        (!self.fits_mtu).then_some(NEEDS_MTU).or_else(rest).map(str::to_owned)
    }
}

/// The complete, printable plan of a sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SenderPlan {
    /// The engine.
    pub engine: TxSpec,
    /// What it sends.
    #[serde(flatten)]
    pub traffic: TxTraffic,
}

/// The complete, printable plan of a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiverPlan {
    /// The engine.
    pub engine: RxSpec,
    /// What it takes.
    #[serde(flatten)]
    pub traffic: RxTraffic,
}

/// Files that a process with a socket per flow opens besides.
const OTHER_FILES: u64 = 512;

impl SenderPlan {
    /// Opens all ports and prepares the workers; nothing is sent before [`Sender::begin`].
    ///
    /// # Errors
    /// The first port or worker that could not be created; then nothing is left open.
    pub fn prepare(&self, placement: &Placement) -> Result<Sender, EngineError> {
        let flows = self.traffic.workers.iter().map(|worker| worker.flows).sum();
        if !self.engine.facts().makes_frames {
            sys::open_files::allow(flows as u64 + OTHER_FILES)
                .map_err(|source| EngineError::Files { flows, source })?;
        } else if flows > MOST_SOURCE_PORTS {
            return Err(EngineError::Flows { flows, most: MOST_SOURCE_PORTS });
        }
        self.engine.0.open(&self.traffic, placement)
    }
}

impl ReceiverPlan {
    /// Opens all ports and starts the workers; packets are counted from now on.
    ///
    /// # Errors
    /// The first port or worker that could not be created; then nothing is left open.
    pub fn start(&self, placement: &Placement) -> Result<Receiver, EngineError> {
        self.start_tagged(placement, StreamTags::NUMBERED)
    }

    /// The same, for streams with these tags. Packets with other tags are foreign.
    ///
    /// # Errors
    /// As [`ReceiverPlan::start`].
    pub fn start_tagged(&self, placement: &Placement, tags: StreamTags) -> Result<Receiver, EngineError> {
        let returns = self.traffic.reflect.then(Arc::<ReturnList>::default);
        let is_timed = self.traffic.statistics.is_some_and(|plan| plan.level == StatisticsLevel::Time);
        // A program in XDP measures without the reading loop.
        let relates = is_timed && self.engine.facts().reads != RxLayer::XdpProgram;
        let clocks = relates.then(Arc::<SenderClocks>::default);
        let context = RxContext { placement, tags, returns: returns.as_ref(), clocks: clocks.as_ref() };
        Ok(self.engine.0.open(&self.traffic, &context)?.returning(returns).relating(clocks))
    }
}

macro_rules! spec {
    ($spec:ident, $engine:ident, $any:ident, $options:ident, $facts:ident, open($($what:ident: $of:ty),+) -> $opened:ty) => {
        /// Any engine of this side.
        trait $any: fmt::Debug + Send + Sync {
            fn name(&self) -> &'static str;
            fn switches(&self) -> Vec<&'static str>;
            fn settings(&self) -> Value;
            fn configured(&self, options: &$options) -> $spec;
            fn options(&self) -> &'static [&'static str];
            fn facts(&self) -> $facts;
            fn why_not(&self, conditions: &Conditions) -> Option<String>;
            fn open(&self, $($what: $of),+) -> Result<$opened, EngineError>;
        }

        impl<E: $engine> $any for E {
            fn name(&self) -> &'static str {
                E::NAME
            }

            fn switches(&self) -> Vec<&'static str> {
                $engine::switches(self)
            }

            fn settings(&self) -> Value {
                json!(self)
            }

            fn configured(&self, options: &$options) -> $spec {
                $spec::of($engine::configured(self, options))
            }

            fn options(&self) -> &'static [&'static str] {
                $engine::options(self)
            }

            fn facts(&self) -> $facts {
                $engine::facts(self)
            }

            fn why_not(&self, conditions: &Conditions) -> Option<String> {
                $engine::why_not(self, conditions)
            }

            fn open(&self, $($what: $of),+) -> Result<$opened, EngineError> {
                $engine::open(self, $($what),+)
            }
        }

        impl $spec {
            /// An engine with these settings.
            pub(crate) fn of(engine: impl $engine) -> Self {
                Self(Arc::new(engine))
            }

            /// An engine with settings that were saved.
            pub(crate) fn saved<E: $engine>(settings: Value) -> Result<Self, serde_json::Error> {
                Ok(Self::of(serde_json::from_value::<E>(settings)?))
            }

            /// The engine's name without switches.
            pub fn name(&self) -> &'static str {
                self.0.name()
            }

            /// All settings, by name.
            pub fn settings(&self) -> Value {
                self.0.settings()
            }

            /// The same engine with the given options; the engine ignores those that it does not have.
            #[must_use]
            pub fn configured(&self, options: &$options) -> Self {
                self.0.configured(options)
            }

            /// The options that [`Self::configured`] uses.
            pub fn options(&self) -> &'static [&'static str] {
                self.0.options()
            }

            /// The engine's properties.
            pub fn facts(&self) -> $facts {
                self.0.facts()
            }

            /// Why the engine cannot run under these conditions, if it cannot.
            pub fn why_not(&self, conditions: &Conditions) -> Option<String> {
                self.0.why_not(conditions)
            }
        }

        impl PartialEq for $spec {
            fn eq(&self, other: &Self) -> bool {
                self.name() == other.name() && self.settings() == other.settings()
            }
        }

        impl fmt::Display for $spec {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())?;
                self.0.switches().iter().try_for_each(|switch| write!(f, "+{switch}"))
            }
        }
    };
}

spec!(TxSpec, TxEngine, AnyTxEngine, TxOptions, TxFacts, open(plan: &TxTraffic, placement: &Placement) -> Sender);
spec!(RxSpec, RxEngine, AnyRxEngine, RxOptions, RxFacts, open(plan: &RxTraffic, context: &RxContext<'_>) -> Receiver);
