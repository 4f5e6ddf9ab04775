//! The results of a throughput search as saved in a record. The search itself is the crate `search`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{distribution::NanosSummary, place::LossPlace};

/// The tests of one pair at one frame size (RFC 2544; draft-ietf-bmwg-mlrsearch).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Throughput {
    /// The sender's label.
    pub tx: String,
    /// The receiver's label.
    pub rx: String,
    /// Mean frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// The sweep's parameters by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
    /// The generator's rate without a limit, in the warm-up trial.
    pub generator_max_pps: f64,
    /// One entry a goal.
    pub goals: Vec<GoalResult>,
    /// Latency at shares of the first goal's throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyAt>,
    /// Lost share against offered load (RFC 2544, 26.3), from the highest load down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frame_loss: Vec<LossAt>,
    /// The longest lossless bursts (RFC 2544, 26.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to_back: Option<BurstResult>,
}

/// The result of one search goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GoalResult {
    /// The goal: `NDR`, `PDR` …
    pub goal: String,
    /// A trial that loses a larger share is lossy.
    pub loss_ratio: f64,
    /// The share of trial time that may be lossy.
    pub exceed_ratio: f64,
    /// Time of a full-length trial, in seconds.
    pub final_duration_s: f64,
    /// Trial time that classifies a load, in seconds.
    pub duration_sum_s: f64,
    /// The requested distance of the bounds, as a share of the upper one.
    pub width_ratio: f64,
    /// The relevant lower bound: the throughput as an offered load. `None` when no load met the goal.
    pub lower_pps: Option<f64>,
    /// The relevant upper bound. `None` when no offered load was too high.
    pub upper_pps: Option<f64>,
    /// The conditional throughput: the rate forwarded at the lower bound, as defined by the draft.
    pub conditional_throughput_pps: Option<f64>,
    /// What limits the result.
    pub limit: ThroughputLimit,
    /// The ledger line that lost the most at a load that was too high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_by: Option<BoundBy>,
    /// Generator's shortfall, receive loss and socket loss at the upper bound, separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_upper: Option<LossKinds>,
    /// The trials at the bounds, as indexes into `end.trials`.
    pub trials: Vec<u32>,
}

/// What limits a throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ThroughputLimit {
    /// Loss beyond the goal.
    Loss,
    /// The generator cannot offer more.
    Generator,
    /// The search did not include higher loads.
    MaxLoad,
    /// Not even the lowest load met the goal.
    MinLoad,
    /// The search was stopped before the bounds met.
    Unfinished,
}

/// A ledger line that sets a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoundBy {
    /// The place.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub place: LossPlace,
    /// The counter it was read from.
    pub source: String,
    /// Its share of the packets lost there.
    pub lost_share_ratio: f64,
    /// The remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Three kinds of missing packets, kept separate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossKinds {
    /// Packets due that the generator never sent, as a share of those due.
    pub shortfall_ratio: f64,
    /// Packets lost before they reached a socket or ring of the receiver's, as a share of those sent.
    pub receive_loss_ratio: f64,
    /// Packets lost at the receiver's socket or ring, as a share of those sent.
    pub socket_loss_ratio: f64,
}

/// Latency at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyAt {
    /// The load as a share of the throughput found.
    pub share_ratio: f64,
    /// The load.
    pub load_pps: f64,
    /// From departure to arrival, of the packets that arrived; `None` when the receiver cannot measure it.
    pub latency: Option<NanosSummary>,
    /// The trial, as an index into `end.trials`.
    pub trial: u32,
}

/// Loss at one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossAt {
    /// The requested load.
    pub load_pps: f64,
    /// The load offered.
    pub offered_pps: f64,
    /// Lost share of the packets sent.
    pub loss_ratio: f64,
    /// The trial, as an index into `end.trials`.
    pub trial: u32,
}

/// The longest bursts that lost nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BurstResult {
    /// Packets of the longest lossless burst of each repetition.
    pub packets: Vec<u64>,
    /// Their mean.
    pub mean_packets: f64,
    /// Whether the longest burst tried passed in any repetition, so that the true value may be larger.
    pub at_limit: bool,
    /// The rate within a burst.
    pub burst_pps: f64,
    /// The time the buffer holds, corrected for packets that left it meanwhile (RFC 9004), in seconds; `None` without a
    /// throughput to correct by.
    pub buffer_time_s: Option<f64>,
}
