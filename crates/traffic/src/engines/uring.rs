//! UDP sockets through io_uring: batches of sends, and a multishot receive into provided buffers.

use std::net::Ipv6Addr;

use measure::Place;
use port::{
    SocketLayer, TimeSource, UdpRxOptions, UdpTxOptions, UringRx, UringRxOptions, UringTx, UringTxOptions,
};
use serde::{Deserialize, Serialize};

use crate::{
    emit::Stamped,
    engine::{
        Conditions, RxEngine, RxFacts, RxLayer, RxOptions, RxSpec, RxWorkers, TxEngine, TxFacts, TxOptions,
        TxSpec,
    },
    error::EngineError,
    plan::{RxTraffic, TxTraffic},
    queues::Queues,
    receiver::{Receiver, RxContext},
    registry::{Engine, EngineSide, Finding, Switch},
    sender::Sender,
    worker::Placement,
};

pub(super) const ENGINE: Engine = Engine {
    name: "uring",
    tx: Some(EngineSide {
        about: "UDP sockets through io_uring (batches of sends)",
        switches: &[Switch { name: "sqpoll", about: "a kernel thread submits (IORING_SETUP_SQPOLL)" }],
        is_exclusive: false,
        ladder: &["uring"],
        ladder_of_threads: &["uring"],
        with_switches: |on| TxSpec::of(UringSend { sqpoll: on.contains(&"sqpoll"), ..UringSend::default() }),
        with_settings: TxSpec::saved::<UringSend>,
    }),
    rx: Some(EngineSide {
        about: "UDP sockets through io_uring (multishot receive into provided buffers)",
        switches: &[Switch { name: "reuseport", about: "one socket per thread instead of a shared one" }],
        is_exclusive: false,
        ladder: &["uring"],
        ladder_of_threads: &["uring", "uring+reuseport"],
        with_switches: |on| {
            RxSpec::of(UringReceive { reuse_port: on.contains(&"reuseport"), ..UringReceive::default() })
        },
        with_settings: RxSpec::saved::<UringReceive>,
    }),
    probe: |_| {
        vec![Finding::new("uring send", UringTx::probe()), Finding::new("uring receive", UringRx::probe())]
    },
};

/// Settings of sending rings.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct UringSend {
    /// A kernel thread submits.
    sqpoll: bool,
    /// `SO_SNDBUF` in bytes, `None` for the system's default.
    send_buffer_bytes: Option<usize>,
}

/// Settings of receiving rings.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct UringReceive {
    /// One socket per worker on the same port (`SO_REUSEPORT`) instead of a shared one.
    reuse_port: bool,
    /// `SO_RCVBUF` in bytes, `None` for the system's default.
    receive_buffer_bytes: Option<usize>,
}

impl TxEngine for UringSend {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        self.sqpoll.then_some("sqpoll").into_iter().collect()
    }

    fn configured(&self, options: &TxOptions) -> Self {
        let send_buffer_bytes = options.send_buffer_bytes.or(self.send_buffer_bytes);
        Self { send_buffer_bytes, ..*self }
    }

    fn options(&self) -> &'static [&'static str] {
        &["send-buffer"]
    }

    fn facts(&self) -> TxFacts {
        TxFacts { passes_tc: true, ..TxFacts::default() }
    }

    fn why_not(&self, _: &Conditions) -> Option<String> {
        UringTx::why_not().map(str::to_owned)
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let ports = placement.inside(|| {
            plan.workers
                .iter()
                .zip(plan.payloads()?)
                .map(|(worker, template)| {
                    let sockets = UdpTxOptions {
                        local: worker.local,
                        interface: plan.interface.clone(),
                        flows: worker.flows,
                        batch_size: plan.batch_size,
                        send_buffer_bytes: self.send_buffer_bytes,
                        ..UdpTxOptions::to(worker.target, template.max_payload_len())
                    };
                    let port = UringTx::open(&UringTxOptions { sockets, sqpoll: self.sqpoll })?;
                    Ok(Stamped::new(port, template))
                })
                .collect::<Result<Vec<_>, EngineError>>()
        })?;
        Sender::over(plan, ports, placement)
    }
}

/// Sources of receive timestamps.
const STAMPS: &[TimeSource] = &[TimeSource::Kernel, TimeSource::Card, TimeSource::Loop];

impl UringReceive {
    fn ports(&self, plan: &RxTraffic) -> Result<Vec<UringRx>, EngineError> {
        let times = plan.time_source(TimeSource::Kernel, STAMPS);
        let counts_both = plan.statistics.is_some() && plan.local.ip() == Ipv6Addr::UNSPECIFIED;
        let mut options = UringRxOptions::at(plan.local);
        options.socket = UdpRxOptions {
            interface: plan.interface.clone(),
            reuse_port: self.reuse_port,
            batch_size: plan.batch_size,
            // A count over both IP versions needs each datagram's sender.
            times: times.or(counts_both.then_some(TimeSource::Loop)),
            receive_buffer_bytes: self.receive_buffer_bytes,
            ..options.socket
        };
        let first = UringRx::open(&options)?;
        options.socket.local = first.local_address()?;
        let mut ports = vec![first];
        for _ in 1..plan.workers {
            ports.push(if self.reuse_port { UringRx::open(&options)? } else { ports[0].share(&options)? });
        }
        Ok(ports)
    }
}

impl RxEngine for UringReceive {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        self.reuse_port.then_some("reuseport").into_iter().collect()
    }

    fn configured(&self, options: &RxOptions) -> Self {
        let receive_buffer_bytes = options.receive_buffer_bytes.or(self.receive_buffer_bytes);
        Self { receive_buffer_bytes, ..*self }
    }

    fn options(&self) -> &'static [&'static str] {
        &["receive-buffer"]
    }

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::Socket,
            needs_interface: false,
            workers: RxWorkers::Asked,
            joins_datagrams: false,
            brings_ring: false,
            chooses_port: true,
            reflects: false,
            work_at_most_ns: u64::MAX,
            stamps: STAMPS,
            own_loss: Some((Place::ReceiveBuffer, "UdpRcvbufErrors")),
        }
    }

    fn why_not(&self, _: &Conditions) -> Option<String> {
        UringRx::why_not().map(str::to_owned)
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let (ports, queues) = context.placement.inside(|| {
            let ports = self.ports(plan)?;
            let sockets = if self.reuse_port { &ports[..] } else { &ports[..1] };
            let queues = Queues::of_sockets(plan, SocketLayer::Datagram, sockets)?;
            Ok::<_, EngineError>((ports, queues))
        })?;
        let at = (context, ports[0].local_address()?);
        Receiver::over(plan, ports, at, queues)
    }
}
