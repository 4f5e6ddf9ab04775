//! A trial towards receivers on other hosts: consent first, then traffic, then one summary on both ends.

use std::{
    cell::Cell,
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bpf::Streams;
use measure::{
    Endpoint, Histogram, HostSide, Interval, Ledger, LedgerLine, LossPlace, Receipt, RoundTrips, Trial,
};
use serde::{Deserialize, Serialize};
use session::{
    Guest, HostClock, InFlight, Key, Offer, PROTOCOL, Progress, Report, SessionError, Wanted, in_flight,
};
use sys::{clock, procfs};
use thiserror::Error;
use traffic::{
    EngineError, Placement, Receiver, RxSnapshot, Sender, SenderPlan, SenderResult, TxSnapshot, TxTraffic,
};
use wire::PROBE_LEN;

use crate::{
    across::{SenderSide, across},
    ends::{Ends, Outcome},
    frame_path::{FramePathError, GivenMacs, give_way, give_way_of_card},
    machine_clock::MachineClock,
    record::{RxOutcome, TrialSettings, TxOutcome},
    run::{TrialRun, run_trial},
    stream_watch::{StreamScope, StreamWatch, interface_towards},
    timing::{ClockClaim, ClockSources, timed_reception},
    watch::{Look, Tick, WatchPlan},
};

/// Time between two progress reports to a receiver.
const BEAT: Duration = Duration::from_millis(500);

/// A trial towards other hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPlan {
    /// The sender. With consent, targets are the receivers' control addresses, and stream tags and data ports
    /// come from them.
    pub sender: SenderPlan,
    /// Request the receivers' consent first.
    pub handshake: bool,
    /// CPUs of the workers.
    pub cpus: Vec<u32>,
    /// The sending side in the record.
    pub endpoint: Endpoint,
    /// Mean frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Mean UDP payload.
    pub payload_bytes: u32,
    /// The smallest UDP payload: whether it has room for a stream tag decides how the receiver distinguishes senders.
    pub smallest_payload_bytes: u32,
    /// Nanoseconds between recorded intervals.
    pub interval_ns: u64,
    /// Request a profile of receiving from the receivers.
    #[serde(default)]
    pub profile: bool,
    /// Hardware addresses for engines that make whole frames; the kernel resolves those that are not given.
    #[serde(default)]
    pub macs: GivenMacs,
    /// The requested receiving engine; `None` is the receiver's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Wanted>,
    /// Count these packets alone at both hosts' drivers.
    #[serde(default)]
    pub witness: bool,
    /// The secret that receivers must have; it is in no record.
    #[serde(skip)]
    pub key: Option<Key>,
}

/// Why a trial towards other hosts could not run.
#[derive(Debug, Error)]
pub enum HostTrialError {
    /// A receiver.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Packets would leave from another address than the one to which they return.
    #[error("{receiver} returns packets to {known}, but they would leave from {bound}")]
    OtherWayBack {
        /// The receiver.
        receiver: SocketAddr,
        /// The source address of the handshake.
        known: IpAddr,
        /// The source address of the packets.
        bound: IpAddr,
    },
    /// The path of whole frames to a receiver.
    #[error(transparent)]
    Path(#[from] FramePathError),
    /// The machine's counters.
    #[error(transparent)]
    Counters(#[from] procfs::ProcError),
}

/// A finished trial, and the cause of an early end: a path that broke, or a receiver that disappeared.
pub type HostTrial = TrialRun<HostTrialError>;

/// Runs one trial; `number` counts from 1, `each` gets every reading and the interval that it ends, and `go_on` returns
/// whether to go on.
///
/// # Errors
/// Why it could not start. A later failure ends the trial early, with the measurements until then.
pub fn run_host_trial(
    plan: &HostPlan,
    number: u32,
    go_on: impl Fn() -> bool,
    each: impl FnMut(Tick, Option<&Interval>),
) -> Result<HostTrial, HostTrialError> {
    let clock: Arc<dyn HostClock> = Arc::new(MachineClock::kept_by(None));
    run_host_trial_by(&clock, plan, number, go_on, each)
}

/// The same with another clock in place of this machine's, for receivers.
fn run_host_trial_by(
    clock: &Arc<dyn HostClock>,
    plan: &HostPlan,
    number: u32,
    go_on: impl Fn() -> bool,
    each: impl FnMut(Tick, Option<&Interval>),
) -> Result<HostTrial, HostTrialError> {
    ArmedHostTrial::prepare_by(clock, plan, number)?.run(None, go_on, each).map(|(trial, _)| trial)
}

/// A trial whose receivers have agreed and whose ports are open: no packet is sent before [`ArmedHostTrial::run`].
pub struct ArmedHostTrial<'p> {
    ends: HostEnds<'p>,
}

impl<'p> ArmedHostTrial<'p> {
    /// Opens the ports and requests the receivers' consent.
    ///
    /// # Errors
    /// Why it could not start.
    pub fn prepare(plan: &'p HostPlan, number: u32) -> Result<Self, HostTrialError> {
        let clock: Arc<dyn HostClock> = Arc::new(MachineClock::kept_by(None));
        Self::prepare_by(&clock, plan, number)
    }

    /// The same with another clock in place of this machine's, for receivers.
    fn prepare_by(
        clock: &Arc<dyn HostClock>,
        plan: &'p HostPlan,
        number: u32,
    ) -> Result<Self, HostTrialError> {
        HostEnds::prepare(plan, number, clock).map(|ends| Self { ends })
    }

    /// Keeps the receivers waiting for the trial; they need to hear something every few seconds.
    ///
    /// # Errors
    /// A receiver that disappeared.
    pub fn keep_alive(&mut self) -> Result<(), HostTrialError> {
        let snapshots = self.ends.sender().snapshots();
        Ok(report_progress(&mut self.ends.guests, &snapshots)?)
    }

    /// Runs the trial, from `start_at_ns` of the monotonic clock on if given; also returns the actual start.
    ///
    /// # Errors
    /// As [`run_host_trial`].
    pub fn run(
        mut self,
        start_at_ns: Option<u64>,
        go_on: impl Fn() -> bool,
        mut each: impl FnMut(Tick, Option<&Interval>),
    ) -> Result<(HostTrial, u64), HostTrialError> {
        let plan = self.ends.plan;
        let watch = WatchPlan {
            duration_ns: plan.sender.traffic.limit.duration_ns.unwrap_or(0),
            interval_ns: Some(plan.interval_ns),
        };
        self.ends.start_at_ns = start_at_ns;
        let began = self.ends.began_ns.clone();
        let run = run_trial(self.ends, watch, None, |tick, interval| {
            each(tick, interval);
            go_on()
        })?;
        Ok((run, began.get()))
    }
}

/// A sender here, and receivers on other hosts that agreed; without a handshake no receiver reports.
struct HostEnds<'p> {
    plan: &'p HostPlan,
    number: u32,
    guests: Vec<Joined>,
    sender: Option<Sender>,
    returns: Option<Receiver>,
    beat: Instant,
    /// A receiver that disappeared.
    gone: Option<SessionError>,
    sent: Option<(TxOutcome, RxOutcome)>,
    /// Packets due and handed over, by worker.
    workers: Vec<Handed>,
    /// Reports of the receivers, in the order of `guests`.
    reports: Vec<Option<Report>>,
    /// This host's observations of the streams.
    watch: Option<StreamWatch>,
    /// When to start, by the monotonic clock; immediately if that is past.
    start_at_ns: Option<u64>,
    began_ns: Rc<Cell<u64>>,
}

/// Packets of one worker.
#[derive(Debug, Clone, Copy)]
struct Handed {
    scheduled: u64,
    sent: u64,
}

impl<'p> HostEnds<'p> {
    fn prepare(plan: &'p HostPlan, number: u32, clock: &Arc<dyn HostClock>) -> Result<Self, HostTrialError> {
        let mut sender_plan = plan.sender.clone();
        let makes_frames = plan.sender.engine.facts().makes_frames;
        let takes_card = plan.sender.engine.facts().takes_device;
        let find_way = |traffic: &mut TxTraffic| match (&plan.sender.traffic.interface, takes_card) {
            (Some(interface), true) => give_way_of_card(traffic, interface, plan.macs),
            (interface, _) => give_way(traffic, interface.as_deref(), plan.macs),
        };
        if makes_frames {
            // Before the handshake: an unreachable receiver need not agree.
            find_way(&mut sender_plan.traffic.clone())?;
        }
        let guests = if plan.handshake { join(&mut sender_plan, plan, clock)? } else { Vec::new() };
        if makes_frames {
            find_way(&mut sender_plan.traffic)?;
        }
        // No program sees the frames of a card without its kernel driver.
        let is_watched = plan.handshake && plan.witness && !takes_card;
        let watch = if is_watched { watch(&sender_plan) } else { None };
        let placement = Placement { enter: None, cpus: plan.cpus.clone() };
        let mut sender = sender_plan.prepare(&placement)?;
        let returns = sender.take_returns();
        Ok(Self {
            plan,
            number,
            guests,
            sender: Some(sender),
            returns,
            beat: Instant::now(),
            gone: None,
            sent: None,
            workers: Vec::new(),
            reports: Vec::new(),
            watch,
            start_at_ns: None,
            began_ns: Rc::default(),
        })
    }

    fn sender(&self) -> &Sender {
        self.sender.as_ref().expect("it sends until end_sending")
    }

    fn sent(&self) -> &(TxOutcome, RxOutcome) {
        self.sent.as_ref().expect("end_sending comes first")
    }
}

impl Ends for HostEnds<'_> {
    type Error = HostTrialError;
    type Seen = u64;

    const LOOK: Duration = Duration::from_millis(20);
    // The receiver waits for the summary twice as long.
    const LONGEST_DRAIN: Duration = Duration::from_secs(5);

    fn read_counters(&mut self) -> Result<(), HostTrialError> {
        // The receivers read theirs when a sender joins.
        Ok(())
    }

    fn begin(&mut self) -> Result<u64, HostTrialError> {
        if let Some(start_at_ns) = self.start_at_ns {
            clock::use_exact_timers().ok();
            // A signal may wake it earlier.
            while clock::monotonic_ns() < start_at_ns {
                clock::sleep_until(start_at_ns);
            }
        }
        self.beat = Instant::now();
        let began_ns = self.sender().begin();
        self.began_ns.set(began_ns);
        Ok(began_ns)
    }

    fn look(&mut self) -> Result<Look, HostTrialError> {
        if self.beat.elapsed() >= BEAT {
            self.beat = Instant::now();
            let snapshots = self.sender().snapshots();
            if let Err(gone) = report_progress(&mut self.guests, &snapshots) {
                self.gone = Some(gone);
                self.sender().stop();
            }
        }
        let progress = self.guests.iter().map(|guest| guest.guest.progress()).fold(Progress::default(), sum);
        let reported = self.plan.handshake.then_some(progress);
        let sent = self.sender().snapshot();
        Ok(Look {
            sent: sent.packets,
            delivered: reported.map(|progress| progress.packets),
            payload_bytes: sent.payload_bytes,
            rx_dropped: reported.map(|progress| progress.dropped),
            load_s: None,
        })
    }

    fn is_finished(&self) -> bool {
        self.gone.is_some() || self.sender().is_finished()
    }

    fn stop(&mut self) {
        self.sender().stop();
    }

    fn end_sending(&mut self) -> Result<(), HostTrialError> {
        let results = self.sender.take().expect("it sends until here").join();
        let handed =
            |result: &SenderResult| Handed { scheduled: result.scheduled, sent: result.tally.packets };
        self.workers = results.iter().map(handed).collect();
        let per_worker: Vec<u64> = self.workers.iter().map(|worker| worker.sent).collect();
        let sent = TxOutcome::of(results);
        let rx = if self.plan.handshake {
            let (mut reports, failed) = finish(&mut self.guests, &per_worker);
            self.gone = self.gone.take().or(failed);
            // Those of the first receiver, as its endpoint and cost are.
            let first = reports.iter_mut().flatten().next();
            let profile = first.and_then(|report| report.profile.take()).filter(|_| self.plan.profile);
            let clocks = reports.iter().flatten().find_map(|report| report.clocks.clone());
            let rx = merge(&reports, &per_worker, self.gone.is_some());
            self.reports = reports;
            RxOutcome { profile, clocks, ..rx }
        } else {
            unobserved(sent.tally.packets)
        };
        self.sent = Some((sent, rx));
        Ok(())
    }

    fn delivered(&mut self) -> Result<u64, HostTrialError> {
        Ok(self.sent().1.delivered)
    }

    /// The receivers have drained before they report: only the returned probes may still arrive.
    fn in_flight(&mut self) -> Result<InFlight<u64>, HostTrialError> {
        let delivered = self.sent().1.delivered;
        let Some(returns) = &self.returns else {
            return Ok(InFlight { is_complete: true, quiet: Duration::ZERO, seen: 0 });
        };
        let RxSnapshot { packets, payload_bytes, lost: dropped, .. } = returns.snapshot();
        Ok(in_flight(delivered, Progress { packets, payload_bytes, dropped }))
    }

    fn close(&mut self) -> Result<Outcome<HostTrialError>, HostTrialError> {
        let (mut tx, mut rx) = self.sent.take().expect("end_sending comes first");
        if let Some(watch) = self.watch.take() {
            let facts = self.plan.sender.engine.facts();
            let sender = SenderSide {
                sent: tx.tally.packets,
                refused: if facts.retries_interface_drops { tx.tally.turned_away } else { 0 },
                is_at_driver: !facts.passes_tc,
                seen: watch.seen(),
            };
            let wires: Vec<_> = self
                .reports
                .iter()
                .map(|report| report.as_ref().and_then(|report| report.wire.as_ref()))
                .collect();
            let (mut lines, wire) = across(&sender, &wires);
            // Losses on this host need no receiver to observe them.
            let lost_here = lines.iter().fold(0u64, |sum, line| sum.saturating_add(line.packets));
            for line in rx.lines.iter_mut().filter(|line| line.place == LossPlace::Unobserved) {
                line.packets = line.packets.saturating_sub(lost_here);
            }
            lines.append(&mut rx.lines);
            (rx.lines, rx.wire) = (lines, Some(wire));
        }
        rx.round_trips = self.returns.take().map(|returns| round_trips(returns, tx.tally.packets));
        let settings = TrialSettings {
            trial: self.number,
            tx: self.plan.endpoint.clone(),
            frame_size_bytes: self.plan.frame_size_bytes,
            payload_bytes: self.plan.payload_bytes,
            asked_pps: self.plan.sender.traffic.rate_pps,
        };
        let error = self.gone.take().map(HostTrialError::from);
        let error = error.or_else(|| tx.error.take().map(HostTrialError::from));
        Ok(Outcome { settings, tx, rx, error })
    }

    fn conclude(self, trial: &Trial) {
        let is_alone = self.guests.len() == 1;
        for (Joined { guest, workers }, report) in self.guests.into_iter().zip(&self.reports) {
            match report {
                Some(_) if is_alone => guest.summarise(trial),
                Some(report) => {
                    let of_workers =
                        |each: fn(&Handed) -> u64| workers.iter().map(|at| each(&self.workers[*at])).sum();
                    let share = workers.len() as f64 / self.workers.len() as f64;
                    let handed =
                        (of_workers(|worker| worker.scheduled), of_workers(|worker| worker.sent), share);
                    guest.summarise(&part(trial, handed, report));
                }
                None => {}
            }
        }
    }
}

/// A session and the workers that send in it.
struct Joined {
    guest: Guest,
    workers: Vec<usize>,
}

/// Requests consent from every receiver, and puts the assigned stream tags and ports into the plan.
fn join(
    sender: &mut SenderPlan,
    plan: &HostPlan,
    clock: &Arc<dyn HostClock>,
) -> Result<Vec<Joined>, HostTrialError> {
    let kept = clock.kept();
    let mut by_receiver: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
    for (worker, planned) in sender.traffic.workers.iter().enumerate() {
        by_receiver.entry(planned.target).or_default().push(worker);
    }
    let mut joined = Vec::new();
    for (receiver, workers) in by_receiver {
        let share = workers.len() as f64 / sender.traffic.workers.len() as f64;
        let offer = Offer {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            streams: workers.len() as u16,
            payload_bytes: if plan.sender.engine.facts().is_untagged {
                plan.smallest_payload_bytes.min(PROBE_LEN as u32)
            } else {
                plan.smallest_payload_bytes
            },
            rate_pps: sender.traffic.rate_pps.map(|pps| pps * share),
            duration_s: sender.traffic.limit.duration_ns.map(|ns| ns as f64 / 1e9),
            count: sender.traffic.limit.count,
            reflect: plan.reflects(),
            profile: plan.profile,
            receiver: plan.receiver.clone(),
            witness: plan.witness && interface_towards(receiver).is_some(),
            kept: kept.clone(),
        };
        let (guest, accepted) = Guest::join_by(receiver, &offer, plan.key.as_ref(), clock)?;
        check_way_back(plan, &guest)?;
        for (worker, stream) in workers.iter().zip(accepted.streams) {
            sender.traffic.workers[*worker].stream = stream;
            sender.traffic.workers[*worker].target = accepted.data;
        }
        joined.push(Joined { guest, workers });
    }
    Ok(joined)
}

/// A watch over the streams of a sender where they leave this host; `None` if they do not leave it.
fn watch(plan: &SenderPlan) -> Option<StreamWatch> {
    let workers = &plan.traffic.workers;
    let target = workers.first()?.target;
    let towards = interface_towards(target)?;
    let facts = plan.engine.facts();
    let interface = plan.traffic.interface.clone().unwrap_or(towards);
    let mut tags: Vec<u16> = workers.iter().map(|worker| worker.stream).collect();
    tags.sort_unstable();
    tags.dedup();
    let streams = Streams { port: target.port(), tags };
    Some(StreamWatch::start(StreamScope {
        interface,
        streams,
        host: HostSide::Sender,
        passes_tc: facts.passes_tc,
        names_drops: !facts.frees_look_like_drops,
        reads: None,
    }))
}

impl HostPlan {
    /// Whether packets return.
    fn reflects(&self) -> bool {
        self.sender.engine.facts().returns
    }
}

/// Packets return to the source address of the handshake: they must leave from it.
fn check_way_back(plan: &HostPlan, guest: &Guest) -> Result<(), HostTrialError> {
    let bound = plan.sender.traffic.workers[0].local.ip();
    match guest.local_ip() {
        Ok(known) if plan.reflects() && !bound.is_unspecified() && bound.to_canonical() != known => {
            Err(HostTrialError::OtherWayBack { bound, known, receiver: guest.peer() })
        }
        _ => Ok(()),
    }
}

/// The returned probes.
fn round_trips(returns: Receiver, sent: u64) -> RoundTrips {
    let result = returns.stop();
    let statistics = timed_reception(&result.readings(), ClockClaim::SameHost, ClockSources::default());
    let duplicates = statistics.sequence.as_ref().map_or(0, |sequence| sequence.duplicates);
    let returned = statistics.total.packets.saturating_sub(duplicates);
    let timing = statistics.timing.unwrap_or_default();
    RoundTrips {
        returned,
        missing: sent.saturating_sub(returned),
        dropped_here: result.tally().lost,
        sequence: statistics.sequence,
        round_trip: statistics.total.latency,
        jitter: statistics.total.jitter,
        send_times: statistics.senders.iter().map(|sender| sender.send_times).sum(),
        rx_stamp: timing.rx_stamp,
        rx_stamp_means: timing.rx_stamp_means,
        clock_resolution_ns: timing.clock_resolution_ns,
        clock_read_ns: timing.clock_read_ns,
    }
}

/// Sends every receiver the number of packets sent to it.
fn report_progress(guests: &mut [Joined], snapshots: &[TxSnapshot]) -> Result<(), SessionError> {
    for Joined { guest, workers } in guests {
        let sent =
            workers.iter().map(|worker| snapshots[*worker]).fold(TxSnapshot::default(), TxSnapshot::plus);
        guest.tell(Progress { packets: sent.packets, payload_bytes: sent.payload_bytes, dropped: 0 })?;
        guest.look_at_clocks()?;
    }
    Ok(())
}

/// The part of one of several receivers in a trial: the packets due and sent to it, and its share of the load.
fn part(trial: &Trial, (scheduled, sent, share): (u64, u64, f64), report: &Report) -> Trial {
    let seconds = trial.duration_s;
    let per_second = |packets: u64| if seconds > 0.0 { packets as f64 / seconds } else { 0.0 };
    let asked_pps = trial.asked_pps.map(|pps| pps * share);
    let judged = Receipt::judge(asked_pps, scheduled, sent, seconds, &Histogram::new());
    let Receipt { lateness, largest_gap_ns, .. } = trial.receipt.clone();
    let receipt = Receipt { delivered: report.delivered, lateness, largest_gap_ns, ..judged };
    let ledger = Ledger::close(sent, report.delivered, report.lines.clone());
    Trial {
        rx: report.rx.clone(),
        rx_cost: report.cost.clone(),
        asked_pps,
        sent,
        sent_pps: per_second(sent),
        delivered: report.delivered,
        delivered_pps: per_second(report.delivered),
        loss_ratio: ledger.loss_ratio(),
        ledger,
        receipt,
        round_trips: None,
        profile: None,
        wire: None,
        clocks: report.clocks.clone(),
        ..trial.clone()
    }
}

/// The reports of all receivers; `None` for those that were lost, and how the last of them was lost.
fn finish(guests: &mut [Joined], sent: &[u64]) -> (Vec<Option<Report>>, Option<SessionError>) {
    let mut reports = Vec::new();
    let mut failed = None;
    for Joined { guest, workers } in guests {
        match guest.finish(workers.iter().map(|worker| sent[*worker]).sum()) {
            Ok(report) => reports.push(Some(report)),
            Err(error) => {
                reports.push(None);
                failed = Some(error);
            }
        }
    }
    (reports, failed)
}

/// All receivers as one; the packets of a lost receiver are unknown.
fn merge(reports: &[Option<Report>], sent: &[u64], lost_one: bool) -> RxOutcome {
    let why = if reports.len() == 1 { "the receiver was lost" } else { "a receiver was lost" };
    let reports: Vec<&Report> = reports.iter().flatten().collect();
    let endpoint = reports.first().map(|report| report.rx.clone()).unwrap_or_default();
    let delivered = reports.iter().map(|report| report.delivered).sum();
    let mut lines: Vec<LedgerLine> = Vec::new();
    for line in reports.iter().flat_map(|report| &report.lines) {
        match lines.iter_mut().find(|other| (&other.place, other.host) == (&line.place, line.host)) {
            Some(same) => same.packets = same.packets.saturating_add(line.packets),
            None => lines.push(line.clone()),
        }
    }
    if lost_one {
        let known = lines.iter().fold(delivered, |sum: u64, line| sum.saturating_add(line.packets));
        lines.push(LedgerLine::unobserved(sent.iter().sum::<u64>().saturating_sub(known), why));
    }
    let cost = reports.first().map(|report| report.cost.clone()).unwrap_or_default();
    RxOutcome { delivered, cost, lines, ..RxOutcome::of(endpoint) }
}

fn unobserved(sent: u64) -> RxOutcome {
    let endpoint = Endpoint { engine: "none".into(), label: "unobserved".into(), ..Endpoint::default() };
    let lines = vec![LedgerLine::unobserved(sent, "no handshake: no receiver reported")];
    RxOutcome { lines, ..RxOutcome::of(endpoint) }
}

fn sum(a: Progress, b: Progress) -> Progress {
    Progress {
        packets: a.packets + b.packets,
        payload_bytes: a.payload_bytes + b.payload_bytes,
        dropped: a.dropped + b.dropped,
    }
}

#[cfg(test)]
mod tests;
