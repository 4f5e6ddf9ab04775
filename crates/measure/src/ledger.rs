//! The ledger's arithmetic: sent = delivered + Σ lost-by-place + unexplained.

use serde::{Deserialize, Serialize};

/// Where the packets of one trial went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ledger {
    /// Packets that the kernel or the ring took from the sender.
    pub sent: u64,
    /// Packets that the receiving engine saw.
    pub delivered: u64,
    /// Places where packets were lost, in the order a packet meets them.
    pub lines: Vec<LedgerLine>,
    /// `sent − delivered − Σ lines`; 0 when the ledger closes, negative when counters claim more losses than
    /// there were.
    pub unexplained: i64,
}

/// Packets lost at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerLine {
    /// Where, in words a person knows.
    pub place: String,
    /// How many, in `unit`s already converted to packets.
    pub packets: u64,
    /// The counter this was read from.
    pub source: String,
    /// What the counter itself counts.
    #[serde(default)]
    pub unit: Unit,
    /// What would lose fewer packets there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One count is one packet as the receiver counts them.
    #[default]
    Packets,
    /// One count is one frame on the wire.
    Frames,
    /// One count is one kernel buffer, which may hold many segments (GSO, GRO).
    Buffers,
}

impl Unit {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Frames => "frames",
            Self::Buffers => "buffers",
        }
    }
}

impl Ledger {
    /// Adds up what is known; lines without packets are left out, but for counters that nobody knows.
    pub fn close(sent: u64, delivered: u64, lines: Vec<LedgerLine>) -> Self {
        let shown = |line: &LedgerLine| line.packets > 0 || line.place == LedgerLine::UNKNOWN_COUNTER;
        let lines: Vec<_> = lines.into_iter().filter(shown).collect();
        let lost = lines.iter().fold(0u64, |sum, line| sum.saturating_add(line.packets));
        let unexplained = i128::from(sent) - i128::from(delivered) - i128::from(lost);
        let unexplained = unexplained.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Self { sent, delivered, lines, unexplained }
    }

    /// Whether every packet has a place.
    pub fn is_closed(&self) -> bool {
        self.unexplained == 0
    }

    /// Packets sent and not delivered, 0 when more arrived than were sent. Packets that nobody observed are
    /// not called lost.
    pub fn lost(&self) -> u64 {
        let unobserved = self.lines.iter().filter(|line| line.place == LedgerLine::UNOBSERVED);
        let unobserved = unobserved.fold(0u64, |sum, line| sum.saturating_add(line.packets));
        self.sent.saturating_sub(self.delivered).saturating_sub(unobserved)
    }

    /// Lost share of the packets sent, 0..=1.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost() as f64 / self.sent as f64 }
    }
}

impl LedgerLine {
    /// The place of packets that no receiver could report on.
    pub const UNOBSERVED: &str = "unobserved";

    /// The place of a counter that moved and that nobody knows the meaning of: a line without packets.
    pub const UNKNOWN_COUNTER: &str = "unknown counter";

    /// Packets that no receiver reported on, and why.
    pub fn unobserved(packets: u64, why: &str) -> Self {
        Self::new(Self::UNOBSERVED, packets, why)
    }

    /// A line in packets without a remedy.
    pub fn new(place: &str, packets: u64, source: &str) -> Self {
        Self { place: place.into(), packets, source: source.into(), unit: Unit::Packets, remedy: None }
    }

    /// The same line with what would lose fewer packets there.
    #[must_use]
    pub fn with_remedy(mut self, remedy: &str) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_counter_saw_is_unexplained() {
        let ledger = Ledger::close(100, 60, vec![LedgerLine::new("backlog", 30, "softnet_stat")]);
        assert_eq!(ledger.unexplained, 10);
        assert!(!ledger.is_closed());
        assert_eq!(ledger.loss_ratio(), 0.4);
    }

    #[test]
    fn counters_that_claim_too_much_are_a_negative_remainder() {
        assert_eq!(Ledger::close(10, 10, vec![LedgerLine::new("x", 3, "y")]).unexplained, -3);
    }

    #[test]
    fn counters_near_their_end_do_not_overflow() {
        let lines = vec![LedgerLine::new("a", u64::MAX, "x"), LedgerLine::new("b", u64::MAX, "y")];
        assert_eq!(Ledger::close(0, u64::MAX, lines).unexplained, i64::MIN);
    }

    #[test]
    fn packets_that_nobody_observed_are_neither_lost_nor_unexplained() {
        let ledger = Ledger::close(100, 0, vec![LedgerLine::unobserved(100, "no handshake")]);
        assert_eq!((ledger.unexplained, ledger.lost()), (0, 0));
    }

    #[test]
    fn empty_lines_are_left_out() {
        assert!(Ledger::close(1, 1, vec![LedgerLine::new("a", 0, "x")]).lines.is_empty());
        let unknown = LedgerLine::new(LedgerLine::UNKNOWN_COUNTER, 0, "veth new_drops +5");
        assert_eq!(
            Ledger::close(1, 1, vec![unknown]).lines.len(),
            1,
            "but never an unknown counter that moved"
        );
    }
}
