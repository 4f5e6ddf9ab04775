//! An agent's part of a trial, on a thread of its own without an async runtime: opens ports, waits for the start, runs, counts.
//! It ends when its lease does.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    error::Error,
    net::SocketAddr,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

use session::{Admission, HostEvent, Key};
use sys::{clock, netns::NetNs};
use tokio::sync::mpsc::UnboundedSender;
use traffic::ReceiverPlan;
use trial::{ArmedHostTrial, EngineChoice, HostPlan, Policy, Reception, Tick};

use crate::{
    limits::Limits,
    message::{Attempt, Measured, Part, Prepare},
};

/// How often receivers hear that a trial is still to come.
const BEAT: Duration = Duration::from_millis(500);
/// How often a sender shows its counters to a live view.
const SAMPLE: Duration = Duration::from_millis(450);
/// How often orders are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Counters are read so long before the start.
const LEAD_NS: u64 = 50_000_000;

/// From the agent to the thread.
pub(crate) enum Order {
    /// Start at this time of the machine's monotonic clock.
    Start { at_ns: u64 },
    /// Go on for so long from now.
    Renew(Duration),
    /// Stop.
    Stop { reason: String },
}

/// From the thread to the agent.
pub(crate) enum JobEvent {
    /// Ready to start; where a receiver listens.
    Prepared(Attempt, Result<Option<SocketAddr>, String>),
    /// A running sender's counters.
    Sampled(Attempt, Tick),
    /// It is over.
    Finished(Attempt, Measured),
}

/// A running thread.
pub(crate) struct Job {
    pub(crate) of: Attempt,
    pub(crate) is_sender: bool,
    orders: Sender<Order>,
}

impl Job {
    /// Starts the thread, in a network namespace of choice.
    pub(crate) fn start(
        prepare: Prepare,
        limits: Limits,
        namespace: Option<PathBuf>,
        events: UnboundedSender<JobEvent>,
    ) -> Self {
        let (orders, received) = channel();
        let of = prepare.of.clone();
        let is_sender = matches!(prepare.part, Part::Send { .. });
        let failed_events = events.clone();
        let work = move || {
            let of = prepare.of.clone();
            let entered = namespace.map_or(Ok(()), |path| NetNs::open(path).and_then(|space| space.enter()));
            match entered {
                Ok(()) => run(prepare, &limits, &received, &events),
                Err(error) => {
                    let reason = format!("cannot enter the network namespace: {error}");
                    events.send(JobEvent::Prepared(of, Err(reason))).ok();
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("fleet-job".into()).spawn(work) {
            failed_events.send(JobEvent::Prepared(of.clone(), Err(error.to_string()))).ok();
        }
        Self { of, is_sender, orders }
    }

    /// The same without a thread: `take_part` is awaited on the agent's own runtime.
    pub(crate) fn simulate<F: Future<Output = ()> + Send + 'static>(
        prepare: Prepare,
        events: UnboundedSender<JobEvent>,
        take_part: impl FnOnce(Prepare, Receiver<Order>, UnboundedSender<JobEvent>) -> F,
    ) -> Self {
        let (orders, received) = channel();
        let of = prepare.of.clone();
        let is_sender = matches!(prepare.part, Part::Send { .. });
        tokio::spawn(take_part(prepare, received, events));
        Self { of, is_sender, orders }
    }

    /// A thread that has ended needs no orders.
    pub(crate) fn order(&self, order: Order) {
        self.orders.send(order).ok();
    }
}

fn run(prepare: Prepare, limits: &Limits, orders: &Receiver<Order>, events: &UnboundedSender<JobEvent>) {
    let of = prepare.of.clone();
    let key = Key::of(prepare.secret.as_bytes());
    let lease = Lease(Instant::now() + Duration::from_millis(prepare.lease_ms));
    let desk = Desk { of: of.clone(), orders, events, is_live: prepare.live };
    let measured = match prepare.part {
        Part::Send { mut plan } => {
            plan.key = Some(key);
            send(&plan, &desk, lease)
        }
        Part::Receive { plan, senders, most_pps } => {
            let policy = Policy {
                admission: Admission::of(limits.allow_from.clone()),
                most_pps,
                engines: EngineChoice { may_attach: limits.may_attach, ..EngineChoice::default() },
                key: Some(key),
                ptp4l: None,
            };
            receive(&plan, senders, policy, &desk, lease)
        }
    };
    if let Some(measured) = measured {
        events.send(JobEvent::Finished(of, measured)).ok();
    }
}

/// Where orders come from and events go to.
struct Desk<'d> {
    of: Attempt,
    orders: &'d Receiver<Order>,
    events: &'d UnboundedSender<JobEvent>,
    is_live: bool,
}

impl Desk<'_> {
    fn prepared(&self, outcome: Result<Option<SocketAddr>, String>) {
        self.events.send(JobEvent::Prepared(self.of.clone(), outcome)).ok();
    }
}

/// The time until which the coordinator wants this.
struct Lease(Instant);

impl Lease {
    fn renew(&mut self, length: Duration) {
        self.0 = self.0.max(Instant::now() + length);
    }

    fn is_over(&self) -> bool {
        Instant::now() > self.0
    }
}

const LEASE_OVER: &str = "the coordinator's lease ended";

/// `None` where nothing was sent because nothing was to be.
fn send(plan: &HostPlan, desk: &Desk<'_>, mut lease: Lease) -> Option<Measured> {
    let mut armed = match ArmedHostTrial::prepare(plan, desk.of.trial) {
        Ok(armed) => armed,
        Err(error) => {
            desk.prepared(Err(with_causes(&error)));
            return None;
        }
    };
    desk.prepared(Ok(None));
    let failed = |reason: String| Some(Measured::Failed { reason });
    let mut start_at_ns: Option<u64> = None;
    let mut beat = Instant::now();
    loop {
        let until_start =
            start_at_ns.map(|at_ns| at_ns.saturating_sub(LEAD_NS).saturating_sub(clock::monotonic_ns()));
        if until_start == Some(0) {
            break;
        }
        let wait = until_start.map_or(LOOK, |ns| LOOK.min(Duration::from_nanos(ns)));
        match desk.orders.recv_timeout(wait) {
            Ok(Order::Start { at_ns }) => start_at_ns = Some(at_ns),
            Ok(Order::Renew(length)) => lease.renew(length),
            Ok(Order::Stop { reason }) => return failed(reason),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if lease.is_over() {
            return failed(LEASE_OVER.into());
        }
        if beat.elapsed() >= BEAT {
            beat = Instant::now();
            if let Err(error) = armed.keep_alive() {
                return failed(with_causes(&error));
            }
        }
    }
    let stopped: RefCell<Option<String>> = RefCell::default();
    let lease = RefCell::new(lease);
    let go_on = || {
        loop {
            match desk.orders.try_recv() {
                Ok(Order::Renew(length)) => lease.borrow_mut().renew(length),
                Ok(Order::Stop { reason }) => drop(stopped.replace(Some(reason))),
                Ok(Order::Start { .. }) => {}
                Err(TryRecvError::Disconnected) => {
                    stopped.replace(Some("the agent ended".into()));
                    break;
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        if lease.borrow().is_over() {
            stopped.borrow_mut().get_or_insert_with(|| LEASE_OVER.into());
        }
        stopped.borrow().is_none()
    };
    let mut sampled: Option<Instant> = None;
    let each = |tick: Tick, _: Option<&measure::Interval>| {
        if desk.is_live && sampled.is_none_or(|at| at.elapsed() >= SAMPLE) {
            sampled = Some(Instant::now());
            desk.events.send(JobEvent::Sampled(desk.of.clone(), tick)).ok();
        }
    };
    match armed.run(start_at_ns, go_on, each) {
        Ok((run, began_ns)) => {
            let broke = run.error.as_ref().map(|error| with_causes(error));
            let cut_short = stopped.into_inner().or(broke);
            Some(Measured::Sent { trial: Box::new(run.trial), intervals: run.intervals, began_ns, cut_short })
        }
        Err(error) => failed(with_causes(&error)),
    }
}

fn receive(
    plan: &ReceiverPlan,
    senders: u32,
    policy: Policy,
    desk: &Desk<'_>,
    mut lease: Lease,
) -> Option<Measured> {
    let reception = match Reception::start(plan, &[], None, policy) {
        Ok(reception) => reception,
        Err(error) => {
            desk.prepared(Err(with_causes(&error)));
            return None;
        }
    };
    let mark = reception.mark();
    desk.prepared(Ok(reception.address()));
    let mut present: BTreeSet<SocketAddr> = BTreeSet::new();
    let mut left = 0;
    let mut cut_short = None;
    while left < senders {
        match desk.orders.recv_timeout(LOOK) {
            Ok(Order::Renew(length)) => lease.renew(length),
            Ok(Order::Stop { reason }) => {
                cut_short = Some(reason);
                break;
            }
            Ok(Order::Start { .. }) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        reception.tick();
        for event in reception.events() {
            match event {
                HostEvent::Joined { peer, .. } => {
                    present.insert(peer);
                }
                HostEvent::Finished { peer, .. } | HostEvent::Sent { peer, .. } => {
                    left += u32::from(present.remove(&peer));
                }
                HostEvent::Lost { peer, .. }
                | HostEvent::Refused { peer, .. }
                | HostEvent::Disputed { peer, .. } => {
                    left += u32::from(present.remove(&peer));
                }
            }
        }
        if lease.is_over() {
            cut_short = Some(LEASE_OVER.into());
            break;
        }
        if reception.is_broken() {
            cut_short = Some("the receiving engine ended".into());
            break;
        }
    }
    let report = reception.report_since(mark);
    reception.stop();
    Some(Measured::Received { report: Box::new(report), cut_short })
}

/// An error with its causes, in one line.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}
