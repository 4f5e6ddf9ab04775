//! Where the receiving CPUs' time went: samples by stage of the receive path, by function, and as stacks.

use serde::{Deserialize, Serialize};

use crate::cpu::tick_margin;

/// Samples of CPUs taken while packets were received.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// Nanoseconds of a CPU's time that a sample represents.
    pub period_ns: u64,
    /// The sampled CPUs.
    pub cpus: Vec<u32>,
    /// Samples of receiving work: the total of `stages` and `functions`.
    pub receiving_samples: u64,
    /// Samples that found sending.
    pub sending_samples: u64,
    /// Samples of an idle CPU.
    pub idle_samples: u64,
    /// Samples of other work: other programs, kernel housekeeping, linerate reading counters.
    pub other_samples: u64,
    /// Samples that the kernel or this program could not store.
    pub lost_samples: u64,
    /// Receiving by stage, in a packet's order; without stages that have no samples.
    pub stages: Vec<StageShare>,
    /// The functions that ran most often while receiving.
    pub functions: Vec<FunctionShare>,
    /// Receiving and sending work by stack, the most frequent first.
    pub stacks: Vec<FoldedStack>,
}

/// A stage of the receive path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The queueing discipline and the way to the driver.
    Qdisc,
    /// The driver.
    Driver,
    /// The softirq that polls drivers.
    Napi,
    /// Making and freeing packet buffers and their pages.
    Allocation,
    /// XDP programs, redirects and AF_XDP sockets.
    Xdp,
    /// Joining packets of a flow.
    Gro,
    /// The way from the driver through IP, packet filters on it included.
    Ip,
    /// Packet sockets.
    Packet,
    /// UDP and its socket.
    Udp,
    /// Waking the receiver, and switching to it.
    WakeUp,
    /// Copying packets to the receiver.
    Copy,
    /// Entering and leaving the kernel, and the fixed cost of system calls.
    Syscall,
    /// The receiver itself.
    User,
    /// Everything else.
    Other,
}

/// A stage's part of receiving.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageShare {
    /// The stage.
    pub stage: Stage,
    /// Samples that found it.
    pub samples: u64,
    /// Its share of the receiving samples.
    pub share_ratio: f64,
    /// The error of the share (plus or minus): half of its 95 % interval.
    pub margin_ratio: f64,
    /// CPU time of this stage per delivered packet, in nanoseconds.
    pub ns_per_packet: Option<f64>,
}

/// A function's part of receiving.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionShare {
    /// The function that ran, without its callees.
    pub function: String,
    /// The stage that most of its samples belong to.
    pub stage: Stage,
    /// Samples in this function.
    pub samples: u64,
    /// Its share of the receiving samples.
    pub share_ratio: f64,
}

/// Samples with the same stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoldedStack {
    /// From the outermost caller to the running function, joined by `;`; the first element is the thread's activity and
    /// the second the owner of its time.
    pub frames: String,
    /// Number of samples.
    pub samples: u64,
}

impl Stage {
    /// All, in a packet's order.
    pub const ALL: [Self; 14] = [
        Self::Qdisc,
        Self::Driver,
        Self::Napi,
        Self::Allocation,
        Self::Xdp,
        Self::Gro,
        Self::Ip,
        Self::Packet,
        Self::Udp,
        Self::WakeUp,
        Self::Copy,
        Self::Syscall,
        Self::User,
        Self::Other,
    ];

    /// The name shown to people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qdisc => "qdisc",
            Self::Driver => "driver",
            Self::Napi => "NAPI",
            Self::Allocation => "allocation",
            Self::Xdp => "XDP",
            Self::Gro => "GRO",
            Self::Ip => "IP",
            Self::Packet => "packet socket",
            Self::Udp => "UDP",
            Self::WakeUp => "wake-up",
            Self::Copy => "copy",
            Self::Syscall => "system call",
            Self::User => "user",
            Self::Other => "other",
        }
    }
}

impl Profile {
    /// Several profiles as one; functions and stacks are merged, and shares refer to the sum.
    pub fn together<'p>(parts: impl IntoIterator<Item = &'p Self>, packets: u64) -> Option<Self> {
        let mut parts = parts.into_iter();
        let mut all = parts.next()?.clone();
        for part in parts {
            all.receiving_samples = all.receiving_samples.saturating_add(part.receiving_samples);
            all.sending_samples = all.sending_samples.saturating_add(part.sending_samples);
            all.idle_samples = all.idle_samples.saturating_add(part.idle_samples);
            all.other_samples = all.other_samples.saturating_add(part.other_samples);
            all.lost_samples = all.lost_samples.saturating_add(part.lost_samples);
            for share in &part.stages {
                match all.stages.iter_mut().find(|same| same.stage == share.stage) {
                    Some(same) => same.samples = same.samples.saturating_add(share.samples),
                    None => all.stages.push(share.clone()),
                }
            }
            for share in &part.functions {
                match all.functions.iter_mut().find(|same| same.function == share.function) {
                    Some(same) => same.samples = same.samples.saturating_add(share.samples),
                    None => all.functions.push(share.clone()),
                }
            }
            for stack in &part.stacks {
                match all.stacks.iter_mut().find(|same| same.frames == stack.frames) {
                    Some(same) => same.samples = same.samples.saturating_add(stack.samples),
                    None => all.stacks.push(stack.clone()),
                }
            }
        }
        all.rate(packets);
        Some(all)
    }

    /// Sorts, and computes the shares from the samples; `packets` were delivered in that time.
    pub fn rate(&mut self, packets: u64) {
        let whole = self.receiving_samples.max(1) as f64;
        for share in &mut self.stages {
            share.share_ratio = share.samples as f64 / whole;
            share.margin_ratio = tick_margin(share.share_ratio, whole);
            let ns = share.samples as f64 * self.period_ns as f64;
            share.ns_per_packet = (packets > 0).then(|| ns / packets as f64);
        }
        self.stages.sort_by_key(|share| share.stage);
        self.functions.iter_mut().for_each(|share| share.share_ratio = share.samples as f64 / whole);
        self.functions.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.function.cmp(&b.function)));
        self.stacks.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.frames.cmp(&b.frames)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stages: &[(Stage, u64)]) -> Profile {
        let stages = stages.iter().map(|(stage, samples)| StageShare {
            stage: *stage,
            samples: *samples,
            share_ratio: 0.0,
            margin_ratio: 0.0,
            ns_per_packet: None,
        });
        let stages: Vec<_> = stages.collect();
        let receiving_samples = stages.iter().map(|share| share.samples).sum();
        Profile { period_ns: 1000, receiving_samples, stages, ..Profile::default() }
    }

    #[test]
    fn shares_of_profiles_together_are_of_their_sum() {
        let one = profile(&[(Stage::Udp, 30), (Stage::Driver, 10)]);
        let two = profile(&[(Stage::Udp, 40), (Stage::Copy, 20)]);
        let both = Profile::together([&one, &two], 200).unwrap();
        let shares: Vec<_> = both.stages.iter().map(|s| (s.stage, s.share_ratio, s.ns_per_packet)).collect();
        assert_eq!(
            shares,
            [
                (Stage::Driver, 0.1, Some(50.0)),
                (Stage::Udp, 0.7, Some(350.0)),
                (Stage::Copy, 0.2, Some(100.0))
            ]
        );
        assert_eq!(Profile::together([], 1), None);
    }

    #[test]
    fn a_profile_without_packets_has_no_time_for_each() {
        let mut one = profile(&[(Stage::Udp, 30)]);
        one.rate(0);
        assert_eq!(one.stages[0].ns_per_packet, None);
        assert!(one.stages[0].margin_ratio > 0.0 && one.stages[0].margin_ratio < 0.2);
    }
}
