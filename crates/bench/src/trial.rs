//! One trial in a lab of its own: start, tick, stop, drain, read the counters, close the ledger.

use std::{
    io,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use engine::{
    EngineError, Loss, Placement, Receiver, ReceiverResult, RxEngine, RxSnapshot, Sender, TxEngine,
    TxSnapshot,
};
use lab::{Lab, LabError, Side};
use ledger::{
    CounterError, Drivers, DropError, DropReading, DropScope, DropWatch, HostCounters, LabGrowth, Received,
    lab_lines,
};
use measure::{Interval, Ledger, LedgerLine, Stream, Trial};
use sys::{clock, procfs, udp::UdpSink};
use thiserror::Error;
use wire::MacAddr;

use crate::{
    cpu_time::CpuWatch,
    plan::{BenchPlan, LabEnd, Pair},
    profile::{Diagnosis, ProfileError},
    queues::QueueReading,
    record::{RxOutcome, TrialSettings, TxOutcome, receive_cost},
    timing::{ClockClaim, timed_reception},
};

/// How often a running trial is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Packets in flight are waited for until nothing moved for so long: a busy machine may leave a softirq thread
/// without a CPU for a second. A ledger that closes is not waited for.
const QUIET: Duration = Duration::from_secs(2);
/// And no longer than this.
const LONGEST_DRAIN: Duration = Duration::from_secs(15);

/// Why a trial could not be run.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The socket that takes what a packet socket only copies.
    #[error("cannot open a socket that drops all")]
    Sink(#[from] io::Error),
    /// A descriptor of the lab's namespace.
    #[error("cannot hold the lab's network namespace")]
    Namespace(#[source] io::Error),
    /// What is to be found out beside the rates.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Another generator.
    #[error(transparent)]
    Peer(#[from] crate::peers::PeerError),
    /// The lab's counters.
    #[error(transparent)]
    Counters(#[from] CounterError),
    /// What the kernel says it dropped.
    #[error(transparent)]
    Drops(#[from] DropError),
    /// The settings of a real interface.
    #[error(transparent)]
    Settings(#[from] nic::SessionError),
    /// The machine's CPU times.
    #[error(transparent)]
    Cpus(#[from] procfs::ProcError),
}

/// A finished trial and its ticks.
#[derive(Debug)]
pub struct TrialRun {
    /// The trial.
    pub trial: Trial,
    /// Its intervals; `trial` in each is 0 until the run numbers them.
    pub intervals: Vec<Interval>,
    /// What ended a worker before its time.
    pub error: Option<EngineError>,
}

/// What a running trial shows.
#[derive(Debug, Clone, Copy)]
pub struct Tick {
    /// Share of the trial's time that is over, 0..=1.
    pub done_ratio: f64,
    /// Packets per second sent since the last tick.
    pub sent_pps: f64,
    /// Packets per second delivered since the last tick.
    pub delivered_pps: f64,
}

/// Runs one trial, after the plan's warm-up in the same lab; `tick` sees it run and says whether to go on.
///
/// # Errors
/// What kept it from starting; a path that breaks later ends the trial early, with what was measured.
pub fn run_trial(
    plan: &BenchPlan,
    pair: &Pair,
    number: u32,
    tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    run_trial_in(&Lab::create(&plan.lab_for(pair))?, plan, pair, number, tick)
}

/// Runs one trial in a lab that is there already.
///
/// # Errors
/// As of [`run_trial`].
pub(crate) fn run_trial_in(
    lab: &Lab,
    plan: &BenchPlan,
    pair: &Pair,
    number: u32,
    mut tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    let plan = &plan.with_queues_of(lab.rx())?;
    if plan.omit_ns > 0 {
        let warm_up = BenchPlan { duration_ns: plan.omit_ns, count: None, ..plan.clone() };
        run_in(lab, &warm_up, pair, number, |now| tick(Tick { done_ratio: 0.0, ..now }))?;
    }
    run_in(lab, plan, pair, number, tick)
}

/// One trial in a lab that is there, and quiet again afterwards.
fn run_in(
    lab: &Lab,
    plan: &BenchPlan,
    pair: &Pair,
    number: u32,
    mut tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    let receiver_plan = plan.receiver(pair, lab.rx().interface());
    let receiver = Receiver::start(&receiver_plan, &placement(lab.rx(), &plan.cpus.rx)?)?;
    let port = receiver.local_address().port();
    let _sink = needs_sink(pair)
        .then(|| lab.rx().run(|| UdpSink::open(receiver_plan.local)))
        .transpose()?
        .transpose()?;
    let from = end(lab.tx(), plan.ipv6, 0);
    let to = end(lab.rx(), plan.ipv6, port);
    let sender = Sender::prepare(&plan.sender(pair, &from, &to), &placement(lab.tx(), &plan.cpus.tx)?)?;
    // Some cards start anew when a program or a socket is attached to them.
    lab.wait_until_ready()?;

    let mut diagnosis = plan.profile.then(Diagnosis::start).transpose()?;
    let drops = watch_drops(lab, pair);
    let counters = LabCounters::read(lab)?.with_drops(drops.as_ref())?;
    let queues = QueueReading::of(lab);
    let drivers = Drivers::built_in();
    let cpus = CpuWatch::start(diagnosis.as_ref().and_then(Diagnosis::napi))?;
    let start_ns = sender.begin();
    let mut watch = Watch::new(plan, start_ns);
    let mut interrupted = false;
    while !sender.is_finished() {
        thread::sleep(LOOK);
        diagnosis.iter_mut().for_each(Diagnosis::tick);
        if !tick(watch.look(&sender, &receiver)) && !interrupted {
            interrupted = true;
            sender.stop();
        }
        interrupted |= receiver.is_finished();
    }
    let mut sent = TxOutcome::of(sender.join());
    let broken = sent.error.take();
    let refused = refused_by_interface(pair, sent.tally.turned_away);
    let cpus = cpus.shares()?;
    let profile = diagnosis.map(|mut diagnosis| diagnosis.take(receiver.snapshot().packets));
    drain(|| {
        let now = LabCounters::read(lab)?.with_drops(drops.as_ref())?.since(&counters, &drivers);
        let tally = receiver.snapshot();
        let lines = lines_of(pair, || now.lines(refused, &of_receiver(pair, tally, None), &drivers));
        let closes = Ledger::close(sent.tally.packets, tally.packets, lines).is_closed();
        Ok((closes, (now, tally)))
    })?;
    let queues = QueueReading::of(lab).since(&queues);
    let received = receiver.stop();
    let counters = LabCounters::read(lab)?.with_drops(drops.as_ref())?.since(&counters, &drivers);

    let tally = received.tally();
    let rx = RxOutcome {
        endpoint: plan.rx_endpoint(pair),
        delivered: tally.packets,
        cost: receive_cost(&received),
        lines: lines_of(pair, || {
            counters.lines(refused, &of_receiver(pair, tally, Some(&received)), &drivers)
        }),
        cpus,
        // A message is not a packet.
        on_wire: (!pair.is_stream()).then_some(counters.tx.link.tx_packets),
        stream: moved(pair, &sent, tally, &counters),
        round_trips: None,
        // Both ends are of this machine, and so are their clocks.
        statistics: Some(received.readings())
            .filter(|readings| !readings.is_empty())
            .map(|readings| timed_reception(&readings, ClockClaim::SameHost, None)),
    };
    let settings = TrialSettings {
        trial: number,
        tx: plan.tx_endpoint(pair),
        // A stream's largest frames, and its messages.
        frame_size_bytes: if pair.is_stream() { plan.lab.mtu + 18 } else { plan.frame_size_bytes },
        payload_bytes: match &pair.tx.0 {
            TxEngine::Tcp(tcp) => tcp.message_bytes,
            _ => plan.payload_bytes,
        },
        asked_pps: plan.rate_pps,
    };
    let error = broken.or_else(|| received.workers.into_iter().find_map(|worker| worker.error));
    let trial = Trial { queues, profile, ..sent.into_trial(settings, rx, interrupted || error.is_some()) };
    Ok(TrialRun { trial, intervals: watch.intervals, error })
}

pub(crate) fn placement(side: &Side, cpus: &[u32]) -> Result<Placement, TrialError> {
    let namespace = Arc::new(side.namespace().try_clone().map_err(TrialError::Namespace)?);
    Ok(Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: cpus.to_vec() })
}

pub(crate) fn end(side: &Side, ipv6: bool, port: u16) -> LabEnd {
    let all: Vec<IpAddr> = if ipv6 {
        side.ipv6().iter().copied().map(IpAddr::from).collect()
    } else {
        side.ipv4().iter().copied().map(IpAddr::from).collect()
    };
    LabEnd {
        interface: side.interface().into(),
        mac: MacAddr(side.mac()),
        addresses: all.into_iter().map(|address| (address, port).into()).collect(),
    }
}

/// A packet socket takes copies: the kernel still gets the packets, and would answer that nobody listens.
fn needs_sink(pair: &Pair) -> bool {
    matches!(pair.rx.0, RxEngine::Packet(_))
}

/// Frames that the sending interface refused, counted as a drop, and took later: only packet sockets can tell.
fn refused_by_interface(pair: &Pair, turned_away: u64) -> u64 {
    if matches!(pair.tx.0, TxEngine::Packet(_)) { turned_away } else { 0 }
}

/// What the receiving engine counted; by place once it has stopped.
pub(crate) fn of_receiver(pair: &Pair, tally: RxSnapshot, stopped: Option<&ReceiverResult>) -> Received {
    Received {
        is_unseen: false,
        is_closed: stopped.is_some(),
        delivered: tally.packets,
        lost: tally.lost,
        gro: matches!(&pair.rx.0, RxEngine::Udp(udp) if udp.gro),
        is_xsk: matches!(pair.rx.0, RxEngine::Xsk(_)),
        is_udp: matches!(pair.rx.0, RxEngine::Udp(_)),
        is_xdp: matches!(pair.rx.0, RxEngine::Xdp(_)),
        losses: stopped.map(ReceiverResult::losses).unwrap_or_default().iter().map(line_of).collect(),
    }
}

/// TCP sends again what is lost on the way: streams lose no messages to any place.
fn lines_of(pair: &Pair, lines: impl FnOnce() -> Vec<LedgerLine>) -> Vec<LedgerLine> {
    if pair.is_stream() { Vec::new() } else { lines() }
}

/// What streams moved, by the applications' and the interfaces' counts.
fn moved(pair: &Pair, sent: &TxOutcome, received: RxSnapshot, counters: &LabCounters) -> Option<Stream> {
    let TxEngine::Tcp(tcp) = &pair.tx.0 else { return None };
    let bits = received.payload_bytes as f64 * 8.0;
    Some(Stream {
        message_bytes: tcp.message_bytes,
        sent_bytes: sent.tally.packets * u64::from(tcp.message_bytes),
        delivered_bytes: received.payload_bytes,
        delivered_bps: if sent.seconds > 0.0 { bits / sent.seconds } else { 0.0 },
        tx_packets: counters.tx.link.tx_packets,
        rx_packets: counters.rx.link.rx_packets,
        acknowledging_packets: counters.rx.link.tx_packets,
        retransmitted_segments: counters.tx.protocols.value("TcpRetransSegs").unwrap_or(0),
    })
}

fn line_of(loss: &Loss) -> LedgerLine {
    LedgerLine::new(loss.place, loss.packets, loss.source).with_remedy(loss.remedy)
}

/// Lets the kernel name what it drops, where this process may ask: without, the counters alone tell.
pub(crate) fn watch_drops(lab: &Lab, pair: &Pair) -> Option<DropWatch> {
    // The kernel's generator frees packets that were sent as if they had been dropped.
    if matches!(pair.tx.0, TxEngine::Pktgen(_)) {
        return None;
    }
    let ignored = match pair.rx.0 {
        // The program drops what it counted, and the socket beside packet sockets what they copied.
        RxEngine::Xdp(_) => Some("XDP"),
        RxEngine::Packet(_) => Some("SOCKET_FILTER"),
        RxEngine::Udp(_) | RxEngine::Xsk(_) => None,
        RxEngine::Tcp(_) => return None,
    };
    let scope = DropScope { only_udp: true, ignored, ..DropScope::default() };
    DropWatch::over(&[lab.tx().namespace(), lab.rx().namespace()], &scope).ok()
}

/// What both sides of a lab count.
#[derive(PartialEq)]
pub(crate) struct LabCounters {
    pub(crate) tx: HostCounters,
    pub(crate) rx: HostCounters,
    drops: Option<DropReading>,
}

impl LabCounters {
    pub(crate) fn read(lab: &Lab) -> Result<Self, TrialError> {
        let read = |side: &Side| -> Result<_, TrialError> {
            Ok(side.run(|| HostCounters::read(Some(side.interface())))??)
        };
        Ok(Self { tx: read(lab.tx())?, rx: read(lab.rx())?, drops: None })
    }

    pub(crate) fn with_drops(self, watch: Option<&DropWatch>) -> Result<Self, TrialError> {
        Ok(Self { drops: watch.map(DropWatch::read).transpose()?, ..self })
    }

    pub(crate) fn since(&self, earlier: &Self, drivers: &Drivers) -> Self {
        let drops = self.drops.as_ref().zip(earlier.drops.as_ref());
        Self {
            tx: self.tx.since(&earlier.tx, drivers),
            rx: self.rx.since(&earlier.rx, drivers),
            drops: drops.map(|(now, before)| now.since(before)),
        }
    }

    pub(crate) fn lines(&self, refused: u64, received: &Received, drivers: &Drivers) -> Vec<LedgerLine> {
        let drops = self.drops.as_ref().map(|reading| &reading.places[..]);
        lab_lines(&LabGrowth { tx: &self.tx, rx: &self.rx, drops, refused }, received, drivers)
    }
}

/// Waits for packets in flight: until `look` says that the ledger closes, or what it sees has not changed for a
/// while.
pub(crate) fn drain<S: PartialEq>(
    look: impl Fn() -> Result<(bool, S), TrialError>,
) -> Result<(), TrialError> {
    let started = Instant::now();
    let (mut closes, mut last) = look()?;
    let mut moved = Instant::now();
    while !closes && moved.elapsed() < QUIET && started.elapsed() < LONGEST_DRAIN {
        thread::sleep(Duration::from_millis(2));
        let now;
        (closes, now) = look()?;
        if now != last {
            moved = Instant::now();
            last = now;
        }
    }
    Ok(())
}

/// Turns counters into ticks and recorded intervals.
struct Watch {
    start_ns: u64,
    duration_ns: u64,
    interval_ns: u64,
    ticked: Seen,
    recorded: Seen,
    intervals: Vec<Interval>,
}

#[derive(Clone, Copy)]
struct Seen {
    at_ns: u64,
    tx: TxSnapshot,
    rx: RxSnapshot,
}

impl Watch {
    fn new(plan: &BenchPlan, start_ns: u64) -> Self {
        let nothing = Seen { at_ns: start_ns, tx: TxSnapshot::default(), rx: RxSnapshot::default() };
        Self {
            start_ns,
            duration_ns: plan.duration_ns.max(1),
            interval_ns: plan.interval_ns,
            ticked: nothing,
            recorded: nothing,
            intervals: Vec::new(),
        }
    }

    fn look(&mut self, sender: &Sender, receiver: &Receiver) -> Tick {
        let now = Seen { at_ns: clock::monotonic_ns(), tx: sender.snapshot(), rx: receiver.snapshot() };
        if now.at_ns - self.recorded.at_ns >= self.interval_ns {
            self.intervals.push(self.recorded.interval_to(&now, self.start_ns));
            self.recorded = now;
        }
        let seconds = (now.at_ns - self.ticked.at_ns).max(1) as f64 / 1e9;
        let tick = Tick {
            done_ratio: ((now.at_ns - self.start_ns) as f64 / self.duration_ns as f64).min(1.0),
            sent_pps: (now.tx.packets - self.ticked.tx.packets) as f64 / seconds,
            delivered_pps: (now.rx.packets - self.ticked.rx.packets) as f64 / seconds,
        };
        self.ticked = now;
        tick
    }
}

impl Seen {
    fn interval_to(&self, now: &Self, start_ns: u64) -> Interval {
        Interval {
            trial: 0,
            end_s: (now.at_ns - start_ns) as f64 / 1e9,
            length_s: (now.at_ns - self.at_ns) as f64 / 1e9,
            sent: Some(now.tx.packets - self.tx.packets),
            delivered: Some(now.rx.packets - self.rx.packets),
            payload_bytes: now.rx.payload_bytes - self.rx.payload_bytes,
            rx_dropped: Some(now.rx.lost - self.rx.lost),
        }
    }
}
