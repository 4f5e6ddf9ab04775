//! The receiver for sessions: counts by stream, trials' beginnings and reports, and the engine that a sender requests.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bpf::{SoftirqWatch, Streams};
use ledger::{Drivers, HostCounters, Received, host_rx_lines};
use measure::{ClockComparison, Cost, Endpoint, HostSide, LedgerLine, Place, Profile, Trial};
use serde_json::Value;
use session::{Counts, HostClock, Joining, Progress, Related, Report, Wanted, WireReport};
use sys::udp::UdpSink;
use traffic::{
    Placement, Receiver, ReceiverPlan, ReceiverResult, RxFacts, RxLayer, RxSnapshot, SenderAhead,
    StatisticsPlan, StreamCount,
};
use wire::StreamTags;

use super::choice::EngineChoice;
use crate::{
    back::{SendingTerms, send_back},
    cpu_time::CpuWatch,
    endpoint::rx_endpoint,
    engines::joined,
    machine_clock::MachineClock,
    profile::Diagnosis,
    stream_watch::{StreamScope, StreamSeen, StreamWatch, interface_towards},
};

/// The most senders whose packets are counted at the driver at once: each has programs of its own.
const MOST_WATCHES: usize = 4;

/// The most sessions with stored clock comparisons.
const MOST_COMPARISONS: usize = 64;

/// The longest wait for another sender with another engine to finish: less than a sender waits for an answer.
const TURN_PATIENCE: Duration = Duration::from_secs(3);

/// The receiver, its counts and its trials.
pub(super) struct Counting {
    receiver: Mutex<Open>,
    /// Notified when a sender leaves or an engine has changed.
    free: Condvar,
    /// The receiver's own plan, when no sender requests another engine.
    base: Mutex<ReceiverPlan>,
    cpus: Vec<u32>,
    port: u16,
    choice: EngineChoice,
    sending: SendingTerms,
    tags: StreamTags,
    napi: Option<Arc<SoftirqWatch>>,
    diagnosis: Option<Mutex<Diagnosis>>,
    /// The profile of the last trial.
    profile: Mutex<Option<Profile>>,
    begun: Mutex<BTreeMap<u64, Begun>>,
    next_number: AtomicU64,
    /// The clock with which senders' clocks are compared.
    clock: MachineClock,
    /// The comparison of each session with its sender's clock, by its number.
    comparisons: Mutex<BTreeMap<u64, ClockComparison>>,
}

/// The receiving engine.
struct Open {
    /// `None` between two engines, and at the end.
    receiver: Option<Receiver>,
    plan: ReceiverPlan,
    /// A socket that gets copies leaves packets to the kernel, which would answer with ICMP errors.
    _sink: Option<UdpSink>,
    /// Senders that rely on it.
    leases: usize,
    /// One engine ends and another begins.
    is_changing: bool,
    /// The counts of the engines before it.
    before: RxSnapshot,
    /// What the engine that is ending had counted, until `before` has all of it: counters never fall.
    ending: RxSnapshot,
}

/// Readings at the beginning of a trial.
struct Begun {
    snapshot: RxSnapshot,
    counters: HostCounters,
    cpus: Option<CpuWatch>,
    watch: Option<StreamWatch>,
}

fn sink_of(plan: &ReceiverPlan) -> Option<UdpSink> {
    let copies = plan.engine.facts().reads == RxLayer::Copies;
    copies.then(|| UdpSink::open(plan.traffic.local).ok()).flatten()
}

impl Counting {
    pub(super) fn over(
        plan: &ReceiverPlan,
        cpus: &[u32],
        (receiver, tags): (Receiver, StreamTags),
        diagnosis: Option<Diagnosis>,
        (choice, sending, ptp4l): (EngineChoice, SendingTerms, Option<&Path>),
    ) -> Self {
        let local = receiver.local_address();
        let mut base = plan.clone();
        // Another engine gets the port that the kernel chose for this one.
        base.traffic.local.set_port(local.port());
        let open = Open {
            receiver: Some(receiver),
            _sink: sink_of(&base),
            plan: base.clone(),
            leases: 0,
            is_changing: false,
            before: RxSnapshot::default(),
            ending: RxSnapshot::default(),
        };
        Self {
            receiver: Mutex::new(open),
            free: Condvar::new(),
            base: Mutex::new(base),
            cpus: cpus.to_vec(),
            port: local.port(),
            choice,
            sending,
            tags,
            napi: diagnosis.as_ref().and_then(Diagnosis::napi),
            diagnosis: diagnosis.map(Mutex::new),
            profile: Mutex::default(),
            begun: Mutex::default(),
            next_number: AtomicU64::new(0),
            clock: MachineClock::kept_by(ptp4l),
            comparisons: Mutex::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.receiver.lock().expect("no holder panics")
    }

    fn base(&self) -> ReceiverPlan {
        self.base.lock().expect("no holder panics").clone()
    }

    /// Opens the receiver anew with this measurement, unless a sender relies on it.
    pub(super) fn measure(&self, statistics: Option<StatisticsPlan>) -> Result<(), String> {
        let before = self.base();
        let mut plan = before.clone();
        plan.traffic.statistics = statistics;
        {
            let mut open = self.open();
            if open.leases > 0 || open.is_changing {
                return Err("a sender is being served: wait until it has finished".into());
            }
            // No sender may take it meanwhile.
            open.is_changing = true;
        }
        let set_base = |plan: &ReceiverPlan| *self.base.lock().expect("no holder panics") = plan.clone();
        set_base(&plan);
        self.change_to(&plan).inspect_err(|_| {
            set_base(&before);
            self.change_to(&before).ok();
        })?;
        self.forget_comparisons();
        Ok(())
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&Receiver) -> T) -> Option<T> {
        self.open().receiver.as_ref().map(look)
    }

    pub(super) fn snapshot(&self) -> RxSnapshot {
        let open = self.open();
        let now = open.receiver.as_ref().map(Receiver::snapshot).unwrap_or_default();
        open.before.plus(open.ending).plus(now)
    }

    pub(super) fn is_broken(&self) -> bool {
        let open = self.open();
        !open.is_changing && open.receiver.as_ref().is_none_or(Receiver::is_finished)
    }

    /// The comparisons of senders' clocks in their sessions.
    pub(super) fn comparisons(&self) -> Vec<ClockComparison> {
        self.comparisons.lock().expect("no holder panics").values().cloned().collect()
    }

    /// Statistics begin anew: sessions that ended before are not part of them.
    pub(super) fn forget_comparisons(&self) {
        let begun = self.begun.lock().expect("no holder panics");
        self.comparisons.lock().expect("no holder panics").retain(|number, _| begun.contains_key(number));
    }

    pub(super) fn stop(&self) -> Option<ReceiverResult> {
        let receiver = self.open().receiver.take();
        receiver.map(Receiver::stop)
    }

    pub(super) fn tick(&self) {
        // A report in progress empties the rings itself.
        let free = self.diagnosis.as_ref().and_then(|diagnosis| diagnosis.try_lock().ok());
        free.into_iter().for_each(|mut diagnosis| diagnosis.tick());
    }

    pub(super) fn take_profile(&self) -> Option<Profile> {
        self.profile.lock().expect("no holder panics").take()
    }

    fn diagnosis(&self) -> Option<MutexGuard<'_, Diagnosis>> {
        self.diagnosis.as_ref().map(|diagnosis| diagnosis.lock().expect("no holder panics"))
    }

    fn facts_and_endpoint(&self) -> (RxFacts, Endpoint) {
        let plan = self.open().plan.clone();
        (plan.engine.facts(), rx_endpoint(&plan.engine, &plan.traffic, &self.cpus))
    }

    /// Ends the receiving engine, and opens another one on the same port. No thread waits for this under the lock.
    fn change_to(&self, plan: &ReceiverPlan) -> Result<(), String> {
        let ended = {
            let mut open = self.open();
            open.is_changing = true;
            open._sink = None;
            let ended = open.receiver.take();
            open.ending = ended.as_ref().map(Receiver::snapshot).unwrap_or_default();
            ended
        };
        let counted = ended.map(|receiver| receiver.stop().tally()).unwrap_or_default();
        let placement = Placement { enter: None, cpus: self.cpus.clone() };
        let started = plan.start_tagged(&placement, self.tags);
        let mut open = self.open();
        (open.before, open.ending) = (open.before.plus(counted), RxSnapshot::default());
        open.is_changing = false;
        self.free.notify_all();
        match started {
            Ok(receiver) => {
                (open.receiver, open.plan, open._sink) = (Some(receiver), plan.clone(), sink_of(plan));
                Ok(())
            }
            Err(error) => {
                let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
                Err(causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}")))
            }
        }
    }

    /// Where a sender's packets arrive, and how they can be watched there.
    fn watch(&self, joining: &Joining<'_>) -> Option<StreamWatch> {
        let plan = self.open().plan.clone();
        let watching = self
            .begun
            .lock()
            .expect("no holder panics")
            .values()
            .filter(|begun| begun.watch.is_some())
            .count();
        // No program sees the frames of a card without its kernel driver.
        let takes_card = plan.engine.facts().reads == RxLayer::Card;
        if !joining.witness || takes_card || watching >= MOST_WATCHES {
            return None;
        }
        let interface = plan.traffic.interface.clone().or_else(|| interface_towards(joining.peer))?;
        let reads = plan.engine.facts().reads;
        let mut tags = joining.tags.to_vec();
        tags.dedup();
        Some(StreamWatch::start(StreamScope {
            interface,
            streams: Streams { port: self.port, tags },
            host: HostSide::Receiver,
            // Programs in XDP take packets in front of tc.
            passes_tc: matches!(reads, RxLayer::Socket | RxLayer::Copies),
            // In front of a program in the driver nothing drops buffers, but each packet that it takes from a veth looks
            // dropped: 120 ns to find out that it was not.
            names_drops: reads != RxLayer::XdpProgram,
            reads: Some(reads),
        }))
    }
}

impl Counts for Counting {
    fn tag(&self, stream: u16) -> u16 {
        self.tags.tag(stream)
    }

    fn progress(&self, tags: &[u16]) -> Progress {
        let count = |receiver: &Receiver| {
            let each = tags.iter().map(|tag| receiver.stream(*tag));
            (each.fold(StreamCount::default(), StreamCount::plus), receiver.snapshot().lost)
        };
        let (streams, dropped) = self.with(count).unwrap_or_default();
        Progress { packets: streams.packets, payload_bytes: streams.payload_bytes, dropped }
    }

    fn receive_by(&self, wanted: Option<&Wanted>, sender: SocketAddr) -> Result<(), String> {
        let plan = match wanted {
            Some(wanted) => self.choice.plan(wanted, &self.base(), sender)?,
            None => self.base(),
        };
        {
            // A sender that has just finished may not have left yet.
            let is_taken = |open: &mut Open| open.is_changing || open.leases > 0 && open.plan != plan;
            let waited = self.free.wait_timeout_while(self.open(), TURN_PATIENCE, is_taken);
            let (mut open, _) = waited.expect("no holder panics");
            if open.leases > 0 || open.is_changing {
                if open.plan != plan || open.is_changing {
                    let other = &open.plan.engine;
                    return Err(format!(
                        "the receiver uses the engine {other} for another sender: wait until it has finished"
                    ));
                }
                open.leases += 1;
                return Ok(());
            }
            open.leases = 1;
            if open.plan == plan && open.receiver.is_some() {
                return Ok(());
            }
        }
        self.change_to(&plan).inspect_err(|_| {
            self.change_to(&self.base()).ok();
            self.open().leases -= 1;
        })
    }

    fn release(&self) {
        let base = self.base();
        let is_free = {
            let mut open = self.open();
            open.leases -= 1;
            self.free.notify_all();
            let is_free = open.leases == 0 && open.plan != base;
            // No other thread may change it meanwhile.
            open.is_changing |= is_free;
            is_free
        };
        if is_free {
            // Without its own engine the receiver is broken, and ends.
            self.change_to(&base).ok();
        }
    }

    fn send_back(
        &self,
        to: SocketAddr,
        plan: &Value,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Box<Trial>, String> {
        send_back(to, plan, &self.sending, go_on)
    }

    fn begin(&self, joining: &Joining<'_>) -> u64 {
        let readings = Begun {
            watch: self.watch(joining),
            snapshot: self.snapshot(),
            counters: HostCounters::read(None).unwrap_or_default(),
            cpus: CpuWatch::start(self.napi.clone()).ok(),
        };
        let mut begun = self.begun.lock().expect("no holder panics");
        let number = self.next_number.fetch_add(1, Relaxed);
        begun.insert(number, readings);
        number
    }

    fn clock(&self) -> Option<&dyn HostClock> {
        self.with(|receiver| receiver.clocks().is_some())?.then_some(&self.clock)
    }

    fn relate(&self, begun: u64, related: &Related<'_>) {
        let ahead = SenderAhead { uptime_ns: related.uptime_ahead_ns, wall_ns: related.wall_ahead_ns };
        if let Some(clocks) = self.with(|receiver| receiver.clocks().cloned()).flatten() {
            clocks.set(related.tags, Some(ahead));
        }
        let mut comparisons = self.comparisons.lock().expect("no holder panics");
        comparisons.insert(begun, related.comparison.clone());
        if comparisons.len() > MOST_COMPARISONS {
            // The widest bounds remain: they are valid for all.
            let narrowest = comparisons.iter().min_by_key(|(_, one)| one.bound_ns.unwrap_or(u64::MAX));
            let number = narrowest.map(|(number, _)| *number);
            number.map(|number| comparisons.remove(&number));
        }
    }

    fn abandon(&self, begun: u64) {
        self.begun.lock().expect("no holder panics").remove(&begun);
    }

    fn allow_returns(&self, sender: IpAddr) -> Result<(), String> {
        let returns = self.with(|receiver| receiver.returns().cloned()).flatten();
        let returns = returns.ok_or("this receiver sends no packets back: start it with --reflect")?;
        returns.allow(sender).map_err(|error| error.to_string())
    }

    fn end_returns(&self, sender: IpAddr) {
        // A receiver that is stopping has no engine left to return packets with.
        if let Some(returns) = self.with(|receiver| receiver.returns().cloned()).flatten() {
            returns.forget(sender).ok();
        }
    }

    fn profiles(&self) -> bool {
        self.diagnosis.is_some()
    }

    /// A trial's profile covers the time since the previous trial.
    fn report(&self, begun: u64, delivered: u64, senders: u32) -> Report {
        let whole = self.diagnosis().map(|mut diagnosis| diagnosis.take(delivered));
        let profile = whole.clone().map(|whole| Profile { stacks: Vec::new(), ..whole });
        *self.profile.lock().expect("no holder panics") = whole;
        let began = self.begun.lock().expect("no holder panics").remove(&begun);
        let (facts, endpoint) = self.facts_and_endpoint();
        let mut lines = Vec::new();
        let mut cpus = Vec::new();
        let mut wire = None;
        if let Some(began) = began {
            let tally = self.snapshot();
            let lost = tally.lost.saturating_sub(began.snapshot.lost);
            // Counters of the host and its sockets belong to a sender only while it is alone.
            let alone = senders == 1;
            let own = if alone { lines_of_own(&began, facts, (delivered, lost), &tally) } else { Vec::new() };
            let seen = began.watch.as_ref().map(StreamWatch::seen);
            (lines, wire) = with_seen(own, seen, facts, delivered);
            cpus = began.cpus.and_then(|watch| watch.shares().ok()).unwrap_or_default();
        }
        lines.retain(|line: &LedgerLine| line.packets > 0);
        let clocks = None;
        Report { delivered, lines, rx: endpoint, cost: Cost::default(), cpus, senders, profile, wire, clocks }
    }
}

/// The losses of the receiver's own sockets and rings.
fn lines_of_own(
    began: &Begun,
    facts: RxFacts,
    (delivered, lost): (u64, u64),
    tally: &RxSnapshot,
) -> Vec<LedgerLine> {
    if facts.reads != RxLayer::Socket {
        return facts.own_loss.map(|own| lost_at_port(own, lost)).into_iter().collect();
    }
    let now = HostCounters::read(None);
    let since = |now: HostCounters| now.since(&began.counters, &Drivers::built_in());
    let counters = now.map(since).unwrap_or_default();
    let received = Received {
        delivered,
        lost,
        gro: facts.joins_datagrams,
        joined: joined(tally),
        is_udp: true,
        ..Received::default()
    };
    host_rx_lines(&counters, &received)
}

/// The receiver's lines, and its driver's count. The kernel's drops of this sender's packets are exact; rings and sockets
/// also count those of others, and explain no more than is missing.
fn with_seen(
    own: Vec<LedgerLine>,
    seen: Option<StreamSeen>,
    facts: RxFacts,
    delivered: u64,
) -> (Vec<LedgerLine>, Option<WireReport>) {
    let Some(seen) = seen else { return (own, None) };
    let is_at_driver = matches!(facts.reads, RxLayer::XdpSocket | RxLayer::XdpProgram);
    let mut lines = seen.named.clone();
    let behind_tc = |line: &LedgerLine| line.place.known().is_none_or(|place| place > Place::Backlog);
    if is_at_driver {
        let lost: u64 = own.iter().map(|line| line.packets).sum();
        lines.retain(|line| !behind_tc(line));
        // A redirect fails, too, when the socket has no room: it counts those itself.
        let mut of_socket = lost;
        for line in lines.iter_mut().filter(|line| line.place.known() == Some(Place::XdpRedirect)) {
            let both = line.packets.min(of_socket);
            line.packets -= both;
            of_socket -= both;
        }
        let dropped_here: u64 = lines.iter().map(|line| line.packets).sum();
        lines.extend(own.into_iter().map(|line| line.on(HostSide::Receiver)));
        let wire = WireReport {
            seen: Some(delivered + lost + dropped_here),
            source: "the engine is at the driver".into(),
            of_all_traffic: seen.of_all_traffic,
            cost_ns: seen.cost_ns,
            doubts: seen.doubts,
        };
        return (lines, Some(wire));
    }
    let named = |lines: &[LedgerLine]| -> u64 {
        lines.iter().filter(|line| behind_tc(line)).map(|line| line.packets).sum()
    };
    let in_front: u64 = lines.iter().filter(|line| !behind_tc(line)).map(|line| line.packets).sum();
    for line in own {
        let is_named = lines.iter().any(|other| other.place == line.place);
        let room = seen.packets.map(|seen| seen.saturating_sub(delivered).saturating_sub(named(&lines)));
        let packets = room.map_or(line.packets, |room| room.min(line.packets));
        if !(is_named && seen.names_drops) {
            lines.push(LedgerLine { packets, ..line }.on(HostSide::Receiver));
        }
    }
    let wire = WireReport {
        // The driver handed on the packets that the kernel dropped before tc.
        seen: seen.packets.map(|packets| packets + in_front),
        source: seen.source,
        of_all_traffic: seen.of_all_traffic,
        cost_ns: seen.cost_ns,
        doubts: seen.doubts,
    };
    (lines, Some(wire))
}

/// The losses of a receiver below the sockets.
fn lost_at_port((place, source): (Place, &str), lost: u64) -> LedgerLine {
    LedgerLine::new(place, lost, source).with_remedy("the reader does not keep up: more threads, or --spin")
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, thread};

    use traffic::RxTraffic;

    use super::*;
    use crate::reception::{Policy, Reception};

    #[test]
    fn a_redirect_that_failed_at_a_full_socket_is_counted_once() {
        let plan = ReceiverPlan {
            engine: "xsk".parse().unwrap(),
            traffic: RxTraffic::at(([127, 0, 0, 1], 0).into()),
        };
        let redirect = LedgerLine::at(Place::XdpRedirect, 8_115, "xdp_redirect_err");
        let seen = StreamSeen { named: vec![redirect], names_drops: true, ..StreamSeen::default() };
        let own = vec![LedgerLine::at(Place::XskRingFull, 2_944, "rx_ring_full")];
        let (lines, wire) = with_seen(own, Some(seen), plan.engine.facts(), 205_901);
        let lines: Vec<_> = lines.iter().map(|line| (line.place.known().unwrap(), line.packets)).collect();
        assert_eq!(lines, [(Place::XdpRedirect, 5_171), (Place::XskRingFull, 2_944)]);
        assert_eq!(wire.unwrap().seen, Some(214_016), "all of them reached this host");
    }

    #[test]
    fn counters_never_fall_while_the_engine_changes() {
        let traffic = RxTraffic::at(([127, 0, 0, 1], 0).into());
        let plan = ReceiverPlan { engine: "udp".parse().unwrap(), traffic };
        let reception = Reception::start(&plan, &[0], None, Policy::default()).unwrap();
        let counting = &reception.counting;
        let to = reception.address().unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..10 {
            from.send_to(b"no probe", to).unwrap();
        }
        testing::wait_for("ten datagrams", || counting.snapshot().foreign == 10);
        let other = Wanted { engine: "udp+reuseport".into(), threads: 1 };
        thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for _ in 0..10 {
                    counting.receive_by(Some(&other), from.local_addr().unwrap()).unwrap();
                    counting.release();
                }
            });
            while !changes.is_finished() {
                assert_eq!(counting.snapshot().foreign, 10);
            }
        });
        assert_eq!(counting.snapshot().foreign, 10);
    }
}
