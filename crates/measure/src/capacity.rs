//! What one side of a path can do when the other does not limit it: the highest send rate towards a receiver that only
//! drops, the highest receive rate under flood, and how both grow with threads.

use serde::{Deserialize, Serialize};

/// The parameter that marks trials outside the ladder; its value is one of [`LOSSLESS`] and [`SCALING`].
pub const STAGE: &str = "stage";
/// Trials of a short search for a receiver's highest rate without loss.
pub const LOSSLESS: &str = "lossless";
/// Trials of a pair with increasing numbers of threads.
pub const SCALING: &str = "scaling";

/// The capacity of one engine on one side, with a number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// The measured side.
    pub side: CapacitySide,
    /// The engine and variant on that side, as the ladder shows it.
    pub label: String,
    /// The other side's engine: the receiver that drops, or the sender with which it delivered the most.
    pub with: String,
    /// Where packets are received, or handed over.
    pub layer: Layer,
    /// Threads of that side.
    pub threads: u32,
    /// Frame size, Ethernet header to FCS.
    pub frame_size_bytes: u32,
    /// Packets per second, median of the trials: sent, or the most delivered from any sender.
    pub pps: f64,
    /// Delivered from the sender that sent the most; `None` on a sending side, and in the scaling stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flooded_pps: Option<f64>,
    /// What that sender sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flood_pps: Option<f64>,
    /// CPUs that side kept busy, at least 1: the sum of their busy shares.
    pub busy_cpus: f64,
    /// `pps` ÷ `busy_cpus`.
    pub pps_per_cpu: f64,
    /// CPUs that both sides' work ran on.
    pub cpus_used: u32,
    /// Median share of the sent packets that was lost.
    pub loss_ratio: f64,
    /// The highest rate that lost nothing, when a search found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless_pps: Option<f64>,
    /// Whether the sender could not offer more, so the true rate without loss may be higher.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_lossless_bound: bool,
    /// What limits the rate, as text: the place that lost the most, or the side whose CPU was always busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// In the scaling stage: the ladder's label of this pair, of which this is a run with several threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scales: Option<String>,
    /// Rate per CPU used relative to that with one thread a side; `None` outside the scaling stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency_ratio: Option<f64>,
}

/// A side of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CapacitySide {
    /// What a sender hands over.
    Sending,
    /// What a receiver takes.
    Receiving,
}

/// How far packets go through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// An application's sockets.
    Sockets,
    /// An application that bypasses the kernel's protocols: packet sockets, AF_XDP.
    PastSockets,
    /// The kernel itself: programs in XDP.
    Kernel,
}
