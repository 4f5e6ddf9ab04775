//! Receivers: workers that count the packets a port lends them.

mod program;
mod queues;
mod reader;

use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use measure::{ReceptionStatistics, StatisticsLevel};
use port::{
    BusyPoll, Fanout, FanoutMode, Loss, PacketReflector, PacketRx, PacketRxOptions, ReturnList, RxPort,
    SocketLayer, TcpRx, TcpRxOptions, TimeSource, UdpReflector, UdpRx, UdpRxOptions, Wait, XdpMode,
    XskReflector, XskRx, XskRxOptions,
};
use serde::{Deserialize, Serialize};
use sys::{ethtool::rx_queues, rtnetlink::Link};
use wire::ProbeClock;

pub(crate) use queues::Queues;
pub(crate) use reader::{Outlets, Probes, Run, Tally, receive, take_streams};

use crate::{
    collect::{LatencyMeans, ReaderPlace, Readings, reception},
    error::EngineError,
    generate::{self, interface_index},
    observe::{Observer, Then, Window, measuring_cost},
    publish::{RxPublished, RxSnapshot, STREAMS, StreamCount},
    worker::{Crew, Placement, WorkerCost},
};

/// What a receiver does; complete and printable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiverPlan {
    /// The path.
    pub engine: RxEngine,
    /// The local address, served by all workers; port 0 takes any.
    pub local: SocketAddr,
    /// The interface; engines below the sockets need one, sockets take what comes in anywhere without.
    pub interface: Option<String>,
    /// Number of workers.
    pub workers: usize,
    /// Look again at once instead of sleeping until something comes.
    pub spin: bool,
    /// Packets a call, at most.
    pub batch_size: usize,
    /// What is measured besides packets and payload bytes of each stream; `None` is nothing.
    #[serde(default)]
    pub statistics: Option<StatisticsPlan>,
    /// Send probes back to those who agreed ([`Receiver::returns`]).
    #[serde(default)]
    pub reflect: bool,
    /// Nanoseconds that each packet keeps its reader busy, in place of what an application would do with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub work_ns: u32,
}

/// Bytes of a packet socket's ring.
pub const PACKET_RING_BYTES: usize = PacketRxOptions::USUAL_RING_BYTES;

/// How long workers may take to show what they have, on a busy machine too.
const WINDOW_PATIENCE: Duration = Duration::from_secs(5);

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a receiver measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatisticsPlan {
    /// How much.
    pub level: StatisticsLevel,
    /// How senders write the time; `None` tells by the numbers.
    pub probe_clock: Option<ProbeClock>,
    /// Who stamps packets on receipt; `None` is the best that the engine has.
    pub stamp: Option<TimeSource>,
}

/// A receiving path and its own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RxEngine {
    /// UDP sockets.
    Udp(UdpRxPlan),
    /// Packet sockets that share an interface's frames.
    Packet(PacketRxPlan),
    /// AF_XDP sockets, a queue a worker.
    Xsk(XskRxPlan),
    /// A program in the kernel that counts and drops.
    Xdp(XdpRxPlan),
    /// TCP streams of equal messages; a packet is a message then.
    Tcp(TcpRxPlan),
}

impl RxEngine {
    /// Who can say when a packet came.
    pub fn stamps(&self) -> &'static [TimeSource] {
        match self {
            Self::Udp(_) => &[TimeSource::Kernel, TimeSource::Card, TimeSource::Loop],
            Self::Packet(_) => &[TimeSource::Kernel, TimeSource::Card],
            Self::Xsk(_) => &[TimeSource::Poll, TimeSource::Program, TimeSource::Card, TimeSource::Loop],
            Self::Xdp(_) => &[TimeSource::Poll, TimeSource::Program],
            Self::Tcp(_) => &[],
        }
    }
}

/// Settings of receivers of streams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpRxPlan {
    /// Take bytes out of the stream without copying them (`MSG_TRUNC`).
    pub truncate: bool,
    /// Bytes a message.
    pub message_bytes: u32,
    /// `SO_RCVBUF` in bytes, `None` for the system's own tuning.
    pub receive_buffer_bytes: Option<usize>,
}

/// Settings of packet sockets that receive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PacketRxPlan {}

/// Settings of AF_XDP sockets that receive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct XskRxPlan {
    /// Poll the card from the sockets' own calls, with its interrupts off in between.
    #[serde(default)]
    pub busy_poll: bool,
    /// One memory for all queues instead of one each.
    #[serde(default)]
    pub shared_umem: bool,
}

/// Settings of the program that counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct XdpRxPlan {
    /// Before the driver's buffers become socket buffers (native) or after (generic).
    pub generic: bool,
}

/// Settings of UDP sockets that receive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UdpRxPlan {
    /// A socket a worker on the same port (`SO_REUSEPORT`) instead of one that all share.
    pub reuse_port: bool,
    /// Let the kernel join datagrams of a flow.
    pub gro: bool,
    /// Let packets carry the drop count (`SO_RXQ_OVFL`) instead of asking for it every few milliseconds.
    pub drop_counts: bool,
    /// `SO_RCVBUF` in bytes, `None` for the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// `SO_BUSY_POLL` in microseconds, `None` for the system's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_poll_micros: Option<u32>,
}

/// A receiver at work.
pub struct Receiver {
    crew: Crew<RxResult>,
    published: Vec<Arc<RxPublished>>,
    windows: Vec<Arc<Window>>,
    local: SocketAddr,
    returns: Option<Arc<ReturnList>>,
}

/// What one worker received.
#[derive(Debug)]
pub struct RxResult {
    /// Packets, bytes and losses.
    pub tally: RxSnapshot,
    /// When the first packet was seen, in monotonic nanoseconds; `None` without packets.
    pub first_ns: Option<u64>,
    /// When the last packet was seen.
    pub last_ns: Option<u64>,
    /// Packets lost at this worker's port, by place; their sum is the tally's `lost`.
    pub losses: Vec<Loss>,
    /// CPU time and cycles.
    pub cost: WorkerCost,
    /// What it measured, when it was asked to: an entry a reader.
    pub statistics: Vec<Readings>,
    /// What ended it before its time.
    pub error: Option<EngineError>,
}

/// What a receiver received.
#[derive(Debug)]
pub struct ReceiverResult {
    /// One entry a worker.
    pub workers: Vec<RxResult>,
    /// Packets of each stream.
    pub streams: Vec<StreamCount>,
}

impl Receiver {
    /// Opens all ports and starts the workers; packets are counted from now on.
    ///
    /// # Errors
    /// The first port or worker that could not be made; then nothing is left open.
    pub fn start(plan: &ReceiverPlan, placement: &Placement) -> Result<Self, EngineError> {
        let returns = plan.reflect.then(Arc::<ReturnList>::default);
        let receiver = Self::at_work(plan, placement, returns.as_ref())?;
        Ok(Self { returns, ..receiver })
    }

    fn at_work(
        plan: &ReceiverPlan,
        placement: &Placement,
        returns: Option<&Arc<ReturnList>>,
    ) -> Result<Self, EngineError> {
        match &plan.engine {
            RxEngine::Udp(udp) => {
                let (ports, options, queues) = placement.inside(|| {
                    let (ports, options) = open_udp(plan, udp)?;
                    let sockets = if udp.reuse_port { &ports[..] } else { &ports[..1] };
                    let queues = Queues::of_sockets(plan, SocketLayer::Datagram, sockets)?;
                    Ok((ports, options, queues))
                })?;
                let at = (placement, ports[0].local_address()?);
                let Some(returns) = returns else { return Self::over(plan, ports, at, queues) };
                let reflector = |port| UdpReflector::over(port, &options, returns.clone());
                let ports: Result<Vec<_>, _> = ports.into_iter().map(reflector).collect();
                Self::over(plan, ports?, at, queues)
            }
            RxEngine::Packet(_) => {
                let (ports, queues) = placement.inside(|| {
                    let ports = open_packet(plan, returns.is_some())?;
                    let queues = Queues::of_sockets(plan, SocketLayer::Frame, &ports)?;
                    Ok((ports, queues))
                })?;
                let at = (placement, plan.local);
                let Some(returns) = returns else { return Self::over(plan, ports, at, queues) };
                let ports = placement.inside(|| {
                    let interface = interface_index(plan.interface.as_deref())?;
                    let over = |port| -> Result<_, EngineError> {
                        Ok(PacketReflector::over(port, interface, returns.clone())?)
                    };
                    ports.into_iter().map(over).collect::<Result<Vec<_>, EngineError>>()
                })?;
                Self::over(plan, ports, at, queues)
            }
            RxEngine::Xsk(xsk) => {
                let options = placement.inside(|| xsk_options(plan, xsk))?;
                let at = (placement, plan.local);
                let Some(returns) = returns else {
                    let ports = placement.inside(|| Ok(XskRx::open(&options)?))?;
                    return Self::over(plan, ports, at, Queues::OfPorts);
                };
                let ports = placement.inside(|| Ok(XskReflector::open(&options, returns)?))?;
                Self::over(plan, ports, at, Queues::OfPorts)
            }
            RxEngine::Tcp(tcp) => {
                let ports = placement.inside(|| open_tcp(plan, tcp))?;
                let local = ports[0].local_address()?;
                let published: Vec<Arc<RxPublished>> =
                    ports.iter().map(|_| Arc::new(RxPublished::new())).collect();
                let shared = published.clone();
                let crew = Crew::gather("recv", ports, placement, move |mut port, shift| {
                    take_streams(&mut port, &shift, &shared[shift.worker])
                })?;
                crew.begin();
                Ok(Self { crew, published, windows: Vec::new(), local, returns: None })
            }
            RxEngine::Xdp(xdp) => {
                let mode = if xdp.generic { XdpMode::Generic } else { XdpMode::Native };
                program::start(plan, mode, placement, returns)
            }
        }
    }

    fn over<P: RxPort + Send + 'static>(
        plan: &ReceiverPlan,
        ports: Vec<P>,
        at: (&Placement, SocketAddr),
        queues: Queues,
    ) -> Result<Self, EngineError> {
        Self::of_probes((Probes::Sent, queues), plan, ports, at)
    }

    /// A receiver of what comes back to a sender.
    pub(crate) fn of_returned<P: RxPort + Send + 'static>(
        plan: &ReceiverPlan,
        ports: Vec<P>,
        placement: &Placement,
    ) -> Result<Self, EngineError> {
        Self::of_probes((Probes::Returned, Queues::OfPorts), plan, ports, (placement, plan.local))
    }

    fn of_probes<P: RxPort + Send + 'static>(
        (probes, queues): (Probes, Queues),
        plan: &ReceiverPlan,
        ports: Vec<P>,
        (placement, local): (&Placement, SocketAddr),
    ) -> Result<Self, EngineError> {
        let published: Vec<Arc<RxPublished>> = ports.iter().map(|_| Arc::new(RxPublished::new())).collect();
        let windows: Vec<Arc<Window>> = ports.iter().map(|_| Arc::default()).collect();
        let (shared, seen) = (published.clone(), windows.clone());
        let (statistics, local_ip, work_ns) = (plan.statistics, local.ip(), plan.work_ns.into());
        // Before anybody sends: a worker that tried it would not read meanwhile.
        let is_timed = statistics.is_some_and(|plan| plan.level == StatisticsLevel::Time);
        let cost = is_timed.then(measuring_cost);
        let only = if let Queues::Only(queue) = queues { Some(queue) } else { None };
        let own: Vec<Option<u32>> = ports.iter().map(|port| port.queue().or(only)).collect();
        // All that come for a receiver, whoever reads them: the first worker says it.
        let queues = Mutex::new(Some(queues));
        let wait = if plan.spin { Wait::Spin } else { Wait::Block };
        let crew = Crew::gather("recv", ports, placement, move |mut port, shift| {
            let worker = shift.worker;
            let observer = statistics.map(|plan| {
                let place = ReaderPlace { worker: Some(worker as u32), cpu: None, queue: own[worker] };
                let queues = queues.lock().expect("no holder panics").take();
                Observer::new(plan, place, port.time_source(), local_ip).telling(queues).costing(cost)
            });
            receive(
                &mut port,
                wait,
                (probes, observer),
                &shift,
                Outlets { published: &shared[worker], window: &seen[worker], work_ns },
            )
        })?;
        crew.begin();
        Ok(Self { crew, published, windows, local, returns: None })
    }

    /// The address packets are received on, with the port the kernel chose for 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Whose probes go back; `None` for a receiver that sends none back.
    pub fn returns(&self) -> Option<&Arc<ReturnList>> {
        self.returns.as_ref()
    }

    /// Counters of each worker so far.
    pub fn snapshots(&self) -> Vec<RxSnapshot> {
        self.published.iter().map(|published| published.load()).collect()
    }

    /// Counters of all workers so far.
    pub fn snapshot(&self) -> RxSnapshot {
        self.snapshots().into_iter().fold(RxSnapshot::default(), RxSnapshot::plus)
    }

    /// What all workers have measured so far, each up to the end of a batch, and with `Then::Reset` from now on anew.
    /// `None` when nothing is measured, or a worker does not answer for a second.
    pub fn readings(&self, then: Then) -> Option<Vec<Readings>> {
        if self.windows.is_empty() || self.is_finished() {
            return None;
        }
        self.windows.iter().for_each(|window| window.ask(then));
        let answers: Option<Vec<_>> =
            self.windows.iter().map(|window| window.answer(WINDOW_PATIENCE)).collect();
        Some(answers?.into_iter().flatten().collect())
    }

    /// A stream's counters so far, over all workers.
    ///
    /// # Panics
    /// When `stream` is not below [`STREAMS`].
    pub fn stream(&self, stream: u16) -> StreamCount {
        let each = self.published.iter().map(|published| published.load_stream(stream.into()));
        each.fold(StreamCount::default(), StreamCount::plus)
    }

    /// Whether all workers have ended, which they do by themselves only when their path broke.
    pub fn is_finished(&self) -> bool {
        self.crew.is_finished()
    }

    /// Stops all workers once what already arrived is counted.
    pub fn stop(self) -> ReceiverResult {
        self.crew.stop();
        let workers = self.crew.join();
        let streams = (0..STREAMS)
            .map(|stream| {
                let each = self.published.iter().map(|published| published.load_stream(stream));
                each.fold(StreamCount::default(), StreamCount::plus)
            })
            .collect();
        ReceiverResult { workers, streams }
    }
}

impl ReceiverPlan {
    /// The queues that AF_XDP sockets are opened on: one a worker, or all of a measured interface, whose packets come on
    /// whichever queue they please.
    fn queues(&self, name: &str) -> Result<Vec<u32>, EngineError> {
        let workers = self.workers as u32;
        if self.statistics.is_none() && !self.reflect {
            return Ok((0..workers).collect());
        }
        Ok((0..rx_queues(&generate::interface(Some(name))?).max(workers)).collect())
    }

    /// Who is to stamp packets: nobody unless times are measured, `best` unless somebody else was asked for.
    fn stamps_of_packets(&self, best: TimeSource) -> Option<TimeSource> {
        let statistics = self.statistics.filter(|statistics| statistics.level > StatisticsLevel::Counter)?;
        let asked = statistics.stamp.filter(|stamp| self.engine.stamps().contains(stamp));
        Some(match statistics.level {
            StatisticsLevel::Time => asked.unwrap_or(best),
            _ => TimeSource::Loop,
        })
    }
}

impl ReceiverResult {
    /// What each reader measured; empty when nothing was to be measured.
    pub fn readings(&self) -> Vec<Readings> {
        self.workers.iter().flat_map(|worker| worker.statistics.iter().cloned()).collect()
    }

    /// What all workers measured together; `None` when nothing was to be measured.
    pub fn reception(&self, latency: LatencyMeans) -> Option<ReceptionStatistics> {
        let readers = self.readings();
        (!readers.is_empty()).then(|| reception(&readers, latency))
    }

    /// Packets lost at all ports, by place.
    pub fn losses(&self) -> Vec<Loss> {
        let mut all: Vec<Loss> = Vec::new();
        for loss in self.workers.iter().flat_map(|worker| &worker.losses) {
            match all.iter_mut().find(|other| other.place == loss.place) {
                Some(same) => same.packets += loss.packets,
                None => all.push(*loss),
            }
        }
        all
    }

    /// Counters of all workers together.
    pub fn tally(&self) -> RxSnapshot {
        self.workers.iter().map(|worker| worker.tally).fold(RxSnapshot::default(), RxSnapshot::plus)
    }
}

fn xsk_options(plan: &ReceiverPlan, xsk: &XskRxPlan) -> Result<XskRxOptions, EngineError> {
    let interface = plan.interface.as_deref().unwrap_or_default();
    // A receiver that measures takes probes to whatever port, and leaves the rest alone.
    let is_measuring = plan.statistics.is_some() || plan.reflect;
    let stamp = match plan.stamps_of_packets(TimeSource::Poll) {
        Some(TimeSource::Poll) => by_poll_where_polled(&generate::interface(Some(interface))?),
        stamp => stamp.unwrap_or_default(),
    };
    Ok(XskRxOptions {
        queues: plan.queues(interface)?,
        dst_port: if is_measuring { 0 } else { plan.local.port() },
        only_probes: is_measuring,
        stamp,
        busy_poll: xsk.busy_poll.then_some(BusyPoll::USUAL),
        shared_umem: xsk.shared_umem,
        ..XskRxOptions::on(interface, 0)
    })
}

/// Stamps by poll, unless nobody polls: a TUN device hands on what is written to it at once.
fn by_poll_where_polled(link: &Link) -> TimeSource {
    if link.kind.as_deref() == Some("tun") { TimeSource::Program } else { TimeSource::Poll }
}

fn open_packet(plan: &ReceiverPlan, reflects: bool) -> Result<Vec<PacketRx>, EngineError> {
    let interface = interface_index(plan.interface.as_deref())?;
    // One group a process: its number only has to differ from other programs' in the namespace.
    let fanout = Fanout { group: std::process::id() as u16, mode: FanoutMode::Hash };
    let fanout = (plan.workers > 1).then_some(fanout);
    let by_card = plan.stamps_of_packets(TimeSource::Kernel) == Some(TimeSource::Card);
    let stamp = if by_card { TimeSource::Card } else { TimeSource::Kernel };
    let mut options = PacketRxOptions { fanout, stamp, ..PacketRxOptions::on(interface) };
    if reflects {
        // The least there is: packets go back when their block is full or this time is over.
        options.retire_after = Duration::from_millis(1);
    }
    (0..plan.workers).map(|_| Ok(PacketRx::open(&options)?)).collect()
}

fn open_udp(plan: &ReceiverPlan, udp: &UdpRxPlan) -> Result<(Vec<UdpRx>, UdpRxOptions), EngineError> {
    let times = plan.stamps_of_packets(TimeSource::Kernel);
    let counts_both = plan.statistics.is_some() && plan.local.ip() == Ipv6Addr::UNSPECIFIED;
    let mut options = UdpRxOptions {
        local: plan.local,
        interface: plan.interface.clone(),
        reuse_port: udp.reuse_port,
        gro: udp.gro,
        drop_counts: udp.drop_counts,
        batch_size: plan.batch_size,
        // Who sends packets back must know their senders; and where both versions of IP come in, each datagram's.
        times: times.or((plan.reflect || counts_both).then_some(TimeSource::Loop)),
        receive_buffer_bytes: udp.receive_buffer_bytes,
        busy_poll_micros: udp.busy_poll_micros,
    };
    let first = UdpRx::open(&options)?;
    options.local = first.local_address()?;
    let mut ports = vec![first];
    for _ in 1..plan.workers {
        ports.push(if udp.reuse_port { UdpRx::open(&options)? } else { ports[0].share(&options)? });
    }
    Ok((ports, options))
}

fn open_tcp(plan: &ReceiverPlan, tcp: &TcpRxPlan) -> Result<Vec<TcpRx>, EngineError> {
    let first = TcpRx::open(&TcpRxOptions {
        local: plan.local,
        truncate: tcp.truncate,
        message_bytes: tcp.message_bytes as usize,
        receive_buffer_bytes: tcp.receive_buffer_bytes,
    })?;
    let mut ports = vec![first];
    for _ in 1..plan.workers {
        ports.push(ports[0].share()?);
    }
    Ok(ports)
}
