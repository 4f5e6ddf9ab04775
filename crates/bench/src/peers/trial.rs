//! One trial with a peer's sender: our counters decide what it sent and what arrived.

use std::{
    collections::BTreeMap,
    fmt, fs, thread,
    time::{Duration, Instant},
};

use engine::{Receiver, ReceiverResult, RxSnapshot};
use lab::{Lab, Side};
use ledger::{Drivers, Received};
use measure::{Cost, Endpoint, Histogram, Ledger, LedgerLine, Receipt, Trial};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sys::{clock, cpu, cpu::CpuTime};

use super::{
    Peer, PeerError,
    command::{CONTROL_PORT, Task},
    process::{PeerProcess, Role},
};
use crate::{
    cpu_time::CpuWatch,
    plan::{BenchPlan, LAB_PORT, Pair},
    profile::Diagnosis,
    queues::QueueReading,
    record::receive_cost,
    spec::{RxSpec, TxSpec},
    trial::{LabCounters, Tick, TrialError, TrialRun, drain, end, of_receiver, placement, watch_drops},
};

/// How often the interface is looked at: a peer's time is known to within two looks.
const LOOK: Duration = Duration::from_millis(5);
/// A look that saw fewer packets than this saw a control connection, not the load.
const FEWEST_PACKETS: u64 = 32;
/// A peer's own receiver listens within this time, on a busy machine too.
const LISTENS_WITHIN: Duration = Duration::from_secs(15);

/// A row of the table: a peer against a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPair {
    /// The sender.
    pub peer: Peer,
    /// The receiver.
    pub rx: PeerReceiver,
}

/// Who receives what a peer sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The rows of a peer: against our socket where it can, and against its own receiver where it has one.
    pub fn of(peer: Peer) -> Vec<Self> {
        let ours = "udp".parse().ok().filter(|_| !peer.needs_own_receiver()).map(PeerReceiver::Ours);
        let own = (!peer.makes_frames()).then_some(PeerReceiver::Own);
        ours.into_iter().chain(own).map(|rx| Self { peer, rx }).collect()
    }
}

/// Runs one trial; `tick` sees it run and says whether to go on.
///
/// # Errors
/// What kept it from starting, and a peer that failed.
pub fn run_peer_trial(
    plan: &BenchPlan,
    pair: &PeerPair,
    number: u32,
    mut tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    let like = pair.like_ours();
    let lab = Lab::create(&plan.lab_for(&like))?;
    let (from, to) = (end(lab.tx(), plan.ipv6, 0), end(lab.rx(), plan.ipv6, LAB_PORT));
    let task = Task {
        from: &from,
        to: &to,
        payload_bytes: plan.payload_bytes,
        duration: Duration::from_nanos(plan.duration_ns),
        cpus: (&plan.cpus.tx, &plan.cpus.rx),
    };
    let receiving = Receiving::start(plan, pair, &like, &lab, &task)?;
    let own = pair.rx == PeerReceiver::Own;
    let mut diagnosis = plan.profile.then(|| Diagnosis::beside(pair.peer.threads(), own)).transpose()?;
    let drops = watch_drops(&lab, &like);
    let read = || LabCounters::read(&lab)?.with_drops(drops.as_ref());
    let before = read()?;
    let queues = QueueReading::of(&lab);
    let drivers = Drivers::built_in();
    let cpus = CpuWatch::start(diagnosis.as_ref().and_then(Diagnosis::napi))?;
    let children = cpu::children_time();
    let line = pair.peer.sending(&task);
    let sender = PeerProcess::start(pair.peer, Role::Sends, lab.tx(), &plan.cpus.tx, (task.bound(), &line))
        .map_err(TrialError::Namespace)?;
    let mut watch = Watch::new(&lab, task.duration)?;
    let mut interrupted = false;
    while !sender.is_finished() {
        thread::sleep(LOOK);
        diagnosis.iter_mut().for_each(Diagnosis::tick);
        if !tick(watch.look(&lab)?) && !interrupted {
            interrupted = true;
            sender.end();
        } else if pair.peer.sends_without_end() && watch.seconds() >= task.duration.as_secs_f64() {
            sender.end();
        }
    }
    watch.look(&lab)?;
    sender.outcome()?;
    let sender_time = cpu::children_time().since(children);
    let cpus = cpus.shares()?;
    let arrived = receiving.delivered(&read()?.since(&before, &drivers));
    let profile = diagnosis.map(|mut diagnosis| diagnosis.take(arrived));
    drain(|| {
        let counters = read()?.since(&before, &drivers);
        let (sent, arrived) = (pair.sent(&counters), receiving.delivered(&counters));
        let lines = receiving.lines(&counters, arrived, &drivers);
        Ok((Ledger::close(sent, arrived, lines).is_closed(), counters))
    })?;
    let queues = QueueReading::of(&lab).since(&queues);
    let ended = receiving.end()?;
    let counters = read()?.since(&before, &drivers);
    let sent = pair.sent(&counters);
    let delivered = ended.delivered(&counters);
    let ledger = Ledger::close(sent, delivered, ended.lines(&counters, delivered, &drivers));
    let seconds = watch.seconds();
    let per_second = |packets: u64| if seconds > 0.0 { packets as f64 / seconds } else { 0.0 };
    let mut receipt = Receipt::judge(None, sent, sent, seconds, &Histogram::new());
    receipt.on_wire = Some(counters.tx.link.tx_packets);
    receipt.delivered = delivered;
    let trial = Trial {
        trial: number,
        tx: pair.tx_endpoint(plan, &line),
        rx: pair.rx_endpoint(plan, &like, pair.peer.receiving(&task)),
        frame_size_bytes: plan.frame_size_bytes,
        payload_bytes: plan.payload_bytes,
        asked_pps: None,
        parameters: BTreeMap::new(),
        duration_s: seconds,
        sent,
        sent_pps: per_second(sent),
        delivered,
        delivered_pps: per_second(delivered),
        loss_ratio: ledger.loss_ratio(),
        tx_cost: cost(sender_time, sent),
        rx_cost: ended.cost(delivered),
        cpus,
        ledger,
        receipt,
        // Other generators' packets carry no probe header.
        statistics: None,
        round_trips: None,
        stream: None,
        interrupted,
        queues,
        profile,
    };
    Ok(TrialRun { trial, intervals: Vec::new(), error: None })
}

impl PeerPair {
    /// The pair of our engines that needs the same lab.
    fn like_ours(&self) -> Pair {
        let tx = if self.peer.makes_frames() { "packet" } else { "udp" };
        let tx: TxSpec = tx.parse().expect("our own names are right");
        let rx = match &self.rx {
            PeerReceiver::Own => "udp".parse().expect("our own names are right"),
            PeerReceiver::Ours(spec) => spec.clone(),
        };
        Pair { tx, rx }
    }

    /// What the kernel took from the peer, by its own counters: datagrams, or frames of whoever makes whole ones.
    fn sent(&self, counters: &LabCounters) -> u64 {
        if self.peer.makes_frames() {
            counters.tx.link.tx_packets + counters.tx.link.tx_dropped
        } else {
            counters.tx.both("UdpOutDatagrams", "Udp6OutDatagrams")
        }
    }

    fn tx_endpoint(&self, plan: &BenchPlan, line: &[String]) -> Endpoint {
        endpoint(self.peer, &plan.cpus.tx, line)
    }

    fn rx_endpoint(&self, plan: &BenchPlan, like: &Pair, line: Option<Vec<String>>) -> Endpoint {
        match &self.rx {
            PeerReceiver::Own => endpoint(self.peer, &plan.cpus.rx, &line.unwrap_or_default()),
            PeerReceiver::Ours(_) => plan.rx_endpoint(like),
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
    Ours { receiver: Receiver, pair: Pair },
    Own(PeerProcess),
}

/// The receiving side once it has ended.
enum Ended {
    Ours { result: ReceiverResult, pair: Pair },
    Own(CpuTime),
}

impl Receiving {
    fn start(
        plan: &BenchPlan,
        pair: &PeerPair,
        like: &Pair,
        lab: &Lab,
        task: &Task<'_>,
    ) -> Result<Self, TrialError> {
        let Some(line) = pair.peer.receiving(task).filter(|_| pair.rx == PeerReceiver::Own) else {
            let receiver = plan.receiver(like, lab.rx().interface());
            let receiver = Receiver::start(&receiver, &placement(lab.rx(), &plan.cpus.rx)?)?;
            return Ok(Self::Ours { receiver, pair: like.clone() });
        };
        let bound = task.bound() + LISTENS_WITHIN;
        let process = PeerProcess::start(pair.peer, Role::Receives, lab.rx(), &plan.cpus.rx, (bound, &line))
            .map_err(TrialError::Namespace)?;
        let deadline = Instant::now() + LISTENS_WITHIN;
        while !listens(lab.rx())? {
            if process.is_finished() || Instant::now() > deadline {
                process.outcome()?;
                return Err(PeerError::NotListening { peer: pair.peer, after: LISTENS_WITHIN }.into());
            }
            thread::sleep(LOOK);
        }
        Ok(Self::Own(process))
    }

    fn delivered(&self, counters: &LabCounters) -> u64 {
        match self {
            Self::Ours { receiver, .. } => all_packets(receiver.snapshot()),
            Self::Own(_) => read_datagrams(counters),
        }
    }

    fn lines(&self, counters: &LabCounters, delivered: u64, drivers: &Drivers) -> Vec<LedgerLine> {
        match self {
            Self::Ours { receiver, pair } => {
                let tally = RxSnapshot { packets: delivered, ..receiver.snapshot() };
                counters.lines(0, &of_receiver(pair, tally, None), drivers)
            }
            Self::Own(_) => counters.lines(0, &unseen(false), drivers),
        }
    }

    fn end(self) -> Result<Ended, PeerError> {
        match self {
            Self::Ours { receiver, pair } => Ok(Ended::Ours { result: receiver.stop(), pair }),
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
    fn delivered(&self, counters: &LabCounters) -> u64 {
        match self {
            Self::Ours { result, .. } => all_packets(result.tally()),
            Self::Own(_) => read_datagrams(counters),
        }
    }

    fn lines(&self, counters: &LabCounters, delivered: u64, drivers: &Drivers) -> Vec<LedgerLine> {
        match self {
            Self::Ours { result, pair } => {
                let tally = RxSnapshot { packets: delivered, ..result.tally() };
                counters.lines(0, &of_receiver(pair, tally, Some(result)), drivers)
            }
            Self::Own(_) => counters.lines(0, &unseen(true), drivers),
        }
    }

    fn cost(&self, delivered: u64) -> Cost {
        match self {
            Self::Ours { result, .. } => receive_cost(result),
            Self::Own(time) => cost(*time, delivered),
        }
    }
}

/// Packets of ours and of others: a peer's have no probe header, unless it is pktgen's.
fn all_packets(tally: RxSnapshot) -> u64 {
    tally.packets + tally.foreign
}

/// A peer's own receiver; until it `is_closed`, what its socket holds may yet be read.
fn unseen(is_closed: bool) -> Received {
    Received { is_unseen: true, is_closed, ..Received::default() }
}

/// Datagrams that sockets handed to their readers.
fn read_datagrams(counters: &LabCounters) -> u64 {
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

/// Whether somebody in the namespace accepts TCP connections, or holds a UDP socket on the lab's port.
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

/// What the sending interface counts, look by look: a peer tells nobody when it began.
struct Watch {
    expected: Duration,
    before: Look,
    first: Option<Look>,
    last: Option<Look>,
}

#[derive(Clone, Copy)]
struct Look {
    at_ns: u64,
    packets: u64,
    received: u64,
}

impl Watch {
    fn new(lab: &Lab, expected: Duration) -> Result<Self, TrialError> {
        Ok(Self { expected, before: Look::at(lab)?, first: None, last: None })
    }

    fn look(&mut self, lab: &Lab) -> Result<Tick, TrialError> {
        let now = Look::at(lab)?;
        let before = std::mem::replace(&mut self.before, now);
        if now.packets - before.packets >= FEWEST_PACKETS {
            self.first.get_or_insert(before);
            self.last = Some(now);
        }
        let per_second =
            |packets: u64| packets as f64 * 1e9 / now.at_ns.saturating_sub(before.at_ns).max(1) as f64;
        Ok(Tick {
            done_ratio: (self.seconds() / self.expected.as_secs_f64()).min(1.0),
            sent_pps: per_second(now.packets - before.packets),
            delivered_pps: per_second(now.received - before.received),
        })
    }

    /// From the first to the last look that saw a load.
    fn seconds(&self) -> f64 {
        let span = self.first.zip(self.last).map_or(0, |(first, last)| last.at_ns - first.at_ns);
        span as f64 / 1e9
    }
}

impl Look {
    fn at(lab: &Lab) -> Result<Self, TrialError> {
        let (tx, rx) = (lab.tx().link()?.stats, lab.rx().link()?.stats);
        Ok(Self {
            at_ns: clock::monotonic_ns(),
            packets: tx.tx_packets + tx.tx_dropped,
            received: rx.rx_packets,
        })
    }
}
