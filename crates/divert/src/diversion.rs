//! A running diversion: dropping it undoes its changes.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bpf::{BpfError, Divert, Mode, Passed, RuleCount};
use measure::{
    DivertLedger, DivertQueue as QueueStatus, DivertRule as RuleStatus, DivertStatus as Status,
    DivertSteering, Fate, FilterAt,
};
use nic::Repaired;
use sys::{clock, rtnetlink::RouteSocket, xsk::XskStatistics};

use crate::{
    card::Card,
    classify::Classifier,
    deadline::DEADLINE,
    error::{DivertError, RuleError},
    plan::DivertPlan,
    record::{Form, Recording},
    rules::{Rule, RuleVerdict, Ruleset},
    select::Selection,
    steering::{Left, Steered},
    verdict::{Frame, Verdict, Verdicts},
    worker::{OpenQueue, Recorders, Tally, Worker},
};

/// How long a replaced program may take to count packets that it had begun, even on a busy machine.
const RETIRED_AFTER: Duration = Duration::from_secs(1);

/// How long packets may take to reach their sockets.
const ARRIVED_AFTER: Duration = Duration::from_secs(5);
/// How often to look for them.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Makes the verdicts of a queue's thread.
type MakeVerdicts<V> = Box<dyn Fn(u32) -> V + Send>;

/// A running diversion.
pub struct Diversion<V: Verdicts + 'static = RuleVerdicts> {
    plan: DivertPlan,
    card: Card,
    mode: Mode,
    program: Divert,
    /// The program's time for a packet of a queue that is not diverted.
    other_queues_ns: Option<u64>,
    /// The rules of the kernel's program, in its order.
    kernel_rules: Vec<Rule>,
    /// The comments of sampled packets, by rule.
    comments: Arc<[String]>,
    retired: Vec<Retired>,
    /// The counts of replaced programs and removed queues.
    past: Past,
    workers: Vec<Worker<V>>,
    make: MakeVerdicts<V>,
    /// The rules' counts in user space.
    counters: Arc<Vec<RuleTally>>,
    samples: Option<Recording>,
    kept: Option<Recording>,
    began: Instant,
    reloads: u64,
    rejected_reloads: u64,
    /// Queues that were diverted at the last beat.
    diverted: Vec<u32>,
    /// Settings that resets changed and that were restored.
    repaired: Vec<String>,
    /// The card's settings are restored last.
    steered: Option<Steered>,
}

/// A program that was replaced, until the last packets that it had begun are counted.
struct Retired {
    since: Instant,
    program: Divert,
    rules: Vec<Rule>,
    comments: Arc<[String]>,
}

/// Rules that are ready to take the place of others: compiled, and in the kernel.
pub struct Prepared {
    ruleset: Ruleset,
    program: Divert,
    kernel_rules: Vec<Rule>,
    make: MakeVerdicts<RuleVerdicts>,
    counters: Arc<Vec<RuleTally>>,
}

/// Prepares rules of a diversion that runs, on any thread.
#[derive(Debug, Clone)]
pub struct Preparation {
    plan: DivertPlan,
    card: Card,
}

#[derive(Default)]
struct Past {
    passed: Passed,
    /// What the kernel's programs counted.
    kernel: HashMap<RuleKey, RuleCount>,
    /// What the queues' threads counted.
    user: HashMap<RuleKey, UserCount>,
    tally: Tally,
    statistics: XskStatistics,
}

/// Identifies a rule, so that its counts survive a reload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RuleKey {
    verdict: RuleVerdict,
    text: String,
}

/// What the queues' threads counted of a rule.
#[derive(Debug, Clone, Copy, Default)]
struct UserCount {
    packets: u64,
    bytes: u64,
}

/// Verdicts by the rules of the plan.
pub struct RuleVerdicts {
    classifier: Classifier,
    verdicts: Vec<RuleVerdict>,
    counts: Vec<[u64; 2]>,
    /// The rules that took a packet since the last batch.
    touched: Vec<u32>,
    /// The rule of the last packet, from 0, while samples are taken.
    last: Option<u32>,
    comments: Arc<[String]>,
    counters: Arc<Vec<RuleTally>>,
    reinject: bool,
    shadow: bool,
}

/// Packets and bytes that a rule took in all queues' threads.
type RuleTally = [AtomicU64; 2];

impl Diversion {
    /// Runs a plan with its own rules.
    ///
    /// # Errors
    /// [`DivertError`]; all changes are undone then.
    pub fn start(plan: &DivertPlan) -> Result<Self, DivertError> {
        let (make, counters) = make_verdicts(plan)?;
        Self::begin(plan, make, counters)
    }

    /// Replaces the rules between two packets.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn reload(&mut self, rules: Vec<Rule>) -> Result<(), DivertError> {
        self.replace(Ruleset { rules, ..self.plan.ruleset() })
    }

    /// Replaces match, rules and sets between two packets.
    ///
    /// # Errors
    /// As [`Preparation::prepare`] and [`take`](Self::take).
    pub fn replace(&mut self, ruleset: Ruleset) -> Result<(), DivertError> {
        let prepared = self.preparation().prepare(ruleset)?;
        self.take(prepared)
    }

    /// Prepares other rules, possibly on another thread: a million networks or a thousand rules may take longer to
    /// compile than a queue's deadline.
    pub fn preparation(&self) -> Preparation {
        Preparation { plan: self.plan.clone(), card: self.card.clone() }
    }

    /// Replaces the rules by prepared ones, between two packets.
    ///
    /// # Errors
    /// [`DivertError`]; unless it is [`BpfError::Replace`], the old rules stay active.
    pub fn take(&mut self, prepared: Prepared) -> Result<(), DivertError> {
        let Prepared { ruleset, mut program, kernel_rules, make, counters } = prepared;
        for worker in &self.workers {
            // The socket is in the old program's slot; one socket may be in the slots of several.
            worker.insert_into(&mut program)?;
        }
        for queue in &self.diverted {
            program.divert_for(*queue, DEADLINE)?;
        }
        for worker in &self.workers {
            worker.replace(make(worker.queue()));
        }
        program.take_over(&mut self.program)?;
        let Ruleset { selection, rules, sets } = ruleset;
        let plan = DivertPlan { selection, rules, sets, ..self.plan.clone() };
        self.retired.push(Retired {
            since: Instant::now(),
            program: std::mem::replace(&mut self.program, program),
            rules: std::mem::replace(&mut self.kernel_rules, kernel_rules),
            comments: std::mem::replace(&mut self.comments, comments(&plan)),
        });
        self.past.keep_user_rules(&self.plan.rules, &self.counters);
        (self.make, self.counters, self.plan) = (make, counters, plan);
        self.reloads += 1;
        Ok(())
    }
}

impl Preparation {
    /// Compiles rules, and loads the program that decides by them.
    ///
    /// # Errors
    /// [`DivertError`]; [`DivertError::Steered`] where the card steers or drops by the old rules and would have to do so by
    /// others.
    pub fn prepare(&self, ruleset: Ruleset) -> Result<Prepared, DivertError> {
        let Ruleset { selection, rules, sets } = ruleset.clone();
        let plan = DivertPlan { selection, rules, sets, ..self.plan.clone() };
        plan.keeps_steering(&self.card)?;
        let part = plan.kernel_part(&self.card).map_err(first)?;
        let (make, counters) = make_verdicts(&plan)?;
        let (program, kernel_rules) = plan.program(&self.card, part)?;
        Ok(Prepared { ruleset, program, kernel_rules, make, counters })
    }
}

impl<V: Verdicts + 'static> Diversion<V> {
    /// Runs a plan with a filter of the caller's: `make` is called with the number of each queue. The plan's rules do
    /// not apply then, and the filter runs in user space.
    ///
    /// # Errors
    /// [`DivertError`]; all changes are undone then.
    pub fn start_with(
        plan: &DivertPlan,
        make: impl Fn(u32) -> V + Send + 'static,
    ) -> Result<Self, DivertError> {
        let plan = DivertPlan { place: FilterAt::User, ..plan.clone() };
        Self::begin(&plan, Box::new(make), Arc::new(Vec::new()))
    }

    fn begin(
        plan: &DivertPlan,
        make: MakeVerdicts<V>,
        counters: Arc<Vec<RuleTally>>,
    ) -> Result<Self, DivertError> {
        let card = Card::read(&plan.interface)?;
        let part = plan.kernel_part(&card).map_err(first)?;
        let recording = |path: &Option<PathBuf>, form| {
            path.as_deref().map(|path| Recording::create(path, form)).transpose()
        };
        let samples = recording(&plan.sample_file, Form::Pcapng)?;
        let kept = recording(&plan.keep_file, Form::Pcap)?;
        let steered = plan.steering.as_ref().map(|steering| steering.apply(&plan.interface)).transpose()?;
        let mut plan = plan.clone();
        if steered.as_ref().is_some_and(|steered| !steered.left.is_empty()) {
            plan.divert_all(&card);
        }
        let plan = &plan;
        let (mut program, kernel_rules) = plan.program(&card, part)?;
        let other_queues_ns = program.idle_cost().ok().map(clock::nanos);
        let mode = attach(&mut program, plan, &card)?;
        let queues = plan.queues.clone();
        let mut diversion = Self {
            plan: DivertPlan { queues: Vec::new(), ..plan.clone() },
            card,
            mode,
            program,
            other_queues_ns,
            kernel_rules,
            comments: comments(plan),
            retired: Vec::new(),
            past: Past::default(),
            workers: Vec::new(),
            make,
            counters,
            samples,
            kept,
            began: Instant::now(),
            reloads: 0,
            rejected_reloads: 0,
            diverted: Vec::new(),
            repaired: Vec::new(),
            steered,
        };
        for queue in queues {
            diversion.open_queue(queue)?;
        }
        diversion.repair()?;
        Ok(diversion)
    }

    /// A card that resets for a program or a zero-copy socket may lose its tables and rules.
    fn repair(&mut self) -> Result<(), DivertError> {
        let Some(steered) = &mut self.steered else { return Ok(()) };
        let interface = &self.plan.interface;
        let refused = |source| DivertError::Card { interface: interface.clone(), source: Box::new(source) };
        let Repaired { changes, left } = steered.repair().map_err(refused)?;
        self.repaired.extend(changes.iter().map(ToString::to_string));
        steered.refused.extend(left.iter().map(|left| format!("after a reset, {left}")));
        Ok(())
    }

    /// Diverts one more queue without losses on the others. Restores settings that a reset of the card changes.
    ///
    /// # Errors
    /// [`DivertError::NoQueue`], [`DivertError::Diverted`], [`DivertError::Port`] and others.
    pub fn add_queue(&mut self, queue: u32) -> Result<(), DivertError> {
        self.open_queue(queue)?;
        self.repair()
    }

    fn open_queue(&mut self, queue: u32) -> Result<(), DivertError> {
        let interface = self.plan.interface.clone();
        if queue >= self.card.queues {
            return Err(DivertError::NoQueue { interface, queue, queues: self.card.queues });
        }
        if self.plan.queues.contains(&queue) {
            return Err(DivertError::Diverted { interface, queue });
        }
        let plan = DivertPlan {
            queues: self.plan.queues.iter().copied().chain([queue]).collect(),
            ..self.plan.clone()
        };
        if plan.place == FilterAt::User {
            let open = OpenQueue::open(&plan, &self.card, queue)?;
            let recorders = Recorders {
                samples: self.samples.as_ref().map(Recording::recorder),
                kept: self.kept.as_ref().map(Recording::recorder),
            };
            self.program.insert(queue, open.socket())?;
            self.workers.push(Worker::start(open, &plan, recorders, (self.make)(queue))?);
        }
        self.program.divert_for(queue, DEADLINE)?;
        self.diverted.push(queue);
        self.plan = plan;
        Ok(())
    }

    /// Returns a queue to the kernel; packets taken before are still decided.
    ///
    /// # Errors
    /// [`DivertError::NotDiverted`], [`DivertError::Bpf`].
    pub fn remove_queue(&mut self, queue: u32) -> Result<(), DivertError> {
        let Some(at) = self.plan.queues.iter().position(|known| *known == queue) else {
            return Err(DivertError::NotDiverted { interface: self.plan.interface.clone(), queue });
        };
        self.program.give_back(queue)?;
        self.diverted.retain(|known| *known != queue);
        self.plan.queues.remove(at);
        if at < self.plan.cpus.len() {
            self.plan.cpus.remove(at);
        }
        if let Some(at) = self.workers.iter().position(|worker| worker.queue() == queue) {
            let mut worker = self.workers.remove(at);
            worker.finish();
            self.past.keep_worker(&worker);
        }
        Ok(())
    }

    /// Renews the deadline of every queue whose thread runs. Call it every
    /// [`BEAT`](crate::BEAT): otherwise the queues return to the kernel.
    ///
    /// # Errors
    /// [`DivertError::Port`] when a queue's socket broke, such as that of an interface that went down.
    pub fn beat(&mut self) -> Result<(), DivertError> {
        self.diverted.clear();
        for queue in &self.plan.queues {
            let worker = self.workers.iter_mut().find(|worker| worker.queue() == *queue);
            if worker.is_none_or(Worker::is_well) {
                self.program.divert_for(*queue, DEADLINE)?;
                self.diverted.push(*queue);
            }
        }
        self.record_drops();
        while self.retired.first().is_some_and(|retired| retired.since.elapsed() > RETIRED_AFTER) {
            let Retired { program, rules, .. } = self.retired.remove(0);
            self.past.keep_program(&program, &rules)?;
        }
        match self.workers.iter().find_map(Worker::take_error) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Writes the programs' samples to the sample file.
    fn record_drops(&mut self) {
        let Some(samples) = &self.samples else { return };
        let recorder = samples.recorder();
        let since_1970 = clock::realtime_ns() - clock::monotonic_ns();
        let retired = self.retired.iter_mut().map(|retired| (&mut retired.program, &retired.comments));
        for (program, comments) in retired.chain([(&mut self.program, &self.comments)]) {
            program.drops_shown(|shown| {
                let comment = comments.get(shown.rule as usize).cloned().unwrap_or_default();
                let above = if shown.is_limited { ", above the limit" } else { "" };
                let len = shown.len as usize;
                recorder.record_with(since_1970 + shown.time_ns, shown.bytes, len, comment + above);
            });
        }
    }

    /// Whether every queue was diverted at the last [`beat`](Self::beat): no thread hangs.
    pub fn is_well(&self) -> bool {
        self.diverted.len() == self.plan.queues.len()
    }

    /// Counts new rules that were refused earlier, for the status.
    pub fn count_rejected_reload(&mut self) {
        self.rejected_reloads += 1;
    }

    /// Returns all queues and waits for packets in flight; then reads the last counts. Dropping the rest undoes
    /// everything else.
    ///
    /// # Errors
    /// [`DivertError::Bpf`] when the counters cannot be read.
    pub fn finish(mut self) -> Result<Status, DivertError> {
        let queues = self.plan.queues.clone();
        for queue in &queues {
            self.program.give_back(*queue)?;
        }
        // Packets that the program has seen may still be in flight to their sockets, on a busy machine for long.
        let patience = Instant::now() + ARRIVED_AFTER;
        while self.status()?.ledger.unexplained != 0 && Instant::now() < patience {
            thread::sleep(LOOK_AGAIN);
        }
        let mut ended = Vec::new();
        for queue in queues {
            if let Some(at) = self.workers.iter().position(|worker| worker.queue() == queue) {
                self.workers[at].finish();
            }
            ended.extend(self.queue_statuses().into_iter().filter(|status| status.queue == queue));
            self.remove_queue(queue)?;
        }
        self.record_drops();
        self.samples.iter().chain(&self.kept).for_each(|recording| recording.recorder().settle());
        Ok(Status { queues: ended, ..self.status()? })
    }

    /// The counts so far.
    ///
    /// # Errors
    /// [`DivertError::Bpf`] when the counters cannot be read.
    pub fn status(&self) -> Result<Status, DivertError> {
        let (kernel, user) = (self.past.kernel.clone(), self.past.user.clone());
        let mut total = Past { kernel, user, ..self.past };
        for Retired { program, rules, .. } in &self.retired {
            total.keep_program(program, rules)?;
        }
        total.keep_program(&self.program, &self.kernel_rules)?;
        self.workers.iter().for_each(|worker| total.keep_worker(worker));
        let recorders = || self.samples.iter().chain(&self.kept).map(Recording::recorder);
        Ok(Status {
            interface: self.plan.interface.clone(),
            selection: self.plan.selection.as_ref().map(ToString::to_string),
            place: self.plan.place,
            duration_s: self.began.elapsed().as_secs_f64(),
            mode: self.mode.to_string(),
            queues: self.queue_statuses(),
            other_queues_ns: self.other_queues_ns,
            steering: self.steering(),
            rules: self.rule_statuses(&total),
            ledger: self.ledger(&total),
            reloads: self.reloads,
            rejected_reloads: self.rejected_reloads,
            recorded: recorders().map(|recorder| recorder.written()).sum(),
            not_recorded: recorders().map(|recorder| recorder.missed()).sum::<u64>() + total.passed.unsampled,
        })
    }

    /// The card's part of the diversion; `None` if none was requested.
    pub fn steering(&self) -> Option<DivertSteering> {
        self.steered.as_ref().map(|steered| DivertSteering {
            rules: steered.rules.clone(),
            program: steered.left.iter().map(Left::told).collect(),
            refused: steered.refused.clone(),
            repaired: self.repaired.clone(),
        })
    }

    fn queue_statuses(&self) -> Vec<QueueStatus> {
        let status = |queue: &u32| {
            let worker = self.workers.iter().find(|worker| worker.queue() == *queue);
            QueueStatus {
                queue: *queue,
                cpu: worker.and_then(Worker::cpu),
                diverted: self.diverted.contains(queue),
                received: worker.map_or(0, |worker| worker.tally().received),
                zero_copy: worker.map(Worker::is_zero_copy),
            }
        };
        self.plan.queues.iter().map(status).collect()
    }

    /// Whether the interface still exists in the calling thread's namespace. When it disappears,
    /// the kernel sends no notice.
    pub fn has_interface(&self) -> bool {
        RouteSocket::open().and_then(|mut route| route.link_by_index(self.card.index)).is_ok()
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    fn rule_statuses(&self, total: &Past) -> Vec<RuleStatus> {
        let status = |rule: &Rule, count: RuleCount| RuleStatus {
            rule: rule.to_string(),
            packets: count.packets,
            bytes: count.bytes,
            limited_packets: count.limited,
            handed_over_packets: None,
        };
        let in_kernel = |rule: &Rule| total.kernel.get(&RuleKey::of(rule)).copied().unwrap_or_default();
        if self.plan.place == FilterAt::Xdp {
            return self
                .plan
                .rules
                .iter()
                .zip(&self.kernel_rules)
                .map(|(rule, kernel)| status(rule, in_kernel(kernel)))
                .collect();
        }
        let mut rules: Vec<RuleStatus> = Vec::new();
        for (at, rule) in self.plan.rules.iter().enumerate() {
            let user = total.user.get(&RuleKey::of(rule)).copied().unwrap_or_default();
            let mut count = RuleCount { packets: user.packets, bytes: user.bytes, ..RuleCount::default() };
            if let Some([packets, bytes]) = self.counters.get(at) {
                count.packets += packets.load(Relaxed);
                count.bytes += bytes.load(Relaxed);
            }
            let mut handed_over = None;
            if self.plan.program_knows_rules() {
                let kernel = in_kernel(&self.kernel_rules[at]);
                count.limited = kernel.limited;
                count.packets += count.limited;
                handed_over = Some(kernel.packets - kernel.limited - kernel.unsent);
            }
            rules.push(RuleStatus { handed_over_packets: handed_over, ..status(rule, count) });
        }
        rules
    }

    fn ledger(&self, total: &Past) -> DivertLedger {
        let Past { passed, kernel, tally, statistics, .. } = total;
        let sum = |field: fn(&RuleCount) -> u64| kernel.values().map(field).sum::<u64>();
        let of_verdict = |verdict: RuleVerdict| {
            let counts = kernel.iter().filter(|(rule, _)| rule.verdict == verdict);
            counts.map(|(_, count)| count.packets - count.limited).sum::<u64>()
        };
        let program = "counters of the XDP program";
        let thread = "counters of the queues' threads";
        let socket = "XDP_STATISTICS";
        let went_by = passed.unmatched + passed.excluded + passed.kernels + passed.stale;
        let mut ledger =
            DivertLedger { arrived: went_by + sum(|count| count.packets), ..DivertLedger::default() };
        ledger.add(Fate::Passed, "no rule takes them", passed.unmatched, program);
        ledger.add(Fate::Passed, "management, ARP or neighbour discovery", passed.excluded, program);
        ledger.add(Fate::Passed, "came on a queue that is not diverted", passed.kernels, program);
        ledger.add(Fate::Passed, "came after the queue's deadline", passed.stale, program);
        ledger.add(Fate::Dropped, "above a limit", sum(|count| count.limited), program);
        if self.plan.place == FilterAt::Xdp {
            ledger.add(Fate::Passed, "a rule lets them pass", of_verdict(RuleVerdict::Pass), program);
            let drops = of_verdict(RuleVerdict::Drop);
            match self.plan.shadow {
                true => ledger.add(Fate::Passed, "a rule would drop them (--shadow)", drops, program),
                false => ledger.add(Fate::Dropped, "a rule drops them", drops, program),
            }
            return ledger.close();
        }
        ledger.add(Fate::Passed, "no socket took them", sum(|count| count.unsent), program);
        ledger.add(Fate::Dropped, "a filter in user space drops them", tally.dropped, thread);
        ledger.add(Fate::Reinjected, "re-injected into the kernel", tally.reinjected, thread);
        ledger.add(Fate::Kept, "kept for the program", tally.kept, thread);
        ledger.add(Fate::Sent, "sent out of their queue", tally.sent, thread);
        ledger.add(
            Fate::Lost,
            "not re-injected: too long, too many, or without --reinject",
            tally.not_reinjected,
            thread,
        );
        ledger.add(Fate::Lost, "TX ring full", tally.unsent, thread);
        for loss in port::receive_losses(statistics) {
            ledger.add(Fate::Lost, loss.place.name(), loss.packets, socket);
        }
        ledger.close()
    }
}

impl Past {
    fn keep_program(&mut self, program: &Divert, rules: &[Rule]) -> Result<(), BpfError> {
        let passed = program.passed()?;
        self.passed.unmatched += passed.unmatched;
        self.passed.excluded += passed.excluded;
        self.passed.kernels += passed.kernels;
        self.passed.stale += passed.stale;
        self.passed.unsampled += passed.unsampled;
        for (rule, count) in rules.iter().zip(program.rule_counts()?) {
            let total = self.kernel.entry(RuleKey::of(rule)).or_default();
            total.packets += count.packets;
            total.bytes += count.bytes;
            total.limited += count.limited;
            total.limited_bytes += count.limited_bytes;
            total.unsent += count.unsent;
        }
        Ok(())
    }

    fn keep_user_rules(&mut self, rules: &[Rule], counters: &[RuleTally]) {
        for (rule, [packets, bytes]) in rules.iter().zip(counters) {
            let total = self.user.entry(RuleKey::of(rule)).or_default();
            total.packets += packets.load(Relaxed);
            total.bytes += bytes.load(Relaxed);
        }
    }

    fn keep_worker<V: Verdicts + 'static>(&mut self, worker: &Worker<V>) {
        let Tally { received, dropped, reinjected, not_reinjected, kept, sent, unsent } = worker.tally();
        self.tally.received += received;
        self.tally.dropped += dropped;
        self.tally.reinjected += reinjected;
        self.tally.not_reinjected += not_reinjected;
        self.tally.kept += kept;
        self.tally.sent += sent;
        self.tally.unsent += unsent;
        let counted = worker.statistics();
        self.statistics.rx_dropped += counted.rx_dropped;
        self.statistics.rx_ring_full += counted.rx_ring_full;
        self.statistics.rx_fill_ring_empty_descs += counted.rx_fill_ring_empty_descs;
    }
}

impl RuleKey {
    fn of(rule: &Rule) -> Self {
        Self { verdict: rule.verdict, text: rule.to_string() }
    }
}

/// The first of several problems.
fn first(problems: Vec<DivertError>) -> DivertError {
    problems.into_iter().next().expect("a refusal has a reason")
}

/// Native XDP if the driver supports it; otherwise generic XDP, unless packets are re-injected.
fn attach(program: &mut Divert, plan: &DivertPlan, card: &Card) -> Result<Mode, DivertError> {
    match program.attach(card.index, Mode::Native) {
        Err(BpfError::Unsupported { .. }) if plan.place == FilterAt::User && plan.reinject => {
            Err(DivertError::GenericReinjection { interface: plan.interface.clone() })
        }
        Err(BpfError::Unsupported { .. }) => {
            program.attach(card.index, Mode::Generic)?;
            Ok(Mode::Generic)
        }
        attached => Ok(attached.map(|()| Mode::Native)?),
    }
}

/// Makes the verdicts of each queue's thread, and their counters.
fn make_verdicts(plan: &DivertPlan) -> Result<(MakeVerdicts<RuleVerdicts>, Arc<Vec<RuleTally>>), RuleError> {
    let counters: Arc<Vec<RuleTally>> = Arc::new(plan.rules.iter().map(|_| RuleTally::default()).collect());
    let shared = counters.clone();
    let verdicts: Vec<RuleVerdict> = plan.rules.iter().map(|rule| rule.verdict).collect();
    let (reinject, shadow) = (plan.reinject, plan.shadow);
    let rules = if plan.place == FilterAt::User { &plan.rules[..] } else { &[] };
    let classifier = Classifier::new(&Selection::of(rules), &plan.sets)?;
    let comments = comments(plan);
    let make = move |_queue| RuleVerdicts {
        classifier: classifier.clone(),
        counts: vec![[0; 2]; verdicts.len()],
        touched: Vec::with_capacity(verdicts.len()),
        last: None,
        comments: comments.clone(),
        verdicts: verdicts.clone(),
        counters: shared.clone(),
        reinject,
        shadow,
    };
    Ok((Box::new(make), counters))
}

/// The comments of sampled packets, by rule.
fn comments(plan: &DivertPlan) -> Arc<[String]> {
    (1..).zip(&plan.rules).map(|(number, rule)| format!("rule {number}: {rule}")).collect()
}

impl Verdicts for RuleVerdicts {
    #[inline]
    fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict {
        // Packets without a rule go to the kernel.
        let Some(rule) = self.classifier.first(frame.bytes()) else { return self.pass() };
        self.last = Some(rule);
        let [packets, bytes] = &mut self.counts[rule as usize];
        if *packets == 0 {
            self.touched.push(rule);
        }
        *packets += 1;
        *bytes += frame.bytes().len() as u64;
        match self.verdicts[rule as usize] {
            RuleVerdict::Drop if !self.shadow => Verdict::Drop,
            RuleVerdict::Drop | RuleVerdict::Pass => self.pass(),
            RuleVerdict::Keep => Verdict::Keep,
        }
    }

    fn comment(&self) -> String {
        self.last.and_then(|rule| self.comments.get(rule as usize)).cloned().unwrap_or_default()
    }

    fn batch_done(&mut self, _packets: usize, _now_ns: u64) {
        for rule in self.touched.drain(..) {
            let mine = std::mem::take(&mut self.counts[rule as usize]);
            for (mine, shared) in mine.into_iter().zip(&self.counters[rule as usize]) {
                shared.fetch_add(mine, Relaxed);
            }
        }
    }
}

impl RuleVerdicts {
    /// Without re-injection, passed packets are kept.
    fn pass(&self) -> Verdict {
        if self.reinject { Verdict::Reinject } else { Verdict::Keep }
    }
}
