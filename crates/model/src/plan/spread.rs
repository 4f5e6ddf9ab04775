//! One flow set hashed over machines and cores.

use wire::{Addresses, FlowKey, HashFields, IndirectionTable, PROTOCOL_UDP, RssKey, Spread, Toeplitz};

use super::fleet::{Fleet, MOST_MACHINES};
use crate::random::Random;

/// Capacities of cores and machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) core_pps: f64,
    pub(super) machine_pps: f64,
    /// Cores of a machine that get frames.
    pub(super) bins: u32,
    pub(super) ecmp_buckets: Option<u32>,
}

/// How a flow set loads a number of machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// What is overloaded, if anything.
    pub(super) cause: Option<Cause>,
    /// Busiest machine over the mean.
    pub(super) worst_machine_ratio: f64,
    /// Busiest core over the mean.
    pub(super) worst_core_ratio: f64,
}

/// What is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Core,
    Machine,
}

/// The flows of one flood, hashed once; only [`Self::spread`] depends on the number of
/// machines.
pub(super) struct FlowSet {
    /// The router's hash and the core of each flow; the heavy flows come first.
    flows: Vec<(u32, u16)>,
    heavy: usize,
    heavy_pps: f32,
    light_pps: f32,
    flood_pps: f64,
}

impl FlowSet {
    /// The flow set of this number: random sources towards one destination.
    pub(super) fn new(fleet: &Fleet, number: u64) -> Self {
        let mut random = Random::new(fleet.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let toeplitz = Toeplitz::new(&RssKey::microsoft());
        let buckets = fleet.table_buckets as usize;
        let table = IndirectionTable::new(&Spread::Equal(fleet.queues), buckets);
        let queue = |hash| table.as_ref().map_or(0, |table| table.queue(hash));
        let router = random.next();
        let flows = (0..fleet.flows)
            .map(|_| {
                let bits = random.next();
                let flow = FlowKey {
                    addresses: Addresses::V4 {
                        src: ((bits >> 32) as u32).into(),
                        dst: std::net::Ipv4Addr::new(198, 18, 0, 1),
                    },
                    src_port: bits as u16,
                    dst_port: 53,
                    protocol: PROTOCOL_UDP,
                };
                let core = queue(toeplitz.hash(&flow, HashFields::AddressesAndPorts)) % fleet.cores;
                // a router's hash is independent of Toeplitz
                let ecmp = Random::new(bits ^ router).next() >> 32;
                (ecmp as u32, core as u16)
            })
            .collect();
        let light = f64::from(fleet.flows - fleet.heavy_flows).max(1.0);
        Self {
            flows,
            heavy: fleet.heavy_flows as usize,
            heavy_pps: (fleet.flood_pps * fleet.heavy_ratio / f64::from(fleet.heavy_flows.max(1))) as f32,
            light_pps: (fleet.flood_pps * (1.0 - fleet.heavy_ratio) / light) as f32,
            flood_pps: fleet.flood_pps,
        }
    }

    /// Spreads the flows over this number of machines.
    pub(super) fn spread(&self, machines: u32, limits: &Limits) -> Load {
        let bins = limits.bins as usize;
        let mut counts = vec![0u32; machines as usize * bins];
        let machine = |hash: u32| {
            let slot = |of: u32| ((u64::from(hash) * u64::from(of)) >> 32) as u32;
            limits.ecmp_buckets.map_or_else(|| slot(machines), |buckets| slot(buckets) % machines) as usize
        };
        let (heavy, light) = self.flows.split_at(self.heavy);
        for (hash, core) in light {
            counts[machine(*hash) * bins + usize::from(*core) % bins] += 1;
        }
        let mut loads: Vec<f32> = counts.into_iter().map(|count| count as f32 * self.light_pps).collect();
        for (hash, core) in heavy {
            loads[machine(*hash) * bins + usize::from(*core) % bins] += self.heavy_pps;
        }
        let worst_core = f64::from(loads.iter().copied().fold(0.0, f32::max));
        let worst_machine = loads
            .chunks_exact(bins)
            .map(|cores| cores.iter().map(|load| f64::from(*load)).sum())
            .fold(0.0, f64::max);
        let over_machine = worst_machine / limits.machine_pps;
        let over_core = worst_core / limits.core_pps;
        let cause = match (over_core > 1.0, over_machine > 1.0) {
            (false, false) => None,
            _ if over_core >= over_machine => Some(Cause::Core),
            _ => Some(Cause::Machine),
        };
        let mean = self.flood_pps / f64::from(machines);
        Load {
            cause,
            worst_machine_ratio: worst_machine / mean,
            worst_core_ratio: worst_core * f64::from(limits.bins) / mean,
        }
    }

    /// The smallest number of machines, within a per cent, that this flow set does not overload.
    pub(super) fn machines_needed(&self, limits: &Limits, at_least: u32) -> u32 {
        let fits = |machines| self.spread(machines, limits).cause.is_none();
        let (mut fails, mut enough) = (at_least.saturating_sub(1), at_least);
        while !fits(enough) {
            if enough >= MOST_MACHINES {
                return MOST_MACHINES;
            }
            fails = enough;
            enough = (enough + (enough / 4).max(1)).min(MOST_MACHINES);
        }
        while enough - fails > (enough / 100).max(1) {
            let middle = fails.midpoint(enough);
            if fits(middle) { enough = middle } else { fails = middle }
        }
        enough
    }
}
