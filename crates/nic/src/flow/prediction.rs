//! Where a flow's packets go, and how cards classify them.

use serde::Serialize;
use sys::ethtool::{FlowType, field_letters};
use wire::{Addresses, FlowKey, HashFields, PROTOCOL_TCP, PROTOCOL_UDP};

/// One step of a prediction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The result's name: `fields`, `hash`, `bucket`, `queue`, …
    pub what: &'static str,
    /// What it is.
    pub value: String,
    /// Where it is from.
    pub source: String,
}

/// Where a flow's packets go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// The flow in words.
    pub flow: String,
    /// Its hash; `None` when a rule decides.
    pub hash: Option<u32>,
    /// The hash in hex, in the usual notation.
    pub hash_hex: Option<String>,
    /// The bucket of the table.
    pub bucket: Option<usize>,
    /// The receive queue; `None` when the packets are dropped.
    pub queue: Option<u32>,
    /// The queue's interrupt.
    pub interrupt: Option<u32>,
    /// The CPU that takes it.
    pub cpu: Option<u32>,
    /// That CPU's NUMA node.
    pub numa_node: Option<u32>,
    /// How it was found.
    pub steps: Vec<Step>,
}

/// The kind of a flow's packets, as cards distinguish them.
pub(super) fn flow_type(flow: &FlowKey) -> Option<FlowType> {
    match (flow.addresses, flow.protocol) {
        (Addresses::V4 { .. }, PROTOCOL_UDP) => Some(FlowType::Udp4),
        (Addresses::V6 { .. }, PROTOCOL_UDP) => Some(FlowType::Udp6),
        (Addresses::V4 { .. }, PROTOCOL_TCP) => Some(FlowType::Tcp4),
        (Addresses::V6 { .. }, PROTOCOL_TCP) => Some(FlowType::Tcp6),
        _ => None,
    }
}

/// Hashed fields as this project's hash knows them; `None` for others.
pub(super) fn hash_fields(fields: u64) -> Option<HashFields> {
    field_letters(fields).parse().ok()
}
