//! Instructions of a trial, counted one by one: by side, by stage of the path, by function, and as stacks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::profile::Stage;

/// The instructions of a trial in an emulated machine. A string instruction (`rep movsb`) counts once however many bytes
/// it moves. Receivers' figures are per packet delivered, all others per packet sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Instructions {
    /// All instructions executed while packets were sent and drained.
    pub total: u64,
    /// Sending threads in user space, per packet.
    pub sender_user_per_packet: Option<f64>,
    /// Sending threads in the kernel, without softirqs and interrupts, per packet.
    pub sender_kernel_per_packet: Option<f64>,
    /// Softirqs in any context, per packet sent.
    pub softirq_per_packet: Option<f64>,
    /// Receiving threads in user space, per packet.
    pub receiver_user_per_packet: Option<f64>,
    /// Receiving threads in the kernel, without softirqs and interrupts, per packet.
    pub receiver_kernel_per_packet: Option<f64>,
    /// Interrupts up to their softirqs, per packet sent.
    pub interrupts_per_packet: Option<f64>,
    /// All other threads, per packet sent.
    pub other_per_packet: Option<f64>,
    /// Bytes that string instructions wrote for packets: by senders and softirqs per packet sent, and by receivers
    /// per packet delivered.
    pub string_bytes_per_packet: Option<f64>,
    /// By side and stage, in the order of sides and of a packet's way.
    pub stages: Vec<StageInstructions>,
    /// By side and function, the most instructions first; rare ones omitted.
    pub functions: Vec<FunctionInstructions>,
    /// By stack, the most instructions first; rare ones merged.
    pub stacks: Vec<StackInstructions>,
}

/// The side that an instruction belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// A sending thread.
    Sender,
    /// A softirq, in any context.
    Softirq,
    /// A receiving thread.
    Receiver,
    /// An interrupt, up to its softirqs.
    Interrupts,
    /// Another thread, or none.
    Other,
}

/// A stage's instructions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageInstructions {
    /// On whose behalf.
    pub side: Side,
    /// The stage.
    pub stage: Stage,
    /// Instructions per packet.
    pub per_packet: f64,
    /// Bytes that string instructions wrote, per packet.
    pub string_bytes_per_packet: f64,
}

/// A function's own instructions, without those of functions that it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionInstructions {
    /// Its name.
    pub function: String,
    /// On whose behalf.
    pub side: Side,
    /// The stage that most of its instructions belong to.
    pub stage: Stage,
    /// Instructions per packet.
    pub per_packet: f64,
    /// Bytes that string instructions wrote, per packet.
    pub string_bytes_per_packet: f64,
}

/// Instructions of the same stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StackInstructions {
    /// From the outermost caller to the function that ran, joined by `;`; the first is the side.
    pub frames: String,
    /// Instructions of the whole trial.
    pub instructions: u64,
}

/// A function whose instructions per packet differ between two trials.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionChange {
    /// The function.
    pub function: String,
    /// On whose behalf.
    pub side: Side,
    /// Instructions per packet before; 0 where it did not run.
    pub before: f64,
    /// Instructions per packet after.
    pub after: f64,
}

impl Side {
    /// All, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Sender, Self::Softirq, Self::Receiver, Self::Interrupts, Self::Other];

    /// The name shown to people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Softirq => "softirq",
            Self::Receiver => "receiver",
            Self::Interrupts => "interrupts",
            Self::Other => "other",
        }
    }
}

impl FunctionChange {
    /// Its growth in instructions per packet.
    pub fn growth(&self) -> f64 {
        self.after - self.before
    }
}

impl Instructions {
    /// Functions on the packet path (without interrupts and other threads) whose instructions per packet differ by `least` or
    /// more, the largest difference first.
    pub fn changes(before: &Self, after: &Self, least: f64) -> Vec<FunctionChange> {
        let mut both: BTreeMap<(&str, Side), (f64, f64)> = BTreeMap::new();
        let of_packets = |f: &&FunctionInstructions| !matches!(f.side, Side::Interrupts | Side::Other);
        for f in before.functions.iter().filter(of_packets) {
            both.entry((&f.function, f.side)).or_default().0 += f.per_packet;
        }
        for f in after.functions.iter().filter(of_packets) {
            both.entry((&f.function, f.side)).or_default().1 += f.per_packet;
        }
        let change = |((function, side), (before, after)): ((&str, Side), (f64, f64))| FunctionChange {
            function: function.into(),
            side,
            before,
            after,
        };
        let mut changes: Vec<FunctionChange> = both.into_iter().map(change).collect();
        changes.retain(|change| change.growth().abs() >= least);
        changes.sort_by(|a, b| b.growth().abs().total_cmp(&a.growth().abs()));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(functions: &[(&str, Side, f64)]) -> Instructions {
        let function = |(name, side, per_packet): &(&str, Side, f64)| FunctionInstructions {
            function: (*name).into(),
            side: *side,
            stage: Stage::Udp,
            per_packet: *per_packet,
            string_bytes_per_packet: 0.0,
        };
        Instructions { functions: functions.iter().map(function).collect(), ..Instructions::default() }
    }

    #[test]
    fn changes_are_by_function_and_side_and_the_largest_is_first() {
        let before = of(&[
            ("clear_page", Side::Sender, 108.0),
            ("udp_rcv", Side::Softirq, 40.0),
            ("tick", Side::Interrupts, 9.0),
        ]);
        let after = of(&[
            ("find_next_bit", Side::Sender, 286.8),
            ("udp_rcv", Side::Softirq, 40.2),
            ("udp_rcv", Side::Receiver, 5.0),
        ]);
        let changes = Instructions::changes(&before, &after, 0.5);
        let named: Vec<_> = changes.iter().map(|c| (c.function.as_str(), c.before, c.after)).collect();
        assert_eq!(named, [("find_next_bit", 0.0, 286.8), ("clear_page", 108.0, 0.0), ("udp_rcv", 0.0, 5.0)]);
        assert_eq!(changes[1].growth(), -108.0);
    }
}
