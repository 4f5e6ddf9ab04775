//! The receive descriptor recycling experiment (Walravens and Gaidioz, IEEE Potentials 2008) on a model of
//! the paper's machine: throughput against payload with and without recycling, and the bus trace.
//!
//! Every number of the machine comes from the paper, from a manual or from the driver's and kernel's source,
//! except for four, which [`FITTED`] names; they are the same for every point.

mod figures;
mod sensitivity;
mod trace;

use measure::{Point, Run, Start, Trial};
use serde::Serialize;
use serde_json::json;
use thiserror::Error;

use crate::{
    config::{Config, ConfigError, RunLength},
    outcome::Outcome,
    record::{self, Labels},
    simulate,
    stages::{
        app::App,
        buffers::{BufferPolicy, Buffers},
        bus::{Bus, BusKind},
        moderation::{Moderation, ModerationMode},
        packet_buffer::PacketBuffer,
        poll::Poll,
        ring::Ring,
        rss::Rss,
        socket::Socket,
        stack::Stack,
        traffic::Traffic,
    },
};
pub use figures::{Figure, rdr_figures};
pub use sensitivity::{Sensitivity, rdr_sensitivity};
pub use trace::{BusEvent, BusTrace, Regimes};

/// Bytes of an 802.3 frame beside its payload: 14 of header, 4 of checksum.
const FRAME_OVERHEAD: u32 = 18;
/// Speed of the paper's links.
const LINK_BPS: u64 = 1_000_000_000;
/// A clock of the paper's trace, as the paper rounds it.
const CLK_NS: f64 = 15.15;

/// The parameters that no source gives, and what fixes each of them.
pub const FITTED: [(&str, &str); 4] = [
    ("poll.driver_ns", "64 frames in one gap of 4000 CLK: a poll of 64 keeps the card waiting that long"),
    ("buffers.reset_ns", "with driver_ns it makes 0.7 Mpps, what recycling receives of 1 Mpps (Fig. 9)"),
    (
        "buffers.page_batch_ns",
        "one gap of 4000 CLK: a trip to the page allocator keeps the card waiting that long",
    ),
    ("buffers.free_burst", "0.5 Mpps in the long run, the slope of 0.004 Gb/s a byte (Fig. 4)"),
];

/// Which points of Figures 3, 4 and 9 to compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rdr {
    /// Payloads of the raw frames in bytes, 46 to 1500.
    pub payloads: Vec<u32>,
    /// Numbers of receiving ports, 1 and 2 as in the paper.
    pub ports: Vec<u32>,
    /// Buffer policies to compare.
    pub policies: Vec<BufferPolicy>,
}

/// Why the experiment was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RdrError {
    /// No such frame.
    #[error("a payload of {payload} bytes fits no frame of the experiment: from 46 to 1500")]
    Payload {
        /// What was asked.
        payload: u32,
    },
    /// No such card.
    #[error("{ports} ports: the experiment's card has 1 or 2 in use")]
    Ports {
        /// What was asked.
        ports: u32,
    },
    /// Nothing to do.
    #[error("the experiment needs at least one payload, one number of ports and one policy")]
    Empty,
    /// The machine cannot be simulated; only a changed machine can cause it.
    #[error(transparent)]
    Machine(#[from] ConfigError),
}

impl Default for Rdr {
    fn default() -> Self {
        let small = (46..=240).step_by(2);
        let large = (250..=1500).step_by(50);
        Self {
            payloads: small.chain(large).collect(),
            ports: vec![1],
            policies: vec![BufferPolicy::Realloc, BufferPolicy::Recycle],
        }
    }
}

/// One point to compute; points are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RdrPoint {
    /// Payload in bytes.
    pub payload: u32,
    /// Receiving ports.
    pub ports: u32,
    /// Buffer policy.
    pub policy: BufferPolicy,
}

/// One point computed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RdrResult {
    /// Parameters and results by name, beside the published value.
    pub point: Point,
    /// The simulation as a trial, with its ledger.
    pub trial: Trial,
}

impl Rdr {
    /// The points, in the order of the figures.
    ///
    /// # Errors
    /// [`RdrError`] when a payload or a number of ports is not of the experiment.
    pub fn points(&self) -> Result<Vec<RdrPoint>, RdrError> {
        if let Some(payload) = self.payloads.iter().copied().find(|p| !(46..=1500).contains(p)) {
            return Err(RdrError::Payload { payload });
        }
        if let Some(ports) = self.ports.iter().copied().find(|p| !(1..=2).contains(p)) {
            return Err(RdrError::Ports { ports });
        }
        let mut points = Vec::new();
        for policy in self.policies.iter().copied() {
            for ports in self.ports.iter().copied() {
                points.extend(self.payloads.iter().map(|&payload| RdrPoint { payload, ports, policy }));
            }
        }
        if points.is_empty() { Err(RdrError::Empty) } else { Ok(points) }
    }

    /// Puts computed points together.
    ///
    /// `figures` and `traces` are what the paper publishes beside its curve.
    pub fn assemble(
        mut start: Start,
        results: Vec<RdrResult>,
        figures: &[Figure],
        traces: &[BusTrace],
    ) -> Run {
        start.asked.insert("machine".into(), json!(rdr_machine(BufferPolicy::Realloc, 1)));
        let (points, trials) = results.into_iter().map(|result| (result.point, result.trial)).unzip();
        let mut run = record::run(start, trials, Vec::new(), points);
        run.end.figures = figures.iter().map(Figure::recorded).collect();
        run.end.timelines = traces.iter().map(BusTrace::timeline).collect();
        run.end.notes.push("rates are of one port; with two ports both are equal".into());
        run.end.notes.extend(
            FITTED
                .iter()
                .map(|(name, fixed_by)| format!("{name} is in no source; it is fixed by: {fixed_by}")),
        );
        run
    }

    /// Computes all points one after the other and puts them together.
    ///
    /// # Errors
    /// As [`Rdr::points`].
    pub fn run(&self, start: Start) -> Result<Run, RdrError> {
        let results: Result<Vec<_>, _> = self.points()?.into_iter().map(RdrPoint::compute).collect();
        let traces = [BufferPolicy::Realloc, BufferPolicy::Recycle].map(BusTrace::simulate);
        let traces = traces.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Self::assemble(start, results?, &rdr_figures()?, &traces))
    }
}

impl RdrPoint {
    /// Simulates the point at line rate, as the paper's network processor sends it.
    ///
    /// # Errors
    /// [`RdrError::Machine`] when the machine cannot be simulated.
    pub fn compute(self) -> Result<RdrResult, RdrError> {
        let Self { payload, ports, policy } = self;
        let mut config = rdr_machine(policy, ports);
        config.traffic.frame_bytes = payload + FRAME_OVERHEAD;
        let outcome = simulate(&config)?;
        let theory_bps = theory_bps(payload);
        let per_port = |value: f64| value / f64::from(ports);
        let bus_limit_bps = config.bus.limit_pps(config.traffic.frame_bytes, &config.ring.traffic())
            * f64::from(config.traffic.frame_bytes)
            * 8.0;
        let mut point = Point { values: outcome.results() };
        for (name, value) in [
            ("payload_bytes", json!(payload)),
            ("frame_bytes", json!(config.traffic.frame_bytes)),
            ("policy", json!(policy)),
            ("ports", json!(ports)),
            ("theory_bps", json!(theory_bps)),
            ("sent_bps", json!(per_port(outcome.sent_bps()))),
            ("sent_pps", json!(per_port(outcome.sent_pps()))),
            ("received_bps", json!(per_port(outcome.delivered_bps()))),
            ("received_pps", json!(per_port(outcome.delivered_pps()))),
            ("lost_pps", json!(per_port(outcome.lost_pps()))),
            ("bus_limit_bps", json!(bus_limit_bps)),
            ("published_received_bps", json!(published_bps(payload, policy))),
        ] {
            point.values.insert(name.into(), value);
        }
        let label = format!("e1000 {}", json!(policy).as_str().unwrap_or_default());
        let trial = outcome.trial(&config, &Labels { tx: "line rate".into(), rx: label }, 1);
        Ok(RdrResult { point, trial })
    }
}

/// The paper's receiving machine: a PRO/1000 MT in a dual Xeon, Linux 2.6.12, each port on a CPU of its own.
pub fn rdr_machine(policy: BufferPolicy, ports: u32) -> Config {
    Config {
        run: RunLength { duration_us: 110_000.0, warmup_us: 10_000.0, ..RunLength::default() },
        traffic: Traffic { ports, link_bps: LINK_BPS, ..Traffic::default() },
        rss: Rss::default(),
        packet_buffer: PacketBuffer { bytes: 48 * 1024 },
        bus: Bus {
            kind: BusKind::PciX,
            clock_hz: 133_000_000,
            // an attribute phase follows the address phase
            address_clocks: 2,
            ..Bus::default()
        },
        ring: Ring { descriptors: 256, fetch_below: 0, writeback_delay_ns: 25.0 * CLK_NS, ..Ring::default() },
        // InterruptThrottleRate 8000
        moderation: Moderation { mode: ModerationMode::Throttle, rx_usecs: 125.0, rx_frames: 0 },
        poll: Poll {
            cpus: 2,
            refill_after: 0,
            irq_ns: 1000.0,
            poll_ns: 0.0,
            driver_ns: 953.0,
            ..Poll::default()
        },
        buffers: Buffers {
            policy,
            reset_ns: 476.0,
            // 238 cycles of 2.4 GHz
            slab_ns: 99.0,
            page_batch_ns: 4000.0 * CLK_NS,
            free_burst: 170,
            ..Buffers::default()
        },
        // what the stack does with a raw frame is part of driver_ns: the paper's frames end there
        stack: Stack { stack_ns: 0.0, ..Stack::default() },
        socket: Socket::default(),
        app: App { threads: 0, ..App::default() },
    }
}

/// Bits per second of frames that fill the link: (payload + 18) / (payload + 38) of it (the paper's formula).
fn theory_bps(payload: u32) -> f64 {
    f64::from(payload + FRAME_OVERHEAD) / f64::from(payload + FRAME_OVERHEAD + 20) * LINK_BPS as f64
}

/// What Figures 4 and 9 show: 0.5 Mpps below 200 bytes, theory from there on; with recycling 0.7 Mpps as far
/// as the link carries them.
fn published_bps(payload: u32, policy: BufferPolicy) -> f64 {
    let at = |pps: f64| pps * f64::from(payload + FRAME_OVERHEAD) * 8.0;
    match policy {
        BufferPolicy::Recycle => at(0.7e6).min(theory_bps(payload)),
        _ if payload < 200 => at(0.5e6),
        _ => theory_bps(payload),
    }
}

/// The machine of the trace: one port on PCI at 64 bit and 66 MHz, frames every 54 CLK.
fn traced(policy: BufferPolicy) -> Result<Outcome, ConfigError> {
    traced_on(rdr_machine(policy, 1))
}

fn traced_on(mut config: Config) -> Result<Outcome, ConfigError> {
    let read_clocks = config.bus.read_clocks;
    config.bus = Bus { kind: BusKind::Pci, read_clocks, ..Bus::default() };
    config.traffic.offered_pps = Some(1e9 / (54.0 * CLK_NS));
    config.run =
        RunLength { duration_us: TRACE_US, warmup_us: 0.0, trace_us: TRACE_US, ..RunLength::default() };
    simulate(&config)
}

/// Length of the trace: 40 000 CLK.
const TRACE_US: f64 = 40_000.0 * CLK_NS / 1000.0;

/// A flood of a million smallest frames per second, as the paper's loss figures have it.
fn flooded(policy: BufferPolicy) -> Result<Outcome, ConfigError> {
    let mut config = rdr_machine(policy, 1);
    config.traffic.offered_pps = Some(1e6);
    simulate(&config)
}

#[cfg(test)]
mod tests;
