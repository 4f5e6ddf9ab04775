//! A trial with a peer's sender: the kernel's counters decide what it sent; ours, or the kernel's, what arrived.

use std::{
    fmt, fs, thread,
    time::{Duration, Instant},
};

use lab::{Lab, Side};
use ledger::Received;
use measure::{Cost, Endpoint, Histogram, Ledger, LedgerLine};
use serde::{Deserialize, Serialize};
use serde_json::json;
use session::InFlight;
use sys::{clock, cpu, cpu::CpuTime};
use traffic::{Receiver, ReceiverResult, RxFacts, RxSnapshot, RxSpec, TxSnapshot, TxSpec, WorkerCost};

use super::{
    command::{CONTROL_PORT, Task},
    process::{PeerProcess, Role},
    program::Peer,
};
use crate::{
    counters::{CounterWatch, Growth},
    ends::{Ends, Outcome},
    engines::{LONGEST_DRAIN, QUIET, drop_scope, lab_end, received},
    error::{PeerError, TrialError},
    location::{Location, Locations},
    plan::{LAB_PORT, LabEnd, Pair, TrialPlan},
    profile::Diagnosis,
    record::{RxOutcome, TrialSettings, TxOutcome, receive_cost},
    run::{TrialRun, run_trial},
    settling::{Settled, Settling},
    watch::{Look, Tick, WatchPlan},
};

/// Interval of the interface's counters: a peer's time is known to within two readings.
const LOOK: Duration = Duration::from_millis(5);
/// A reading with fewer packets than this saw a control connection, not the load.
const FEWEST_PACKETS: u64 = 32;
/// A peer's own receiver must listen within this time, even on a busy machine.
const LISTENS_WITHIN: Duration = Duration::from_secs(15);

/// A row of the table: a peer against a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerPair {
    /// The sender.
    pub peer: Peer,
    /// The receiver.
    pub rx: PeerReceiver,
}

/// The receiver of a peer's packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerReceiver {
    /// The peer's own receiver.
    Own,
    /// One of our engines.
    Ours(RxSpec),
}

impl fmt::Display for PeerPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rx {
            PeerReceiver::Own => write!(f, "{0} → {0}", self.peer),
            PeerReceiver::Ours(spec) => write!(f, "{} → {spec}", self.peer),
        }
    }
}

impl PeerPair {
    /// The rows of a peer: against our socket if possible, and against its own receiver if it has one.
    pub fn of(peer: Peer) -> Vec<Self> {
        let ours = "udp".parse().ok().filter(|_| !peer.needs_own_receiver()).map(PeerReceiver::Ours);
        let own = (!peer.makes_frames()).then_some(PeerReceiver::Own);
        ours.into_iter().chain(own).map(|rx| Self { peer, rx }).collect()
    }
}

/// Runs one trial in a lab of its own; `tick` gets every reading and returns whether to go on.
///
/// # Errors
/// Why it could not start, and a peer that failed.
pub fn run_peer_trial(
    plan: &TrialPlan,
    pair: &PeerPair,
    number: u32,
    mut tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    // Peers' packet sockets fail when the interface refuses a frame, as a veth does if the other end is too slow; within the
    // sender's call it never refuses.
    let separate_softirq = plan.separate_softirq.clone().filter(|_| !pair.peer.makes_frames());
    let plan = &TrialPlan { separate_softirq, ..plan.clone() };
    let lab = Lab::create(&plan.lab_for(&pair.like_ours()))?;
    let ends = PeerEnds::prepare(&lab, plan, pair, number)?;
    let own = pair.rx == PeerReceiver::Own;
    let diagnosis = plan.profile.then(|| Diagnosis::beside(pair.peer.threads(), own)).transpose()?;
    let watch = WatchPlan { duration_ns: plan.duration_ns, interval_ns: None };
    run_trial(ends, watch, diagnosis, |now, _| tick(now))
}

/// A peer that sends, and its own receiver or one of our engines.
struct PeerEnds<'l> {
    lab: &'l Lab,
    plan: &'l TrialPlan,
    pair: &'l PeerPair,
    number: u32,
    from: LabEnd,
    to: LabEnd,
    /// The sender's command line.
    line: Vec<String>,
    receiving: Option<Receiving>,
    counters: Option<CounterWatch>,
    settling: Settling,
    load: Option<Load>,
    sender: Option<PeerProcess>,
    /// CPU time of children when the sender started, then the sender's own.
    children: CpuTime,
    sender_time: CpuTime,
    is_ended: bool,
}

impl<'l> PeerEnds<'l> {
    /// Starts the receiver.
    fn prepare(
        lab: &'l Lab,
        plan: &'l TrialPlan,
        pair: &'l PeerPair,
        number: u32,
    ) -> Result<Self, TrialError> {
        let mut ends = Self {
            lab,
            plan,
            pair,
            number,
            from: lab_end(lab.tx(), plan.ipv6, 0),
            to: lab_end(lab.rx(), plan.ipv6, LAB_PORT),
            line: Vec::new(),
            receiving: None,
            counters: None,
            settling: Settling::default(),
            load: None,
            sender: None,
            children: CpuTime::default(),
            sender_time: CpuTime::default(),
            is_ended: false,
        };
        ends.line = pair.peer.sending(&ends.task());
        ends.receiving = Some(Receiving::start(plan, pair, lab, &ends.task())?);
        Ok(ends)
    }

    fn task(&self) -> Task<'_> {
        Task {
            from: &self.from,
            to: &self.to,
            payload_bytes: self.plan.payload_bytes,
            duration: Duration::from_nanos(self.plan.duration_ns),
            cpus: (&self.plan.cpus.tx, &self.plan.cpus.rx),
        }
    }

    fn receiving(&self) -> &Receiving {
        self.receiving.as_ref().expect("it receives until close")
    }

    fn counters(&self) -> &CounterWatch {
        self.counters.as_ref().expect("read_counters comes first")
    }

    fn load(&mut self) -> &mut Load {
        self.load.as_mut().expect("begin comes first")
    }

    fn sender(&self) -> &PeerProcess {
        self.sender.as_ref().expect("it sends from begin to end_sending")
    }
}

impl Ends for PeerEnds<'_> {
    type Error = TrialError;
    type Seen = Settled;

    const LOOK: Duration = LOOK;
    const LONGEST_DRAIN: Duration = LONGEST_DRAIN;

    fn read_counters(&mut self) -> Result<(), TrialError> {
        let like = self.pair.like_ours();
        let scope = drop_scope((like.tx.facts(), like.rx.facts()));
        self.counters = Some(CounterWatch::start(Locations::of(self.lab)?, scope.as_ref())?);
        Ok(())
    }

    fn begin(&mut self) -> Result<u64, TrialError> {
        self.children = cpu::children_time();
        let side = self.lab.tx();
        let task = (self.task().bound(), &self.line[..]);
        let sender = PeerProcess::start(self.pair.peer, Role::Sends, side, &self.plan.cpus.tx, task);
        self.sender = Some(sender.map_err(namespace_error(side))?);
        self.load = Some(Load::new(self.lab)?);
        Ok(clock::monotonic_ns())
    }

    fn look(&mut self) -> Result<Look, TrialError> {
        let lab = self.lab;
        let look = self.load().look(lab)?;
        let seconds = self.load().seconds();
        let is_over = seconds >= self.plan.duration_ns as f64 / 1e9;
        if self.pair.peer.sends_without_end() && is_over && !self.is_ended {
            self.sender().end();
        }
        Ok(Look {
            sent: look.packets,
            delivered: Some(look.received),
            load_s: Some(seconds),
            ..Look::default()
        })
    }

    fn is_finished(&self) -> bool {
        self.sender().is_finished()
    }

    fn stop(&mut self) {
        self.is_ended = true;
        self.sender().end();
    }

    fn end_sending(&mut self) -> Result<(), TrialError> {
        let lab = self.lab;
        self.load().look(lab)?;
        self.sender.take().expect("it sends from begin on").outcome()?;
        self.sender_time = cpu::children_time().since(self.children);
        Ok(())
    }

    fn delivered(&mut self) -> Result<u64, TrialError> {
        Ok(self.receiving().delivered(&self.counters().growth()?))
    }

    fn in_flight(&mut self) -> Result<InFlight<Settled>, TrialError> {
        let growth = self.counters().growth()?;
        let (sent, arrived) = (self.pair.sent(&growth), self.receiving().delivered(&growth));
        let lines = self.receiving().lines(self.counters(), &growth, arrived);
        let ledger = Ledger::close(sent, arrived, lines);
        Ok(InFlight { is_complete: ledger.is_closed(), quiet: QUIET, seen: self.settling.look(&ledger) })
    }

    fn close(&mut self) -> Result<Outcome<TrialError>, TrialError> {
        let queues = self.counters().queues();
        let ended = self.receiving.take().expect("it receives until close").end()?;
        let growth = self.counters().growth()?;
        let sent = self.pair.sent(&growth);
        let delivered = ended.delivered(&growth);
        let CpuTime { user_ns, system_ns } = self.sender_time;
        let tx = TxOutcome {
            tally: TxSnapshot { packets: sent, ..TxSnapshot::default() },
            scheduled: sent,
            seconds: self.load().seconds(),
            cost: WorkerCost { user_ns, system_ns, hardware: None },
            lateness: Histogram::new(),
            largest_gap_ns: 0,
            error: None,
        };
        let receiving = self.pair.peer.receiving(&self.task());
        let rx = RxOutcome {
            delivered,
            cost: ended.cost(delivered),
            lines: ended.lines(self.counters(), &growth, delivered),
            on_wire: Some(growth.tx.link.tx_packets),
            queues,
            ..RxOutcome::of(self.pair.rx_endpoint(self.plan, receiving))
        };
        let settings = TrialSettings {
            trial: self.number,
            tx: endpoint(self.pair.peer, &self.plan.cpus.tx, &self.line),
            frame_size_bytes: self.plan.frame_size_bytes,
            payload_bytes: self.plan.payload_bytes,
            asked_pps: None,
        };
        Ok(Outcome { settings, tx, rx, error: None })
    }
}

fn namespace_error(side: &Side) -> impl FnOnce(std::io::Error) -> TrialError {
    let interface = side.interface().to_owned();
    move |source| TrialError::Namespace { interface, source }
}

impl PeerPair {
    /// A pair of our engines that needs the same lab.
    fn like_ours(&self) -> Pair {
        let tx = if self.peer.makes_frames() { "packet" } else { "udp" };
        let tx: TxSpec = tx.parse().expect("our own names are right");
        let rx = match &self.rx {
            PeerReceiver::Own => "udp".parse().expect("our own names are right"),
            PeerReceiver::Ours(spec) => spec.clone(),
        };
        Pair { tx, rx }
    }

    /// The packets that the kernel took from the peer, by its own counters: datagrams, or frames of a peer that makes whole ones.
    fn sent(&self, counters: &Growth) -> u64 {
        if self.peer.makes_frames() {
            counters.tx.link.tx_packets + counters.tx.link.tx_dropped
        } else {
            // A drop in the interface within the call does not count as an outgoing datagram, but the peer's call succeeded.
            let refused =
                counters.tx.both("UdpSndbufErrors", "Udp6SndbufErrors").min(counters.tx.link.tx_dropped);
            counters.tx.both("UdpOutDatagrams", "Udp6OutDatagrams") + refused
        }
    }

    fn rx_endpoint(&self, plan: &TrialPlan, line: Option<Vec<String>>) -> Endpoint {
        match &self.rx {
            PeerReceiver::Own => endpoint(self.peer, &plan.cpus.rx, &line.unwrap_or_default()),
            PeerReceiver::Ours(_) => plan.rx_endpoint(&self.like_ours()),
        }
    }
}

fn endpoint(peer: Peer, cpus: &[u32], line: &[String]) -> Endpoint {
    Endpoint {
        engine: peer.name().into(),
        label: peer.name().into(),
        threads: 1,
        cpus: cpus.to_vec(),
        options: [("command".into(), json!(line.join(" ")))].into(),
    }
}

/// The receiving side while it runs.
enum Receiving {
    Ours { receiver: Receiver, facts: RxFacts },
    Own(PeerProcess),
}

/// The receiving side once it has ended.
enum Ended {
    Ours { result: ReceiverResult, facts: RxFacts },
    Own(CpuTime),
}

impl Receiving {
    fn start(plan: &TrialPlan, pair: &PeerPair, lab: &Lab, task: &Task<'_>) -> Result<Self, TrialError> {
        let side = lab.rx();
        let Some(line) = pair.peer.receiving(task).filter(|_| pair.rx == PeerReceiver::Own) else {
            let receiver = plan.receiver(&pair.like_ours(), side.interface());
            let facts = receiver.engine.facts();
            let receiver = receiver.start(&Location::of(side)?.placement(&plan.cpus.rx))?;
            return Ok(Self::Ours { receiver, facts });
        };
        let bound = task.bound() + LISTENS_WITHIN;
        let process = PeerProcess::start(pair.peer, Role::Receives, side, &plan.cpus.rx, (bound, &line))
            .map_err(namespace_error(side))?;
        let deadline = Instant::now() + LISTENS_WITHIN;
        while !listens(side)? {
            if process.is_finished() || Instant::now() > deadline {
                process.outcome()?;
                let peer = pair.peer.name();
                return Err(PeerError::NotListening { peer, after: LISTENS_WITHIN }.into());
            }
            thread::sleep(LOOK);
        }
        Ok(Self::Own(process))
    }

    fn delivered(&self, growth: &Growth) -> u64 {
        match self {
            Self::Ours { receiver, .. } => all_packets(receiver.snapshot()),
            Self::Own(_) => read_datagrams(growth),
        }
    }

    fn lines(&self, counters: &CounterWatch, growth: &Growth, delivered: u64) -> Vec<LedgerLine> {
        match self {
            Self::Ours { receiver, facts } => {
                let tally = RxSnapshot { packets: delivered, ..receiver.snapshot() };
                counters.lines(growth, 0, None, &received(*facts, tally, None))
            }
            Self::Own(_) => counters.lines(growth, 0, None, &unseen(false)),
        }
    }

    fn end(self) -> Result<Ended, PeerError> {
        match self {
            Self::Ours { receiver, facts } => Ok(Ended::Ours { result: receiver.stop(), facts }),
            Self::Own(process) => {
                let before = cpu::children_time();
                process.end();
                process.outcome()?;
                Ok(Ended::Own(cpu::children_time().since(before)))
            }
        }
    }
}

impl Ended {
    fn delivered(&self, growth: &Growth) -> u64 {
        match self {
            Self::Ours { result, .. } => all_packets(result.tally()),
            Self::Own(_) => read_datagrams(growth),
        }
    }

    fn lines(&self, counters: &CounterWatch, growth: &Growth, delivered: u64) -> Vec<LedgerLine> {
        match self {
            Self::Ours { result, facts } => {
                let tally = RxSnapshot { packets: delivered, ..result.tally() };
                counters.lines(growth, 0, None, &received(*facts, tally, Some(result)))
            }
            Self::Own(_) => counters.lines(growth, 0, None, &unseen(true)),
        }
    }

    fn cost(&self, delivered: u64) -> Cost {
        match self {
            Self::Ours { result, .. } => receive_cost(result),
            Self::Own(time) => cost(*time, delivered),
        }
    }
}

/// Our packets and others: a peer's have no probe header, except pktgen's.
fn all_packets(tally: RxSnapshot) -> u64 {
    tally.packets + tally.foreign
}

/// A peer's own receiver; until it `is_closed`, it may still read what its socket holds.
fn unseen(is_closed: bool) -> Received {
    Received { is_unseen: true, is_closed, ..Received::default() }
}

/// Datagrams that sockets handed to their readers.
fn read_datagrams(counters: &Growth) -> u64 {
    counters.rx.both("UdpInDatagrams", "Udp6InDatagrams")
}

fn cost(time: CpuTime, packets: u64) -> Cost {
    Cost {
        user_s: time.user_ns as f64 / 1e9,
        system_s: time.system_ns as f64 / 1e9,
        ns_per_packet: (packets > 0).then(|| time.total_ns() as f64 / packets as f64),
        ..Cost::default()
    }
}

/// Whether a process in the namespace accepts TCP connections, or holds a UDP socket on the lab's port.
fn listens(side: &Side) -> Result<bool, TrialError> {
    const LISTEN: &str = "0A";
    let tables = side.run(|| {
        ["tcp", "tcp6", "udp", "udp6"]
            .map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default())
    })?;
    // sl local_address rem_address st ...; the address ends with the port in hexadecimal.
    let bound = |table: &str, port: u16, state: Option<&str>| {
        table.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let local = words.get(1).and_then(|address| address.rsplit(':').next());
            local == Some(format!("{port:04X}").as_str())
                && state.is_none_or(|state| words.get(3) == Some(&state))
        })
    };
    let [tcp, tcp6, udp, udp6] = &tables;
    Ok([tcp, tcp6].iter().any(|table| bound(table, CONTROL_PORT, Some(LISTEN)))
        || [udp, udp6].iter().any(|table| bound(table, LAB_PORT, None)))
}

/// The sending interface's counters at each reading: a peer does not report when it began.
struct Load {
    before: Packets,
    first: Option<Packets>,
    last: Option<Packets>,
}

#[derive(Clone, Copy)]
struct Packets {
    at_ns: u64,
    packets: u64,
    received: u64,
}

impl Load {
    fn new(lab: &Lab) -> Result<Self, TrialError> {
        Ok(Self { before: Packets::read(lab)?, first: None, last: None })
    }

    fn look(&mut self, lab: &Lab) -> Result<Packets, TrialError> {
        let now = Packets::read(lab)?;
        let before = std::mem::replace(&mut self.before, now);
        if now.packets - before.packets >= FEWEST_PACKETS {
            self.first.get_or_insert(before);
            self.last = Some(now);
        }
        Ok(now)
    }

    /// From the first to the last reading with load.
    fn seconds(&self) -> f64 {
        let span = self.first.zip(self.last).map_or(0, |(first, last)| last.at_ns - first.at_ns);
        span as f64 / 1e9
    }
}

impl Packets {
    fn read(lab: &Lab) -> Result<Self, TrialError> {
        let (tx, rx) = (lab.tx().link()?.stats, lab.rx().link()?.stats);
        Ok(Self {
            at_ns: clock::monotonic_ns(),
            packets: tx.tx_packets + tx.tx_dropped,
            received: rx.rx_packets,
        })
    }
}
