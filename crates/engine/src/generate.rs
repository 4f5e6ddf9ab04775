//! Senders: workers that make numbered packets when they are due and hand them to a port.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};

use measure::{Histogram, StatisticsLevel};
use port::{
    BusyPoll, PacketTx, PacketTxOptions, PktgenTx, PortError, TcpSend, TcpTx, TcpTxOptions, TimeSource,
    UdpTx, UdpTxOptions, XdpTx, XdpTxOptions, XskTx, XskTxOptions,
};
use serde::{Deserialize, Serialize};
use sys::{
    clock,
    rtnetlink::{Link, RouteSocket},
};
use wire::{FrameSpec, ProbeClock, Span, SpecError, Template, Values};

use crate::{
    emit::{Emit, Emitted, Made, Stamped, Streamed},
    error::EngineError,
    kernel::{self, Job, pktgen_options},
    pace::{Departures, Limit, Schedule},
    publish::{TxPublished, TxSnapshot},
    receive::{Receiver, ReceiverPlan, RxEngine, StatisticsPlan, UdpRxPlan},
    worker::{Crew, Meter, Placement, Shift, WorkerCost},
};

/// What a sender does; complete and printable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SenderPlan {
    /// The path.
    pub engine: TxEngine,
    /// One entry a worker.
    pub workers: Vec<TxWorkerPlan>,
    /// The interface to send from; `None` follows the routes.
    pub interface: Option<String>,
    /// The packets; each worker puts its own stream tag into them.
    pub frames: FrameSpec,
    /// Packets per second of all workers together; `None` is as fast as it goes.
    pub rate_pps: Option<f64>,
    /// The pattern of departures.
    pub departures: Departures,
    /// When to stop; a count is of all workers together.
    pub limit: Limit,
    /// Packets a call, at most.
    pub batch_size: usize,
    /// Seed of all that is random.
    pub seed: u64,
}

/// A sending path and its own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TxEngine {
    /// UDP sockets.
    Udp(UdpTxPlan),
    /// Packet sockets.
    Packet(PacketTxPlan),
    /// AF_XDP sockets, a queue a worker.
    Xsk(XskTxPlan),
    /// A program in the kernel (XDP live frames).
    Xdp(XdpTxPlan),
    /// The kernel's own generator, a module.
    Pktgen(PktgenTxPlan),
    /// TCP streams of equal messages; a packet is a message then.
    Tcp(TcpTxPlan),
}

impl TxEngine {
    /// Whether it makes whole frames, and so needs to know MAC addresses and an interface.
    pub fn makes_frames(&self) -> bool {
        !matches!(self, Self::Udp(_) | Self::Tcp(_))
    }
}

/// Settings of packet sockets that send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketTxPlan {
    /// Past the queueing discipline.
    pub qdisc_bypass: bool,
}

/// Settings of AF_XDP sockets that send.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct XskTxPlan {
    /// Poll the card from the sockets' own calls, with its interrupts off in between.
    #[serde(default)]
    pub busy_poll: bool,
}

/// Settings of the program that sends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct XdpTxPlan {}

/// Settings of the kernel's generator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PktgenTxPlan {}

/// Settings of streams that send.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpTxPlan {
    /// How messages are handed over.
    pub send: TcpSend,
    /// Bytes a message.
    pub message_bytes: u32,
    /// `SO_SNDBUF` in bytes, `None` for the system's own tuning.
    pub send_buffer_bytes: Option<usize>,
}

/// Settings of UDP sockets that send.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UdpTxPlan {
    /// Hand over up to 64 datagrams as one message.
    pub gso: bool,
    /// `SO_SNDBUF` in bytes, `None` for the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// Receive what comes back ([`Sender::take_returns`]).
    #[serde(default)]
    pub returns: bool,
}

/// One worker of a sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxWorkerPlan {
    /// Where it sends.
    pub target: SocketAddr,
    /// Its local address; port 0 takes any.
    pub local: SocketAddr,
    /// Source ports it uses in turn.
    pub flows: usize,
    /// The stream tag by which a receiver knows it.
    pub stream: u16,
}

/// A sender at work.
pub struct Sender {
    crew: Crew<SenderResult>,
    published: Vec<Arc<TxPublished>>,
    returns: Option<Receiver>,
}

/// What a sender did.
#[derive(Debug)]
pub struct SenderResult {
    /// Packets and bytes.
    pub tally: TxSnapshot,
    /// Packets that the schedule made due.
    pub scheduled: u64,
    /// When it began, in monotonic nanoseconds.
    pub start_ns: u64,
    /// When it ended: the end of the schedule, or the last packet if that was later.
    pub end_ns: u64,
    /// How late packets left, in nanoseconds.
    pub lateness: Histogram,
    /// The longest time between two calls that took packets, in nanoseconds.
    pub largest_gap_ns: u64,
    /// CPU time and cycles.
    pub cost: WorkerCost,
    /// What ended it before its time.
    pub error: Option<EngineError>,
}

impl Sender {
    /// Opens all ports and makes the workers ready; nothing is sent before [`Sender::begin`].
    ///
    /// # Errors
    /// The first port or worker that could not be made; then nothing is left open.
    pub fn prepare(plan: &SenderPlan, placement: &Placement) -> Result<Self, EngineError> {
        let templates = plan.templates()?;
        let each = || plan.workers.iter().zip(&templates).enumerate();
        match &plan.engine {
            TxEngine::Udp(udp) => {
                let ports = placement.inside(|| {
                    each()
                        .map(|(_, (worker, template))| {
                            let port = UdpTx::open(&udp_options(plan, udp, worker, template))?;
                            Ok(Stamped::new(port, template.clone()))
                        })
                        .collect::<Result<Vec<_>, EngineError>>()
                })?;
                let returns = udp.returns.then(|| receive_returns(plan, &ports)).transpose()?;
                Ok(Self { returns, ..Self::over(plan, ports, placement)? })
            }
            TxEngine::Packet(packet) => {
                let ports = placement.inside(|| {
                    let interface = interface_index(plan.interface.as_deref())?;
                    each()
                        .map(|(_, (_, template))| {
                            let port = PacketTx::open(&PacketTxOptions {
                                batch_size: plan.batch_size.min(PacketTxOptions::BATCH_SIZE),
                                qdisc_bypass: packet.qdisc_bypass,
                                ..PacketTxOptions::on(interface, template.max_frame_len())
                            })?;
                            Ok(Stamped::new(port, template.clone()))
                        })
                        .collect::<Result<Vec<_>, EngineError>>()
                })?;
                Self::over(plan, ports, placement)
            }
            TxEngine::Xsk(xsk) => {
                let ports = placement.inside(|| {
                    let interface = plan.interface.as_deref().unwrap_or_default();
                    each()
                        .map(|(number, (_, template))| {
                            let defaults = XskTxOptions::on(interface, number as u32);
                            let port = XskTx::open(&XskTxOptions {
                                batch_size: plan.batch_size.min(defaults.batch_size),
                                longest_frame: template.max_frame_len(),
                                busy_poll: xsk.busy_poll.then_some(BusyPoll::USUAL),
                                ..defaults
                            })?;
                            Ok(Stamped::new(port, template.clone()))
                        })
                        .collect::<Result<Vec<_>, EngineError>>()
                })?;
                Self::over(plan, ports, placement)
            }
            TxEngine::Tcp(tcp) => {
                let ports = placement.inside(|| {
                    each()
                        .map(|(_, (worker, _))| {
                            let options = TcpTxOptions {
                                peer: worker.target,
                                local: worker.local,
                                send: tcp.send,
                                message_bytes: tcp.message_bytes as usize,
                                send_buffer_bytes: tcp.send_buffer_bytes,
                            };
                            Ok(Streamed::new(TcpTx::open(&options)?, tcp.message_bytes))
                        })
                        .collect::<Result<Vec<_>, EngineError>>()
                })?;
                Self::over(plan, ports, placement)
            }
            TxEngine::Xdp(_) => {
                let ports = placement.inside(|| {
                    let options = XdpTxOptions::on(interface_index(plan.interface.as_deref())?);
                    let first = XdpTx::open(templates[0].recipe(), &options)?;
                    let mut ports = Vec::new();
                    for template in &templates[1..] {
                        ports.push(Made::new(first.beside(template.recipe())?, template.clone()));
                    }
                    ports.insert(0, Made::new(first, templates[0].clone()));
                    Ok(ports)
                })?;
                Self::over(plan, ports, placement)
            }
            TxEngine::Pktgen(_) => {
                let job = Job {
                    payload_bytes: templates[0].max_payload_len() as u64,
                    duration_ns: plan.limit.duration_ns,
                    rate_pps: plan.rate_pps,
                };
                let options = pktgen_options(plan, &templates[0], &placement.cpus)?;
                let port = placement.inside(|| Ok(PktgenTx::open(&options)?))?;
                let published = Arc::new(TxPublished::default());
                let shared = published.clone();
                // The worker that watches may run anywhere: the work is the kernel threads'.
                let crew = Crew::gather("send", vec![port], placement, move |port, shift| {
                    kernel::drive(&port, &job, &shift, &shared)
                })?;
                Ok(Self { crew, published: vec![published], returns: None })
            }
        }
    }

    fn over<E: Emit + Send + 'static>(
        plan: &SenderPlan,
        emitters: Vec<E>,
        placement: &Placement,
    ) -> Result<Self, EngineError> {
        let published: Vec<Arc<TxPublished>> = emitters.iter().map(|_| Arc::default()).collect();
        let (shared, plan) = (published.clone(), plan.clone());
        let crew = Crew::gather("send", emitters, placement, move |mut emitter, shift| {
            let schedule = plan.schedule(shift.worker, shift.start_ns);
            generate(&mut emitter, schedule, plan.frames.clock, &shift, &shared[shift.worker])
        })?;
        Ok(Self { crew, published, returns: None })
    }

    /// Lets all workers send from now on; returns the moment in monotonic nanoseconds.
    pub fn begin(&self) -> u64 {
        self.crew.begin()
    }

    /// The receiver of what comes back, once, when [`UdpTxPlan::returns`] asked for it; it goes on when the sender has
    /// ended.
    pub fn take_returns(&mut self) -> Option<Receiver> {
        self.returns.take()
    }

    /// Counters of each worker so far.
    pub fn snapshots(&self) -> Vec<TxSnapshot> {
        self.published.iter().map(|published| published.load()).collect()
    }

    /// Counters of all workers so far.
    pub fn snapshot(&self) -> TxSnapshot {
        self.snapshots().into_iter().fold(TxSnapshot::default(), TxSnapshot::plus)
    }

    /// Asks all workers to stop, without waiting.
    pub fn stop(&self) {
        self.crew.stop();
    }

    /// Whether all workers have reached their limit.
    pub fn is_finished(&self) -> bool {
        self.crew.is_finished()
    }

    /// Waits for all workers, which must have begun, and returns what each did.
    pub fn join(self) -> Vec<SenderResult> {
        self.crew.join()
    }
}

impl SenderPlan {
    /// Each worker's packets: its own stream tag, and for engines that make whole frames its own addresses and
    /// source ports.
    fn templates(&self) -> Result<Vec<Template>, SpecError> {
        let mut first_port = FIRST_SOURCE_PORT;
        let specs = self.workers.iter().map(|worker| {
            let mut spec = FrameSpec { stream: worker.stream, ..self.frames.clone() };
            if self.engine.makes_frames() {
                spec.src_addr = Values::Fixed(worker.local.ip());
                spec.dst_addr = Values::Fixed(worker.target.ip());
                spec.dst_port = Values::Fixed(worker.target.port());
                let last_port = first_port.saturating_add(worker.flows.clamp(1, 40_000) as u16 - 1);
                spec.src_port = ports(first_port, last_port);
                first_port = last_port.saturating_add(1);
            }
            spec
        });
        specs.map(|spec| Template::new(&spec)).collect()
    }

    /// A worker's share of the rate and the count.
    fn schedule(&self, worker: usize, start_ns: u64) -> Schedule {
        let workers = self.workers.len() as u64;
        let share = |count: u64| count / workers + u64::from((worker as u64) < count % workers);
        let limit = Limit { count: self.limit.count.map(share), ..self.limit };
        let rate = self.rate_pps.map(|pps| pps / workers as f64);
        Schedule::new(rate, self.departures, limit, start_ns, self.seed.wrapping_add(worker as u64))
    }
}

/// Source ports of engines that make whole frames count up from here.
pub(crate) const FIRST_SOURCE_PORT: u16 = 20_000;

fn ports(first: u16, last: u16) -> Values<u16> {
    match Span::new(first, last) {
        Ok(span) if first < last => Values::Increment { span, step: NonZeroU32::MIN },
        _ => Values::Fixed(first),
    }
}

/// The interface of this name in the calling thread's namespace.
pub(crate) fn interface(name: Option<&str>) -> Result<Link, EngineError> {
    let interface = name.unwrap_or_default();
    let found = RouteSocket::open().and_then(|mut route| route.link_by_name(interface));
    Ok(found.map_err(|source| PortError::Link { interface: interface.into(), source })?)
}

pub(crate) fn interface_index(name: Option<&str>) -> Result<u32, EngineError> {
    Ok(interface(name)?.index)
}

fn udp_options(
    plan: &SenderPlan,
    udp: &UdpTxPlan,
    worker: &TxWorkerPlan,
    template: &Template,
) -> UdpTxOptions {
    UdpTxOptions {
        peer: worker.target,
        local: worker.local,
        interface: plan.interface.clone(),
        flows: worker.flows,
        payload_bytes: template.max_payload_len(),
        batch_size: plan.batch_size,
        gso: udp.gso,
        send_buffer_bytes: udp.send_buffer_bytes,
        returns: udp.returns,
    }
}

/// A thread for each flow: they sleep until something comes, wherever the workers are pinned to.
fn receive_returns(plan: &SenderPlan, senders: &[Stamped<UdpTx>]) -> Result<Receiver, EngineError> {
    let mut ports = Vec::new();
    for sender in senders {
        ports.extend(sender.port().return_ports()?);
    }
    let statistics = StatisticsPlan {
        level: StatisticsLevel::Time,
        probe_clock: Some(plan.frames.clock),
        stamp: Some(TimeSource::Kernel),
    };
    let plan = ReceiverPlan {
        engine: RxEngine::Udp(UdpRxPlan::default()),
        local: plan.workers[0].local,
        interface: None,
        workers: ports.len(),
        spin: false,
        batch_size: plan.batch_size,
        statistics: Some(statistics),
        reflect: false,
        work_ns: 0,
    };
    Receiver::of_returned(&plan, ports, &Placement::default())
}

/// How often a sender whose packets tell the wall clock's time looks whether that was set.
const WALL_EVERY_NS: u64 = 1_000_000_000;

/// The hot loop: per batch one clock read, one call, one publish.
pub(crate) fn generate<E: Emit>(
    emitter: &mut E,
    mut schedule: Schedule,
    probe_clock: ProbeClock,
    shift: &Shift,
    published: &TxPublished,
) -> SenderResult {
    let mut meter = Meter::start();
    let mut tally = TxSnapshot::default();
    let mut last_ns = shift.start_ns;
    let mut largest_gap_ns = 0;
    let mut due = 0; // taken from the schedule, not yet filled
    let mut waiting = 0; // filled, not yet taken by the kernel
    let mut error = None;
    let mut next_call_ns = 0;
    let mut wall = clock::wall_offset();
    let mut wall_due_ns = shift.start_ns + WALL_EVERY_NS;
    let end_ns = loop {
        let now = clock::monotonic_ns();
        if now < next_call_ns && !shift.is_over() {
            wait_for(next_call_ns, now);
            continue;
        }
        if due == 0 {
            due = schedule.take_due(now, emitter.batch_size());
        }
        if shift.is_over() || (due + waiting == 0 || now > schedule.end_ns()) && schedule.is_over(now) {
            break now;
        }
        if due + waiting == 0 {
            wait_for(schedule.next_due().unwrap_or(now), now);
            continue;
        }
        if now > wall_due_ns {
            wall = wall.checked_by(clock::wall_offset());
            wall_due_ns = now + WALL_EVERY_NS;
        }
        let time_ns = match probe_clock {
            ProbeClock::Micros => now.wrapping_add(wall.ahead_ns),
            ProbeClock::Nanos => now,
        };
        match emitter.emit(due, time_ns) {
            Ok(Emitted { sent, payload_bytes }) => {
                // not over the end, before which everything has to leave
                next_call_ns =
                    Some(now + E::LEAST_GAP_NS).filter(|next| *next < schedule.end_ns()).unwrap_or(now);
                due -= sent.filled;
                waiting = waiting + sent.filled - sent.taken;
                tally.packets += sent.taken as u64;
                tally.payload_bytes += payload_bytes;
                tally.refused += sent.refused as u64;
                tally.turned_away += sent.turned_away as u64;
                if sent.taken > 0 {
                    largest_gap_ns = largest_gap_ns.max(now - last_ns);
                    last_ns = now;
                }
            }
            Err(cause) => {
                error = Some(cause.into());
                break now;
            }
        }
        published.store(&tally);
    };
    SenderResult {
        scheduled: schedule.scheduled(end_ns),
        tally,
        start_ns: shift.start_ns,
        end_ns,
        lateness: schedule.lateness().clone(),
        largest_gap_ns,
        cost: meter.read(),
        error,
    }
}

/// Sleeps while the next packet is far off, and spins the last stretch: a sleeper wakes tens of microseconds
/// late. Never sleeps longer than a request to stop may wait.
fn wait_for(due_ns: u64, now_ns: u64) {
    const SPIN_NS: u64 = 150_000;
    const LONGEST_SLEEP_NS: u64 = 20_000_000;
    let left = due_ns.saturating_sub(now_ns);
    if left > 2 * SPIN_NS {
        clock::sleep_until(now_ns + (left - SPIN_NS).min(LONGEST_SLEEP_NS));
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use port::Sent;

    use super::*;
    use crate::{emit::Emitted, pace::Limit};

    /// Takes everything, and knows of when the packets were.
    #[derive(Default)]
    struct Calls(Vec<u64>);

    impl Emit for Calls {
        const LEAST_GAP_NS: u64 = 1_000_000;

        fn batch_size(&self) -> usize {
            4096
        }

        fn emit(&mut self, packets: usize, time_ns: u64) -> Result<Emitted, PortError> {
            self.0.push(time_ns);
            Ok(Emitted {
                sent: Sent { filled: packets, taken: packets, ..Sent::default() },
                payload_bytes: 0,
            })
        }
    }

    #[test]
    fn calls_keep_their_distance() {
        let shift = Shift::until(Arc::default());
        let limit = Limit { duration_ns: Some(50_000_000), count: None };
        let schedule = Schedule::new(Some(100_000.0), Departures::Constant, limit, shift.start_ns, 1);
        let mut calls = Calls::default();
        let result = generate(&mut calls, schedule, ProbeClock::Nanos, &shift, &TxPublished::default());
        let last_gap_begins_ns = shift.start_ns + 49_000_000;
        for pair in calls.0.windows(2).filter(|pair| pair[0] < last_gap_begins_ns) {
            assert!(pair[1] - pair[0] >= Calls::LEAST_GAP_NS, "{} ns apart", pair[1] - pair[0]);
        }
        assert_eq!(result.scheduled, 5000);
        assert!(calls.0.len() > 1 && result.tally.packets <= 5000);
    }
}
