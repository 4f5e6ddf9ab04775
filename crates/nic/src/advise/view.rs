//! The input of the rules, and their findings.

use serde::{Deserialize, Serialize};
use sys::cpu_control::CpuControl;

use crate::{Counters, Page, QueueInterrupt, Setting};

/// What the card is tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Most packets per second.
    #[default]
    Pps,
    /// Lowest latency from wire to program.
    Latency,
    /// One queue for a program that bypasses the kernel.
    Bypass,
}

/// Conditions besides the card.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// CPUs that this machine has, with the NUMA node of each if known.
    pub cpus: Vec<(u32, Option<u32>)>,
    /// What sets the CPUs' frequency and sleep, if it was read.
    #[serde(skip)]
    pub control: Option<CpuControl>,
    /// Whether irqbalance runs, which moves interrupts.
    pub irqbalance: bool,
    /// Counters that moved while the card was watched, by how much.
    pub moved: Counters,
    /// Packets that each receive queue took in that time, from queue 0 on.
    pub queue_packets: Vec<u64>,
    /// Rounds of the receive softirq that ended with work left in that time, on all CPUs.
    pub squeezed: u64,
    /// Packets dropped in that time because a CPU's backlog was full.
    pub backlog_dropped: u64,
}

/// Something that limits the card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The expected effect of the change: 100 is the largest. A rank, not a measure.
    pub effect: u32,
    /// What is the matter.
    pub title: String,
    /// Why that matters.
    pub reason: String,
    /// The counter or setting that shows it.
    pub evidence: String,
    /// The settings to change; empty when no setting helps.
    pub change: Vec<Setting>,
    /// The risk.
    pub risk: String,
    /// What it costs.
    pub cost: String,
}

/// Everything that a rule reads.
pub(super) struct View<'p> {
    pub(super) page: &'p Page,
    pub(super) around: &'p Surroundings,
    pub(super) goal: Goal,
}

impl View<'_> {
    pub(super) fn moved(&self, name: &str) -> u64 {
        self.around.moved.get(name).copied().unwrap_or(0)
    }

    /// Receive queues in use.
    pub(super) fn rx_queues(&self) -> u64 {
        let channels = |name: &str| self.page.number(name).unwrap_or(0);
        let told = channels("channels.combined") + channels("channels.rx");
        if told > 0 { told } else { self.page.link.rx_queues.into() }
    }

    pub(super) fn cpus(&self) -> u64 {
        self.around.cpus.len() as u64
    }

    /// The interrupts of the receive queues.
    pub(super) fn rx_interrupts(&self) -> impl Iterator<Item = &QueueInterrupt> {
        self.page.queues.iter().filter(|queue| queue.receives)
    }

    pub(super) fn node_of(&self, cpu: u32) -> Option<u32> {
        self.around.cpus.iter().find(|(known, _)| *known == cpu)?.1
    }
}
