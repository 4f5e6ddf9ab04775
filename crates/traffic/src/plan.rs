//! Plans of senders and receivers, independent of the engine.

use std::{net::SocketAddr, num::NonZeroU32};

use measure::StatisticsLevel;
use port::TimeSource;
use serde::{Deserialize, Serialize};
use wire::{FrameSpec, ProbeClock, Span, SpecError, Template, Values};

use crate::pace::{Departures, Limit, Schedule};

/// A sender's traffic; complete and printable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TxTraffic {
    /// One entry per worker.
    pub workers: Vec<TxWorkerPlan>,
    /// The interface to send from; `None` follows the routes.
    pub interface: Option<String>,
    /// The packets; each worker writes its own stream tag into them.
    pub frames: FrameSpec,
    /// Packets per second of all workers together; `None` is as fast as possible.
    pub rate_pps: Option<f64>,
    /// The pattern of departures.
    pub departures: Departures,
    /// When to stop; a count applies to all workers together.
    pub limit: Limit,
    /// The most packets per call.
    pub batch_size: usize,
    /// Seed of all that is random.
    pub seed: u64,
}

/// One worker of a sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxWorkerPlan {
    /// Where it sends.
    pub target: SocketAddr,
    /// Its local address; port 0 chooses any.
    pub local: SocketAddr,
    /// Source ports that it uses round robin.
    pub flows: usize,
    /// The stream tag by which a receiver identifies it.
    pub stream: u16,
}

/// A receiver's traffic; complete and printable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RxTraffic {
    /// The local address, served by all workers; port 0 takes any.
    pub local: SocketAddr,
    /// The interface; engines below the sockets need one, sockets without one receive from any interface.
    pub interface: Option<String>,
    /// Number of workers.
    pub workers: usize,
    /// Poll instead of sleeping until a packet arrives.
    pub spin: bool,
    /// The most packets per call.
    pub batch_size: usize,
    /// What to measure besides packets and payload bytes of each stream; `None` is nothing.
    #[serde(default)]
    pub statistics: Option<StatisticsPlan>,
    /// Return probes to senders that agreed ([`Receiver::returns`](crate::Receiver::returns)).
    #[serde(default)]
    pub reflect: bool,
    /// Nanoseconds that each packet keeps its reader busy, in place of an application.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub work_ns: u32,
}

impl RxTraffic {
    /// One worker that counts packets to this address and does nothing else with them.
    pub fn at(local: SocketAddr) -> Self {
        Self {
            local,
            interface: None,
            workers: 1,
            spin: false,
            batch_size: 512,
            statistics: None,
            reflect: false,
            work_ns: 0,
        }
    }
}

/// What a receiver measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatisticsPlan {
    /// How much.
    pub level: StatisticsLevel,
    /// How senders encode the time; `None` infers it from the values.
    pub probe_clock: Option<ProbeClock>,
    /// The source of receive timestamps; `None` is the best that the engine has.
    pub stamp: Option<TimeSource>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Source ports of engines that build whole frames count up from here.
pub const FIRST_SOURCE_PORT: u16 = 20_000;

/// The most source ports of all workers of such an engine.
pub(crate) const MOST_SOURCE_PORTS: usize = 1 + u16::MAX as usize - FIRST_SOURCE_PORT as usize;

impl TxTraffic {
    /// The first source port of each worker, and their number, for engines that build whole frames.
    pub fn source_ports(&self) -> impl Iterator<Item = (u16, u16)> {
        let mut next = FIRST_SOURCE_PORT;
        self.workers.iter().map(move |worker| {
            let flows = worker.flows.clamp(1, MOST_SOURCE_PORTS) as u16;
            let first = next;
            next = next.saturating_add(flows);
            (first, flows)
        })
    }

    /// Each worker's payloads, under its own stream tag.
    pub(crate) fn payloads(&self) -> Result<Vec<Template>, SpecError> {
        let of = |worker: &TxWorkerPlan| FrameSpec { stream: worker.stream, ..self.frames.clone() };
        self.workers.iter().map(|worker| Template::new(&of(worker))).collect()
    }

    /// Each worker's whole frames: its own stream tag, addresses and source ports.
    pub(crate) fn whole_frames(&self) -> Result<Vec<Template>, SpecError> {
        let specs = self.workers.iter().zip(self.source_ports()).map(|(worker, (first, flows))| FrameSpec {
            stream: worker.stream,
            src_addr: Values::Fixed(worker.local.ip()),
            dst_addr: Values::Fixed(worker.target.ip()),
            src_port: ports(first, first.saturating_add(flows - 1)),
            dst_port: Values::Fixed(worker.target.port()),
            ..self.frames.clone()
        });
        specs.map(|spec| Template::new(&spec)).collect()
    }

    /// A worker's share of a count.
    pub(crate) fn share(&self, count: u64, worker: usize) -> u64 {
        let workers = self.workers.len() as u64;
        count / workers + u64::from((worker as u64) < count % workers)
    }

    /// A worker's share of the rate and the count.
    pub(crate) fn schedule(&self, worker: usize, start_ns: u64) -> Schedule {
        let limit = Limit { count: self.limit.count.map(|count| self.share(count, worker)), ..self.limit };
        let rate = self.rate_pps.map(|pps| pps / self.workers.len() as f64);
        Schedule::new(rate, self.departures, limit, start_ns, self.seed.wrapping_add(worker as u64))
    }
}

fn ports(first: u16, last: u16) -> Values<u16> {
    match Span::new(first, last) {
        Ok(span) if first < last => Values::Increment { span, step: NonZeroU32::MIN },
        _ => Values::Fixed(first),
    }
}

impl RxTraffic {
    /// The source of receive timestamps: none unless times are measured, `best` unless one that the engine has was requested
    /// for.
    pub(crate) fn time_source(&self, best: TimeSource, known: &[TimeSource]) -> Option<TimeSource> {
        let statistics = self.statistics.filter(|statistics| statistics.level > StatisticsLevel::Counter)?;
        let asked = statistics.stamp.filter(|stamp| known.contains(stamp));
        Some(match statistics.level {
            StatisticsLevel::Time => asked.unwrap_or(best),
            _ => TimeSource::Loop,
        })
    }

    /// Whether it measures or returns probes, and so receives them on any address and port.
    pub(crate) fn takes_all_probes(&self) -> bool {
        self.statistics.is_some() || self.reflect
    }
}
