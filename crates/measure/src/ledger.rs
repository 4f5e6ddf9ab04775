//! The ledger's arithmetic: sent = delivered + Σ lost-by-place + unexplained.

use serde::{Deserialize, Serialize};

use crate::{
    place::{LossPlace, Place},
    unit::Unit,
};

/// Where the packets of one trial went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ledger {
    /// Packets that the kernel or the ring took from the sender.
    pub sent: u64,
    /// Packets that the receiving engine saw; `null` in JSON and 0 here when unknown.
    #[serde(deserialize_with = "crate::unknown::or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub delivered: u64,
    /// Places where packets were lost, in the order a packet meets them.
    pub lines: Vec<LedgerLine>,
    /// `sent − delivered − Σ lines`; 0 when the ledger closes, negative when counters claim more losses than
    /// occurred.
    pub unexplained: i64,
}

/// Packets lost at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerLine {
    /// The name of the place.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub place: LossPlace,
    /// Packets, converted from `unit`.
    pub packets: u64,
    /// The counter this was read from.
    pub source: String,
    /// What the counter itself counts.
    #[serde(default)]
    pub unit: Unit,
    /// The remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The host that the place is on, when a trial has two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSide>,
}

/// One of the two hosts of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostSide {
    /// The host that sends.
    Sender,
    /// The host that receives.
    Receiver,
}

impl HostSide {
    /// As tables have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sender => "sending host",
            Self::Receiver => "receiving host",
        }
    }
}

impl Ledger {
    /// Closes the ledger; lines with 0 packets are left out, except unknown counters.
    pub fn close(sent: u64, delivered: u64, lines: Vec<LedgerLine>) -> Self {
        let shown = |line: &LedgerLine| line.packets > 0 || line.place == LossPlace::UnknownCounter;
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

    /// Packets sent and not delivered, 0 when more arrived than were sent. Packets that no end observed are
    /// not called lost.
    pub fn lost(&self) -> u64 {
        let unobserved = self.unobserved().fold(0u64, |sum, line| sum.saturating_add(line.packets));
        self.sent.saturating_sub(self.delivered).saturating_sub(unobserved)
    }

    /// Why delivery and loss are unknown; `None` when they are known.
    pub fn unknown_because(&self) -> Option<&str> {
        self.unobserved().find(|line| line.packets > 0).map(|line| line.source.as_str())
    }

    fn unobserved(&self) -> impl Iterator<Item = &LedgerLine> {
        self.lines.iter().filter(|line| line.place == LossPlace::Unobserved)
    }

    /// Lost share of the packets sent, 0..=1.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost() as f64 / self.sent as f64 }
    }
}

impl LedgerLine {
    /// Packets that no receiver reported on, and why.
    pub fn unobserved(packets: u64, why: &str) -> Self {
        Self::new(LossPlace::Unobserved, packets, why)
    }

    /// A counter of unknown meaning that moved: a line without packets.
    pub fn unknown_counter(source: &str) -> Self {
        Self::new(LossPlace::UnknownCounter, 0, source)
    }

    /// A line in packets without a remedy.
    pub fn new(place: impl Into<LossPlace>, packets: u64, source: &str) -> Self {
        Self {
            place: place.into(),
            packets,
            source: source.into(),
            unit: Unit::Packets,
            remedy: None,
            host: None,
        }
    }

    /// A line in the place's unit, with its remedy.
    pub fn at(place: Place, packets: u64, source: &str) -> Self {
        Self { unit: place.unit(), ..Self::new(place, packets, source).with_remedy(place.remedy()) }
    }

    /// The same line of one of two hosts.
    #[must_use]
    pub fn on(self, host: HostSide) -> Self {
        Self { host: Some(host), ..self }
    }

    /// The place as text, with the host when there are two.
    pub fn whereabouts(&self) -> String {
        match self.host {
            Some(host) => format!("{}, {}", self.place, host.as_str()),
            None => self.place.to_string(),
        }
    }

    /// The same line with a remedy.
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
        let unknown = LedgerLine::unknown_counter("veth new_drops +5");
        assert_eq!(
            Ledger::close(1, 1, vec![unknown]).lines.len(),
            1,
            "but never an unknown counter that moved"
        );
    }
}
