//! What rules look at, and what they find.

use serde::{Deserialize, Serialize};

use crate::{Counters, Page, QueueInterrupt, Setting};

/// What the card shall be good at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Most packets per second.
    #[default]
    Pps,
    /// Least time from wire to program.
    Latency,
    /// One queue for a program that takes its packets past the kernel.
    Bypass,
}

/// What matters beside the card.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// CPUs that this machine has, with the NUMA node of each where it is known.
    pub cpus: Vec<(u32, Option<u32>)>,
    /// Whether irqbalance runs, which moves interrupts as it likes.
    pub irqbalance: bool,
    /// Counters that moved while the card was watched, by how much.
    pub moved: Counters,
    /// Packets that each receive queue took meanwhile, from queue 0 on.
    pub queue_packets: Vec<u64>,
    /// Rounds of the receive softirq that ended with work left meanwhile, on all CPUs.
    pub squeezed: u64,
    /// Packets dropped meanwhile because a CPU's backlog was full.
    pub backlog_dropped: u64,
}

/// Something that holds the card back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How much is expected of the change: 100 is most. An order, not a measure.
    pub effect: u32,
    /// What is the matter.
    pub title: String,
    /// Why that matters.
    pub reason: String,
    /// The counter or setting that shows it.
    pub evidence: String,
    /// The settings to change; empty where none can help.
    pub change: Vec<Setting>,
    /// What may go wrong.
    pub risk: String,
    /// What it costs.
    pub cost: String,
}

/// Everything that a rule looks at.
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
