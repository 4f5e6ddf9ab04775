//! A flood and the machines that receive it.

use serde::{Deserialize, Serialize};

/// A flood and the machines that receive it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fleet {
    /// Packets per second of the flood, all machines together.
    pub flood_pps: f64,
    /// Frame size from Ethernet header to FCS.
    pub frame_bytes: u32,
    /// Packets per second that one queue takes on a core of its own.
    pub queue_pps: f64,
    /// Receive queues of a machine.
    pub queues: u32,
    /// Cores of a machine that serve queues.
    pub cores: u32,
    /// Speed of each link in bits per second.
    pub link_bps: u64,
    /// Links of a machine, each with an equal share.
    pub links: u32,
    /// PCI Express generation of each card.
    pub pcie_generation: u32,
    /// PCI Express lanes of each card.
    pub pcie_lanes: u32,
    /// Flows of the flood.
    pub flows: u32,
    /// How many of them are heavy.
    pub heavy_flows: u32,
    /// Share of the flood that the heavy flows have together.
    pub heavy_ratio: f64,
    /// Buckets of the router's ECMP table; none hashes straight to machines.
    pub ecmp_buckets: Option<u32>,
    /// Buckets of a card's indirection table.
    pub table_buckets: u32,
    /// Share of every capacity that is kept free.
    pub headroom_ratio: f64,
    /// Accepted probability that a machine is overloaded.
    pub overload_probability: f64,
    /// Flow sets that are hashed.
    pub flow_sets: u32,
    /// Machines to check; `None` finds how many are needed.
    pub machines: Option<u32>,
    /// Seed of the flow sets.
    pub seed: u64,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            flood_pps: 300e6,
            frame_bytes: 64,
            queue_pps: 10e6,
            queues: 16,
            cores: 16,
            link_bps: 100_000_000_000,
            links: 1,
            pcie_generation: 3,
            pcie_lanes: 16,
            flows: 100_000,
            heavy_flows: 0,
            heavy_ratio: 0.0,
            ecmp_buckets: None,
            table_buckets: 128,
            headroom_ratio: 0.0,
            overload_probability: 0.01,
            flow_sets: 100,
            machines: None,
            seed: 1,
        }
    }
}

/// The most machines that a plan considers.
pub const MOST_MACHINES: u32 = 1_000_000;
