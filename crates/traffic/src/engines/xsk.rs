//! AF_XDP sockets, one per queue.

use std::{error::Error, iter};

use measure::Place;
use port::{BusyPoll, PortError, TimeSource, XskReflector, XskRx, XskRxOptions, XskTx, XskTxOptions};
use serde::{Deserialize, Serialize};
use sys::{
    ethtool::rx_queues,
    rtnetlink::Link,
    xsk::{CopyMode, Pages},
};

use crate::{
    emit::Stamped,
    engine::{
        Conditions, NEEDS_BPF, NEEDS_RAW, RxEngine, RxFacts, RxLayer, RxSpec, RxWorkers, TxEngine, TxFacts,
        TxSpec,
    },
    error::EngineError,
    interface::{interface, program_time_source},
    plan::{RxTraffic, TxTraffic},
    queues::Queues,
    receiver::{Receiver, RxContext},
    registry::{Engine, EngineSide, Finding, Switch},
    sender::Sender,
    worker::Placement,
};

const BUSY_POLL: Switch = Switch {
    name: "busypoll",
    about: "poll the card from the sockets' own calls, with its interrupts off in between",
};

pub(super) const ENGINE: Engine = Engine {
    name: "xsk",
    tx: Some(EngineSide {
        about: "AF_XDP sockets, one per queue",
        switches: &[BUSY_POLL],
        is_exclusive: false,
        ladder: &["xsk"],
        ladder_of_threads: &["xsk"],
        with_switches: |on| TxSpec::of(XskSend { busy_poll: on.contains(&"busypoll") }),
        with_settings: TxSpec::saved::<XskSend>,
    }),
    rx: Some(EngineSide {
        about: "AF_XDP sockets, one per queue",
        switches: &[BUSY_POLL, Switch { name: "sharedumem", about: "one shared memory for all queues" }],
        is_exclusive: false,
        ladder: &["xsk"],
        ladder_of_threads: &["xsk"],
        with_switches: |on| {
            RxSpec::of(XskReceive {
                busy_poll: on.contains(&"busypoll"),
                shared_umem: on.contains(&"sharedumem"),
            })
        },
        with_settings: RxSpec::saved::<XskReceive>,
    }),
    probe,
};

/// Settings of sending AF_XDP sockets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct XskSend {
    /// Poll the card from the sockets' own calls, with its interrupts off in between.
    busy_poll: bool,
}

/// Settings of receiving AF_XDP sockets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct XskReceive {
    /// Poll the card from the sockets' own calls, with its interrupts off in between.
    busy_poll: bool,
    /// One shared memory for all queues.
    shared_umem: bool,
}

impl TxEngine for XskSend {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        self.busy_poll.then_some("busypoll").into_iter().collect()
    }

    fn facts(&self) -> TxFacts {
        TxFacts { makes_frames: true, queue_per_worker: true, ..TxFacts::default() }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| (!conditions.raw_sockets).then_some(NEEDS_RAW))
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let ports = placement.inside(|| {
            let interface = plan.interface.as_deref().unwrap_or_default();
            (0..)
                .zip(plan.whole_frames()?)
                .map(|(queue, template)| {
                    let defaults = XskTxOptions::on(interface, queue);
                    let port = XskTx::open(&XskTxOptions {
                        batch_size: plan.batch_size.min(defaults.batch_size),
                        longest_frame: template.max_frame_len(),
                        busy_poll: self.busy_poll.then_some(BusyPoll::USUAL),
                        ..defaults
                    })?;
                    Ok(Stamped::new(port, template))
                })
                .collect::<Result<Vec<_>, EngineError>>()
        })?;
        Sender::over(plan, ports, placement)
    }
}

/// Sources of receive timestamps.
const STAMPS: &[TimeSource] = &[TimeSource::Poll, TimeSource::Program, TimeSource::Card, TimeSource::Loop];

impl XskReceive {
    /// The queues that sockets are opened on: one per worker, or all of an interface that is measured, if its packets may
    /// arrive on any of them.
    fn queues(plan: &RxTraffic, name: &str) -> Result<Vec<u32>, EngineError> {
        let workers = plan.workers as u32;
        if !plan.takes_all_probes() {
            return Ok((0..workers).collect());
        }
        Ok((0..rx_queues(&interface(Some(name))?).max(workers)).collect())
    }

    fn options(&self, plan: &RxTraffic) -> Result<XskRxOptions, EngineError> {
        let name = plan.interface.as_deref().unwrap_or_default();
        let takes_all = plan.takes_all_probes();
        let stamp = match plan.time_source(TimeSource::Poll, STAMPS) {
            Some(TimeSource::Poll) => program_time_source(&interface(Some(name))?),
            stamp => stamp.unwrap_or_default(),
        };
        Ok(XskRxOptions {
            queues: Self::queues(plan, name)?,
            dst_port: if takes_all { 0 } else { plan.local.port() },
            only_probes: takes_all,
            stamp,
            busy_poll: self.busy_poll.then_some(BusyPoll::USUAL),
            shared_umem: self.shared_umem,
            ..XskRxOptions::on(name, 0)
        })
    }
}

impl RxEngine for XskReceive {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        let all = [("busypoll", self.busy_poll), ("sharedumem", self.shared_umem)];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::XdpSocket,
            needs_interface: true,
            workers: RxWorkers::PerQueue,
            joins_datagrams: false,
            brings_ring: false,
            chooses_port: false,
            reflects: !(self.busy_poll || self.shared_umem),
            work_at_most_ns: u64::MAX,
            stamps: STAMPS,
            own_loss: Some((Place::XskRingFull, "XDP_STATISTICS rx_ring_full + rx_dropped")),
        }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| (!conditions.bpf).then_some(NEEDS_BPF))
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let &RxContext { placement, returns, .. } = context;
        let options = placement.inside(|| self.options(plan))?;
        let at = (context, plan.local);
        let Some(returns) = returns else {
            let ports = placement.inside(|| Ok(XskRx::open(&options)?))?;
            return Receiver::over(plan, ports, at, Queues::OfPorts);
        };
        let ports = placement.inside(|| Ok(XskReflector::open(&options, returns)?))?;
        Receiver::over(plan, ports, at, Queues::OfPorts)
    }
}

fn probe(link: &Link) -> Vec<Finding> {
    let interface = link.name.as_str();
    let send = XskTx::open(&XskTxOptions::on(interface, 0)).map(|port| {
        let got = port.got().copy_mode;
        drop(port);
        let options = XskTxOptions { copy_mode: CopyMode::ZeroCopy, ..XskTxOptions::on(interface, 0) };
        copies(got, || XskTx::open(&options).map(drop))
    });
    let mut pages = None;
    let receive = XskRx::open(&XskRxOptions::on(interface, 0)).map(|ports| {
        let got = ports.first().map(|port| (port.got().copy_mode, port.mode()));
        pages = ports.first().map(|port| port.got().pages);
        drop(ports);
        let options = XskRxOptions { copy_mode: CopyMode::ZeroCopy, ..XskRxOptions::on(interface, 0) };
        got.map_or_else(String::new, |(copy_mode, mode)| {
            format!("{mode}, {}", copies(copy_mode, || XskRx::open(&options).map(drop)))
        })
    });
    let memory = pages.map(|pages| match pages {
        Pages::Huge => "on huge pages",
        Pages::Normal => {
            "on normal pages, merged if the kernel can: no huge page is reserved (sysctl vm.nr_hugepages)"
        }
    });
    let memory = memory.map(|words| Finding::new("xsk memory", Ok(words)));
    [Finding::new("xsk send", send), Finding::new("xsk receive", receive)].into_iter().chain(memory).collect()
}

/// Whether frames are copied, and if so why.
fn copies(got: CopyMode, without: impl FnOnce() -> Result<(), PortError>) -> String {
    match (got, without()) {
        (CopyMode::ZeroCopy, _) => "zero-copy".into(),
        (_, Err(error)) => {
            let first: &(dyn Error + 'static) = &error;
            let last = iter::successors(Some(first), |error| (*error).source()).last().unwrap_or(first);
            format!("with a copy of each frame; zero-copy is refused: {last}")
        }
        (_, Ok(())) => "with a copy of each frame".into(),
    }
}
