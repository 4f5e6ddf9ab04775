//! How many machines a flood needs: the capacity of a queue, the limits of a machine, and the imbalance that hashing
//! leaves, which comes from hashing flow sets, not from assuming an even spread.
//!
//! ```text
//! flow -- router's ECMP hash --> machine -- Toeplitz, table --> queue --> core
//! ```
//! A flow set overloads the fleet when a core gets more than its capacity, or a machine more than its link or
//! bus carries. Each flow set needs a number of machines; over many flow sets that number has a
//! distribution. The plan takes the quantile for the accepted probability of overload, and then
//! measures the probability with new flow sets.

mod fleet;
mod spread;

use measure::{Point, Run, Start};
use serde::Serialize;
use serde_json::{Value, json};
use wire::{FrameSize, LinkSpeed};

use crate::{
    config::{Config, set_in},
    parameter::{ConfigError, Parameter, Problems},
    record, simulate,
    stages::{
        bus::{Bus, BusKind, DescriptorTraffic},
        packet_buffer::PacketBuffer,
        ring::Ring,
    },
};
pub use fleet::{Fleet, MOST_MACHINES};
use spread::{Cause, FlowSet, Limits};

/// The parameters of [`Fleet`], for help and documentation.
pub const FLEET_PARAMETERS: &[Parameter] = &[
    Parameter::new("flood_pps", "packet/s", "the flood, all machines together"),
    Parameter::new("frame_bytes", "bytes", "frame size, Ethernet header to FCS"),
    Parameter::new("queue_pps", "packet/s", "packet rate of one queue on a core of its own")
        .source("measured or modelled; XDP drops 10 Mpps per CPU (Cloudflare)"),
    Parameter::new("queues", "queues", "receive queues of a machine"),
    Parameter::new("cores", "cores", "cores of a machine that serve queues"),
    Parameter::new("link_bps", "bit/s", "speed of each link"),
    Parameter::new("links", "links", "links of a machine, each with an equal share"),
    Parameter::new("pcie_generation", "", "PCI Express generation of each card"),
    Parameter::new("pcie_lanes", "lanes", "PCI Express lanes of each card"),
    Parameter::new("flows", "flows", "flows of the flood"),
    Parameter::new("heavy_flows", "flows", "how many of them are heavy"),
    Parameter::new("heavy_ratio", "ratio", "share of the flood that the heavy flows have together"),
    Parameter::new("ecmp_buckets", "buckets", "buckets of the router's table; null: straight to machines"),
    Parameter::new("table_buckets", "buckets", "buckets of a card's indirection table")
        .source("igb, ixgbe: 128"),
    Parameter::new("headroom_ratio", "ratio", "share of every capacity that is kept free"),
    Parameter::new(
        "overload_probability",
        "ratio",
        "probability of an overloaded machine that is acceptable",
    ),
    Parameter::new("flow_sets", "sets", "flow sets that are hashed"),
    Parameter::new("machines", "machines", "machines to check; null: find how many are needed"),
    Parameter::new("seed", "", "seed of the flow sets"),
];

/// Cores of all machines times flow sets, at most: some seconds of hashing.
const MOST_CORES_HASHED: u64 = 200_000_000;

/// What the flood needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetPlan {
    /// Machines needed, or given; `None` when no number of them is enough.
    pub machines: Option<u32>,
    /// Queues of them all.
    pub queues: Option<u64>,
    /// Cores of them all that serve queues.
    pub cores: Option<u64>,
    /// Machines that an even spread would need.
    pub machines_if_even: u32,
    /// What limits one machine under an even spread, smallest first.
    pub limits: Vec<Capacity>,
    /// What is overloaded first.
    pub bottleneck: Bottleneck,
    /// Share of fresh flow sets that overload a core or a machine.
    pub overload_probability: f64,
    /// Half width of the 95 % interval of that share (Wilson).
    pub overload_probability_half_width: f64,
    /// Load of the busiest machine over the mean: its mean over the flow sets.
    pub worst_machine_ratio: f64,
    /// Load of the busiest core over the mean: its mean over the flow sets.
    pub worst_core_ratio: f64,
    /// The probability of overload with fewer and more machines.
    pub curve: Vec<CurvePoint>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// A limit of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Capacity {
    /// What limits.
    pub what: Bottleneck,
    /// Packets per second that this limit allows one machine, minus headroom.
    pub pps: f64,
}

/// What can be overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// A core, with the queues it serves.
    Core,
    /// A machine's links.
    Link,
    /// A card's PCI Express slot.
    Bus,
    /// One flow exceeds one core: no number of machines is enough.
    HeavyFlow,
}

/// A number of machines and its probability of overload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Machines.
    pub machines: u32,
    /// Share of flow sets that overload a core or a machine.
    pub overload_probability: f64,
}

impl Fleet {
    /// Checks everything.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        problems.range("flood_pps", self.flood_pps, 1.0, 1e13);
        problems.range("queue_pps", self.queue_pps, 1.0, 1e12);
        problems.range("frame_bytes", self.frame_bytes, 64, 65_553);
        problems.range("queues", self.queues, 1, 1024);
        problems.range("cores", self.cores, 1, 4096);
        problems.range("link_bps", self.link_bps, 1_000_000, 10_000_000_000_000);
        problems.range("links", self.links, 1, 64);
        problems.range("pcie_generation", self.pcie_generation, 1, 5);
        problems.range("pcie_lanes", self.pcie_lanes, 1, 32);
        problems.range("flows", self.flows, 1, 10_000_000);
        problems.range("table_buckets", self.table_buckets, 1, 65_536);
        problems.range("flow_sets", self.flow_sets, 2, 10_000);
        problems.ratio("heavy_ratio", self.heavy_ratio);
        problems.ratio("headroom_ratio", self.headroom_ratio);
        problems.ratio("overload_probability", self.overload_probability);
        if self.headroom_ratio > 0.99 {
            problems.add("headroom_ratio", "more than 0.99 leaves no capacity");
        }
        if !self.table_buckets.is_power_of_two() {
            problems.add("table_buckets", format!("{} is not a power of two", self.table_buckets));
        }
        if self.heavy_flows > self.flows {
            let (heavy, flows) = (self.heavy_flows, self.flows);
            problems.add("heavy_flows", format!("{heavy} heavy flows are more than {flows} flows"));
        }
        if (self.heavy_flows == 0) != (self.heavy_ratio == 0.0) {
            problems.add("heavy_flows", "heavy_flows and heavy_ratio go together: set both or neither");
        }
        if self.heavy_flows > 0 && self.heavy_flows == self.flows && self.heavy_ratio < 1.0 {
            problems.add("heavy_ratio", "all flows are heavy: their share is 1");
        }
        if let Some(machines) = self.machines {
            problems.range("machines", machines, 1, MOST_MACHINES);
        }
        if let Some(buckets) = self.ecmp_buckets {
            problems.range("ecmp_buckets", buckets, 1, 1 << 24);
        }
        problems.into_result()
    }

    /// Sets a parameter by name, from text.
    ///
    /// # Errors
    /// [`ConfigError::UnknownParameter`] or [`ConfigError::WrongValue`].
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let written = name.trim().trim_start_matches("--").replace('-', "_");
        let parameter = FLEET_PARAMETERS
            .iter()
            .find(|parameter| parameter.name == written)
            .ok_or_else(|| ConfigError::UnknownParameter { name: name.into(), similar: None })?;
        *self = set_in(self, &[parameter.name], &parameter.in_its_unit(text))?;
        Ok(())
    }

    /// Sizes the fleet, or checks the given number of machines.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] before anything is hashed.
    pub fn plan(&self) -> Result<FleetPlan, ConfigError> {
        self.validate()?;
        let limits = self.limits();
        let per_machine = limits[0].pps;
        let even = (self.flood_pps / per_machine).ceil().min(f64::from(MOST_MACHINES)).max(1.0) as u32;
        let heaviest_pps = self.heaviest_flow_pps();
        if heaviest_pps > self.core_pps() && self.machines.is_none() {
            return Ok(self.hopeless(even, limits, heaviest_pps));
        }
        if even >= MOST_MACHINES && self.machines.is_none() {
            let note = format!(
                "a machine takes {per_machine:.0} packets per second: even {MOST_MACHINES} of them take less than the \
                 flood"
            );
            let bottleneck = limits[0].what;
            return Ok(self.none_helps(even, limits, bottleneck, note));
        }
        self.validate_work(self.machines.unwrap_or(even))?;
        let spread_limits = Limits {
            core_pps: self.core_pps(),
            machine_pps: self.machine_pps(),
            bins: self.queues.min(self.cores),
            ecmp_buckets: self.ecmp_buckets,
        };
        let sets = |first: u32| (first..first + self.flow_sets).map(|n| FlowSet::new(self, u64::from(n)));
        let machines = match self.machines {
            Some(machines) => machines,
            None => {
                let mut needed: Vec<u32> =
                    sets(0).map(|set| set.machines_needed(&spread_limits, even)).collect();
                needed.sort_unstable();
                let allowed = (self.overload_probability * f64::from(self.flow_sets)) as usize;
                needed[needed.len() - 1 - allowed.min(needed.len() - 1)]
            }
        };
        let mut seen = Seen::default();
        let around: Vec<u32> = [0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5]
            .iter()
            .map(|factor| (f64::from(machines) * factor).round().max(1.0) as u32)
            .collect();
        let mut curve: Vec<(u32, u32)> = around.iter().map(|machines| (*machines, 0)).collect();
        curve.dedup_by_key(|point| point.0);
        // new flow sets: those that determined the number are biased towards it
        for set in sets(self.flow_sets) {
            for (machines, overloaded) in &mut curve {
                *overloaded += u32::from(set.spread(*machines, &spread_limits).cause.is_some());
            }
            seen.add(&set.spread(machines, &spread_limits));
        }
        let n = f64::from(self.flow_sets);
        let probability = f64::from(seen.overloaded()) / n;
        let mut notes = Vec::new();
        if machines >= MOST_MACHINES {
            notes.push(format!("even {MOST_MACHINES} machines are overloaded too often"));
        }
        if self.machines.is_none() && probability > self.overload_probability {
            notes.push(format!(
                "{} of {} new flow sets overload it: more flow_sets give a better estimate",
                seen.overloaded(),
                self.flow_sets
            ));
        }
        if machines > even {
            notes.push(format!("an even spread would need {even}; uneven hashing costs the rest"));
        }
        Ok(FleetPlan {
            machines: Some(machines),
            queues: Some(u64::from(machines) * u64::from(self.queues)),
            cores: Some(u64::from(machines) * u64::from(self.queues.min(self.cores))),
            machines_if_even: even,
            bottleneck: seen.bottleneck(&limits),
            limits,
            overload_probability: probability,
            overload_probability_half_width: wilson_half_width(probability, n),
            worst_machine_ratio: seen.worst_machine / n,
            worst_core_ratio: seen.worst_core / n,
            curve: curve
                .into_iter()
                .map(|(machines, overloaded)| CurvePoint {
                    machines,
                    overload_probability: f64::from(overloaded) / n,
                })
                .collect(),
            notes,
        })
    }

    /// Limits the hashing to seconds.
    fn validate_work(&self, machines: u32) -> Result<(), ConfigError> {
        let cores = u64::from(machines) * u64::from(self.queues.min(self.cores));
        let mut problems = Problems::default();
        if cores * u64::from(self.flow_sets) > MOST_CORES_HASHED {
            problems.add(
                "flow_sets",
                format!(
                    "{machines} machines with {cores} cores in {} flow sets are more than can be hashed: set fewer \
                     flow_sets, or check queue_pps, which is {:.0}",
                    self.flow_sets, self.queue_pps
                ),
            );
        }
        problems.into_result()
    }

    fn hopeless(&self, even: u32, limits: Vec<Capacity>, heaviest_pps: f64) -> FleetPlan {
        let note = format!(
            "one flow has {heaviest_pps:.0} packets per second and a core takes {:.0}: no number of machines \
             helps, since a flow stays on one core; drop it in hardware or before the fleet",
            self.core_pps()
        );
        self.none_helps(even, limits, Bottleneck::HeavyFlow, note)
    }

    fn none_helps(
        &self,
        even: u32,
        limits: Vec<Capacity>,
        bottleneck: Bottleneck,
        note: String,
    ) -> FleetPlan {
        FleetPlan {
            machines: None,
            queues: None,
            cores: None,
            machines_if_even: even,
            limits,
            bottleneck,
            overload_probability: 1.0,
            overload_probability_half_width: 0.0,
            worst_machine_ratio: 0.0,
            worst_core_ratio: 0.0,
            curve: Vec::new(),
            notes: vec![note],
        }
    }

    /// The load that a core may get, minus headroom.
    fn core_pps(&self) -> f64 {
        self.queue_pps * (1.0 - self.headroom_ratio)
    }

    /// The load that a machine's links and slots allow, minus headroom.
    fn machine_pps(&self) -> f64 {
        let [link, bus] = [self.link_pps(), self.bus_pps()];
        link.min(bus) * (1.0 - self.headroom_ratio)
    }

    fn link_pps(&self) -> f64 {
        let frame = FrameSize::new(self.frame_bytes).unwrap_or(FrameSize::MIN);
        LinkSpeed::from_bps(self.link_bps).line_rate_pps(frame) * f64::from(self.links)
    }

    fn bus_pps(&self) -> f64 {
        let bus = Bus {
            kind: BusKind::Pcie,
            pcie_generation: self.pcie_generation,
            pcie_lanes: self.pcie_lanes,
            ..Bus::default()
        };
        let descriptors = DescriptorTraffic { descriptor_bytes: 16, fetch_batch: 16, writeback_batch: 4 };
        bus.limit_pps(self.frame_bytes, &descriptors) * f64::from(self.links)
    }

    fn limits(&self) -> Vec<Capacity> {
        let free = 1.0 - self.headroom_ratio;
        let mut limits = vec![
            Capacity {
                what: Bottleneck::Core,
                pps: self.core_pps() * f64::from(self.queues.min(self.cores)),
            },
            Capacity { what: Bottleneck::Link, pps: self.link_pps() * free },
            Capacity { what: Bottleneck::Bus, pps: self.bus_pps() * free },
        ];
        limits.sort_by(|a, b| a.pps.total_cmp(&b.pps));
        limits
    }

    fn heaviest_flow_pps(&self) -> f64 {
        let light = self.flows - self.heavy_flows;
        let heavy = self.flood_pps * self.heavy_ratio / f64::from(self.heavy_flows.max(1));
        let light = self.flood_pps * (1.0 - self.heavy_ratio) / f64::from(light.max(1));
        heavy.max(if self.flows > self.heavy_flows { light } else { 0.0 })
    }
}

/// The result of the new flow sets.
#[derive(Debug, Default)]
struct Seen {
    cores: u32,
    machines: u32,
    worst_machine: f64,
    worst_core: f64,
}

impl Seen {
    fn add(&mut self, load: &spread::Load) {
        self.worst_machine += load.worst_machine_ratio;
        self.worst_core += load.worst_core_ratio;
        match load.cause {
            Some(Cause::Core) => self.cores += 1,
            Some(Cause::Machine) => self.machines += 1,
            None => {}
        }
    }

    fn overloaded(&self) -> u32 {
        self.cores + self.machines
    }

    /// What is overloaded most often or, without overload, what would be first.
    fn bottleneck(&self, limits: &[Capacity]) -> Bottleneck {
        let machine = limits.iter().find(|limit| limit.what != Bottleneck::Core).unwrap_or(&limits[0]);
        match self.cores.cmp(&self.machines) {
            std::cmp::Ordering::Greater => Bottleneck::Core,
            std::cmp::Ordering::Less => machine.what,
            std::cmp::Ordering::Equal => limits[0].what,
        }
    }
}

/// Half width of the Wilson score interval at 95 %.
fn wilson_half_width(share: f64, n: f64) -> f64 {
    let z2 = 1.96 * 1.96;
    1.96 / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt()
}

impl FleetPlan {
    /// The plan as a record; its points are those of the curve, the first is the plan's own number.
    pub fn run(&self, fleet: &Fleet, mut start: Start) -> Run {
        if let Value::Object(asked) = json!(fleet) {
            start.asked.extend(asked);
        }
        let mut own = Point::default();
        if let Value::Object(values) = json!(self) {
            own.values.extend(values.into_iter().filter(|(name, _)| name != "curve" && name != "notes"));
        }
        let others = self.curve.iter().map(|point| Point {
            values: [
                ("machines".to_string(), json!(point.machines)),
                ("overload_probability".to_string(), json!(point.overload_probability)),
            ]
            .into(),
        });
        let points = std::iter::once(own).chain(others).collect();
        let mut run = record::run(start, Vec::new(), Vec::new(), points);
        run.end.notes.extend(self.notes.iter().cloned());
        run
    }
}

/// Packets per second that one queue of a modelled machine delivers at line rate on its core, with buffers and
/// bus that do not limit it.
///
/// # Errors
/// [`ConfigError::Invalid`] when the machine cannot be simulated.
pub fn queue_capacity_pps(machine: &Config) -> Result<f64, ConfigError> {
    let mut config = machine.clone();
    config.traffic.ports = 1;
    config.traffic.link_bps = 400_000_000_000;
    config.traffic.offered_pps = Some(config.traffic.link_bps as f64 / 8.0 / 84.0);
    config.traffic.sender_ns = 0.0;
    (config.app.threads, config.app.cpus) = (config.app.threads.min(1), 1);
    config.rss.queues = 1;
    config.rss.flows = 1;
    config.rss.table = None;
    config.rss.bypass_queue = None;
    config.rss.bypass_ratio = 0.0;
    config.bus.kind = BusKind::None;
    config.packet_buffer = PacketBuffer { bytes: 1 << 20 };
    config.ring = Ring { descriptors: config.ring.descriptors.max(512), ..config.ring };
    config.run.duration_us = 20_000.0;
    config.run.warmup_us = 4_000.0;
    Ok(simulate(&config)?.delivered_pps())
}

#[cfg(test)]
mod tests;
