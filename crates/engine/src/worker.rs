//! A crew of workers: opened together, started together, stopped together, and what each one cost.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use sys::{
    clock, cpu,
    cycles::{HardwareCounters, HardwareCounts},
};

use crate::error::EngineError;

/// Where workers live.
#[derive(Clone, Default)]
pub struct Placement {
    /// Makes the calling thread enter the workers' network namespace; `None` stays in this one.
    pub enter: Option<Arc<dyn Fn() -> io::Result<()> + Send + Sync>>,
    /// CPUs to pin workers to, used in turn; empty leaves them to the scheduler.
    pub cpus: Vec<u32>,
}

/// What one worker cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerCost {
    /// User CPU time in nanoseconds.
    pub user_ns: u64,
    /// System CPU time in nanoseconds.
    pub system_ns: u64,
    /// What the CPU's counters say, where they can be read.
    pub hardware: Option<HardwareCounts>,
}

/// What a worker knows of the outside: when to begin, and whether to stop.
pub(crate) struct Shift {
    pub(crate) worker: usize,
    pub(crate) start_ns: u64,
    stop: Arc<AtomicBool>,
}

/// Workers of one side.
pub(crate) struct Crew<T> {
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<T>>,
}

#[derive(Default)]
struct Gate {
    opened: Mutex<Option<Opened>>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum Opened {
    At(u64),
    Never,
}

impl Placement {
    /// Runs `open` where the workers will live.
    pub(crate) fn inside<P: Send>(
        &self,
        open: impl FnOnce() -> Result<P, EngineError> + Send,
    ) -> Result<P, EngineError> {
        let Some(enter) = &self.enter else { return open() };
        thread::scope(|scope| {
            let inside = || {
                enter().map_err(|source| EngineError::Enter { worker: 0, source })?;
                open()
            };
            thread::Builder::new()
                .name("open ports".into())
                .spawn_scoped(scope, inside)
                .map_err(|source| EngineError::Thread { worker: 0, source })?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn settle(&self, worker: usize) -> Result<(), EngineError> {
        if let Some(enter) = &self.enter {
            enter().map_err(|source| EngineError::Enter { worker, source })?;
        }
        if !self.cpus.is_empty() {
            let cpu = self.cpus[worker % self.cpus.len()];
            cpu::pin_to(cpu).map_err(|source| EngineError::Pin { worker, cpu, source })?;
        }
        // Only paced senders feel it, and only as lateness, which the receipt shows.
        clock::use_exact_timers().ok();
        Ok(())
    }
}

impl<T: Send + 'static> Crew<T> {
    /// Starts a thread for each port; all are settled and wait for [`Crew::begin`] when this returns.
    pub(crate) fn gather<P: Send + 'static>(
        name: &str,
        ports: Vec<P>,
        placement: &Placement,
        work: impl Fn(P, Shift) -> T + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let mut crew = Self { stop: Arc::default(), gate: Arc::default(), threads: Vec::new() };
        let (settled, arrivals) = std::sync::mpsc::channel();
        let work = Arc::new(work);
        let workers = ports.len();
        for (worker, port) in ports.into_iter().enumerate() {
            let (settled, work, placement) = (settled.clone(), work.clone(), placement.clone());
            let (stop, gate) = (crew.stop.clone(), crew.gate.clone());
            let body = move || -> Option<T> {
                let outcome = placement.settle(worker);
                let ready = outcome.is_ok();
                settled.send(outcome).expect("the starter listens until all workers settled");
                let start_ns = gate.wait().filter(|_| ready)?;
                Some(work(port, Shift { worker, start_ns, stop }))
            };
            let thread = thread::Builder::new()
                .name(format!("{name} {worker}"))
                .spawn(move || body().expect("a worker that may begin is ready"))
                .map_err(|source| EngineError::Thread { worker, source })?;
            crew.threads.push(thread);
        }
        for _ in 0..workers {
            arrivals.recv().expect("every worker says how it settled")?;
        }
        Ok(crew)
    }

    /// Lets all workers begin at once; returns the moment in monotonic nanoseconds.
    pub(crate) fn begin(&self) -> u64 {
        let now = clock::monotonic_ns();
        self.gate.open(Opened::At(now));
        now
    }

    /// Asks all workers to stop, without waiting.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether all workers have ended by themselves.
    pub(crate) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all workers. They must have begun.
    pub(crate) fn join(mut self) -> Vec<T> {
        std::mem::take(&mut self.threads)
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }
}

impl<T> Drop for Crew<T> {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.gate.open(Opened::Never);
        for thread in self.threads.drain(..) {
            // A worker that never began has nothing to say.
            thread.join().ok();
        }
    }
}

impl Gate {
    fn open(&self, opened: Opened) {
        let mut now = self.opened.lock().expect("no holder of the gate panics");
        now.get_or_insert(opened);
        self.changed.notify_all();
    }

    fn wait(&self) -> Option<u64> {
        let mut opened = self.opened.lock().expect("no holder of the gate panics");
        loop {
            match *opened {
                Some(Opened::At(start_ns)) => return Some(start_ns),
                Some(Opened::Never) => return None,
                None => opened = self.changed.wait(opened).expect("no holder of the gate panics"),
            }
        }
    }
}

impl Shift {
    /// Of a test's own thread, which stops it by this.
    #[cfg(test)]
    pub(crate) fn until(stop: Arc<AtomicBool>) -> Self {
        Self { worker: 0, start_ns: clock::monotonic_ns(), stop }
    }

    /// Whether the worker was asked to stop.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Reads what the calling worker costs, from its making on.
pub(crate) struct Meter {
    time: cpu::CpuTime,
    counters: Option<HardwareCounters>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        // The time last here and first in `read`: opening counters is no packet's work.
        let counters = HardwareCounters::of_this_thread().ok();
        Self { time: cpu::thread_time(), counters }
    }

    pub(crate) fn read(&mut self) -> WorkerCost {
        let used = cpu::thread_time().since(self.time);
        let hardware = self.counters.as_mut().and_then(HardwareCounters::read);
        WorkerCost { user_ns: used.user_ns, system_ns: used.system_ns, hardware }
    }
}

impl WorkerCost {
    /// Both together; hardware counts only when both have them.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            hardware: self.hardware.zip(other.hardware).map(|(mine, others)| mine.plus(others)),
        }
    }
}
