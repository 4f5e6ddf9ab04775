//! Senders: a pool of workers that pass packets to their ports when they are due.

use std::sync::Arc;

use crate::{
    emit::Emit,
    error::EngineError,
    generate::{SenderResult, generate},
    plan::TxTraffic,
    publish::{TxPublished, TxSnapshot},
    receiver::Receiver,
    worker::{Placement, WorkerContext, WorkerPool},
};

/// A sender at work.
pub struct Sender {
    pool: WorkerPool<SenderResult>,
    published: Vec<Arc<TxPublished>>,
    returns: Option<Receiver>,
}

impl Sender {
    /// A sender whose workers each pass packets to an emitter.
    pub(crate) fn over<E: Emit + Send + 'static>(
        plan: &TxTraffic,
        emitters: Vec<E>,
        placement: &Placement,
    ) -> Result<Self, EngineError> {
        let plan = plan.clone();
        Self::of_workers(emitters, placement, move |mut emitter, context, published| {
            let schedule = plan.schedule(context.worker, context.start_ns);
            generate(&mut emitter, schedule, plan.frames.clock, context, published)
        })
    }

    /// A sender whose workers each run `work` over a port.
    pub(crate) fn of_workers<P: Send + 'static>(
        ports: Vec<P>,
        placement: &Placement,
        work: impl Fn(P, &WorkerContext, &TxPublished) -> SenderResult + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let published: Vec<Arc<TxPublished>> = ports.iter().map(|_| Arc::default()).collect();
        let shared = published.clone();
        let pool = WorkerPool::start("send", ports, placement, move |port, context| {
            work(port, &context, &shared[context.worker])
        })?;
        Ok(Self { pool, published, returns: None })
    }

    /// The same, with a receiver of the probes that its targets return.
    pub(crate) fn with_returns(self, returns: Option<Receiver>) -> Self {
        Self { returns, ..self }
    }

    /// Lets all workers send from now on; returns the moment in monotonic nanoseconds.
    pub fn begin(&self) -> u64 {
        self.pool.begin()
    }

    /// The receiver of returned probes, once, if it was requested from the engine; it continues after the sender has ended.
    pub fn take_returns(&mut self) -> Option<Receiver> {
        self.returns.take()
    }

    /// Counters of each worker so far.
    pub fn snapshots(&self) -> Vec<TxSnapshot> {
        self.published.iter().map(|published| published.load()).collect()
    }

    /// Counters of all workers so far.
    pub fn snapshot(&self) -> TxSnapshot {
        self.snapshots().into_iter().fold(TxSnapshot::default(), TxSnapshot::plus)
    }

    /// Requests all workers to stop, without waiting.
    pub fn stop(&self) {
        self.pool.stop();
    }

    /// Whether all workers have reached their limit.
    pub fn is_finished(&self) -> bool {
        self.pool.is_finished()
    }

    /// Waits for all workers, which must have begun, and returns their results.
    pub fn join(self) -> Vec<SenderResult> {
        self.pool.join()
    }
}
