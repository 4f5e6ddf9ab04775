//! Our engines at both ends of a trial, and the lab that it runs in.

use std::time::Duration;

use lab::{Lab, Side};
use ledger::{DropScope, JoinedDatagrams, Received};
use measure::{Endpoint, Ledger, LedgerLine, Stream};
use session::InFlight;
use sys::{
    counting::{Mark, mark},
    udp::UdpSink,
};
use traffic::{
    Joined, Loss, Receiver, ReceiverPlan, ReceiverResult, RxFacts, RxLayer, RxSnapshot, Sender, SenderPlan,
    TxFacts,
};
use wire::MacAddr;

use crate::{
    counters::{CounterWatch, Growth},
    cpus::CpuPlan,
    ends::{Ends, Outcome},
    error::TrialError,
    location::Locations,
    plan::{LabEnd, Pair, TrialPlan},
    profile::Diagnosis,
    record::{RxOutcome, TrialSettings, TxOutcome, receive_cost},
    run::{TrialRun, run_trial},
    segmentation,
    settling::{Settled, Settling},
    timing::{ClockClaim, ClockSources, timed_reception},
    watch::{Look, Tick, WatchPlan},
};

/// The drain ends when nothing has moved for this long: a busy machine may leave a softirq thread
/// without a CPU for a second. It also ends when the ledger closes.
pub(crate) const QUIET: Duration = Duration::from_secs(2);
/// The drain takes at most this long.
pub(crate) const LONGEST_DRAIN: Duration = Duration::from_secs(15);

/// Runs one trial in a lab of its own, after the plan's warm-up in the same lab; `tick` gets every reading and returns
/// whether to go on.
///
/// # Errors
/// Why it could not start; a path that breaks later ends the trial early, with the measurements until then.
pub fn run_lab_trial(
    plan: &TrialPlan,
    pair: &Pair,
    number: u32,
    tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    run_trial_in(&Lab::create(&plan.lab_for(pair))?, plan, pair, number, tick)
}

/// Runs one trial in an existing lab.
///
/// # Errors
/// As of [`run_lab_trial`].
pub fn run_trial_in(
    lab: &Lab,
    plan: &TrialPlan,
    pair: &Pair,
    number: u32,
    mut tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    let plan = &plan.with_queues_of(lab.rx())?;
    segmentation::probe(lab, plan, pair)?;
    if plan.omit_ns > 0 {
        let warm_up = TrialPlan { duration_ns: plan.omit_ns, count: None, ..plan.clone() };
        run_in(lab, &warm_up, pair, number, |now| tick(Tick { done_ratio: 0.0, ..now }))?;
        mark(Mark::Forget);
    }
    run_in(lab, plan, pair, number, tick)
}

/// One trial in a lab, which is quiet again afterwards.
fn run_in(
    lab: &Lab,
    plan: &TrialPlan,
    pair: &Pair,
    number: u32,
    mut tick: impl FnMut(Tick) -> bool,
) -> Result<TrialRun, TrialError> {
    let setup = EngineSetup {
        settings: plan.settings(pair, number),
        rx: plan.rx_endpoint(pair),
        receiver: plan.receiver(pair, lab.rx().interface()),
        cpus: plan.cpus_for(pair),
        at: Locations::of(lab)?,
    };
    let ends = EngineEnds::prepare(setup, |port| {
        plan.sender(pair, &lab_end(lab.tx(), plan.ipv6, 0), &lab_end(lab.rx(), plan.ipv6, port))
    })?;
    // Some cards restart when a program or a socket is attached to them.
    lab.wait_until_ready()?;
    let diagnosis = plan.profile.then(Diagnosis::start).transpose()?;
    let watch = WatchPlan { duration_ns: plan.duration_ns, interval_ns: Some(plan.interval_ns) };
    run_trial(ends, watch, diagnosis, |now, _| tick(now))
}

/// A side of a lab for plans of senders; `port` is the receiver's.
pub(crate) fn lab_end(side: &Side, ipv6: bool, port: u16) -> LabEnd {
    LabEnd {
        interface: side.interface().into(),
        mac: MacAddr(side.mac()),
        addresses: if ipv6 {
            side.ipv6().iter().map(|address| (*address, port).into()).collect()
        } else {
            side.ipv4().iter().map(|address| (*address, port).into()).collect()
        },
    }
}

/// The parts that do not depend on the receiver's port.
#[derive(Debug, Clone)]
pub struct EngineSetup {
    /// The settings for the record.
    pub settings: TrialSettings,
    /// The receiving side in the record.
    pub rx: Endpoint,
    /// The receiver.
    pub receiver: ReceiverPlan,
    /// CPUs of both sides' workers.
    pub cpus: CpuPlan,
    /// The location of both ends.
    pub at: Locations,
}

/// Our engines at both ends, on this machine.
pub struct EngineEnds {
    settings: TrialSettings,
    endpoint: Endpoint,
    at: Locations,
    facts: (TxFacts, RxFacts),
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    counters: Option<CounterWatch>,
    sent: Option<TxOutcome>,
    settling: Settling,
    _sink: Option<UdpSink>,
}

impl EngineEnds {
    /// Starts the receiver, then prepares the sender, whose plan may depend on the receiver's port.
    ///
    /// # Errors
    /// The first port or worker that could not be made; then all others are closed.
    pub fn prepare(setup: EngineSetup, sender: impl FnOnce(u16) -> SenderPlan) -> Result<Self, TrialError> {
        let EngineSetup { settings, rx: endpoint, receiver: plan, cpus, at } = setup;
        let receiver = plan.start(&at.rx.placement(&cpus.rx))?;
        let reads = plan.engine.facts();
        // A packet socket gets copies: the kernel still gets the packets, and would answer with ICMP errors.
        let sink = (reads.reads == RxLayer::Copies)
            .then(|| at.rx.run(|| UdpSink::open(plan.traffic.local)))
            .transpose()?
            .transpose()
            .map_err(TrialError::Sink)?;
        let sender = sender(receiver.local_address().port());
        let facts = (sender.engine.facts(), reads);
        let sender = sender.prepare(&at.tx.placement(&cpus.tx))?;
        Ok(Self {
            settings,
            endpoint,
            at,
            facts,
            sender: Some(sender),
            receiver: Some(receiver),
            counters: None,
            sent: None,
            settling: Settling::default(),
            _sink: sink,
        })
    }

    fn sender(&self) -> &Sender {
        self.sender.as_ref().expect("it sends until end_sending")
    }

    fn receiver(&self) -> &Receiver {
        self.receiver.as_ref().expect("it receives until close")
    }

    fn counters(&self) -> &CounterWatch {
        self.counters.as_ref().expect("read_counters comes first")
    }

    /// TCP retransmits lost segments: streams lose no messages at any place.
    fn lines(&self, growth: &Growth, received: &Received) -> Vec<LedgerLine> {
        if self.is_stream() {
            return Vec::new();
        }
        let sent = self.sent.as_ref().map(|sent| sent.tally.packets);
        self.counters().lines(growth, self.refused(), sent, received)
    }

    fn is_stream(&self) -> bool {
        self.facts.0.message_bytes.is_some()
    }

    /// Frames that the sending interface first refused, counted as drops, and took later, if the sender knows.
    fn refused(&self) -> u64 {
        let turned_away = self.sent.as_ref().map_or(0, |sent| sent.tally.turned_away);
        if self.facts.0.retries_interface_drops { turned_away } else { 0 }
    }

    /// The traffic of streams, by the applications' and the interfaces' counts.
    fn moved(&self, sent: &TxOutcome, received: RxSnapshot, growth: &Growth) -> Option<Stream> {
        let message_bytes = self.facts.0.message_bytes?;
        let bits = received.payload_bytes as f64 * 8.0;
        Some(Stream {
            message_bytes,
            sent_bytes: sent.tally.packets * u64::from(message_bytes),
            delivered_bytes: received.payload_bytes,
            delivered_bps: if sent.seconds > 0.0 { bits / sent.seconds } else { 0.0 },
            tx_packets: growth.tx.link.tx_packets,
            rx_packets: growth.rx.link.rx_packets,
            acknowledging_packets: growth.rx.link.tx_packets,
            retransmitted_segments: growth.tx.protocols.value("TcpRetransSegs").unwrap_or(0),
        })
    }
}

impl Ends for EngineEnds {
    type Error = TrialError;
    type Seen = Settled;

    const LOOK: Duration = Duration::from_millis(50);
    const LONGEST_DRAIN: Duration = LONGEST_DRAIN;

    fn read_counters(&mut self) -> Result<(), TrialError> {
        let scope = drop_scope(self.facts);
        self.counters = Some(CounterWatch::start(self.at.clone(), scope.as_ref())?);
        Ok(())
    }

    fn begin(&mut self) -> Result<u64, TrialError> {
        Ok(self.sender().begin())
    }

    fn look(&mut self) -> Result<Look, TrialError> {
        let received = self.receiver().snapshot();
        Ok(Look {
            sent: self.sender().snapshot().packets,
            delivered: Some(received.packets),
            payload_bytes: received.payload_bytes,
            rx_dropped: Some(received.lost),
            load_s: None,
        })
    }

    fn is_finished(&self) -> bool {
        self.sender().is_finished()
    }

    fn has_lost_receiver(&self) -> bool {
        self.receiver().is_finished()
    }

    fn stop(&mut self) {
        self.sender().stop();
    }

    fn end_sending(&mut self) -> Result<(), TrialError> {
        self.sent = self.sender.take().map(|sender| TxOutcome::of(sender.join()));
        Ok(())
    }

    fn delivered(&mut self) -> Result<u64, TrialError> {
        Ok(self.receiver().snapshot().packets)
    }

    fn in_flight(&mut self) -> Result<InFlight<Self::Seen>, TrialError> {
        let growth = self.counters().growth()?;
        let tally = self.receiver().snapshot();
        let lines = self.lines(&growth, &received(self.facts.1, tally, None));
        let sent = self.sent.as_ref().map_or(0, |sent| sent.tally.packets);
        let ledger = Ledger::close(sent, tally.packets, lines);
        Ok(InFlight { is_complete: ledger.is_closed(), quiet: QUIET, seen: self.settling.look(&ledger) })
    }

    fn close(&mut self) -> Result<Outcome<TrialError>, TrialError> {
        let queues = self.counters().queues();
        let result = self.receiver.take().expect("it receives until close").stop();
        let growth = self.counters().growth()?;
        let tally = result.tally();
        let lines = self.lines(&growth, &received(self.facts.1, tally, Some(&result)));
        let mut tx = self.sent.take().expect("end_sending comes first");
        let rx = RxOutcome {
            delivered: tally.packets,
            cost: receive_cost(&result),
            lines,
            // A message is not a packet.
            on_wire: (!self.is_stream() && self.at.tx.counted().is_some())
                .then_some(growth.tx.link.tx_packets),
            stream: self.moved(&tx, tally, &growth),
            // Both ends are on this machine, and so are their clocks.
            statistics: Some(result.readings())
                .filter(|readings| !readings.is_empty())
                .map(|readings| timed_reception(&readings, ClockClaim::SameHost, ClockSources::default())),
            queues,
            ring: result.ring(),
            ..RxOutcome::of(self.endpoint.clone())
        };
        let error = tx.error.take().or_else(|| result.workers.into_iter().find_map(|worker| worker.error));
        let error = error.map(TrialError::from);
        Ok(Outcome { settings: self.settings.clone(), tx, rx, error })
    }
}

/// The receiving engine's own counts; by place once it has stopped.
pub(crate) fn received(facts: RxFacts, tally: RxSnapshot, stopped: Option<&ReceiverResult>) -> Received {
    Received {
        is_unseen: false,
        is_closed: stopped.is_some(),
        delivered: tally.packets,
        lost: tally.lost,
        gro: facts.joins_datagrams,
        is_xsk: facts.reads == RxLayer::XdpSocket,
        is_udp: facts.reads == RxLayer::Socket,
        is_xdp: facts.reads == RxLayer::XdpProgram,
        joined: joined(&tally),
        losses: stopped.map(ReceiverResult::losses).unwrap_or_default().iter().map(line_of).collect(),
    }
}

/// The number of datagrams in the received buffers.
pub(crate) fn joined(tally: &RxSnapshot) -> Option<JoinedDatagrams> {
    let Joined { buffers, most, .. } = tally.joined;
    (buffers > 0).then_some(JoinedDatagrams { most })
}

fn line_of(loss: &Loss) -> LedgerLine {
    LedgerLine::new(loss.place, loss.packets, loss.source).with_remedy(loss.remedy)
}

/// The kernel's drops that belong to a trial between these engines; `None` if drop reasons do not help.
pub(crate) fn drop_scope((tx, rx): (TxFacts, RxFacts)) -> Option<DropScope> {
    if tx.frees_look_like_drops {
        return None;
    }
    if rx.reads == RxLayer::Stream {
        return None;
    }
    let ignored = ignored_reason(rx.reads);
    Some(DropScope { only_udp: true, ignored, ..DropScope::default() })
}

/// The drop reason of packets that such a receiver counted.
pub(crate) fn ignored_reason(reads: RxLayer) -> Option<&'static str> {
    match reads {
        // The program drops the packets that it counted, and the socket next to packet sockets drops those they copied.
        RxLayer::XdpProgram => Some("XDP"),
        RxLayer::Copies => Some("SOCKET_FILTER"),
        RxLayer::Socket | RxLayer::XdpSocket | RxLayer::Stream | RxLayer::Card => None,
    }
}
