//! Packet sockets: TX_RING bypassing the queueing discipline, and TPACKET_V3 rings of a fanout group.

use std::time::Duration;

use measure::Place;
use port::{
    Fanout, FanoutMode, PacketReflector, PacketRx, PacketRxOptions, PacketTx, PacketTxOptions, SocketLayer,
    TimeSource,
};
use serde::{Deserialize, Serialize};

use crate::{
    emit::Stamped,
    engine::{
        Conditions, NEEDS_RAW, RxEngine, RxFacts, RxLayer, RxSpec, RxWorkers, TxEngine, TxFacts, TxSpec,
    },
    error::EngineError,
    interface::interface_index,
    plan::{RxTraffic, TxTraffic},
    queues::Queues,
    receiver::{Receiver, RxContext},
    registry::{Engine, EngineSide, Finding, Switch},
    sender::Sender,
    worker::Placement,
};

pub(super) const ENGINE: Engine = Engine {
    name: "packet",
    tx: Some(EngineSide {
        about: "packet sockets (AF_PACKET TX_RING)",
        switches: &[Switch {
            name: "qdisc",
            about: "send through the queueing discipline instead of bypassing it",
        }],
        is_exclusive: false,
        ladder: &["packet"],
        ladder_of_threads: &["packet"],
        with_switches: |on| TxSpec::of(PacketSend { qdisc_bypass: !on.contains(&"qdisc") }),
        with_settings: TxSpec::saved::<PacketSend>,
    }),
    rx: Some(EngineSide {
        about: "packet sockets that share an interface's frames (AF_PACKET TPACKET_V3)",
        switches: &[],
        is_exclusive: false,
        ladder: &["packet"],
        ladder_of_threads: &["packet"],
        with_switches: |_| RxSpec::of(PacketReceive::default()),
        with_settings: RxSpec::saved::<PacketReceive>,
    }),
    probe: |link| {
        let send = PacketTx::open(&PacketTxOptions::on(link.index, 60)).map(|_| "TX_RING");
        let receive = PacketRx::open(&PacketRxOptions::on(link.index)).map(|_| "TPACKET_V3");
        vec![Finding::new("packet send", send), Finding::new("packet receive", receive)]
    },
};

/// Settings of sending packet sockets.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PacketSend {
    /// Past the queueing discipline.
    qdisc_bypass: bool,
}

/// Settings of receiving packet sockets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
struct PacketReceive {
    /// Bytes of a socket's ring.
    ring_bytes: usize,
}

impl Default for PacketReceive {
    fn default() -> Self {
        Self { ring_bytes: PacketRxOptions::USUAL_RING_BYTES }
    }
}

impl TxEngine for PacketSend {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        (!self.qdisc_bypass).then_some("qdisc").into_iter().collect()
    }

    fn facts(&self) -> TxFacts {
        TxFacts {
            makes_frames: true,
            retries_interface_drops: true,
            passes_tc: !self.qdisc_bypass,
            ..TxFacts::default()
        }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| (!conditions.raw_sockets).then_some(NEEDS_RAW))
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let ports = placement.inside(|| {
            let interface = interface_index(plan.interface.as_deref())?;
            plan.whole_frames()?
                .into_iter()
                .map(|template| {
                    let port = PacketTx::open(&PacketTxOptions {
                        batch_size: plan.batch_size.min(PacketTxOptions::BATCH_SIZE),
                        qdisc_bypass: self.qdisc_bypass,
                        ..PacketTxOptions::on(interface, template.max_frame_len())
                    })?;
                    Ok(Stamped::new(port, template))
                })
                .collect::<Result<Vec<_>, EngineError>>()
        })?;
        Sender::over(plan, ports, placement)
    }
}

/// Sources of receive timestamps.
const STAMPS: &[TimeSource] = &[TimeSource::Kernel, TimeSource::Card];

impl PacketReceive {
    fn ports(&self, plan: &RxTraffic) -> Result<Vec<PacketRx>, EngineError> {
        let interface = interface_index(plan.interface.as_deref())?;
        // One group per process: its number must only differ from other programs' in the namespace.
        let fanout = Fanout { group: std::process::id() as u16, mode: FanoutMode::Hash };
        let fanout = (plan.workers > 1).then_some(fanout);
        let by_card = plan.time_source(TimeSource::Kernel, STAMPS) == Some(TimeSource::Card);
        let stamp = if by_card { TimeSource::Card } else { TimeSource::Kernel };
        let mut options = PacketRxOptions { fanout, stamp, ..PacketRxOptions::on(interface) };
        options.blocks = self.ring_bytes / options.block_bytes;
        if plan.reflect {
            // The shortest possible: packets are delivered when their block is full or after this time.
            options.retire_after = Duration::from_millis(1);
        }
        (0..plan.workers).map(|_| Ok(PacketRx::open(&options)?)).collect()
    }
}

impl RxEngine for PacketReceive {
    const NAME: &'static str = ENGINE.name;

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::Copies,
            needs_interface: true,
            workers: RxWorkers::Asked,
            joins_datagrams: false,
            brings_ring: false,
            chooses_port: false,
            reflects: true,
            work_at_most_ns: u64::MAX,
            stamps: STAMPS,
            own_loss: Some((Place::PacketRing, "PACKET_STATISTICS tp_drops")),
        }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| (!conditions.raw_sockets).then_some(NEEDS_RAW))
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let &RxContext { placement, returns, .. } = context;
        let (ports, queues) = placement.inside(|| {
            let ports = self.ports(plan)?;
            let queues = Queues::of_sockets(plan, SocketLayer::Frame, &ports)?;
            Ok((ports, queues))
        })?;
        let at = (context, plan.local);
        let Some(returns) = returns else { return Receiver::over(plan, ports, at, queues) };
        let ports = placement.inside(|| {
            let interface = interface_index(plan.interface.as_deref())?;
            let over = |port| Ok(PacketReflector::over(port, interface, returns.clone())?);
            ports.into_iter().map(over).collect::<Result<Vec<_>, EngineError>>()
        })?;
        Receiver::over(plan, ports, at, queues)
    }
}
