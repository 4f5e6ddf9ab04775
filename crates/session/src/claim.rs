//! Checks a sender's summary of a trial against what the receiver counted.

use std::time::Duration;

use measure::{HostSide, Ledger, LedgerLine, Place, Receipt, Trial};
use thiserror::Error;

use crate::message::Report;

/// Bytes of the sending engine's options as JSON.
const MOST_OPTION_BYTES: usize = 4096;
/// Most places of loss that a sender may name.
const MOST_LINES: usize = 64;
/// Most notes on uncertain figures.
const MOST_DOUBTS: usize = 16;
/// Tolerance for clocks and scheduling: how much longer than its session a trial may appear to its sender.
const LONGER: Duration = Duration::from_secs(1);
/// Rates must follow from packets and seconds, within the rounding of text.
const RATE_TOLERANCE: f64 = 1e-6;

/// What the receiver knows of a trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'k> {
    /// Packets that the sender reported as sent when it finished.
    pub(crate) sent: u64,
    /// The report that the sender got.
    pub(crate) report: &'k Report,
    /// From consent to the end.
    pub(crate) lasted: Duration,
    /// Whether packets were returned.
    pub(crate) reflects: bool,
}

/// A summary that contradicts what the receiver counted, or itself.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Two different numbers of the same packets.
    #[error("it claims {claimed} packets {what}, but the session has {known}")]
    Packets {
        /// Which packets.
        what: &'static str,
        /// According to the summary.
        claimed: u64,
        /// According to the receiver.
        known: u64,
    },
    /// More arrived than were sent.
    #[error("it claims {sent} packets sent, but {delivered} packets of its streams arrived")]
    MoreDelivered {
        /// According to the sender.
        sent: u64,
        /// According to the receiver.
        delivered: u64,
    },
    /// A duration that does not fit into the session.
    #[error("it claims {claimed_s} seconds in a session of {lasted:?}")]
    Duration {
        /// According to the summary.
        claimed_s: f64,
        /// Duration of the session.
        lasted: Duration,
    },
    /// A rate that does not follow from packets and time, or is not a number.
    #[error("its {what} of {claimed} does not follow from its packets and seconds")]
    Rate {
        /// Which rate.
        what: &'static str,
        /// According to the summary.
        claimed: f64,
    },
    /// A receipt that contradicts itself.
    #[error("its receipt contradicts itself")]
    Receipt,
    /// More places of loss than exist.
    #[error("its ledger has {lines} places on the sending host, more than {MOST_LINES}")]
    Lines {
        /// Their number.
        lines: usize,
    },
    /// More text than a trial can have.
    #[error("the options of its engine have {bytes} bytes, more than {MOST_OPTION_BYTES}")]
    Options {
        /// Their length as JSON.
        bytes: usize,
    },
}

/// The trial as the receiver may show it: the sender's figures about the sender, the receiver's own figures about the
/// receiver.
pub(crate) fn checked(claimed: Trial, known: &Known<'_>) -> Result<Trial, ClaimError> {
    let Known { sent, report, lasted, .. } = *known;
    let delivered = report.delivered;
    let packets = [
        ("sent", claimed.sent, sent),
        ("sent", claimed.ledger.sent, sent),
        ("sent", claimed.receipt.handed, sent),
        ("delivered", claimed.delivered, delivered),
        ("delivered", claimed.ledger.delivered, delivered),
        ("delivered", claimed.receipt.delivered, delivered),
    ];
    if let Some((what, claimed, known)) = packets.into_iter().find(|(_, claimed, known)| claimed != known) {
        return Err(ClaimError::Packets { what, claimed, known });
    }
    if sent < delivered {
        return Err(ClaimError::MoreDelivered { sent, delivered });
    }
    let seconds = claimed.duration_s;
    if !(0.0..=(lasted + LONGER).as_secs_f64()).contains(&seconds) {
        return Err(ClaimError::Duration { claimed_s: seconds, lasted });
    }
    check_rates(&claimed, known)?;
    check_receipt(&claimed)?;
    let bytes = serde_json::to_vec(&claimed.tx.options).map_or(usize::MAX, |options| options.len());
    if bytes > MOST_OPTION_BYTES {
        return Err(ClaimError::Options { bytes });
    }
    let mut lines = of_sender(&claimed, report, sent)?;
    lines.extend(report.lines.iter().cloned());
    let ledger = Ledger::close(sent, delivered, lines);
    let seen = report.wire.as_ref().and_then(|wire| wire.seen);
    let wire = claimed.wire.filter(|wire| wire.seen == seen && wire.doubts.len() <= MOST_DOUBTS);
    Ok(Trial {
        wire,
        loss_ratio: ledger.loss_ratio(),
        ledger,
        rx: report.rx.clone(),
        rx_cost: report.cost.clone(),
        clocks: report.clocks.clone(),
        receipt: Receipt { on_wire: None, ..claimed.receipt },
        round_trips: claimed.round_trips.filter(|_| known.reflects),
        // The receiver measures these itself, or they do not exist in trials between hosts.
        parameters: Default::default(),
        queues: None,
        statistics: None,
        stream: None,
        profile: None,
        ..claimed
    })
}

/// The losses on the sending host and on the way, which only the sender can count.
fn of_sender(claimed: &Trial, report: &Report, sent: u64) -> Result<Vec<LedgerLine>, ClaimError> {
    let measured_here = |line: &LedgerLine| {
        report.wire.iter().flat_map(|wire| &wire.of_all_traffic).any(|ours| ours.place == line.place)
    };
    let is_the_sender_s = |line: &&LedgerLine| {
        line.host == Some(HostSide::Sender)
            || line.place.known() == Some(Place::BetweenHosts)
            // The receiver's own places come from its own report.
            || measured_here(line) && !report.lines.contains(line)
    };
    let lines: Vec<LedgerLine> = claimed.ledger.lines.iter().filter(is_the_sender_s).cloned().collect();
    if lines.len() > MOST_LINES {
        return Err(ClaimError::Lines { lines: lines.len() });
    }
    let lost = lines.iter().fold(0u64, |sum, line| sum.saturating_add(line.packets));
    if lost > sent {
        return Err(ClaimError::Packets { what: "lost on the way", claimed: lost, known: sent });
    }
    Ok(lines)
}

fn check_rates(claimed: &Trial, known: &Known<'_>) -> Result<(), ClaimError> {
    let seconds = claimed.duration_s;
    let rate = |packets: u64| if seconds > 0.0 { packets as f64 / seconds } else { 0.0 };
    let rates = [
        ("rate of packets sent", claimed.sent_pps, rate(known.sent)),
        ("rate of packets sent", claimed.receipt.handed_pps, rate(known.sent)),
        ("rate of packets delivered", claimed.delivered_pps, rate(known.report.delivered)),
    ];
    let differ = |claimed: f64, known: f64| (claimed - known).abs() > known * RATE_TOLERANCE;
    if let Some((what, claimed, _)) = rates.into_iter().find(|(_, claimed, known)| differ(*claimed, *known)) {
        return Err(ClaimError::Rate { what, claimed });
    }
    let asked = [claimed.asked_pps, claimed.receipt.asked_pps].into_iter().flatten().find(|pps| *pps <= 0.0);
    let costs = [claimed.tx_cost.user_s, claimed.tx_cost.system_s].into_iter().find(|seconds| *seconds < 0.0);
    match (asked, costs) {
        (Some(claimed), _) => Err(ClaimError::Rate { what: "requested rate", claimed }),
        (_, Some(claimed)) => Err(ClaimError::Rate { what: "CPU time", claimed }),
        _ => Ok(()),
    }
}

fn check_receipt(claimed: &Trial) -> Result<(), ClaimError> {
    let receipt = &claimed.receipt;
    let tolerated = receipt.scheduled as f64 * Receipt::TOLERANCE;
    let kept_up = receipt.asked_pps.is_none() || receipt.shortfall as f64 <= tolerated;
    let is_ordered = receipt
        .lateness
        .as_ref()
        .is_none_or(|late| [late.p50_ns, late.p90_ns, late.p99_ns, late.p999_ns, late.max_ns].is_sorted());
    let agrees = receipt.shortfall == receipt.scheduled.saturating_sub(receipt.handed)
        && receipt.kept_up == kept_up
        && is_ordered
        && receipt.asked_pps == claimed.asked_pps;
    if agrees { Ok(()) } else { Err(ClaimError::Receipt) }
}

#[cfg(test)]
mod tests;
