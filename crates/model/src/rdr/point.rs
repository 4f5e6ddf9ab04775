//! One point of Figures 3, 4 and 9.

use measure::{Point, Trial};
use serde::Serialize;
use serde_json::json;
use thiserror::Error;

use super::machine::{LINK_BPS, rdr_machine};
use crate::{parameter::ConfigError, record::Labels, simulate, stages::buffers::BufferPolicy};

/// Bytes of an 802.3 frame beside its payload: 14 of header, 4 of checksum.
pub(super) const FRAME_OVERHEAD: u32 = 18;
/// Why the experiment was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RdrError {
    /// No such frame.
    #[error("a payload of {payload} bytes is out of range: 46 to 1500")]
    Payload {
        /// The given value.
        payload: u32,
    },
    /// No such card.
    #[error("{ports} ports are out of range: the paper's card has 1 or 2")]
    Ports {
        /// The given value.
        ports: u32,
    },
    /// A call's packet cannot have that size.
    #[error("{bytes} bytes of voice are out of range: 1 to 160")]
    Voice {
        /// The given value.
        bytes: u32,
    },
    /// The link does not carry them.
    #[error("{calls} calls are out of range: 1 to {most}, which fill the link")]
    Calls {
        /// The given value.
        calls: u32,
        /// The most that the link carries.
        most: u32,
    },
    /// An empty list.
    #[error("the experiment needs at least one payload, one number of ports and one policy")]
    Empty,
    /// The machine cannot be simulated; only a changed machine can cause it.
    #[error(transparent)]
    Machine(#[from] ConfigError),
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
    /// Parameters and results by name, beside the value derived from the paper.
    pub point: Point,
    /// The simulation as a trial, with its ledger.
    pub trial: Trial,
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
            ("derived_received_bps", json!(derived_bps(payload, policy))),
        ] {
            point.values.insert(name.into(), value);
        }
        let label = format!("e1000 {}", json!(policy).as_str().unwrap_or_default());
        let trial = outcome.trial(&config, &Labels { tx: "line rate".into(), rx: label }, 1);
        Ok(RdrResult { point, trial })
    }
}

/// Bits per second of frames that fill the link: (payload + 18) / (payload + 38) of it (the paper's formula).
pub(super) fn theory_bps(payload: u32) -> f64 {
    f64::from(payload + FRAME_OVERHEAD) / f64::from(payload + FRAME_OVERHEAD + 20) * LINK_BPS as f64
}

/// The values of Figures 4 and 9 by the paper's slope of 0.004 Gb/s a byte (0.5 Mpps) and its -40 % of loss at 1 Mpps
/// (0.7 Mpps); the paper prints no value of either curve. Without recycling the link is full from 200 bytes on.
pub(super) fn derived_bps(payload: u32, policy: BufferPolicy) -> f64 {
    let at = |pps: f64| pps * f64::from(payload + FRAME_OVERHEAD) * 8.0;
    match policy {
        BufferPolicy::Recycle => at(0.7e6).min(theory_bps(payload)),
        _ if payload < 200 => at(0.5e6),
        _ => theory_bps(payload),
    }
}
