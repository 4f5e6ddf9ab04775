//! What a run with many machines adds to the record: its agents, how well their clocks are known, and each host's own ledger.
//! `T` is the record's trial, which is defined above this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// A run over many machines. Its trials are those of the record, in the same order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FleetRun"))]
pub struct FleetRun<T> {
    /// The run's name: `linerate fleet collect` takes it.
    pub run: String,
    /// The agents that took part.
    pub agents: Vec<FleetAgent>,
    /// One a trial of `end.trials`.
    pub trials: Vec<FleetTrial<T>>,
    /// Attempts that count for nothing, because an agent was lost or late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voided: Vec<FleetVoided>,
}

/// An agent and its machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetAgent {
    /// Its name, which no other agent of the fleet has.
    pub agent: String,
    /// A number that a restarted agent does not have again.
    pub incarnation: String,
    /// `sender` or `receiver`.
    pub role: String,
    /// Its labels by name.
    pub labels: BTreeMap<String, String>,
    /// Where its packets come from or go to.
    pub address: String,
    /// linerate's version there.
    pub version: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPUs online.
    pub cpus: u32,
    /// The interface of `address`, where it has one.
    pub interface: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// Its MTU in bytes.
    pub mtu_bytes: Option<u32>,
    /// Link speed in bits per second where the driver reports it.
    pub speed_bps: Option<u64>,
}

/// What the agents of one trial did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FleetTrial"))]
pub struct FleetTrial<T> {
    /// Number of the trial, from 1.
    pub trial: u32,
    /// Which attempt at it this was, from 1.
    pub attempt: u32,
    /// Seconds in which all senders sent: rates are stated over them.
    pub common_window_s: f64,
    /// Nanoseconds between the first sender's start and the last one's, by corrected clocks.
    pub start_spread_ns: u64,
    /// By how much `start_spread_ns` may be wrong because of the clocks.
    pub start_bound_ns: u64,
    /// The sender furthest behind its requested rate; `None` where all kept up.
    pub weakest: Option<String>,
    /// Agents without a result, where the run tolerates that: sums lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The least and the largest loss ratio that the results allow for, where agents are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio_bounds: Option<[f64; 2]>,
    /// Every host's part.
    pub hosts: Vec<FleetHost<T>>,
}

/// One host's part of a trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FleetHost"))]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct FleetHost<T> {
    /// The agent.
    pub agent: String,
    /// `sender` or `receiver`.
    pub role: String,
    /// Its own ledger. A sender's: what it handed over, less its own losses, is what it delivered to the network. A receiver's:
    /// what reached it, less its own losses, is what its engine saw.
    pub ledger: Ledger,
    /// A sender's trial, towards all of its receivers, as `linerate bench --peer` would record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Box<T>>,
    /// Nanoseconds by which a sender started after (before, if negative) the time set for all, by its corrected clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error_ns: Option<i64>,
    /// By how much its monotonic clock was ahead of the coordinator's at the start.
    pub clock_ahead_ns: Option<i64>,
    /// How wrong that may be: half of the shortest round trip, and the drift between two measurements.
    pub clock_bound_ns: Option<u64>,
    /// By how much its clock gained on the coordinator's, in millionths.
    pub clock_drift_ppm: Option<f64>,
}

/// An attempt at a trial that counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetVoided {
    /// Number of the trial, from 1.
    pub trial: u32,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Why, in words.
    pub reason: String,
}
