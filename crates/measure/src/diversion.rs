//! The ledger of a diversion: what happened to the packets that it took from the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, LedgerLine};

/// A diversion as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DivertStatus {
    /// The interface.
    pub interface: String,
    /// The packets that the rules apply to (`--match`); `None`: those that match a rule.
    #[serde(default)]
    pub selection: Option<String>,
    /// Where rules run.
    pub place: FilterAt,
    /// Seconds since it began.
    pub duration_s: f64,
    /// The XDP mode of the kernel's program: `native` or `generic`.
    #[serde(default)]
    pub mode: String,
    /// The diverted queues; after the end of a diversion, those that were diverted.
    pub queues: Vec<DivertQueue>,
    /// Nanoseconds that the program takes for a packet of a queue that is not diverted, measured before it was attached, with
    /// the packet in the CPU's cache; `None` when it could not be measured.
    #[serde(default)]
    pub other_queues_ns: Option<u64>,
    /// The part that the card does; `None` when steering was not requested.
    #[serde(default)]
    pub steering: Option<DivertSteering>,
    /// The current rules, in order.
    pub rules: Vec<DivertRule>,
    /// Every packet that the program saw, and what happened to it.
    pub ledger: DivertLedger,
    /// How often the rules were replaced.
    pub reloads: u64,
    /// Times that new rules were refused and the old ones stayed.
    #[serde(default)]
    pub rejected_reloads: u64,
    /// Packets in the sample file and in the file of kept packets.
    pub recorded: u64,
    /// Packets missing from those files because the disk was too slow.
    pub not_recorded: u64,
}

/// Where rules run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterAt {
    /// In the kernel, by an XDP program.
    Xdp,
    /// In this process, through AF_XDP sockets.
    User,
}

impl fmt::Display for FilterAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xdp => "xdp",
            Self::User => "user",
        })
    }
}

/// A diverted queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivertQueue {
    /// Its number.
    pub queue: u32,
    /// The CPU of its thread, if it is pinned.
    pub cpu: Option<u32>,
    /// Whether it is diverted now; otherwise the kernel has it, because its thread hangs.
    pub diverted: bool,
    /// Packets that reached its thread.
    pub received: u64,
    /// Whether the card puts packets where the thread reads them (zero copy); `None` without a thread.
    #[serde(default)]
    pub zero_copy: Option<bool>,
}

impl DivertQueue {
    /// How packets reach its thread, in a word; `None` without a thread.
    pub fn copy_mode(&self) -> Option<&'static str> {
        self.zero_copy.map(|zero_copy| if zero_copy { "zero-copy" } else { "copy" })
    }
}

/// The rules that a diversion gave to a card, and what the card does not do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DivertSteering {
    /// The rules that it has, such as `rule.9=udp4 dst-port 53 queue 2`.
    pub rules: Vec<String>,
    /// Packets that the program picks instead, on every queue.
    pub program: Vec<DivertLeft>,
    /// What else it refused, as text.
    pub refused: Vec<String>,
    /// Settings that a reset of the card changed and that were set again, such as `rss.table: equal:4 -> queues:0,0,1,3`.
    pub repaired: Vec<String>,
}

/// Packets that a card does not steer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivertLeft {
    /// Which.
    pub packets: String,
    /// Why not.
    pub why: String,
}

/// What a rule did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivertRule {
    /// The rule as written.
    pub rule: String,
    /// Packets that it took.
    pub packets: u64,
    /// Bytes of their frames without FCS.
    pub bytes: u64,
    /// Of those, packets dropped because they were above its limit.
    pub limited_packets: u64,
    /// Packets of this rule that the program passed to this process for the decision: the difference to `packets` was
    /// lost on the way. `None` when the program knows only the common selection of all rules (`--match`).
    #[serde(default)]
    pub handed_over_packets: Option<u64>,
}

/// `arrived` is the sum of the lines and `unexplained`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DivertLedger {
    /// Packets that the program saw.
    pub arrived: u64,
    /// What became of them.
    pub lines: Vec<DivertLine>,
    /// Packets handed to sockets that neither arrived nor were counted as lost; during traffic, packets on
    /// their way are included.
    pub unexplained: i64,
}

/// What happened to some packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivertLine {
    /// What became of them.
    pub fate: Fate,
    /// Why or where, how many, and the counter.
    #[serde(flatten)]
    pub line: LedgerLine,
}

/// What happened to a packet, in the order of a packet's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// The XDP program passed it to the kernel.
    Passed,
    /// A rule or a filter dropped it.
    Dropped,
    /// This process re-injected it into the kernel.
    Reinjected,
    /// This process kept it.
    Kept,
    /// It was sent out on the queue it arrived on.
    Sent,
    /// It was lost between the program and its fate.
    Lost,
}

impl Fate {
    /// All of them, in the order of a packet's path.
    pub const ALL: [Self; 6] =
        [Self::Passed, Self::Dropped, Self::Reinjected, Self::Kept, Self::Sent, Self::Lost];
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Dropped => "dropped",
            Self::Reinjected => "reinjected",
            Self::Kept => "kept",
            Self::Sent => "sent",
            Self::Lost => "lost",
        })
    }
}

impl DivertStatus {
    /// The selection of every packet.
    pub const ALL: &str = "all";
}

impl DivertLedger {
    /// Packets of one fate.
    #[must_use]
    pub fn of(&self, fate: Fate) -> u64 {
        self.lines.iter().filter(|entry| entry.fate == fate).map(|entry| entry.line.packets).sum()
    }

    /// Adds a line, unless its count is 0.
    pub fn add(&mut self, fate: Fate, place: &str, packets: u64, source: &str) {
        if packets > 0 {
            self.lines.push(DivertLine { fate, line: LedgerLine::new(place, packets, source) });
        }
    }

    /// Sets what is unexplained.
    #[must_use]
    pub fn close(mut self) -> Self {
        let lines = self.lines.iter().map(|entry| entry.line.clone()).collect();
        self.unexplained = Ledger::close(self.arrived, 0, lines).unexplained;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_line_explains_is_said() {
        let mut ledger = DivertLedger { arrived: 10, ..DivertLedger::default() };
        ledger.add(Fate::Passed, "no rule takes it", 4, "a");
        ledger.add(Fate::Dropped, "rule", 5, "b");
        ledger.add(Fate::Lost, "ring", 0, "c");
        let ledger = ledger.close();
        assert_eq!((ledger.unexplained, ledger.lines.len()), (1, 2));
        assert_eq!((ledger.of(Fate::Passed), ledger.of(Fate::Lost)), (4, 0));
    }

    #[test]
    fn a_line_is_written_with_its_fate_and_read_again() {
        let line = DivertLine { fate: Fate::Reinjected, line: LedgerLine::new("passes", 7, "a counter") };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(
            text,
            r#"{"fate":"reinjected","place":"passes","packets":7,"source":"a counter","unit":"packets"}"#
        );
        assert_eq!(serde_json::from_str::<DivertLine>(&text).unwrap(), line);
        for fate in Fate::ALL {
            assert_eq!(serde_json::to_string(&fate).unwrap(), format!("\"{fate}\""));
        }
        let earlier = r#"{"fate":"lost","place":"ring","packets":1,"source":"b"}"#;
        assert_eq!(serde_json::from_str::<DivertLine>(earlier).unwrap().line.packets, 1, "without a unit");
    }
}
