//! A pool of workers: opened together, started together, stopped together, and the cost of each one.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use sys::{
    clock,
    counting::{Mark, mark},
    cpu,
    cycles::{HardwareCounters, HardwareCounts},
};

use crate::error::EngineError;

/// Where workers live.
#[derive(Clone, Default)]
pub struct Placement {
    /// Makes the calling thread enter the workers' network namespace; `None` stays in this one.
    pub enter: Option<Arc<dyn Fn() -> io::Result<()> + Send + Sync>>,
    /// CPUs to pin workers to, used round robin; empty leaves them to the scheduler.
    pub cpus: Vec<u32>,
}

/// What one worker cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerCost {
    /// User CPU time in nanoseconds.
    pub user_ns: u64,
    /// System CPU time in nanoseconds.
    pub system_ns: u64,
    /// The CPU's counters, if they can be read.
    pub hardware: Option<HardwareCounts>,
}

/// A worker's input: its number, its start, and whether to stop.
pub(crate) struct WorkerContext {
    pub(crate) worker: usize,
    pub(crate) start_ns: u64,
    stop: Arc<AtomicBool>,
}

/// Workers of one side.
pub(crate) struct WorkerPool<T> {
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    /// `None` for a worker dropped before it began.
    threads: Vec<JoinHandle<Option<T>>>,
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
    /// Runs `open` in the workers' namespace.
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

impl<T: Send + 'static> WorkerPool<T> {
    /// Starts a thread for each port; all are prepared and wait for [`WorkerPool::begin`] when this returns. `name` is
    /// "send" or "recv", by which profiles and counts of instructions recognise a thread's work.
    pub(crate) fn start<P: Send + 'static>(
        name: &str,
        ports: Vec<P>,
        placement: &Placement,
        work: impl Fn(P, WorkerContext) -> T + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let mut pool = Self { stop: Arc::default(), gate: Arc::default(), threads: Vec::new() };
        let (settled, arrivals) = std::sync::mpsc::channel();
        let work = Arc::new(work);
        let workers = ports.len();
        let role = if name == "send" { Mark::Sender } else { Mark::Receiver };
        for (worker, port) in ports.into_iter().enumerate() {
            let (settled, work, placement) = (settled.clone(), work.clone(), placement.clone());
            let (stop, gate) = (pool.stop.clone(), pool.gate.clone());
            let body = move || -> Option<T> {
                let outcome = placement.settle(worker);
                let ready = outcome.is_ok();
                settled.send(outcome).expect("the starter receives until all workers are prepared");
                let start_ns = gate.wait().filter(|_| ready)?;
                mark(role);
                Some(work(port, WorkerContext { worker, start_ns, stop }))
            };
            let thread = thread::Builder::new()
                .name(format!("{name} {worker}"))
                .spawn(body)
                .map_err(|source| EngineError::Thread { worker, source })?;
            pool.threads.push(thread);
        }
        for _ in 0..workers {
            arrivals.recv().expect("every worker reports how preparation ended")?;
        }
        Ok(pool)
    }

    /// Lets all workers begin at once; returns the moment in monotonic nanoseconds.
    pub(crate) fn begin(&self) -> u64 {
        let now = clock::monotonic_ns();
        self.gate.open(Opened::At(now));
        now
    }

    /// Requests all workers to stop, without waiting.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether all workers have ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all workers. They must have begun.
    pub(crate) fn join(mut self) -> Vec<T> {
        std::mem::take(&mut self.threads)
            .into_iter()
            .filter_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }
}

impl<T> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.gate.open(Opened::Never);
        for thread in self.threads.drain(..) {
            // A worker that never began has no result.
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

impl WorkerContext {
    /// For a test's own thread, which stops it with this.
    #[cfg(test)]
    pub(crate) fn until(stop: Arc<AtomicBool>) -> Self {
        Self { worker: 0, start_ns: clock::monotonic_ns(), stop }
    }

    /// Whether the worker was requested to stop.
    #[inline]
    pub(crate) fn should_stop(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Measures the cost of the calling worker, from creation on.
pub(crate) struct Meter {
    time: cpu::CpuTime,
    counters: Option<HardwareCounters>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        // The time is read last here and first in `read`: opening counters is not part of a packet's work.
        let counters = HardwareCounters::of_this_thread().ok();
        mark(Mark::Work);
        Self { time: cpu::thread_time(), counters }
    }

    pub(crate) fn read(&mut self) -> WorkerCost {
        let used = cpu::thread_time().since(self.time);
        mark(Mark::Rest);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_never_begin_end_without_a_word() {
        let mut pool =
            WorkerPool::start("test", vec![(), ()], &Placement::default(), |(), context| context.worker)
                .unwrap();
        let threads = std::mem::take(&mut pool.threads);
        drop(pool);
        let ended: Vec<Option<usize>> =
            threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect();
        assert_eq!(ended, [None, None]);
    }

    #[test]
    fn workers_that_began_return_what_they_made() {
        let pool = WorkerPool::start("test", vec![3, 4], &Placement::default(), |port, context| {
            (context.worker, port)
        })
        .unwrap();
        pool.begin();
        assert_eq!(pool.join(), [(0, 3), (1, 4)]);
    }
}
