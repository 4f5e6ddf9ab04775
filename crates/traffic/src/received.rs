//! The results of a receiver's workers.

use measure::{ReceptionStatistics, RingUse};
use port::Loss;

use crate::{
    collect::{LatencyMeans, Readings, reception},
    error::EngineError,
    publish::{RxSnapshot, StreamCount},
    worker::WorkerCost,
};

/// What one worker received.
#[derive(Debug)]
pub struct RxResult {
    /// Packets, bytes and losses.
    pub tally: RxSnapshot,
    /// When the first packet was seen, in monotonic nanoseconds; `None` without packets.
    pub first_ns: Option<u64>,
    /// When the last packet was seen.
    pub last_ns: Option<u64>,
    /// Packets lost at this worker's port, by place; their sum is the tally's `lost`.
    pub losses: Vec<Loss>,
    /// How its ring was used, where it drove one itself.
    pub ring: Option<RingUse>,
    /// CPU time and cycles.
    pub cost: WorkerCost,
    /// Its measurements, if requested: one entry per reader.
    pub statistics: Vec<Readings>,
    /// What ended it before its time.
    pub error: Option<EngineError>,
}

/// What a receiver received.
#[derive(Debug)]
pub struct ReceiverResult {
    /// One entry a worker.
    pub workers: Vec<RxResult>,
    /// Packets of each stream, by its number.
    pub streams: Vec<StreamCount>,
}

impl ReceiverResult {
    /// The measurements of each reader; empty if none were requested.
    pub fn readings(&self) -> Vec<Readings> {
        self.workers.iter().flat_map(|worker| worker.statistics.iter().cloned()).collect()
    }

    /// The measurements of all workers together; `None` if none were requested.
    pub fn reception(&self, latency: LatencyMeans) -> Option<ReceptionStatistics> {
        let readers = self.readings();
        (!readers.is_empty()).then(|| reception(&readers, latency))
    }

    /// Packets lost at all ports, by place.
    pub fn losses(&self) -> Vec<Loss> {
        let mut all: Vec<Loss> = Vec::new();
        for loss in self.workers.iter().flat_map(|worker| &worker.losses) {
            match all.iter_mut().find(|other| other.place == loss.place) {
                Some(same) => same.packets += loss.packets,
                None => all.push(*loss),
            }
        }
        all
    }

    /// How the ring of the first worker that drove one was used.
    pub fn ring(&self) -> Option<RingUse> {
        self.workers.iter().find_map(|worker| worker.ring.clone())
    }

    /// Counters of all workers together.
    pub fn tally(&self) -> RxSnapshot {
        self.workers.iter().map(|worker| worker.tally).fold(RxSnapshot::default(), RxSnapshot::plus)
    }
}
