//! What a diversion has done so far, as numbers that add up.

use serde::{Deserialize, Serialize};

/// A diversion as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The interface.
    pub interface: String,
    /// Which packets the rules are about (`--match`); `None`: those that a rule takes.
    #[serde(default)]
    pub selection: Option<String>,
    /// `xdp` or `user`: where packets are decided about.
    pub place: String,
    /// Seconds since it began.
    pub duration_s: f64,
    /// The queues that are diverted now.
    pub queues: Vec<QueueStatus>,
    /// The rules of now, in their order.
    pub rules: Vec<RuleStatus>,
    /// Every packet that the program saw, and what became of it.
    pub ledger: DivertLedger,
    /// Times that the rules were replaced.
    pub reloads: u64,
    /// Packets in the sample file and in the file of kept packets.
    pub recorded: u64,
    /// Packets that should be there and are not, because the disk was behind.
    pub not_recorded: u64,
}

/// A queue that is diverted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its number.
    pub queue: u32,
    /// The CPU of its thread, where it has one that is pinned.
    pub cpu: Option<u32>,
    /// Whether it is diverted at this moment; else the kernel has it, because its thread hangs.
    pub diverted: bool,
    /// Packets that came to its thread.
    pub received: u64,
    /// Whether the card puts packets where the thread reads them; `None` where no thread does.
    #[serde(default)]
    pub zero_copy: Option<bool>,
}

/// What a rule did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// The rule as it is written.
    pub rule: String,
    /// Packets that it took.
    pub packets: u64,
    /// Bytes of their frames without FCS.
    pub bytes: u64,
    /// Packets of those that were above its limit, and dropped.
    pub limited_packets: u64,
    /// Packets of it that the program handed over to be decided about in this process: what is missing in `packets`
    /// was lost on the way there. `None` where the program knows only what all rules have in common (`--match`).
    #[serde(default)]
    pub handed_over_packets: Option<u64>,
}

/// `arrived` is the sum of the lines and of what is unexplained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DivertLedger {
    /// Packets that the program saw.
    pub arrived: u64,
    /// What became of them.
    pub lines: Vec<DivertLine>,
    /// Packets handed to sockets that neither came there nor were counted as lost; while packets come, those on
    /// their way are among them.
    pub unexplained: i64,
}

/// What became of some packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivertLine {
    /// `passed`, `dropped`, `reinjected`, `kept`, `sent` or `lost`.
    pub fate: String,
    /// Why, or where.
    pub place: String,
    /// How many packets.
    pub packets: u64,
    /// The counter that says so.
    pub source: String,
}

impl DivertLedger {
    /// Packets of one fate.
    #[must_use]
    pub fn of(&self, fate: &str) -> u64 {
        self.lines.iter().filter(|line| line.fate == fate).map(|line| line.packets).sum()
    }

    /// Adds a line, unless no packet is in it.
    pub(crate) fn add(&mut self, fate: &str, place: &str, packets: u64, source: &str) {
        if packets > 0 {
            self.lines.push(DivertLine {
                fate: fate.into(),
                place: place.into(),
                packets,
                source: source.into(),
            });
        }
    }

    /// Sets what is unexplained.
    pub(crate) fn close(mut self) -> Self {
        let explained: u64 = self.lines.iter().map(|line| line.packets).sum();
        self.unexplained = self.arrived as i64 - explained as i64;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_line_explains_is_said() {
        let mut ledger = DivertLedger { arrived: 10, ..DivertLedger::default() };
        ledger.add("passed", "no rule takes it", 4, "a");
        ledger.add("dropped", "rule", 5, "b");
        ledger.add("lost", "ring", 0, "c");
        let ledger = ledger.close();
        assert_eq!((ledger.unexplained, ledger.lines.len()), (1, 2));
        assert_eq!((ledger.of("passed"), ledger.of("lost")), (4, 0));
    }
}
