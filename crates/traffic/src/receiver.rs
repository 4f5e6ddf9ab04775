//! Receivers: a pool of workers that count the packets their ports lend them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use measure::StatisticsLevel;
use port::{ReturnList, RxPort, Wait};
use wire::StreamTags;

use crate::{
    collect::{ReaderPlace, Readings},
    error::EngineError,
    measuring::measuring_cost,
    observe::Observer,
    plan::RxTraffic,
    publish::{RxPublished, RxSnapshot, STREAMS, StreamCount},
    queues::Queues,
    reader::{RxOutput, receive},
    received::{ReceiverResult, RxResult},
    sender_clocks::SenderClocks,
    tally::Probes,
    window::{AfterReading, StatisticsReader},
    worker::{Placement, WorkerContext, WorkerPool},
};

/// A receiver at work.
pub struct Receiver {
    pool: WorkerPool<RxResult>,
    published: Vec<Arc<RxPublished>>,
    statistics: StatisticsReader,
    tags: StreamTags,
    local: SocketAddr,
    returns: Option<Arc<ReturnList>>,
    clocks: Option<Arc<SenderClocks>>,
}

/// The input of a receiver's engine besides its plan.
#[derive(Clone, Copy)]
pub struct RxContext<'c> {
    /// Where its workers live.
    pub(crate) placement: &'c Placement,
    /// The tags of its streams; packets with other tags are foreign.
    pub(crate) tags: StreamTags,
    /// The senders to return probes to.
    pub(crate) returns: Option<&'c Arc<ReturnList>>,
    /// What is known of senders' clocks.
    pub(crate) clocks: Option<&'c Arc<SenderClocks>>,
}

impl Receiver {
    /// A receiver over ports that lend packets.
    pub(crate) fn over<P: RxPort + Send + 'static>(
        plan: &RxTraffic,
        ports: Vec<P>,
        (context, local): (&RxContext<'_>, SocketAddr),
        queues: Queues,
    ) -> Result<Self, EngineError> {
        Self::of_probes((Probes::Sent(context.tags), queues), plan, ports, (context, local))
    }

    /// A receiver of probes that a sender's targets return.
    pub(crate) fn of_returned<P: RxPort + Send + 'static>(
        plan: &RxTraffic,
        ports: Vec<P>,
        placement: &Placement,
    ) -> Result<Self, EngineError> {
        let context = RxContext { placement, tags: StreamTags::ANY, returns: None, clocks: None };
        Self::of_probes((Probes::Returned, Queues::OfPorts), plan, ports, (&context, plan.local))
    }

    fn of_probes<P: RxPort + Send + 'static>(
        (probes, queues): (Probes, Queues),
        plan: &RxTraffic,
        ports: Vec<P>,
        (context, local): (&RxContext<'_>, SocketAddr),
    ) -> Result<Self, EngineError> {
        let (statistics, local_ip, work_ns) = (plan.statistics, local.ip(), plan.work_ns.into());
        // Before any sender starts: a worker that tried it would not read in that time.
        let is_timed = statistics.is_some_and(|plan| plan.level == StatisticsLevel::Time);
        let cost = is_timed.then(measuring_cost);
        let only = if let Queues::Only(queue) = queues { Some(queue) } else { None };
        let own: Vec<Option<u32>> = ports.iter().map(|port| port.queue().or(only)).collect();
        // The counts of all queues are one reading, which the first worker publishes.
        let queues = Mutex::new(Some(queues));
        let clocks = context.clocks.cloned();
        let wait = if plan.spin { Wait::Spin } else { Wait::Block };
        Self::of_workers(ports, (context, local), statistics.is_some(), move |mut port, context, output| {
            let worker = context.worker;
            let observer = statistics.map(|plan| {
                let place = ReaderPlace { worker: Some(worker as u32), cpu: None, queue: own[worker] };
                let queues = queues.lock().expect("no holder panics").take();
                Observer::new(plan, place, port.time_source(), local_ip)
                    .telling(queues)
                    .costing(cost)
                    .relating(clocks.clone())
            });
            receive(&mut port, wait, (probes, observer), context, (output, work_ns))
        })
    }

    /// A receiver whose workers run `work` over a port each; `is_measured` says whether they publish statistics.
    pub(crate) fn of_workers<P: Send + 'static>(
        ports: Vec<P>,
        (context, local): (&RxContext<'_>, SocketAddr),
        is_measured: bool,
        work: impl Fn(P, &WorkerContext, &RxOutput) -> RxResult + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let outputs: Vec<RxOutput> = ports.iter().map(|_| RxOutput::default()).collect();
        let published = outputs.iter().map(|output| output.published.clone()).collect();
        let windows = outputs.iter().filter(|_| is_measured).map(|output| output.window.clone()).collect();
        let statistics = StatisticsReader::over(windows);
        let pool = WorkerPool::start("recv", ports, context.placement, move |port, context| {
            let output = &outputs[context.worker];
            let result = work(port, &context, output);
            output.window.close();
            result
        })?;
        pool.begin();
        Ok(Self { pool, published, statistics, tags: context.tags, local, returns: None, clocks: None })
    }

    /// The same, which returns the probes of those on the list.
    pub(crate) fn returning(self, returns: Option<Arc<ReturnList>>) -> Self {
        Self { returns, ..self }
    }

    /// The same, whose workers use what is known of senders' clocks.
    pub(crate) fn relating(self, clocks: Option<Arc<SenderClocks>>) -> Self {
        Self { clocks, ..self }
    }

    /// Where its workers look for what is known of senders' clocks; `None` where they time no packets, or a program in the
    /// kernel does, which knows no clock but its own.
    pub fn clocks(&self) -> Option<&Arc<SenderClocks>> {
        self.clocks.as_ref()
    }

    /// The address packets are received on, with the port the kernel chose for 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The senders whose probes are returned; `None` for a receiver that returns none.
    pub fn returns(&self) -> Option<&Arc<ReturnList>> {
        self.returns.as_ref()
    }

    /// Counters of each worker so far.
    pub fn snapshots(&self) -> Vec<RxSnapshot> {
        self.published.iter().map(|published| published.load()).collect()
    }

    /// Counters of all workers so far.
    pub fn snapshot(&self) -> RxSnapshot {
        self.snapshots().into_iter().fold(RxSnapshot::default(), RxSnapshot::plus)
    }

    /// The workers' measurements, for readers that must not block the receiver.
    pub fn statistics(&self) -> &StatisticsReader {
        &self.statistics
    }

    /// [`StatisticsReader::read`].
    pub fn readings(&self, then: AfterReading) -> Option<Vec<Readings>> {
        self.statistics.read(then)
    }

    /// The counters so far of the stream with this tag, over all workers; zero for a tag without a stream.
    pub fn stream(&self, tag: u16) -> StreamCount {
        let stream = usize::from(self.tags.stream(tag));
        if stream >= STREAMS {
            return StreamCount::default();
        }
        let each = self.published.iter().map(|published| published.load_stream(stream));
        each.fold(StreamCount::default(), StreamCount::plus)
    }

    /// Whether all workers have ended, which without a stop happens only when their path broke.
    pub fn is_finished(&self) -> bool {
        self.pool.is_finished()
    }

    /// Stops all workers once arrived packets are counted.
    pub fn stop(self) -> ReceiverResult {
        self.pool.stop();
        let workers = self.pool.join();
        let streams = (0..STREAMS)
            .map(|stream| {
                let each = self.published.iter().map(|published| published.load_stream(stream));
                each.fold(StreamCount::default(), StreamCount::plus)
            })
            .collect();
        ReceiverResult { workers, streams }
    }
}
