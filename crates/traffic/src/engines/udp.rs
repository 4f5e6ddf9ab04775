//! UDP sockets: `sendmmsg` and `recvmmsg` in batches, on request with GSO, GRO and SO_REUSEPORT.

use std::net::Ipv6Addr;

use measure::{Place, StatisticsLevel};
use port::{SocketLayer, TimeSource, UdpReflector, UdpRx, UdpRxOptions, UdpTx, UdpTxOptions};
use serde::{Deserialize, Serialize};

use crate::{
    emit::Stamped,
    engine::{
        Conditions, NEEDS_MTU, RxEngine, RxFacts, RxLayer, RxOptions, RxSpec, RxWorkers, TxEngine, TxFacts,
        TxOptions, TxSpec,
    },
    error::EngineError,
    plan::{RxTraffic, StatisticsPlan, TxTraffic},
    queues::Queues,
    receiver::{Receiver, RxContext},
    registry::{Engine, EngineSide, Finding, Switch},
    sender::Sender,
    worker::Placement,
};

pub(super) const ENGINE: Engine = Engine {
    name: "udp",
    tx: Some(EngineSide {
        about: "UDP sockets (sendmmsg)",
        switches: &[Switch { name: "gso", about: "send up to 64 datagrams as one message (UDP GSO)" }],
        is_exclusive: false,
        ladder: &["udp", "udp+gso"],
        ladder_of_threads: &["udp", "udp+gso"],
        with_switches: |on| TxSpec::of(UdpSend { gso: on.contains(&"gso"), ..UdpSend::default() }),
        with_settings: TxSpec::saved::<UdpSend>,
    }),
    rx: Some(EngineSide {
        about: "UDP sockets (recvmmsg)",
        switches: &[
            Switch { name: "gro", about: "let the kernel merge datagrams of a flow (UDP GRO)" },
            Switch { name: "ovfl", about: "read drop counts from packets (SO_RXQ_OVFL)" },
            Switch { name: "reuseport", about: "one socket per thread instead of a shared one" },
        ],
        is_exclusive: false,
        ladder: &["udp", "udp+gro"],
        ladder_of_threads: &["udp", "udp+reuseport", "udp+gro+reuseport"],
        with_switches: |on| {
            RxSpec::of(UdpReceive {
                gro: on.contains(&"gro"),
                drop_counts: on.contains(&"ovfl"),
                reuse_port: on.contains(&"reuseport"),
                ..UdpReceive::default()
            })
        },
        with_settings: RxSpec::saved::<UdpReceive>,
    }),
    probe: |_| {
        let any = UdpRxOptions::at((Ipv6Addr::UNSPECIFIED, 0).into());
        vec![Finding::new("udp", UdpRx::open(&any).map(|_| "sockets"))]
    },
};

/// Settings of sending UDP sockets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct UdpSend {
    /// Send up to 64 datagrams as one message.
    gso: bool,
    /// `SO_SNDBUF` in bytes, `None` for the system's default.
    send_buffer_bytes: Option<usize>,
    /// Receive the probes that targets return.
    returns: bool,
}

/// Settings of receiving UDP sockets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct UdpReceive {
    /// One socket per worker on the same port (`SO_REUSEPORT`) instead of a shared one.
    reuse_port: bool,
    /// Let the kernel merge datagrams of a flow.
    gro: bool,
    /// Read the drop count from packets (`SO_RXQ_OVFL`) instead of requesting it every few milliseconds.
    drop_counts: bool,
    /// `SO_RCVBUF` in bytes, `None` for the system's default.
    receive_buffer_bytes: Option<usize>,
    /// `SO_BUSY_POLL` in microseconds, `None` for the system's default.
    busy_poll_micros: Option<u32>,
}

impl TxEngine for UdpSend {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        self.gso.then_some("gso").into_iter().collect()
    }

    fn configured(&self, options: &TxOptions) -> Self {
        Self {
            send_buffer_bytes: options.send_buffer_bytes.or(self.send_buffer_bytes),
            returns: options.returns || self.returns,
            ..*self
        }
    }

    fn options(&self) -> &'static [&'static str] {
        &["send-buffer", "reflect"]
    }

    fn facts(&self) -> TxFacts {
        TxFacts { hands_over_many: self.gso, returns: self.returns, passes_tc: true, ..TxFacts::default() }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        let reason = match (conditions.fits_mtu, conditions.is_one_size) {
            _ if !self.gso => return None,
            (false, _) => NEEDS_MTU,
            (_, false) => "GSO segments a message into datagrams of one size, but sizes vary",
            (true, true) => return None,
        };
        Some(reason.into())
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let ports = placement.inside(|| {
            plan.workers
                .iter()
                .zip(plan.payloads()?)
                .map(|(worker, template)| {
                    let port = UdpTx::open(&UdpTxOptions {
                        peer: worker.target,
                        local: worker.local,
                        interface: plan.interface.clone(),
                        flows: worker.flows,
                        payload_bytes: template.max_payload_len(),
                        batch_size: plan.batch_size,
                        gso: self.gso,
                        send_buffer_bytes: self.send_buffer_bytes,
                        returns: self.returns,
                    })?;
                    Ok(Stamped::new(port, template))
                })
                .collect::<Result<Vec<_>, EngineError>>()
        })?;
        let returns = self.returns.then(|| receive_returns(plan, &ports)).transpose()?;
        Ok(Sender::over(plan, ports, placement)?.with_returns(returns))
    }
}

/// A thread per flow: they sleep until packets arrive, regardless of the workers' pinning.
fn receive_returns(plan: &TxTraffic, senders: &[Stamped<UdpTx>]) -> Result<Receiver, EngineError> {
    let mut ports = Vec::new();
    for sender in senders {
        ports.extend(sender.port().return_ports()?);
    }
    let statistics = StatisticsPlan {
        level: StatisticsLevel::Time,
        probe_clock: Some(plan.frames.clock),
        stamp: Some(TimeSource::Kernel),
    };
    let plan = RxTraffic {
        local: plan.workers[0].local,
        interface: None,
        workers: ports.len(),
        spin: false,
        batch_size: plan.batch_size,
        statistics: Some(statistics),
        reflect: false,
        work_ns: 0,
    };
    Receiver::of_returned(&plan, ports, &Placement::default())
}

/// Sources of receive timestamps.
const STAMPS: &[TimeSource] = &[TimeSource::Kernel, TimeSource::Card, TimeSource::Loop];

impl UdpReceive {
    fn ports(&self, plan: &RxTraffic) -> Result<(Vec<UdpRx>, UdpRxOptions), EngineError> {
        let times = plan.time_source(TimeSource::Kernel, STAMPS);
        let counts_both = plan.statistics.is_some() && plan.local.ip() == Ipv6Addr::UNSPECIFIED;
        let mut options = UdpRxOptions {
            local: plan.local,
            interface: plan.interface.clone(),
            reuse_port: self.reuse_port,
            gro: self.gro,
            drop_counts: self.drop_counts,
            batch_size: plan.batch_size,
            // A reflector needs each datagram's sender, and so does a count over both IP versions.
            times: times.or((plan.reflect || counts_both).then_some(TimeSource::Loop)),
            receive_buffer_bytes: self.receive_buffer_bytes,
            busy_poll_micros: self.busy_poll_micros,
        };
        let first = UdpRx::open(&options)?;
        options.local = first.local_address()?;
        let mut ports = vec![first];
        for _ in 1..plan.workers {
            ports.push(if self.reuse_port { UdpRx::open(&options)? } else { ports[0].share(&options)? });
        }
        Ok((ports, options))
    }
}

impl RxEngine for UdpReceive {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        let all = [("gro", self.gro), ("ovfl", self.drop_counts), ("reuseport", self.reuse_port)];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }

    fn configured(&self, options: &RxOptions) -> Self {
        Self {
            receive_buffer_bytes: options.receive_buffer_bytes.or(self.receive_buffer_bytes),
            busy_poll_micros: options.busy_poll_micros.or(self.busy_poll_micros),
            ..*self
        }
    }

    fn options(&self) -> &'static [&'static str] {
        &["receive-buffer", "busy-poll"]
    }

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::Socket,
            needs_interface: false,
            workers: RxWorkers::Asked,
            joins_datagrams: self.gro,
            brings_ring: false,
            chooses_port: true,
            reflects: true,
            work_at_most_ns: u64::MAX,
            stamps: STAMPS,
            own_loss: Some((Place::ReceiveBuffer, "UdpRcvbufErrors")),
        }
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let &RxContext { placement, returns, .. } = context;
        let (ports, options, queues) = placement.inside(|| {
            let (ports, options) = self.ports(plan)?;
            let sockets = if self.reuse_port { &ports[..] } else { &ports[..1] };
            let queues = Queues::of_sockets(plan, SocketLayer::Datagram, sockets)?;
            Ok((ports, options, queues))
        })?;
        let at = (context, ports[0].local_address()?);
        let Some(returns) = returns else { return Receiver::over(plan, ports, at, queues) };
        let reflector = |port| UdpReflector::over(port, &options, returns.clone());
        let ports: Result<Vec<_>, _> = ports.into_iter().map(reflector).collect();
        Receiver::over(plan, ports?, at, queues)
    }
}
