//! XDP: programs in the kernel that send live frames, and that count or measure packets and drop them.

mod program;

use port::{PortError, Sent, TimeSource, WORK_AT_MOST_NS, XdpMode, XdpTx, XdpTxOptions, probe_xdp};
use serde::{Deserialize, Serialize};
use sys::rtnetlink::Link;
use wire::Template;

use crate::{
    emit::{Emit, Emitted},
    engine::{
        Conditions, NEEDS_BPF, RxEngine, RxFacts, RxLayer, RxSpec, RxWorkers, TxEngine, TxFacts, TxSpec,
    },
    error::EngineError,
    interface::interface_index,
    plan::{RxTraffic, TxTraffic},
    receiver::{Receiver, RxContext},
    registry::{Engine, EngineSide, Finding, Switch},
    sender::Sender,
    worker::Placement,
};

pub(super) const ENGINE: Engine = Engine {
    name: "xdp",
    tx: Some(EngineSide {
        about: "a program in the kernel (XDP live frames)",
        switches: &[],
        is_exclusive: false,
        ladder: &["xdp"],
        ladder_of_threads: &["xdp"],
        with_switches: |_| TxSpec::of(XdpSend {}),
        with_settings: TxSpec::saved::<XdpSend>,
    }),
    rx: Some(EngineSide {
        about: "a program in the driver that counts and drops",
        switches: &[Switch { name: "generic", about: "after the driver instead of in it (generic XDP)" }],
        is_exclusive: false,
        ladder: &["xdp"],
        ladder_of_threads: &["xdp"],
        with_switches: |on| RxSpec::of(XdpReceive { generic: on.contains(&"generic") }),
        with_settings: RxSpec::saved::<XdpReceive>,
    }),
    probe,
};

/// Settings of the sending program.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct XdpSend {}

/// Settings of the counting program.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct XdpReceive {
    /// After the driver's buffers become socket buffers (generic) instead of before (native).
    generic: bool,
}

impl TxEngine for XdpSend {
    const NAME: &'static str = ENGINE.name;

    fn facts(&self) -> TxFacts {
        TxFacts {
            makes_frames: true,
            needs_ring_at_peer: true,
            page_per_frame: true,
            frames_come_back: true,
            ..TxFacts::default()
        }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| (!conditions.bpf).then_some(NEEDS_BPF))
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let programs = placement.inside(|| {
            let options = XdpTxOptions::on(interface_index(plan.interface.as_deref())?);
            let mut programs: Vec<LiveFrames> = Vec::new();
            for template in plan.whole_frames()? {
                let port = match programs.first() {
                    None => XdpTx::open(template.recipe(), &options)?,
                    Some(first) => first.port.beside(template.recipe())?,
                };
                programs.push(LiveFrames::new(port, template));
            }
            Ok(programs)
        })?;
        Sender::over(plan, programs, placement)
    }
}

/// A program that builds packets from the template's recipe.
pub(crate) struct LiveFrames {
    port: XdpTx,
    template: Template,
}

impl LiveFrames {
    pub(crate) fn new(port: XdpTx, template: Template) -> Self {
        Self { port, template }
    }
}

impl Emit for LiveFrames {
    const LEAST_GAP_NS: u64 = XdpTx::LEAST_GAP_NS;

    fn batch_size(&self) -> usize {
        self.port.worthwhile_packets()
    }

    fn emit(&mut self, packets: usize, time_ns: u64) -> Result<Emitted, PortError> {
        let first = self.port.next_sequence();
        let sent: Sent = self.port.send(packets, time_ns)?;
        let payload_bytes = match self.template.recipe().payload_len.fixed() {
            Some(bytes) => u64::from(bytes) * sent.filled as u64,
            None => {
                (0..sent.filled as u32).map(|n| self.template.payload_len(first.wrapping_add(n)) as u64).sum()
            }
        };
        Ok(Emitted { sent, payload_bytes })
    }
}

impl RxEngine for XdpReceive {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        self.generic.then_some("generic").into_iter().collect()
    }

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::XdpProgram,
            needs_interface: true,
            workers: RxWorkers::One,
            joins_datagrams: false,
            brings_ring: !self.generic,
            chooses_port: false,
            reflects: true,
            work_at_most_ns: WORK_AT_MOST_NS.into(),
            stamps: &[TimeSource::Poll, TimeSource::Program],
            own_loss: None,
        }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| (!conditions.bpf).then_some(NEEDS_BPF))
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let mode = if self.generic { XdpMode::Generic } else { XdpMode::Native };
        program::start(plan, mode, context)
    }
}

fn probe(link: &Link) -> Vec<Finding> {
    let found = probe_xdp(link.index);
    let all = [
        ("xdp native", found.native),
        ("xdp generic", found.generic),
        ("xdp live frames", found.live_frames),
    ];
    all.into_iter()
        .map(|(part, outcome)| Finding::new(part, outcome.map(|()| "").map_err(PortError::Bpf)))
        .collect()
}
