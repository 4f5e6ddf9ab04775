//! A trial towards receivers on other hosts: consent first, then traffic, then one summary on both ends.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use engine::{EngineError, Placement, Receiver, RxSnapshot, Sender, SenderPlan, TxEngine, TxSnapshot};
use measure::{Cost, Endpoint, Interval, LedgerLine, RoundTrips, Trial};
use serde::{Deserialize, Serialize};
use session::{Guest, Offer, PROTOCOL, Progress, Report, SessionError, await_arrivals};
use sys::{clock, procfs};
use thiserror::Error;

use crate::{
    cpu_time::CpuWatch,
    record::{RxOutcome, TrialSettings, TxOutcome},
    timing::{ClockClaim, timed_reception},
};

/// How often a running trial is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often a receiver hears from its sender.
const BEAT: Duration = Duration::from_millis(500);

/// A trial towards other hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPlan {
    /// The sender. With consent, targets are the receivers' control addresses, and stream tags and data ports
    /// come from them.
    pub sender: SenderPlan,
    /// Ask the receivers first.
    pub handshake: bool,
    /// CPUs of the workers.
    pub cpus: Vec<u32>,
    /// The sending side as the record names it.
    pub endpoint: Endpoint,
    /// Mean frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Mean UDP payload.
    pub payload_bytes: u32,
    /// The smallest UDP payload: whether it has room for a stream tag decides how the receiver tells senders apart.
    pub smallest_payload_bytes: u32,
    /// Nanoseconds between recorded intervals.
    pub interval_ns: u64,
    /// Ask the receivers where receiving takes its time.
    #[serde(default)]
    pub profile: bool,
}

/// Why a trial towards other hosts could not be run.
#[derive(Debug, Error)]
pub enum HostTrialError {
    /// A receiver.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Packets would leave from another address than the one that they come back to.
    #[error("{receiver} sends packets back to {known}, and they would leave from {bound}")]
    OtherWayBack {
        /// The receiver.
        receiver: SocketAddr,
        /// The address that shook hands.
        known: IpAddr,
        /// The address that packets leave from.
        bound: IpAddr,
    },
    /// The machine's counters.
    #[error(transparent)]
    Counters(#[from] procfs::ProcError),
}

/// A finished trial, and what cut it short.
#[derive(Debug)]
pub struct HostTrial {
    /// The trial.
    pub trial: Trial,
    /// Its intervals.
    pub intervals: Vec<Interval>,
    /// A path that broke or a receiver that went away.
    pub error: Option<HostTrialError>,
}

/// Runs one trial; `number` is its number from 1, `each` sees every recorded interval, and `go_on` is asked
/// whether to go on.
///
/// # Errors
/// What kept it from starting. What breaks later ends the trial early, with what was measured.
pub fn run_host_trial(
    plan: &HostPlan,
    number: u32,
    go_on: impl Fn() -> bool,
    mut each: impl FnMut(&Interval),
) -> Result<HostTrial, HostTrialError> {
    let mut sender_plan = plan.sender.clone();
    let mut guests = if plan.handshake { join(&mut sender_plan, plan)? } else { Vec::new() };
    let placement = Placement { enter: None, cpus: plan.cpus.clone() };
    let mut sender = Sender::prepare(&sender_plan, &placement)?;
    let returns = sender.take_returns();

    let cpus = CpuWatch::start(None)?;
    let start_ns = sender.begin();
    let mut watch = Watch::new(start_ns, plan.interval_ns);
    let mut error = None;
    let mut beat = Instant::now();
    let mut interrupted = false;
    while !sender.is_finished() {
        thread::sleep(LOOK);
        if !go_on() {
            interrupted = true;
            sender.stop();
        }
        let progress: Progress =
            guests.iter().map(|guest| guest.guest.progress()).fold(Progress::default(), sum);
        if let Some(interval) = watch.look(sender.snapshot(), plan.handshake.then_some(progress)) {
            each(interval);
        }
        if beat.elapsed() >= BEAT {
            beat = Instant::now();
            if let Err(gone) = tell(&mut guests, &sender.snapshots()) {
                error = Some(gone.into());
                sender.stop();
                break;
            }
        }
    }
    let results = sender.join();
    let cpus = cpus.shares()?;
    let per_worker: Vec<u64> = results.iter().map(|result| result.tally.packets).collect();
    let mut sent = TxOutcome::of(results);
    let mut profile = None;
    let mut rx = if plan.handshake {
        let (mut reports, failed) = finish(&mut guests, &per_worker);
        error = error.or(failed.map(Into::into));
        // That of the first receiver, as its endpoint and cost are.
        profile = reports.first_mut().and_then(|report| report.profile.take()).filter(|_| plan.profile);
        merge(&reports, &per_worker, error.is_some())
    } else {
        unobserved(sent.tally.packets)
    };
    rx.cpus = cpus;
    rx.round_trips = returns.map(|returns| round_trips(returns, sent.tally.packets, rx.delivered));
    error = error.or(sent.error.take().map(Into::into));
    let settings = TrialSettings {
        trial: number,
        tx: plan.endpoint.clone(),
        frame_size_bytes: plan.frame_size_bytes,
        payload_bytes: plan.payload_bytes,
        asked_pps: plan.sender.rate_pps,
    };
    let trial = Trial { profile, ..sent.into_trial(settings, rx, interrupted || error.is_some()) };
    for guest in guests {
        guest.guest.summarise(&trial);
    }
    Ok(HostTrial { trial, intervals: watch.intervals, error })
}

/// A session and the workers that send in it.
struct Joined {
    guest: Guest,
    workers: Vec<usize>,
}

/// Asks every receiver, and puts the stream tags and ports it gave into the plan.
fn join(sender: &mut SenderPlan, plan: &HostPlan) -> Result<Vec<Joined>, HostTrialError> {
    let mut by_receiver: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
    for (worker, planned) in sender.workers.iter().enumerate() {
        by_receiver.entry(planned.target).or_default().push(worker);
    }
    let mut joined = Vec::new();
    for (receiver, workers) in by_receiver {
        let share = workers.len() as f64 / sender.workers.len() as f64;
        let offer = Offer {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            streams: workers.len() as u16,
            payload_bytes: plan.smallest_payload_bytes,
            rate_pps: sender.rate_pps.map(|pps| pps * share),
            duration_s: sender.limit.duration_ns.map(|ns| ns as f64 / 1e9),
            count: sender.limit.count,
            reflect: plan.reflects(),
            profile: plan.profile,
        };
        let (guest, accepted) = Guest::join(receiver, &offer)?;
        check_way_back(plan, &guest)?;
        for (worker, stream) in workers.iter().zip(accepted.streams) {
            sender.workers[*worker].stream = stream;
            sender.workers[*worker].target = accepted.data;
        }
        joined.push(Joined { guest, workers });
    }
    Ok(joined)
}

impl HostPlan {
    /// Whether packets are to come back.
    fn reflects(&self) -> bool {
        matches!(&self.sender.engine, TxEngine::Udp(udp) if udp.returns)
    }
}

/// Packets come back to the address that shook hands: they must leave from it.
fn check_way_back(plan: &HostPlan, guest: &Guest) -> Result<(), HostTrialError> {
    let bound = plan.sender.workers[0].local.ip();
    match guest.local_ip() {
        Ok(known) if plan.reflects() && !bound.is_unspecified() && bound.to_canonical() != known => {
            Err(HostTrialError::OtherWayBack { bound, known, receiver: guest.peer() })
        }
        _ => Ok(()),
    }
}

/// Waits until all of `delivered` came back or none has come for a while, and says what did.
fn round_trips(returns: Receiver, sent: u64, delivered: u64) -> RoundTrips {
    // The receiver waits for the summary twice as long.
    const LONGEST: Duration = Duration::from_secs(5);
    await_arrivals(delivered, LONGEST, || {
        let RxSnapshot { packets, payload_bytes, lost: dropped, .. } = returns.snapshot();
        Progress { packets, payload_bytes, dropped }
    });
    let result = returns.stop();
    let statistics = timed_reception(&result.readings(), ClockClaim::SameHost, None);
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

fn tell(guests: &mut [Joined], snapshots: &[TxSnapshot]) -> Result<(), SessionError> {
    for Joined { guest, workers } in guests {
        let sent =
            workers.iter().map(|worker| snapshots[*worker]).fold(TxSnapshot::default(), TxSnapshot::plus);
        guest.tell(Progress { packets: sent.packets, payload_bytes: sent.payload_bytes, dropped: 0 })?;
    }
    Ok(())
}

fn finish(guests: &mut [Joined], sent: &[u64]) -> (Vec<Report>, Option<SessionError>) {
    let mut reports = Vec::new();
    let mut failed = None;
    for Joined { guest, workers } in guests {
        match guest.finish(workers.iter().map(|worker| sent[*worker]).sum()) {
            Ok(report) => reports.push(report),
            Err(error) => failed = Some(error),
        }
    }
    (reports, failed)
}

/// All receivers as one; what a lost receiver got stays unobserved.
fn merge(reports: &[Report], sent: &[u64], lost_one: bool) -> RxOutcome {
    let endpoint = reports.first().map(|report| report.rx.clone()).unwrap_or_default();
    let delivered = reports.iter().map(|report| report.delivered).sum();
    let mut lines: Vec<LedgerLine> = Vec::new();
    for line in reports.iter().flat_map(|report| &report.lines) {
        match lines.iter_mut().find(|other| other.place == line.place) {
            Some(same) => same.packets = same.packets.saturating_add(line.packets),
            None => lines.push(line.clone()),
        }
    }
    if lost_one {
        let known = lines.iter().fold(delivered, |sum: u64, line| sum.saturating_add(line.packets));
        lines.push(LedgerLine::unobserved(
            sent.iter().sum::<u64>().saturating_sub(known),
            "a receiver was lost",
        ));
    }
    let cost = reports.first().map(|report| report.cost.clone()).unwrap_or_default();
    RxOutcome {
        endpoint,
        delivered,
        cost,
        lines,
        cpus: Vec::new(),
        on_wire: None,
        statistics: None,
        round_trips: None,
        stream: None,
    }
}

fn unobserved(sent: u64) -> RxOutcome {
    RxOutcome {
        endpoint: Endpoint { engine: "none".into(), label: "unobserved".into(), ..Endpoint::default() },
        delivered: 0,
        cost: Cost::default(),
        lines: vec![LedgerLine::unobserved(sent, "no handshake: no receiver reported")],
        cpus: Vec::new(),
        on_wire: None,
        statistics: None,
        round_trips: None,
        stream: None,
    }
}

fn sum(a: Progress, b: Progress) -> Progress {
    Progress {
        packets: a.packets + b.packets,
        payload_bytes: a.payload_bytes + b.payload_bytes,
        dropped: a.dropped + b.dropped,
    }
}

/// Turns counters into intervals.
struct Watch {
    start_ns: u64,
    interval_ns: u64,
    last_ns: u64,
    sent: TxSnapshot,
    delivered: Progress,
    intervals: Vec<Interval>,
}

impl Watch {
    /// Intervals kept in the record; a run that lasts longer keeps its first ones.
    const MOST_INTERVALS: usize = 100_000;

    fn new(start_ns: u64, interval_ns: u64) -> Self {
        let (sent, delivered) = (TxSnapshot::default(), Progress::default());
        Self { start_ns, interval_ns, last_ns: start_ns, sent, delivered, intervals: Vec::new() }
    }

    fn look(&mut self, sent: TxSnapshot, delivered: Option<Progress>) -> Option<&Interval> {
        let now = clock::monotonic_ns();
        if now - self.last_ns < self.interval_ns || self.intervals.len() >= Self::MOST_INTERVALS {
            return None;
        }
        self.intervals.push(Interval {
            trial: 0,
            end_s: (now - self.start_ns) as f64 / 1e9,
            length_s: (now - self.last_ns) as f64 / 1e9,
            sent: Some(sent.packets - self.sent.packets),
            delivered: delivered.map(|progress| progress.packets.saturating_sub(self.delivered.packets)),
            payload_bytes: sent.payload_bytes - self.sent.payload_bytes,
            rx_dropped: delivered.map(|progress| progress.dropped.saturating_sub(self.delivered.dropped)),
        });
        self.last_ns = now;
        self.sent = sent;
        self.delivered = delivered.unwrap_or_default();
        self.intervals.last()
    }
}
