//! The ledger of a trial between two hosts: packets that the sending host's driver took and the receiving host's driver did
//! not see were lost between them. This is measured, not a remainder.

use measure::{HostSide, LedgerLine, Place, Wire};
use session::WireReport;

use crate::stream_watch::StreamSeen;

/// The sending host's counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderSide {
    /// Packets handed over.
    pub(crate) sent: u64,
    /// Frames that the interface or its queueing discipline refused at first and took later: their drops are not losses.
    pub(crate) refused: u64,
    /// Whether the engine hands packets to the driver itself, past tc.
    pub(crate) is_at_driver: bool,
    /// Observations of the streams.
    pub(crate) seen: StreamSeen,
}

/// Places behind tc's egress hook, up to the wire.
const BEHIND_TC: [Place; 6] =
    [Place::Qdisc, Place::DriverTx, Place::PeerMtu, Place::PeerRing, Place::XdpRedirect, Place::XdpTx];

/// The lines of the sending host and of the path between the hosts, and what both drivers saw. `receivers` are the reports
/// of all receivers; `None` for those that watched nothing.
pub(crate) fn across(sender: &SenderSide, receivers: &[Option<&WireReport>]) -> (Vec<LedgerLine>, Wire) {
    let mut lines = without_refused(sender);
    let is_behind = |line: &LedgerLine| line.place.known().is_some_and(|place| BEHIND_TC.contains(&place));
    let sum = |lines: &[LedgerLine], keep: &dyn Fn(&LedgerLine) -> bool| {
        lines.iter().filter(|line| keep(line)).fold(0u64, |sum, line| sum.saturating_add(line.packets))
    };
    let behind = sum(&lines, &is_behind);
    let (entered, source) = if sender.is_at_driver {
        (Some(sender.sent), "the engine hands packets to the driver itself".to_owned())
    } else {
        // Each attempt to send a frame passes tc.
        let passed = sender.seen.packets.map(|packets| packets.saturating_sub(sender.refused));
        (passed, sender.seen.source.clone())
    };
    // A filter of tc may drop in front of the counting program or behind it.
    let filtered = sum(&lines, &|line| line.place.known() == Some(Place::TcEgress));
    let in_front = sum(&lines, &|line| !is_behind(line)) - filtered;
    let filtered_behind = entered.map_or(0, |entered| {
        let room = sender.sent.saturating_sub(entered).saturating_sub(in_front);
        filtered.saturating_sub(room)
    });
    let left = entered.map(|entered| entered.saturating_sub(behind).saturating_sub(filtered_behind));
    let reports: Vec<&WireReport> = receivers.iter().flatten().copied().collect();
    let all_watched = !receivers.is_empty() && reports.len() == receivers.len();
    let seen = all_watched.then(|| reports.iter().map(|report| report.seen).sum::<Option<u64>>()).flatten();
    let mut doubts = sender.seen.doubts.clone();
    doubts.extend(reports.iter().flat_map(|report| report.doubts.iter().cloned()));
    if !all_watched {
        doubts.push("the receiving host did not watch its driver".into());
    }
    if let Some((left, seen)) = left.zip(seen) {
        let mut missing = left.saturating_sub(seen);
        for line in reports.iter().flat_map(|report| &report.of_all_traffic) {
            let packets = missing.min(line.packets);
            missing -= packets;
            let source = format!("{} +{}, for all traffic", line.source, line.packets);
            lines.push(LedgerLine { packets, source, ..line.clone() }.on(HostSide::Receiver));
        }
        lines.push(LedgerLine::at(Place::BetweenHosts, missing, "left one driver, not seen by the other"));
    }
    let costs =
        [sender.seen.cost_ns].into_iter().chain(reports.iter().map(|report| report.cost_ns)).flatten();
    let wire = Wire {
        left,
        left_source: source,
        seen,
        seen_source: reports.first().map(|report| report.source.clone()).unwrap_or_default(),
        cost_ns: costs.reduce(|a, b| a + b),
        doubts,
    };
    lines.retain(|line| line.packets > 0);
    (lines, wire)
}

/// The kernel's drops on the sending host, without those of frames that were sent later.
fn without_refused(sender: &SenderSide) -> Vec<LedgerLine> {
    let mut refused = sender.refused;
    let mut lines = sender.seen.named.clone();
    for line in &mut lines {
        if line.place.known().is_some_and(|place| BEHIND_TC.contains(&place)) {
            let off = refused.min(line.packets);
            refused -= off;
            line.packets -= off;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(place: Place, packets: u64, host: HostSide) -> LedgerLine {
        LedgerLine::at(place, packets, "a counter").on(host)
    }

    fn sender(sent: u64, at_tc: Option<u64>, named: &[(Place, u64)]) -> SenderSide {
        let named = named.iter().map(|(place, packets)| line(*place, *packets, HostSide::Sender)).collect();
        let seen = StreamSeen {
            packets: at_tc,
            source: "tc".into(),
            named,
            names_drops: true,
            cost_ns: Some(5.0),
            ..StreamSeen::default()
        };
        SenderSide { sent, seen, ..SenderSide::default() }
    }

    fn report(seen: Option<u64>, of_all_traffic: &[(Place, u64)]) -> WireReport {
        WireReport {
            seen,
            source: "tc".into(),
            of_all_traffic: of_all_traffic
                .iter()
                .map(|(place, packets)| LedgerLine::at(*place, *packets, "eth0 counter"))
                .collect(),
            cost_ns: Some(7.0),
            doubts: Vec::new(),
        }
    }

    fn lost(sender: &SenderSide, report: &WireReport) -> Vec<(String, u64)> {
        let (lines, _) = across(sender, &[Some(report)]);
        lines.iter().map(|line| (line.whereabouts(), line.packets)).collect()
    }

    fn is(place: &str, packets: u64) -> (String, u64) {
        (place.to_owned(), packets)
    }

    #[test]
    fn packets_that_left_one_driver_and_were_not_seen_by_the_other_were_lost_between() {
        let sender = sender(100, Some(90), &[(Place::Neighbour, 10), (Place::Qdisc, 20)]);
        let (lines, wire) = across(&sender, &[Some(&report(Some(65), &[]))]);
        let told: Vec<_> = lines.iter().map(|line| (line.whereabouts(), line.packets)).collect();
        assert_eq!(
            told,
            [
                is("neighbour unknown, sending host", 10),
                is("qdisc full, sending host", 20),
                is("between the hosts", 5)
            ]
        );
        assert_eq!((wire.left, wire.seen, wire.cost_ns), (Some(70), Some(65), Some(12.0)));
        assert!(wire.doubts.is_empty());
    }

    #[test]
    fn a_remainder_before_the_first_program_is_not_lost_between() {
        let sender = sender(100, Some(90), &[]);
        assert_eq!(lost(&sender, &report(Some(90), &[])), [], "10 stay unexplained");
    }

    #[test]
    fn counters_of_all_traffic_explain_no_more_than_is_missing() {
        let sender = sender(100, Some(100), &[]);
        let seen = report(Some(93), &[(Place::NicMissed, 4), (Place::XdpDrop, 1000)]);
        assert_eq!(
            lost(&sender, &seen),
            [is("card out of buffers, receiving host", 4), is("XDP drop, receiving host", 3)]
        );
        assert_eq!(lost(&sender, &report(Some(100), &[(Place::NicMissed, 4000)])), []);
    }

    #[test]
    fn frames_that_were_sent_later_are_not_lost() {
        let mut bypass = sender(100, None, &[(Place::DriverTx, 30)]);
        (bypass.is_at_driver, bypass.refused) = (true, 25);
        let (lines, wire) = across(&bypass, &[Some(&report(Some(95), &[]))]);
        assert_eq!((lines.len(), lines[0].packets, wire.left), (1, 5, Some(95)));
    }

    #[test]
    fn each_attempt_to_send_a_frame_passed_tc() {
        let mut by_qdisc = sender(100, Some(125), &[(Place::Qdisc, 30)]);
        by_qdisc.refused = 25;
        let (lines, wire) = across(&by_qdisc, &[Some(&report(Some(95), &[]))]);
        assert_eq!((lines.len(), lines[0].packets, wire.left), (1, 5, Some(95)));
    }

    #[test]
    fn a_tc_filter_drops_in_front_of_the_program_or_behind_it() {
        let in_front = sender(100, Some(90), &[(Place::TcEgress, 10)]);
        assert_eq!(across(&in_front, &[Some(&report(Some(90), &[]))]).1.left, Some(90));
        let behind = sender(100, Some(100), &[(Place::TcEgress, 10)]);
        assert_eq!(across(&behind, &[Some(&report(Some(90), &[]))]).1.left, Some(90));
    }

    #[test]
    fn without_a_program_the_path_between_has_no_ledger() {
        for (sender, seen) in [
            (sender(100, None, &[]), report(Some(80), &[])),
            (sender(100, Some(100), &[]), report(None, &[(Place::NicMissed, 4)])),
        ] {
            assert_eq!(lost(&sender, &seen), []);
        }
        let (_, wire) = across(&sender(100, Some(100), &[]), &[None]);
        assert_eq!(
            (wire.seen, wire.doubts),
            (None, vec!["the receiving host did not watch its driver".into()])
        );
    }
}
