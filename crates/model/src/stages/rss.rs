//! Receive side scaling: which queue a flow's frames go to.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use wire::{Addresses, FlowKey, HashFields, IndirectionTable, PROTOCOL_UDP, RssKey, Spread, Toeplitz};

use crate::{
    parameter::{Parameter, Problems},
    random::Random,
};

/// Queues, flows and the hash between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rss {
    /// Receive queues of each port.
    pub queues: u32,
    /// Flows of the traffic, in turn a frame each.
    pub flows: u32,
    /// The field in which flows differ.
    pub flows_differ_in: Difference,
    /// What the card hashes.
    pub hash: HashFields,
    /// How the indirection table is filled; `None` is equally over the kernel's queues.
    pub table: Option<Spread>,
    /// Buckets of the indirection table.
    pub table_buckets: u32,
    /// The Toeplitz key.
    pub key: RssKey,
    /// Source address of all flows.
    pub source: Ipv4Addr,
    /// Destination address of flow 0; the following flows take the following addresses or source ports.
    pub destination: Ipv4Addr,
    /// Share of all frames that belong to flow 0 (a heavy hitter); 0 is equal shares.
    pub heavy_ratio: f64,
    /// The queue that a program has taken from the kernel.
    pub bypass_queue: Option<u32>,
    /// Share of all frames that a flow rule sends to that queue.
    pub bypass_ratio: f64,
}

/// The field in which flows differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Their destination addresses.
    Addresses,
    /// Their source ports.
    Ports,
}

impl Default for Rss {
    fn default() -> Self {
        Self {
            queues: 1,
            flows: 1,
            flows_differ_in: Difference::Ports,
            hash: HashFields::AddressesAndPorts,
            table: None,
            table_buckets: 128,
            key: RssKey::microsoft(),
            source: Ipv4Addr::new(198, 18, 0, 1),
            destination: Ipv4Addr::new(198, 18, 0, 2),
            heavy_ratio: 0.0,
            bypass_queue: None,
            bypass_ratio: 0.0,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("rss.queues", "queues", "receive queues of each port").short("queues"),
    Parameter::new("rss.flows", "flows", "flows of the traffic, in turn a frame each").short("flows"),
    Parameter::new("rss.flows_differ_in", "", "addresses or ports: the field in which flows differ"),
    Parameter::new("rss.hash", "", "sd (addresses) or sdfn (and ports), as ethtool writes rx-flow-hash")
        .short("hash"),
    Parameter::new(
        "rss.table",
        "",
        "equal:4, weights:6,2 or queues:0,0,1,1; null: equal over the kernel's queues",
    )
    .short("table"),
    Parameter::new("rss.table_buckets", "buckets", "buckets of the indirection table")
        .source("igb, ixgbe: 128"),
    Parameter::new("rss.key", "hex", "the Toeplitz key").source("Microsoft's RSS verification suite"),
    Parameter::new("rss.source", "address", "source address of all flows").source("RFC 2544: 198.18.0.0/15"),
    Parameter::new("rss.destination", "address", "destination of flow 0; the others follow")
        .source("RFC 2544: 198.18.0.0/15"),
    Parameter::new("rss.heavy_ratio", "ratio", "share of the frames that flow 0 has; 0: equal shares")
        .short("heavy-ratio"),
    Parameter::new(
        "rss.bypass_queue",
        "queue",
        "the queue that a program has taken from the kernel; null: none",
    )
    .short("bypass-queue"),
    Parameter::new("rss.bypass_ratio", "ratio", "share of the frames that a flow rule sends to that queue"),
];

const MOST_QUEUES: u32 = 256;

impl Rss {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("rss.queues", self.queues, 1, MOST_QUEUES);
        problems.range("rss.flows", self.flows, 1, 1 << 20);
        problems.ratio("rss.heavy_ratio", self.heavy_ratio);
        problems.ratio("rss.bypass_ratio", self.bypass_ratio);
        if self.flows_differ_in == Difference::Ports && self.flows > 65_536 {
            problems.add(
                "rss.flows",
                "ports distinguish at most 65536 flows: set rss.flows_differ_in to addresses",
            );
        }
        problems.range("rss.table_buckets", self.table_buckets, 1, 65_536);
        if !(1..=MOST_QUEUES).contains(&self.queues) || self.table_buckets > 65_536 {
            return;
        }
        match self.indirection() {
            Err(error) => problems.add("rss.table", error),
            Ok(table) => {
                let beyond = table.queues().iter().copied().find(|q| *q >= self.queues);
                if let Some(queue) = beyond {
                    let queues = self.queues;
                    problems.add("rss.table", format!("it names queue {queue} of {queues}, counted from 0"));
                }
            }
        }
        match self.bypass_queue {
            Some(queue) if queue >= self.queues => {
                let queues = self.queues;
                problems.add(
                    "rss.bypass_queue",
                    format!("queue {queue} is out of range: it must be below {queues}"),
                );
            }
            Some(_) if self.queues < 2 && self.bypass_ratio < 1.0 => problems.add(
                "rss.bypass_queue",
                "the kernel would have no queue left: set rss.queues to 2 or more, or rss.bypass_ratio to 1",
            ),
            None if self.bypass_ratio > 0.0 => problems.add("rss.bypass_ratio", "no rss.bypass_queue is set"),
            _ => {}
        }
    }

    fn indirection(&self) -> Result<IndirectionTable, String> {
        // a bypassed queue has weight 0 in the table, unless it is the only one
        let kernels: Vec<u32> = (0..self.queues).filter(|q| Some(*q) != self.bypass_queue).collect();
        let equal = Spread::Queues(if kernels.is_empty() { vec![0] } else { kernels });
        let spread = self.table.as_ref().unwrap_or(&equal);
        IndirectionTable::new(spread, self.table_buckets as usize).map_err(|error| error.to_string())
    }

    /// The queue of every flow by the card's hash and table; empty when the table cannot be built.
    pub(crate) fn queues_of_flows(&self) -> Vec<u32> {
        let Ok(table) = self.indirection() else { return Vec::new() };
        let toeplitz = Toeplitz::new(&self.key);
        (0..self.flows).map(|flow| table.queue(toeplitz.hash(&self.flow(flow), self.hash))).collect()
    }

    fn flow(&self, number: u32) -> FlowKey {
        let (address, port) = match self.flows_differ_in {
            Difference::Addresses => (number, 0),
            Difference::Ports => (0, number as u16),
        };
        let dst = Ipv4Addr::from_bits(self.destination.to_bits().wrapping_add(address));
        FlowKey {
            addresses: Addresses::V4 { src: self.source, dst },
            src_port: 11404u16.wrapping_add(port),
            dst_port: 4321,
            protocol: PROTOCOL_UDP,
        }
    }
}

/// Chooses the queue of every arriving frame.
#[derive(Debug)]
pub(crate) struct Steering {
    queues: Vec<u16>,
    next: usize,
    heavy: u64,
    bypass: u64,
    bypass_queue: u16,
}

/// A share as a threshold for 64 random bits.
fn threshold(ratio: f64) -> u64 {
    (ratio * u64::MAX as f64) as u64
}

impl Steering {
    /// For the port whose queues start at `first_queue`.
    pub(crate) fn new(config: &Rss, first_queue: u32) -> Self {
        let queues = config.queues_of_flows().into_iter().map(|q| (first_queue + q) as u16).collect();
        Self {
            queues,
            next: 0,
            heavy: threshold(config.heavy_ratio),
            bypass: if config.bypass_queue.is_some() { threshold(config.bypass_ratio) } else { 0 },
            bypass_queue: (first_queue + config.bypass_queue.unwrap_or(0)) as u16,
        }
    }

    #[inline]
    pub(crate) fn queue(&mut self, random: &mut Random) -> u16 {
        if self.bypass > 0 && random.next() <= self.bypass {
            return self.bypass_queue;
        }
        if self.heavy > 0 && random.next() <= self.heavy {
            return self.queues[0];
        }
        let queue = self.queues[self.next];
        self.next += 1;
        if self.next == self.queues.len() {
            self.next = 0;
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flow_has_one_queue_and_many_have_all() {
        let one = Rss { queues: 8, ..Rss::default() };
        assert_eq!(one.queues_of_flows().len(), 1);
        let many = Rss { flows: 1000, ..one };
        let mut used = many.queues_of_flows();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn flows_that_differ_only_in_ports_need_a_hash_over_ports() {
        let rss = Rss { queues: 4, flows: 100, hash: HashFields::Addresses, ..Rss::default() };
        let queues = rss.queues_of_flows();
        assert!(queues.iter().all(|q| *q == queues[0]));
    }

    #[test]
    fn no_hashed_flow_reaches_a_bypassed_queue() {
        let rss = Rss { queues: 4, flows: 1000, bypass_queue: Some(2), ..Rss::default() };
        assert!(rss.queues_of_flows().iter().all(|q| *q != 2));
    }

    #[test]
    fn shares_are_kept() {
        let rss = Rss { queues: 4, flows: 100, bypass_queue: Some(3), bypass_ratio: 0.25, ..Rss::default() };
        let (mut steering, mut random) = (Steering::new(&rss, 0), Random::new(1));
        let bypassed = (0..100_000).filter(|_| steering.queue(&mut random) == 3).count();
        // five standard deviations of a binomial
        assert!((bypassed as f64 - 25_000.0).abs() < 5.0 * 137.0, "{bypassed}");
    }
}
