//! One queue's thread: takes packets, gets verdicts, re-injects, and reports that it runs.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bpf::{Divert, Inject, LIVE_RUN_GAP_NS};
use port::{After, Turn, Wait, XskQueue, XskQueueOptions};
use sys::{
    clock, cpu,
    xsk::{CopyMode, XskStatistics},
};

use crate::{
    card::Card,
    checksum,
    error::DivertError,
    plan::DivertPlan,
    record::Recorder,
    verdict::{Frame, Verdict, Verdicts},
};

/// Counts of a queue's packets; each packet is in one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) reinjected: u64,
    /// For re-injection, but too long or too many.
    pub(crate) not_reinjected: u64,
    pub(crate) kept: u64,
    pub(crate) sent: u64,
    /// For sending, but refused by the card.
    pub(crate) unsent: u64,
}

const FIELDS: usize = 7;

/// State shared with the thread.
struct Shared<V> {
    stop: AtomicBool,
    /// Grows while the thread runs with free frames.
    alive: AtomicU64,
    /// [`Tally`], field by field; the thread is the only writer.
    tally: [AtomicU64; FIELDS],
    has_news: AtomicBool,
    news: Mutex<Option<V>>,
    broken: Mutex<Option<DivertError>>,
}

/// A queue that is diverted into this process.
pub(crate) struct Worker<V> {
    shared: Arc<Shared<V>>,
    thread: Option<JoinHandle<()>>,
    queue: u32,
    /// A second descriptor of the thread's socket.
    socket: OwnedFd,
    cpu: Option<u32>,
    is_zero_copy: bool,
    /// The kernel's counters when it was last asked.
    statistics: Arc<Mutex<XskStatistics>>,
    seen_alive: u64,
}

/// The destinations of a worker's packets.
pub(crate) struct Recorders {
    pub(crate) samples: Option<Recorder>,
    pub(crate) kept: Option<Recorder>,
}

/// A queue that has its socket and no thread yet.
pub(crate) struct OpenQueue {
    socket: XskQueue,
    inject: Option<Inject>,
}

impl OpenQueue {
    /// Opens the socket and the re-injector in the calling thread's namespace.
    pub(crate) fn open(plan: &DivertPlan, card: &Card, queue: u32) -> Result<Self, DivertError> {
        let socket = XskQueue::open(&XskQueueOptions::on(&plan.interface, queue))?;
        let inject = plan.reinject.then(|| Inject::load(card.index)).transpose()?;
        Ok(Self { socket, inject })
    }

    pub(crate) fn socket(&self) -> &XskQueue {
        &self.socket
    }
}

impl<V: Verdicts + 'static> Worker<V> {
    /// Starts the thread of a queue.
    pub(crate) fn start(
        open: OpenQueue,
        plan: &DivertPlan,
        recorders: Recorders,
        verdicts: V,
    ) -> Result<Self, DivertError> {
        let queue = open.socket.queue();
        let unusable = |source| DivertError::Thread { queue, source };
        let is_zero_copy = open.socket.got().copy_mode == CopyMode::ZeroCopy;
        let socket = open.socket.as_fd().try_clone_to_owned().map_err(unusable)?;
        let at = plan.queues.iter().position(|known| *known == queue);
        let cpu = at.and_then(|at| plan.cpus.get(at)).copied();
        let may_go_first = plan.threads_go_first();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            alive: AtomicU64::new(1),
            tally: Default::default(),
            has_news: AtomicBool::new(false),
            news: Mutex::new(None),
            broken: Mutex::new(None),
        });
        let statistics = Arc::new(Mutex::new(XskStatistics::default()));
        let mut worker = Loop {
            socket: open.socket,
            giving: open.inject.map(Giving::new),
            recorders,
            sample_one_in: u64::from(plan.sample_one_in),
            wait: if plan.spin { Wait::Spin } else { Wait::Block },
            goes_first: false,
            shared: shared.clone(),
            statistics: statistics.clone(),
        };
        let (pinned, is_pinned) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("divert-{queue}"))
            .spawn(move || {
                let outcome = cpu.map_or(Ok(()), cpu::pin_to);
                let is_pinned = outcome.is_ok();
                // The packet processing of a flooded queue on the same CPU fills the socket's ring within a time slice.
                // Without priority, the thread has only as much time as the ring holds.
                worker.goes_first = may_go_first && cpu.is_some() && cpu::go_first(0).is_ok();
                pinned.send(outcome).ok();
                if is_pinned {
                    worker.run(verdicts);
                }
            })
            .map_err(unusable)?;
        let worker = Self {
            shared,
            thread: Some(thread),
            queue,
            socket,
            cpu,
            statistics,
            seen_alive: 0,
            is_zero_copy,
        };
        if let (Ok(Err(source)), Some(cpu)) = (is_pinned.recv(), cpu) {
            return Err(DivertError::Pin { queue, cpu, source });
        }
        Ok(worker)
    }

    pub(crate) fn queue(&self) -> u32 {
        self.queue
    }

    /// Puts the queue's socket in its slot of another program, too.
    pub(crate) fn insert_into(&self, program: &mut Divert) -> Result<(), DivertError> {
        Ok(program.insert(self.queue, &self.socket)?)
    }

    pub(crate) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    pub(crate) fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    /// Whether the thread has run since the last call.
    pub(crate) fn is_well(&mut self) -> bool {
        let alive = self.shared.alive.load(Relaxed);
        let is_well = alive != self.seen_alive;
        self.seen_alive = alive;
        is_well
    }

    /// Uses these verdicts from the next batch on.
    pub(crate) fn replace(&self, verdicts: V) {
        *lock(&self.shared.news) = Some(verdicts);
        self.shared.has_news.store(true, Release);
    }

    pub(crate) fn tally(&self) -> Tally {
        let field = |at: usize| self.shared.tally[at].load(Relaxed);
        Tally {
            received: field(0),
            dropped: field(1),
            reinjected: field(2),
            not_reinjected: field(3),
            kept: field(4),
            sent: field(5),
            unsent: field(6),
        }
    }

    /// The kernel's counters of the socket at the thread's last reading: it reads them while idle and
    /// about ten times a second.
    pub(crate) fn statistics(&self) -> XskStatistics {
        *lock(&self.statistics)
    }

    /// Why the thread ended early.
    pub(crate) fn take_error(&self) -> Option<DivertError> {
        lock(&self.shared.broken).take()
    }

    /// Ends the thread once no packet arrives any more; its last counts stay readable.
    pub(crate) fn finish(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl<V> Drop for Worker<V> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The thread's own part.
struct Loop<V> {
    socket: XskQueue,
    giving: Option<Giving>,
    recorders: Recorders,
    sample_one_in: u64,
    wait: Wait,
    /// Whether ordinary threads of this CPU wait while this one runs.
    goes_first: bool,
    shared: Arc<Shared<V>>,
    statistics: Arc<Mutex<XskStatistics>>,
}

/// Re-injects packets in runs with a minimum distance.
struct Giving {
    inject: Inject,
    next_run_ns: u64,
}

impl Giving {
    fn new(inject: Inject) -> Self {
        Self { inject, next_run_ns: 0 }
    }

    /// Packets that the kernel took of those that wait, when it is time for a run or there is no room for another turn.
    fn turn(&mut self, most_a_turn: usize) -> Result<usize, DivertError> {
        if self.inject.waiting() == 0 {
            return Ok(0);
        }
        let now_ns = clock::monotonic_ns();
        if now_ns < self.next_run_ns && self.inject.room() >= most_a_turn {
            return Ok(0);
        }
        self.next_run_ns = now_ns + LIVE_RUN_GAP_NS;
        Ok(self.inject.flush()?)
    }
}

/// Turns without a packet, of 20 ms each, after which a returned queue is empty.
const LAST_TURNS: u32 = 2;
/// How long the kernel may take for the last re-injected packets.
const LAST_RUNS_NS: u64 = 2_000_000_000;
/// How often the kernel's counters are read under load.
const ASK_NS: u64 = 100_000_000;

impl<V: Verdicts> Loop<V> {
    /// Runs until it is stopped and the queue is empty, or the socket breaks.
    fn run(mut self, mut verdicts: V) {
        let mut tally = Tally::default();
        let (mut asked_ns, mut idle_turns, mut end_ns) = (0, 0, u64::MAX);
        loop {
            if self.shared.has_news.swap(false, Acquire)
                && let Some(news) = lock(&self.shared.news).take()
            {
                verdicts = news;
            }
            let stopping = self.shared.stop.load(Relaxed);
            let wait = match stopping {
                _ if self.has_waiting() => Wait::Spin,
                // A stopping thread waits for a packet one last time.
                true => Wait::Block,
                false => self.wait,
            };
            let turn = match self.turn(wait, &mut verdicts, &mut tally) {
                Ok(turn) => turn,
                Err(error) => {
                    *lock(&self.shared.broken) = Some(error);
                    break;
                }
            };
            let now_ns = clock::monotonic_ns();
            self.publish(&tally);
            verdicts.batch_done(turn.received, now_ns);
            if !turn.starved {
                self.shared.alive.fetch_add(1, Relaxed);
            }
            if turn.received == 0 || now_ns - asked_ns > ASK_NS {
                asked_ns = now_ns;
                self.ask();
            }
            if stopping && end_ns == u64::MAX {
                end_ns = now_ns + LAST_RUNS_NS;
            }
            if !self.has_waiting() || now_ns > end_ns {
                idle_turns = if stopping && turn.received == 0 { idle_turns + 1 } else { 0 };
            }
            if idle_turns == LAST_TURNS {
                break;
            }
            if self.goes_first && turn.received == 0 {
                self.await_next_run(now_ns);
            }
        }
        tally.not_reinjected += self.giving.as_ref().map_or(0, |giving| giving.inject.waiting() as u64);
        self.publish(&tally);
        self.ask();
    }

    /// Packets that wait for a run must not keep ordinary threads from this CPU, least of all packet processing.
    fn await_next_run(&self, now_ns: u64) {
        let giving = self.giving.as_ref().filter(|giving| giving.inject.waiting() > 0);
        let wait_ns = giving.map_or(0, |giving| giving.next_run_ns.saturating_sub(now_ns));
        if wait_ns > 0 {
            thread::sleep(Duration::from_nanos(wait_ns));
        }
    }

    fn has_waiting(&self) -> bool {
        self.giving.as_ref().is_some_and(|giving| giving.inject.waiting() > 0)
    }

    #[inline]
    fn turn(&mut self, wait: Wait, verdicts: &mut V, tally: &mut Tally) -> Result<Turn, DivertError> {
        let Self { socket, giving, recorders, sample_one_in, .. } = self;
        let records = *sample_one_in > 0 || recorders.kept.is_some();
        let time_ns = if records { clock::realtime_ns() } else { 0 };
        let unsent = socket.unsent();
        let turn = socket.turn(wait, |bytes, len| {
            let mut frame = Frame::new(bytes, len);
            tally.received += 1;
            match verdicts.verdict(&mut frame) {
                Verdict::Drop => {
                    if *sample_one_in > 0
                        && tally.dropped.is_multiple_of(*sample_one_in)
                        && let Some(samples) = &recorders.samples
                    {
                        samples.record_with(time_ns, frame.bytes(), frame.bytes().len(), verdicts.comment());
                    }
                    tally.dropped += 1;
                }
                Verdict::Reinject => {
                    checksum::complete(frame.bytes_mut());
                    // Without re-injection, as the plan states, passed packets are discarded.
                    let taken = giving.as_mut().is_some_and(|giving| giving.inject.push(frame.bytes()));
                    tally.not_reinjected += u64::from(!taken);
                }
                Verdict::Keep => {
                    tally.kept += 1;
                    if let Some(kept) = &recorders.kept {
                        kept.record_with(time_ns, frame.bytes(), frame.bytes().len(), String::new());
                    }
                }
                Verdict::Send => {
                    checksum::complete(frame.bytes_mut());
                    return After::Send(frame.bytes().len());
                }
            }
            After::Recycle
        })?;
        tally.sent += turn.sent as u64;
        tally.unsent += socket.unsent() - unsent;
        if let Some(giving) = giving {
            tally.reinjected += giving.turn(socket.batch_size())? as u64;
        }
        Ok(turn)
    }

    fn publish(&self, tally: &Tally) {
        let Tally { received, dropped, reinjected, not_reinjected, kept, sent, unsent } = *tally;
        let fields = [received, dropped, reinjected, not_reinjected, kept, sent, unsent];
        for (shared, field) in self.shared.tally.iter().zip(fields) {
            shared.store(field, Relaxed);
        }
    }

    fn ask(&self) {
        if let Ok(statistics) = self.socket.statistics() {
            *lock(&self.statistics) = statistics;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
