//! What a diversion has done so far, as numbers that add up: the ledger of packets that left the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, LedgerLine};

/// A diversion as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DivertStatus {
    /// The interface.
    pub interface: String,
    /// Which packets the rules are about (`--match`); `None`: those that a rule takes.
    #[serde(default)]
    pub selection: Option<String>,
    /// Where packets are decided about.
    pub place: FilterAt,
    /// Seconds since it began.
    pub duration_s: f64,
    /// Where the kernel's program runs: `native` or `generic`.
    #[serde(default)]
    pub mode: String,
    /// The queues that are diverted; of a diversion that has ended, those that were.
    pub queues: Vec<DivertQueue>,
    /// What the card does of it; `None` where it was asked for nothing.
    #[serde(default)]
    pub steering: Option<DivertSteering>,
    /// The rules of now, in their order.
    pub rules: Vec<DivertRule>,
    /// Every packet that the program saw, and what became of it.
    pub ledger: DivertLedger,
    /// Times that the rules were replaced.
    pub reloads: u64,
    /// Times that new rules were refused and the old ones stayed.
    #[serde(default)]
    pub rejected_reloads: u64,
    /// Packets in the sample file and in the file of kept packets.
    pub recorded: u64,
    /// Packets that should be there and are not, because the disk was behind.
    pub not_recorded: u64,
}

/// Where packets are decided about.
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

/// A queue that is diverted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivertQueue {
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

impl DivertQueue {
    /// How packets come to its thread, in a word; `None` where no thread takes them.
    pub fn copy_mode(&self) -> Option<&'static str> {
        self.zero_copy.map(|zero_copy| if zero_copy { "zero-copy" } else { "copy" })
    }
}

/// What a card was told for a diversion, and what it does not do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DivertSteering {
    /// The rules that it has, such as `rule.9=udp4 dst-port 53 queue 2`.
    pub rules: Vec<String>,
    /// Packets that the program picks instead, on every queue.
    pub program: Vec<DivertLeft>,
    /// What else it refused, in words.
    pub refused: Vec<String>,
    /// What a reset had changed and was put back, such as `rss.table: equal:4 -> queues:0,0,1,3`.
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
    /// What became of them.
    pub fate: Fate,
    /// Why or where, how many, and the counter.
    #[serde(flatten)]
    pub line: LedgerLine,
}

/// What became of a packet, in the order of a packet's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// The kernel's program left it to the kernel.
    Passed,
    /// A rule or a filter dropped it.
    Dropped,
    /// The kernel received it again from this process.
    Reinjected,
    /// This process kept it.
    Kept,
    /// It left on the queue that it came from.
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
    /// The selection that is every packet.
    pub const ALL: &str = "all";
}

impl DivertLedger {
    /// Packets of one fate.
    #[must_use]
    pub fn of(&self, fate: Fate) -> u64 {
        self.lines.iter().filter(|entry| entry.fate == fate).map(|entry| entry.line.packets).sum()
    }

    /// Adds a line, unless no packet is in it.
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
