//! The single RX queue bypass under a flood: what comes through of valid packets to the flooded port and of an
//! unrelated transfer, with each way to throw the flood away, one after the other.
//!
//! ```text
//! sending side                                receiving side
//!   flood   second address → PORT  ─┐           flooded queue ─ filter ─ service on PORT, which counts valid packets
//!   valid   first address → PORT   ─┘
//!   transfer, TCP  ──────────────────           another queue ────────── reader of the transfer
//! ```
//!
//! In the lab the queues are chosen: frames that XDP sends arrive on the queue of the sending CPU, and the sockets'
//! transmit queue is set to another. On real interfaces the card chooses. As in the document, what throws the flood
//! away has a CPU to itself, with the flooded queue's packet processing; everything else is elsewhere, and goes before
//! the sender of the flood where it shares its CPU.
//!
//! A veth's ring of 256 packets lies between the sender and whatever filters. What a sender that is too fast loses there
//! it loses for its valid packets too, whoever empties the ring: so rows tell how many of them came to the filter.

mod filters;
mod service;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use divert::DivertError;
use engine::{
    Departures, EngineError, Limit, Placement, Sender, SenderPlan, TxEngine, TxWorkerPlan, XskTxPlan,
};
use lab::{Interfaces, Lab, LabError, LabPlan};
use measure::{CpuShare, Figure, Point};
use serde::Serialize;
use serde_json::json;
use sys::{cpu, netns::NetNs, procfs, sysfs::Sysfs};
use thiserror::Error;
use wire::{FrameSpec, MacAddr};

use crate::{cpu_time::CpuWatch, cpus::CpuPlan, spec::TxSpec};

use filters::Filter;
pub use filters::FloodFilter;
use service::{Service, Transfer};

/// What is sent, where, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SingleRxQueuePlan {
    /// Two real interfaces; `None`: a veth pair.
    pub interfaces: Option<Interfaces>,
    /// What makes the flood and the valid packets.
    pub tx: TxSpec,
    /// Valid packets per second.
    pub valid_pps: f64,
    /// Bits per second of the unrelated transfer.
    pub transfer_bps: f64,
    /// Length of each row.
    pub row_ns: u64,
    /// The CPUs of the two sides: the first of the receiving one is the filter's, the second the rest's; where there is
    /// no second one, the sending CPU has the rest.
    pub cpus: CpuPlan,
}

/// How much is flooded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloodLoad {
    /// Nothing.
    None,
    /// As fast as the sender can.
    Full,
    /// [`FLOOD_FACTOR`] times what the kernel's path to a socket takes.
    TenTimes,
}

/// The paced flood, in multiples of what the service's socket took of the full one.
pub const FLOOD_FACTOR: f64 = 10.0;
/// What must be delivered of the valid packets under it.
pub const VALID_SHARE: f64 = 0.999;
/// What the document's queue filtered, least and most.
pub const PUBLISHED_PPS: (f64, f64) = (5.84e6, 6.00e6);

/// Every row, in this order: first what the transfer does alone, then each filter under both floods.
pub const SINGLE_RX_QUEUE: [(FloodLoad, FloodFilter); 15] = {
    use FloodFilter::{DivertUser, DivertXdp, Nft, Service, SocketFilter, XdpDrop};
    use FloodLoad::{Full, None, TenTimes};
    [
        (None, Service),
        (None, DivertXdp),
        (None, DivertUser),
        (Full, Service),
        (Full, SocketFilter),
        (Full, Nft),
        (Full, XdpDrop),
        (Full, DivertXdp),
        (Full, DivertUser),
        (TenTimes, Service),
        (TenTimes, SocketFilter),
        (TenTimes, Nft),
        (TenTimes, XdpDrop),
        (TenTimes, DivertXdp),
        (TenTimes, DivertUser),
    ]
};

/// What one row gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SingleRxQueueRow {
    /// How much was flooded.
    pub load: FloodLoad,
    /// What threw the flood away.
    pub filter: FloodFilter,
    /// Flood packets per second that were asked for; `None`: as many as possible.
    pub asked_pps: Option<f64>,
    /// Flood packets per second that the sender made.
    pub flood_pps: f64,
    /// The same in multiples of what the service's socket took of the full flood, once that is known.
    pub flood_of_path: Option<f64>,
    /// Flood packets per second that the filter threw away.
    pub filtered_pps: f64,
    /// Valid packets sent.
    pub valid_sent: u64,
    /// Valid packets of those that came to the filter; `None` where it does not count them.
    pub valid_arrived: Option<u64>,
    /// Valid packets that the service got.
    pub valid_delivered: u64,
    /// Packets of both kinds that were lost behind the filter, or in it, by place.
    pub lost: BTreeMap<String, u64>,
    /// Bits per second of the unrelated transfer.
    pub transfer_bps: f64,
    /// Where the CPUs' time went.
    pub cpus: Vec<CpuShare>,
}

/// Why the rows could not be measured.
#[derive(Debug, Error)]
pub enum SingleRxQueueError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A worker or its port.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A diversion that ran.
    #[error(transparent)]
    Divert(#[from] DivertError),
    /// Sockets of the service and the transfer.
    #[error("cannot {what}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Counters of a filter.
    #[error("cannot read what {filter} threw away")]
    Counter {
        /// The filter.
        filter: FloodFilter,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The machine's CPU times.
    #[error(transparent)]
    Cpus(#[from] procfs::ProcError),
}

/// What the caller sees of a row.
#[derive(Debug)]
pub enum SingleRxQueueEvent<'e> {
    /// A row was measured.
    Row(&'e SingleRxQueueRow),
    /// A filter does not work here.
    Skipped(FloodFilter, String),
}

/// Tells valid packets from the flood: the stream tags of both.
const VALID_STREAM: u16 = 1;
const FLOOD_STREAM: u16 = 2;
const PORT: u16 = 4321;
/// Valid packets leave so many at a time: a sender of single ones would have to watch the clock all the time.
const VALID_BURST: u32 = 8;
/// The first packets find cold caches, and the transfer starts slowly.
const WARM_UP: Duration = Duration::from_millis(300);
/// How often a row looks after its diversion.
const TICK: Duration = Duration::from_millis(10);

/// Measures every row; `each` sees them, and says whether to go on.
///
/// # Errors
/// What kept it from going on.
pub fn run_single_rx_queue(
    plan: &SingleRxQueuePlan,
    mut each: impl FnMut(SingleRxQueueEvent<'_>) -> bool,
) -> Result<(), SingleRxQueueError> {
    let lab = Lab::create(&plan.lab())?;
    plan.choose_queues(&lab);
    plan.prefer_other_queues(&lab)?;
    let mut capacity_pps = None;
    let mut skipped: Vec<FloodFilter> = Vec::new();
    for (load, filter) in SINGLE_RX_QUEUE {
        if skipped.contains(&filter) {
            continue;
        }
        let asked_pps = match load {
            FloodLoad::TenTimes => capacity_pps.map(|pps: f64| pps * FLOOD_FACTOR),
            FloodLoad::None | FloodLoad::Full => None,
        };
        let goes_on = match Filter::start(filter, plan, &lab) {
            Err(reason) => {
                skipped.push(filter);
                each(SingleRxQueueEvent::Skipped(filter, reason))
            }
            Ok(started) => {
                let mut row = plan.row(&lab, load, asked_pps, started)?;
                if (load, filter) == (FloodLoad::Full, FloodFilter::Service) {
                    let valid_pps = row.valid_delivered as f64 * 1e9 / plan.row_ns as f64;
                    capacity_pps = Some(row.filtered_pps + valid_pps);
                }
                row.flood_of_path = capacity_pps.map(|capacity| row.flood_pps / capacity);
                each(SingleRxQueueEvent::Row(&row))
            }
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

impl SingleRxQueuePlan {
    /// Receive queues of the lab: the flooded one, and the others'.
    const QUEUES: u32 = 2;

    /// The lab that is measured on.
    pub fn lab(&self) -> LabPlan {
        // a card's interrupts are where its owner put them
        let threaded_napi = self.interfaces.is_none() && !self.cpus.rx.is_empty();
        LabPlan {
            queues: Self::QUEUES,
            threaded_napi,
            napi_cpus: if threaded_napi { self.napi_cpus() } else { Vec::new() },
            interfaces: self.interfaces.clone(),
            gro: true,
            ..LabPlan::default()
        }
    }

    /// The CPU of the flooded queue and of what throws the flood away; `None`: any.
    fn filter_cpu(&self) -> Option<u32> {
        self.cpus.rx.first().copied()
    }

    /// The CPU of everything else that receives.
    fn other_cpu(&self) -> Option<u32> {
        self.cpus.rx.get(1).or(self.cpus.tx.first()).copied()
    }

    /// The CPUs of the lab's queues.
    fn napi_cpus(&self) -> Vec<u32> {
        let (Some(filter), Some(other)) = (self.filter_cpu(), self.other_cpu()) else { return Vec::new() };
        let cpu =
            |queue| if self.flooded_queue().is_none_or(|flooded| flooded == queue) { filter } else { other };
        (0..Self::QUEUES).map(cpu).collect()
    }

    /// The queue that frames which XDP sends from the sending CPU arrive on; `None` where a card decides.
    fn flooded_queue(&self) -> Option<u32> {
        let cpu = self.cpus.tx.first().copied().unwrap_or(0);
        self.interfaces.is_none().then_some(cpu % Self::QUEUES)
    }

    /// Lets what sockets of the sending side send arrive on another queue than the flood. Without, the transfer shares
    /// the flooded queue in half of the rows.
    fn choose_queues(&self, lab: &Lab) {
        let Some(flooded) = self.flooded_queue() else { return };
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(31);
        let others = (flooded + 1) % Self::QUEUES;
        let file = format!("class/net/{}/queues/tx-{others}/xps_cpus", lab.tx().interface());
        let mask = format!("{:x}", (1u64 << cpus) - 1);
        let written = Sysfs::of(lab.tx().namespace()).and_then(|sysfs| sysfs.write(&file, &mask));
        debug_assert!(written.is_ok(), "{file}: {written:?}");
    }

    /// Lets the packet processing of the other queues go before the sender of the flood, with which it shares a CPU
    /// where there are two: else that waits milliseconds for its turn, and their rings of 256 packets run over.
    fn prefer_other_queues(&self, lab: &Lab) -> Result<(), SingleRxQueueError> {
        let cpus = self.napi_cpus();
        if cpus.is_empty() || !self.lab().threaded_napi {
            return Ok(());
        }
        for (napi, cpu) in lab.rx().napis()?.iter().zip(cpus) {
            if let Some(thread) = napi.thread.filter(|_| Some(cpu) != self.filter_cpu()) {
                cpu::go_first(thread).map_err(socket_error("let packet processing go first"))?;
            }
        }
        Ok(())
    }

    fn row(
        &self,
        lab: &Lab,
        load: FloodLoad,
        asked_pps: Option<f64>,
        mut filter: Filter,
    ) -> Result<SingleRxQueueRow, SingleRxQueueError> {
        let which = filter.which();
        // Cards start anew when a program comes.
        lab.wait_until_ready()?;
        let full_buffers = || -> Result<u64, SingleRxQueueError> {
            Ok(lab.rx().net_counters()?.value("UdpRcvbufErrors").unwrap_or(0))
        };
        let full_before = full_buffers()?;
        let service = Service::start(lab.rx(), self, which, lab.tx().ipv4()[1])?;
        let transfer = Transfer::start(lab, self)?;
        let valid = self.sender(lab, VALID_STREAM, Some(self.valid_pps), Some(self.row_ns));
        let valid = Sender::prepare(&valid, &self.sending(lab, VALID_STREAM)?)?;
        let flood = match load {
            FloodLoad::None => None,
            FloodLoad::Full | FloodLoad::TenTimes => {
                let plan = self.sender(lab, FLOOD_STREAM, asked_pps, None);
                Some(Sender::prepare(&plan, &self.sending(lab, FLOOD_STREAM)?)?)
            }
        };
        if let Some(flood) = &flood {
            flood.begin();
        }
        filter.beat_for(WARM_UP)?;
        let flooded = || flood.as_ref().map_or(0, |flood| flood.snapshot().packets);
        let cpus = CpuWatch::start(None)?;
        let before = (flooded(), filter.filtered(lab, &service)?, transfer.received_bytes());
        let began = Instant::now();
        valid.begin();
        while !valid.is_finished() {
            filter.beat_for(TICK)?;
        }
        let elapsed_s = began.elapsed().as_secs_f64();
        let after = (flooded(), filter.filtered(lab, &service)?, transfer.received_bytes());
        let cpus = cpus.shares()?;
        if let Some(flood) = flood {
            flood.stop();
            while !flood.is_finished() {
                filter.beat_for(TICK)?;
            }
            drop(flood.join());
        }
        let valid_sent = valid.join().iter().map(|result| result.tally.packets).sum();
        let valid_delivered = drained(&service, &mut filter)?;
        let mut lost = filter.lost()?;
        lost.insert("receive buffer of the service full".into(), full_buffers()? - full_before);
        lost.retain(|_, packets| *packets > 0);
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / elapsed_s;
        Ok(SingleRxQueueRow {
            load,
            filter: which,
            asked_pps: asked_pps.filter(|_| load == FloodLoad::TenTimes),
            flood_pps: rate(before.0, after.0),
            flood_of_path: None,
            filtered_pps: rate(before.1, after.1),
            valid_sent,
            valid_arrived: filter.valid(lab)?,
            valid_delivered,
            lost,
            transfer_bps: rate(before.2, after.2) * 8.0,
            cpus,
        })
    }

    /// Where a sender lives. The flood takes what the others on its CPU leave: those need little, and at once.
    fn sending(&self, lab: &Lab, stream: u16) -> Result<Placement, SingleRxQueueError> {
        let namespace = hold(lab.tx().namespace())?;
        let enter = move || {
            namespace.enter()?;
            if stream == FLOOD_STREAM {
                return cpu::give_way();
            }
            // A group of processes may have no time for real-time threads (`cpu.rt_runtime_us`): then it waits for its turn.
            cpu::go_first(0).ok();
            Ok(())
        };
        Ok(Placement { enter: Some(Arc::new(enter)), cpus: self.cpus.tx.iter().copied().take(1).collect() })
    }

    /// A sender of either kind.
    fn sender(&self, lab: &Lab, stream: u16, rate_pps: Option<f64>, duration_ns: Option<u64>) -> SenderPlan {
        let (tx, rx) = (lab.tx(), lab.rx());
        let is_flood = stream == FLOOD_STREAM;
        let local = if is_flood { tx.ipv4()[1] } else { tx.ipv4()[0] };
        // A run of live frames costs as much as a hundred packets: for a few, a socket of the flooded queue is cheaper.
        let engine = match self.flooded_queue() {
            Some(0) if !is_flood => TxEngine::Xsk(XskTxPlan::default()),
            _ => self.tx.0.clone(),
        };
        SenderPlan {
            engine,
            workers: vec![TxWorkerPlan {
                target: (rx.ipv4()[0], PORT).into(),
                local: (local, 0).into(),
                flows: 1,
                stream,
            }],
            interface: self.tx.0.makes_frames().then(|| tx.interface().into()),
            frames: FrameSpec {
                src_mac: MacAddr(tx.mac()),
                dst_mac: MacAddr(rx.mac()),
                ..FrameSpec::default()
            },
            rate_pps,
            departures: if is_flood { Departures::Constant } else { Departures::Burst(VALID_BURST) },
            limit: Limit { count: None, duration_ns },
            batch_size: if is_flood { 256 } else { VALID_BURST as usize },
            seed: stream.into(),
        }
    }
}

impl SingleRxQueueRow {
    /// The share of the valid packets that the service got.
    pub fn valid_ratio(&self) -> f64 {
        self.valid_delivered as f64 / self.valid_sent.max(1) as f64
    }

    /// The share of the valid packets that came to the filter which the service got.
    pub fn valid_of_arrived(&self) -> Option<f64> {
        self.valid_arrived.map(|arrived| self.valid_delivered as f64 / arrived.max(1) as f64)
    }

    /// The row as a point of a run.
    pub fn point(&self) -> Point {
        let busy = |part: fn(&CpuShare) -> f64| -> f64 { self.cpus.iter().map(part).sum() };
        let by_cpu: Vec<f64> = self.cpus.iter().map(|cpu| 1.0 - cpu.idle_ratio).collect();
        let values = [
            ("flood", json!(self.load)),
            ("filter", json!(self.filter.to_string())),
            ("asked_pps", json!(self.asked_pps)),
            ("flood_pps", json!(self.flood_pps)),
            ("flood_of_path_ratio", json!(self.flood_of_path)),
            ("filtered_pps", json!(self.filtered_pps)),
            ("valid_sent_packets", json!(self.valid_sent)),
            ("valid_arrived_packets", json!(self.valid_arrived)),
            ("valid_delivered_packets", json!(self.valid_delivered)),
            ("valid_delivered_of_arrived_ratio", json!(self.valid_of_arrived())),
            ("lost_packets_by_place", json!(self.lost)),
            ("valid_delivered_ratio", json!(self.valid_ratio())),
            ("transfer_bps", json!(self.transfer_bps)),
            ("busy_ratio_by_cpu", json!(by_cpu)),
            ("user_cpus", json!(busy(|cpu| cpu.user_ratio))),
            ("system_cpus", json!(busy(|cpu| cpu.system_ratio))),
            ("softirq_cpus", json!(busy(|cpu| cpu.softirq_ratio))),
        ];
        Point { values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

/// The document's figure and the issue's goal beside what was measured.
pub fn single_rx_queue_figures(rows: &[SingleRxQueueRow]) -> Vec<Figure> {
    const PLACE: &str = "Single RX queue kernel bypass in netmap, 40 Gb/s, one core";
    let row = |load, filter| rows.iter().find(|row| (row.load, row.filter) == (load, filter));
    let full = |filter| row(FloodLoad::Full, filter).map(|row| row.filtered_pps / 1e6);
    let through = |name: &str, published: f64, filter: FloodFilter| Figure {
        figure: name.into(),
        unit: "Mpps".into(),
        published: published / 1e6,
        measured: full(filter),
        place: PLACE.into(),
        measured_at: format!("flood=full filter={filter}"),
    };
    let (least, most) = PUBLISHED_PPS;
    vec![
        through("through the filter, least", least, FloodFilter::DivertXdp),
        through("through the filter, most", most, FloodFilter::DivertXdp),
        through("through the filter in user space", least, FloodFilter::DivertUser),
    ]
}

/// Valid packets that the service has got once no more come.
fn drained(service: &Service, filter: &mut Filter) -> Result<u64, SingleRxQueueError> {
    const QUIET: Duration = Duration::from_millis(200);
    let (mut last, mut since) = (service.valid(), Instant::now());
    while since.elapsed() < QUIET {
        filter.beat_for(TICK)?;
        if service.valid() != last {
            (last, since) = (service.valid(), Instant::now());
        }
    }
    Ok(last)
}

fn hold(namespace: &NetNs) -> Result<NetNs, SingleRxQueueError> {
    namespace.try_clone().map_err(socket_error("hold the lab's network namespace"))
}

fn socket_error(what: &'static str) -> impl Fn(io::Error) -> SingleRxQueueError {
    move |source| SingleRxQueueError::Socket { what, source }
}

/// Any address of this family, with the service's port.
fn service_address() -> SocketAddr {
    (IpAddr::from(Ipv4Addr::UNSPECIFIED), PORT).into()
}

#[cfg(test)]
mod tests;
