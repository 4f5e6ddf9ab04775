//! A card's own descriptor rings, without its kernel driver: for the RDR paper's experiment.

use measure::Place;
use port::{Buffers, CardAccess, PciOptions, PciRx, PciTx, PortError};
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
    registry::{Engine, EngineSide},
    sender::Sender,
    worker::Placement,
};

pub(super) const ENGINE: Engine = Engine {
    name: "pci",
    tx: Some(EngineSide {
        about: "a card's descriptor ring without its kernel driver (e1000, e1000e)",
        switches: &[],
        is_exclusive: false,
        // Takes a card from the kernel, so only on request.
        ladder: &[],
        ladder_of_threads: &[],
        with_switches: |_| TxSpec::of(CardRings::default()),
        with_settings: TxSpec::saved::<CardRings>,
    }),
    rx: Some(EngineSide {
        about: "the same, with buffers recycled, pooled or allocated anew",
        switches: &[],
        is_exclusive: false,
        ladder: &[],
        ladder_of_threads: &[],
        with_switches: |_| RxSpec::of(CardRings::default()),
        with_settings: RxSpec::saved::<CardRings>,
    }),
    // Trying it would take the card.
    probe: |_| Vec::new(),
};

/// Settings of a card's ring.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
struct CardRings {
    /// Consent to take the card from the kernel.
    take_device: bool,
    /// How the card is reached.
    access: CardAccess,
    /// Sleep until the card interrupts instead of polling.
    interrupts: bool,
    /// Descriptors of the ring.
    ring_slots: u32,
    /// Descriptors that one write of the tail register hands over.
    tail_batch: u32,
    /// The buffer policy.
    buffers: Buffers,
    /// How many descriptors ahead the CPU prefetches frames.
    prefetch: u32,
    /// Record head, tail and missed frames at each poll.
    trace: bool,
}

impl Default for CardRings {
    fn default() -> Self {
        let PciOptions {
            take_device,
            access,
            interrupts,
            ring_slots,
            tail_batch,
            buffers,
            prefetch,
            trace,
            ..
        } = PciOptions::on("");
        Self { take_device, access, interrupts, ring_slots, tail_batch, buffers, prefetch, trace }
    }
}

/// Options of both sides.
const OPTIONS: &[&str] = &["take-device", "card-access", "ring-slots", "tail-batch"];
/// Options of the receiving side.
const RX_OPTIONS: &[&str] =
    &["take-device", "card-access", "interrupts", "ring-slots", "tail-batch", "buffers", "prefetch", "trace"];

impl CardRings {
    fn options(&self, interface: Option<&str>, batch_size: usize) -> PciOptions {
        PciOptions {
            take_device: self.take_device,
            access: self.access,
            interrupts: self.interrupts,
            ring_slots: self.ring_slots,
            tail_batch: self.tail_batch,
            batch_size,
            buffers: self.buffers,
            prefetch: self.prefetch,
            trace: self.trace,
            ..PciOptions::on(interface.unwrap_or_default())
        }
    }

    fn with(&self, given: crate::engine::RingOptions) -> Self {
        Self {
            take_device: given.take_device || self.take_device,
            access: given.access.unwrap_or(self.access),
            interrupts: given.interrupts || self.interrupts,
            ring_slots: given.ring_slots.unwrap_or(self.ring_slots),
            tail_batch: given.tail_batch.unwrap_or(self.tail_batch),
            buffers: given.buffers.unwrap_or(self.buffers),
            prefetch: given.prefetch.unwrap_or(self.prefetch),
            trace: given.trace || self.trace,
        }
    }

    fn reason(&self, conditions: &Conditions) -> Option<String> {
        conditions.of_frames(|| match conditions {
            Conditions { real_interfaces: false, .. } => Some(NEEDS_CARD),
            Conditions { root: false, .. } => Some("needs root of the machine, because it takes a card"),
            Conditions { take_device: false, .. } => Some(NEEDS_CONSENT),
            _ => None,
        })
    }
}

const NEEDS_CARD: &str = "needs a card: --tx-interface and --rx-interface";
const NEEDS_CONSENT: &str =
    "takes the card from its kernel driver during the run: allow it with --take-device";

impl TxEngine for CardRings {
    const NAME: &'static str = ENGINE.name;

    fn configured(&self, options: &TxOptions) -> Self {
        self.with(options.rings)
    }

    fn options(&self) -> &'static [&'static str] {
        OPTIONS
    }

    fn facts(&self) -> TxFacts {
        TxFacts { makes_frames: true, takes_device: true, ..TxFacts::default() }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        self.reason(conditions)
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let ports = placement.inside(|| {
            let mut templates = plan.whole_frames()?;
            let (Some(template), true) = (templates.pop(), templates.is_empty()) else {
                return Err(PortError::OneRing.into());
            };
            let options = CardRings::options(self, plan.interface.as_deref(), plan.batch_size);
            let options = PciOptions { interrupts: false, ..options };
            let port = PciTx::open(&options, template.max_frame_len())?;
            Ok::<_, EngineError>(vec![Stamped::new(port, template)])
        })?;
        Sender::over(plan, ports, placement)
    }
}

impl RxEngine for CardRings {
    const NAME: &'static str = ENGINE.name;

    fn configured(&self, options: &RxOptions) -> Self {
        self.with(options.rings)
    }

    fn options(&self) -> &'static [&'static str] {
        RX_OPTIONS
    }

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::Card,
            needs_interface: true,
            workers: RxWorkers::One,
            joins_datagrams: false,
            brings_ring: false,
            chooses_port: false,
            reflects: false,
            work_at_most_ns: u64::MAX,
            stamps: &[],
            own_loss: Some((Place::NicMissed, "MPC")),
        }
    }

    fn why_not(&self, conditions: &Conditions) -> Option<String> {
        self.reason(conditions)
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let options = CardRings::options(self, plan.interface.as_deref(), plan.batch_size);
        let port = context.placement.inside(|| Ok::<_, EngineError>(PciRx::open(&options)?))?;
        Receiver::over(plan, vec![port], (context, plan.local), Queues::Only(0))
    }
}
