//! Where a command leaves its newest snapshot, and views take it.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sys::cpu;

use crate::{
    room,
    snapshot::{Own, Phase, Snapshot},
};

/// The newest snapshot of a command.
#[derive(Debug, Default)]
pub struct Hub {
    newest: Mutex<Arc<Published>>,
    changed: Condvar,
    began: OnceInstant,
    /// CPU time of the views' threads.
    spent_ns: AtomicU64,
    missed: AtomicU64,
    clients: AtomicU32,
}

/// A snapshot and when it was published.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Its number; 0 is none.
    pub number: u64,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// When; `None` of none.
    at: Option<Instant>,
}

#[derive(Debug)]
struct OnceInstant(Instant);

impl Default for OnceInstant {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Published {
    /// The snapshot as it is now: its counters have aged since.
    pub fn aged(&self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        snapshot.age_s += self.at.map_or(0.0, |at| at.elapsed().as_secs_f64());
        snapshot
    }
}

impl Hub {
    /// Without a snapshot.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Replaces the newest snapshot. Costs the caller a clock read and an exchange: views copy a pointer under the lock.
    pub fn publish(&self, mut snapshot: Snapshot) {
        let mut newest = self.lock();
        let number = newest.number + 1;
        snapshot.own = Own { published: number, ..self.own() };
        *newest = Arc::new(Published { number, snapshot, at: Some(Instant::now()) });
        drop(newest);
        self.changed.notify_all();
    }

    /// The newest snapshot; an empty one before the first.
    pub fn newest(&self) -> Arc<Published> {
        Arc::clone(&self.lock())
    }

    /// Waits for a snapshot after this number, for so long; returns the newest anyway.
    pub fn wait(&self, after: u64, at_most: Duration) -> Arc<Published> {
        let until = Instant::now() + at_most;
        let mut newest = self.lock();
        while newest.number <= after {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            newest = self.changed.wait_timeout(newest, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Arc::clone(&newest)
    }

    /// Whether the command said that it is over.
    pub fn has_ended(&self) -> bool {
        self.lock().snapshot.phase == Phase::Ended
    }

    pub(crate) fn own(&self) -> Own {
        let elapsed_ns = self.began.0.elapsed().as_nanos().max(1) as f64;
        Own {
            cpu_ratio: self.spent_ns.load(Relaxed) as f64 / elapsed_ns,
            missed: self.missed.load(Relaxed),
            clients: self.clients.load(Relaxed),
            ..Own::default()
        }
    }

    pub(crate) fn note_missed(&self, snapshots: u64) {
        self.missed.fetch_add(snapshots, Relaxed);
    }

    pub(crate) fn clients(&self) -> &AtomicU32 {
        &self.clients
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Published>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a view's thread: its cost is counted, and it keeps off the workers' CPUs.
pub(crate) struct Bystander<'h> {
    hub: &'h Hub,
    counted_ns: u64,
    avoided: Option<Vec<u32>>,
}

impl<'h> Bystander<'h> {
    /// Of the calling thread.
    pub(crate) fn new(hub: &'h Hub) -> Self {
        // Where all CPUs are the workers', they go first.
        cpu::give_way().ok();
        Self { hub, counted_ns: cpu::thread_time().total_ns(), avoided: None }
    }

    /// Counts what was spent since the last time, and moves when the workers did.
    pub(crate) fn step_aside(&mut self, workers: &[u32]) {
        let now_ns = cpu::thread_time().total_ns();
        self.hub.spent_ns.fetch_add(now_ns.saturating_sub(self.counted_ns), Relaxed);
        self.counted_ns = now_ns;
        if self.avoided.as_deref() != Some(workers) {
            room::avoid(workers);
            self.avoided = Some(workers.to_vec());
        }
    }
}
