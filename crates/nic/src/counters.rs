//! A card's counters: per queue, however its driver reports them, and all of them by name.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Card, NicError};

/// Counters by name: the link's own with the kernel's names, then the driver's with the driver's.
pub type Counters = BTreeMap<String, u64>;

/// The counters of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct QueueCount {
    /// Packets.
    pub packets: u64,
    /// Bytes; 0 when the driver does not report them.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
}

/// The counts of a card's queues by number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueueCounts {
    /// Receive queues.
    pub rx: BTreeMap<u32, QueueCount>,
    /// Transmit queues.
    pub tx: BTreeMap<u32, QueueCount>,
    /// The source of the numbers.
    pub source: &'static str,
}

/// Every counter of an interface. Names that a driver uses for several queues get the queue's number as prefix.
///
/// # Errors
/// When the interface is gone. A driver without counters adds none.
pub fn read_counters(card: &mut Card) -> Result<Counters, NicError> {
    let mut counters: Counters =
        card.link()?.stats.named().map(|(name, count)| (name.to_owned(), count)).collect();
    for (name, count) in by_block(driver_statistics(card)?) {
        counters.insert(name, count);
    }
    Ok(counters)
}

/// The counters of each queue: from the driver, else from the kernel's interface for it; empty maps when neither has
/// them.
///
/// # Errors
/// When the interface is gone.
pub fn read_queue_counts(card: &mut Card) -> Result<QueueCounts, NicError> {
    let counts = queue_counts(&driver_statistics(card)?);
    if counts.rx.values().chain(counts.tx.values()).any(|count| count.packets > 0) {
        return Ok(counts);
    }
    let told = told_counts(card);
    Ok(if told.rx.is_empty() && told.tx.is_empty() { counts } else { told })
}

/// The same from the source of an earlier reading, which is cheaper when the driver counts nothing itself.
pub(crate) fn read_queue_counts_again(
    card: &mut Card,
    earlier: &QueueCounts,
) -> Result<QueueCounts, NicError> {
    if earlier.source == TOLD { Ok(told_counts(card)) } else { read_queue_counts(card) }
}

/// Counts reported by the kernel.
const TOLD: &str = "netdev-genl";

fn told_counts(card: &mut Card) -> QueueCounts {
    let index = card.index();
    let listed = card.netdev().and_then(|netdev| netdev.queue_stats(index).ok());
    let mut told = QueueCounts { source: TOLD, ..QueueCounts::default() };
    for queue in listed.unwrap_or_default() {
        let Some(packets) = queue.packets else { continue };
        let side = if queue.receives { &mut told.rx } else { &mut told.tx };
        let count = QueueCount { packets, bytes: queue.bytes.unwrap_or(0), drops: queue.drops.unwrap_or(0) };
        side.insert(queue.id, count);
    }
    told
}

/// None for a driver that counts nothing, or whose set of counters is changing right now.
fn driver_statistics(card: &mut Card) -> Result<Vec<(String, u64)>, NicError> {
    match card.ethtool.statistics(card.name()) {
        Ok(statistics) => Ok(statistics),
        Err(_) => {
            card.refresh_name()?;
            Ok(card.ethtool.statistics(card.name()).unwrap_or_default())
        }
    }
}

/// The driver's counters of each queue.
pub fn queue_counts(statistics: &[(String, u64)]) -> QueueCounts {
    let mut counts = QueueCounts { source: "driver", ..QueueCounts::default() };
    let mut of_programs: BTreeMap<u32, u64> = BTreeMap::new();
    for (name, value) in by_block(statistics.to_vec()) {
        let Some((receives, queue, what)) = queue_of(&name) else { continue };
        let side = if receives { &mut counts.rx } else { &mut counts.tx };
        let count = side.entry(queue).or_default();
        match what {
            What::ProgramsPackets => {
                of_programs.insert(queue, value);
            }
            What::Packets => count.packets = count.packets.saturating_add(value),
            What::Bytes => count.bytes = count.bytes.saturating_add(value),
            What::Drops => count.drops = count.drops.saturating_add(value),
        }
    }
    // a veth counts only those, other drivers both
    for (queue, packets) in of_programs {
        if let Some(count) = counts.rx.get_mut(&queue).filter(|count| count.packets == 0) {
            count.packets = packets;
        }
    }
    counts
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Packets,
    /// What an XDP program may have seen.
    ProgramsPackets,
    Bytes,
    Drops,
}

/// vmxnet3 reports a block per queue, headed `Rx Queue#: n`, with the same names in each: the heading becomes a prefix.
fn by_block(statistics: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let mut block = None;
    let mut named = Vec::with_capacity(statistics.len());
    for (name, value) in statistics {
        let text = name.trim();
        let side = match text.trim_end_matches(':') {
            "Rx Queue#" => Some("rx"),
            "Tx Queue#" => Some("tx"),
            _ => None,
        };
        if let Some(side) = side {
            block = Some(format!("{side}_queue_{value}"));
        } else if let Some(block) = block.as_ref().filter(|_| name.starts_with(' ')) {
            named.push((format!("{block}: {text}"), value));
        } else {
            block = None;
            named.push((text.to_owned(), value));
        }
    }
    named
}

/// The queue of a counter, and what it counts: `rx_queue_0_packets`, `rx0_packets`, `rx-0.packets`,
/// `queue_0_rx_cnt`, `rx_queue_1: ucast pkts rx`.
fn queue_of(name: &str) -> Option<(bool, u32, What)> {
    let (receives, rest) = match (name.strip_prefix("rx"), name.strip_prefix("tx")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return ena_queue(name),
    };
    let rest = rest.strip_prefix("_queue_").or_else(|| rest.strip_prefix(['-', '_'])).unwrap_or(rest);
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (number, what) = rest.split_at(digits);
    let what = match what.trim_start_matches(['_', '.', ':', ' ']) {
        "packets" | "ucast pkts rx" | "mcast pkts rx" | "bcast pkts rx" | "ucast pkts tx"
        | "mcast pkts tx" | "bcast pkts tx" => What::Packets,
        "xdp_packets" if receives => What::ProgramsPackets,
        "bytes" | "ucast bytes rx" | "mcast bytes rx" | "bcast bytes rx" | "ucast bytes tx"
        | "mcast bytes tx" | "bcast bytes tx" => What::Bytes,
        "drops" | "dropped" | "pkts rx OOB" | "drv dropped rx total" | "drv dropped tx total" => What::Drops,
        _ => return None,
    };
    Some((receives, number.parse().ok()?, what))
}

fn ena_queue(name: &str) -> Option<(bool, u32, What)> {
    let (number, what) = name.strip_prefix("queue_")?.split_once('_')?;
    let (receives, what) = match what {
        "rx_cnt" => (true, What::Packets),
        "rx_bytes" => (true, What::Bytes),
        "tx_cnt" => (false, What::Packets),
        "tx_bytes" => (false, What::Bytes),
        _ => return None,
    };
    Some((receives, number.parse().ok()?, what))
}

/// The counters that grew since an earlier reading, and by how much; counters that appeared or vanished in between are left out.
pub fn moved(earlier: &Counters, later: &Counters) -> Counters {
    let grown = later.iter().filter_map(|(name, now)| {
        let by = now.checked_sub(*earlier.get(name)?)?;
        (by > 0).then(|| (name.clone(), by))
    });
    grown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(names: &[(&str, u64)]) -> Vec<(String, u64)> {
        names.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn drivers_say_queues_in_many_ways() {
        for (packets, drops) in [
            ("rx_queue_3_packets", "rx_queue_3_drops"),
            ("rx3_packets", "rx3_dropped"),
            ("rx-3.packets", "rx-3.dropped"),
        ] {
            let counts = queue_counts(&statistics(&[(packets, 7), (drops, 2), ("rx_packets", 9)]));
            let expected = QueueCount { packets: 7, bytes: 0, drops: 2 };
            assert_eq!(counts.rx, BTreeMap::from([(3, expected)]), "{packets}");
        }
        let veth = queue_counts(&statistics(&[("rx_queue_1_xdp_packets", 6), ("rx_queue_1_drops", 1)]));
        assert_eq!(veth.rx[&1], QueueCount { packets: 6, bytes: 0, drops: 1 });
        let virtio = queue_counts(&statistics(&[("rx_queue_0_packets", 9), ("rx_queue_0_xdp_packets", 6)]));
        assert_eq!(virtio.rx[&0].packets, 9);
        let ena = queue_counts(&statistics(&[("queue_1_tx_cnt", 5), ("queue_1_tx_bytes", 300)]));
        assert_eq!(ena.tx, BTreeMap::from([(1, QueueCount { packets: 5, bytes: 300, drops: 0 })]));
    }

    #[test]
    fn a_block_names_its_queue() {
        let names = statistics(&[
            ("Rx Queue#", 0),
            ("       ucast pkts rx", 4),
            ("       bcast pkts rx", 1),
            ("       pkts rx OOB", 3),
            ("Rx Queue#", 1),
            ("       ucast pkts rx", 6),
            ("tx timeout count", 8),
        ]);
        let counts = queue_counts(&names);
        assert_eq!(counts.rx[&0], QueueCount { packets: 5, bytes: 0, drops: 3 });
        assert_eq!(counts.rx[&1].packets, 6);
        assert_eq!(by_block(names).last().unwrap().0, "tx timeout count");
    }

    #[test]
    fn what_came_or_went_did_not_move() {
        let earlier = Counters::from([("a".into(), 1), ("gone".into(), 5), ("back".into(), 9)]);
        let later = Counters::from([("a".into(), 4), ("new".into(), 7), ("back".into(), 2)]);
        assert_eq!(moved(&earlier, &later), Counters::from([("a".into(), 3)]));
    }
}
