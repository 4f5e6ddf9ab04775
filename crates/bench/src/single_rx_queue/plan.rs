//! The traffic of each sender, and the queues and CPUs that receive it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    path::PathBuf,
    sync::Arc,
    thread,
};

use lab::{Interfaces, Lab, LabPlan};
use serde::Serialize;
use sys::{cpu, netns::NetNs, sysfs::Sysfs};
use traffic::{Departures, FIRST_SOURCE_PORT, Limit, Placement, SenderPlan, TxSpec, TxTraffic, TxWorkerPlan};
use trial::CpuPlan;
use wire::{FrameSpec, MacAddr};

use super::{
    error::{SingleRxQueueError, socket_error},
    load::FloodFilter,
};

/// The traffic, its interfaces, and its duration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SingleRxQueuePlan {
    /// Two real interfaces; `None`: a veth pair.
    pub interfaces: Option<Interfaces>,
    /// The queue of the receiving card for the flood and the valid packets; the card's table or rules lead them there, and other
    /// flows elsewhere. `None`: the queue of the sending CPU on a veth pair, whichever the card chooses between interfaces.
    pub queue: Option<u32>,
    /// Where the journal of the card's settings goes.
    #[serde(skip)]
    pub state: PathBuf,
    /// The engine of the flood and the valid packets.
    pub tx: TxSpec,
    /// Valid packets per second.
    pub valid_pps: f64,
    /// Bits per second of the unrelated transfer.
    pub transfer_bps: f64,
    /// Length of each row.
    pub row_ns: u64,
    /// Whether the highest flood without loss is searched for after the rows.
    pub without_loss: bool,
    /// The CPUs of the two sides: the first receiving CPU is the filter's, the second one for the rest; without
    /// a second one, the rest runs on the sending CPU.
    pub cpus: CpuPlan,
}

/// The stream tags of valid packets and of the flood.
pub(super) const VALID_STREAM: u16 = 1;
pub(super) const FLOOD_STREAM: u16 = 2;
pub(super) const PORT: u16 = 4321;
/// The stream tag and the port of a flow that is neither flooded nor diverted.
pub(super) const BESIDE_STREAM: u16 = 3;
pub(super) const BESIDE_PORT: u16 = 4322;
/// Valid packets leave in groups of this size: sending single ones would mean watching the clock all the time.
const VALID_BURST: u32 = 8;
/// The most flood packets per call.
pub(super) const FLOOD_BATCH: usize = 256;

impl SingleRxQueuePlan {
    /// Receive queues of the lab: the flooded one, and that of the others.
    const QUEUES: u32 = 2;

    /// The lab of the measurement.
    pub fn lab(&self) -> LabPlan {
        // the owner of a card decides about its interrupts
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

    /// Whether the queue of choice is one of several.
    ///
    /// # Errors
    /// [`SingleRxQueueError::NoQueue`].
    pub(super) fn check_queue(&self, lab: &Lab) -> Result<(), SingleRxQueueError> {
        let queues = lab.rx().rx_queues()?;
        match self.queue {
            Some(queue) if queue >= queues || queues < 2 => {
                Err(SingleRxQueueError::NoQueue { interface: lab.rx().interface().to_owned(), queue, queues })
            }
            _ => Ok(()),
        }
    }

    /// The CPU of the flooded queue and of the filter; `None`: any.
    pub(super) fn filter_cpu(&self) -> Option<u32> {
        self.cpus.rx.first().copied()
    }

    /// The CPU of all other receiving work.
    pub(super) fn other_cpu(&self) -> Option<u32> {
        self.cpus.rx.get(1).or(self.cpus.tx.first()).copied()
    }

    /// The CPU of the service. A service that discards the flood itself is on the flooded queue's CPU, and shares it.
    pub(super) fn service_cpu(&self, filter: FloodFilter) -> Option<u32> {
        if filter == FloodFilter::Service { self.filter_cpu() } else { self.other_cpu() }
    }

    /// The CPUs of the lab's queues.
    fn napi_cpus(&self) -> Vec<u32> {
        let (Some(filter), Some(other)) = (self.filter_cpu(), self.other_cpu()) else { return Vec::new() };
        let cpu =
            |queue| if self.flooded_queue().is_none_or(|flooded| flooded == queue) { filter } else { other };
        (0..Self::QUEUES).map(cpu).collect()
    }

    /// The queue for frames that XDP sends from the sending CPU; `None` if a card decides.
    pub(super) fn flooded_queue(&self) -> Option<u32> {
        let cpu = self.cpus.tx.first().copied().unwrap_or(0);
        self.interfaces.is_none().then_some(cpu % Self::QUEUES)
    }

    /// Makes packets from the sending side's sockets arrive on another queue than the flood. Otherwise the transfer shares
    /// the flooded queue in half of the rows.
    pub(super) fn choose_queues(&self, lab: &Lab) {
        let Some(flooded) = self.flooded_queue() else { return };
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(31);
        let others = (flooded + 1) % Self::QUEUES;
        let file = format!("class/net/{}/queues/tx-{others}/xps_cpus", lab.tx().interface());
        let mask = format!("{:x}", (1u64 << cpus) - 1);
        let written = Sysfs::of(lab.tx().namespace()).and_then(|sysfs| sysfs.write(&file, &mask));
        debug_assert!(written.is_ok(), "{file}: {written:?}");
    }

    /// Lets the packet processing of the other queues outrank the sender of the flood. On a machine with two CPUs they
    /// share one: without this, it waits milliseconds for its turn, and the rings of 256 packets overflow.
    pub(super) fn prefer_other_queues(&self, lab: &Lab) -> Result<(), SingleRxQueueError> {
        let cpus = self.napi_cpus();
        if cpus.is_empty() || !self.lab().threaded_napi {
            return Ok(());
        }
        for (napi, cpu) in lab.rx().napis()?.iter().zip(cpus) {
            if let Some(thread) = napi.thread.filter(|_| Some(cpu) != self.filter_cpu()) {
                cpu::go_first(thread).map_err(socket_error("raise the priority of packet processing"))?;
            }
        }
        Ok(())
    }

    /// The CPU of a sender. The flood gets the time that the others on its CPU leave: those need little, but at once.
    pub(super) fn sending(&self, lab: &Lab, stream: u16) -> Result<Placement, SingleRxQueueError> {
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

    /// Source and destination of the flood or the valid packets.
    pub(super) fn flow(lab: &Lab, stream: u16) -> [SocketAddrV4; 2] {
        let sender = lab.tx().ipv4()[usize::from(stream == FLOOD_STREAM)];
        [SocketAddrV4::new(sender, FIRST_SOURCE_PORT), SocketAddrV4::new(lab.rx().ipv4()[0], PORT)]
    }

    /// A sender of this stream's packets.
    pub(super) fn sender(
        &self,
        lab: &Lab,
        (stream, [src, dst]): (u16, [SocketAddrV4; 2]),
        rate_pps: Option<f64>,
        duration_ns: Option<u64>,
    ) -> SenderPlan {
        let (tx, rx) = (lab.tx(), lab.rx());
        let is_flood = stream == FLOOD_STREAM;
        // A run of live frames costs as much as a hundred packets: for a few packets, a socket of the flooded queue is cheaper.
        let engine = match self.flooded_queue() {
            Some(0) if !is_flood => "xsk".parse().expect("an engine of the registry"),
            _ => self.tx.clone(),
        };
        SenderPlan {
            engine,
            traffic: TxTraffic {
                workers: vec![TxWorkerPlan {
                    target: dst.into(),
                    // Engines that build frames number their source ports themselves, from `FIRST_SOURCE_PORT` on.
                    local: (*src.ip(), 0).into(),
                    flows: 1,
                    stream,
                }],
                interface: self.tx.facts().makes_frames.then(|| tx.interface().into()),
                frames: FrameSpec {
                    src_mac: MacAddr(tx.mac()),
                    dst_mac: MacAddr(rx.mac()),
                    ..FrameSpec::default()
                },
                rate_pps,
                departures: if is_flood { Departures::Constant } else { Departures::Burst(VALID_BURST) },
                limit: Limit { count: None, duration_ns },
                batch_size: if is_flood { FLOOD_BATCH } else { VALID_BURST as usize },
                seed: stream.into(),
            },
        }
    }
}

pub(super) fn hold(namespace: &NetNs) -> Result<NetNs, SingleRxQueueError> {
    namespace.try_clone().map_err(socket_error("duplicate the handle of the lab's network namespace"))
}

/// Any address of this family, with a service's port.
pub(super) fn service_address(port: u16) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::UNSPECIFIED), port).into()
}
