//! Everything known about a card, on one page. Reading it changes nothing.

use std::path::Path;

use serde::Serialize;

use crate::{
    Card, NicError,
    counters::{Counters, QueueCounts, read_counters, read_queue_counts},
    interrupts::{Interrupt, card_interrupts},
    queues::{QueueInterrupt, queue_interrupts},
    settings::{Reading, read_settings, scaling},
};

/// One card's receive path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// The interface's name.
    pub interface: String,
    /// Its number in its namespace.
    pub index: u32,
    /// Its hardware address.
    pub mac: Option<String>,
    /// Its driver.
    pub driver: Driver,
    /// Its address on the bus; `None` for interfaces without hardware.
    pub pcie: Option<Pcie>,
    /// The NUMA node it is on.
    pub numa_node: Option<u32>,
    /// The link.
    pub link: Link,
    /// Numbers that settings cannot exceed, by the setting's name.
    pub limits: Vec<(String, u32)>,
    /// All settings that can be changed, and kinds that this driver lacks.
    #[serde(flatten)]
    pub settings: Reading,
    /// The table in ranges and shares; `None` without receive side scaling.
    pub table: Option<Table>,
    /// The queues' interrupts.
    pub queues: Vec<QueueInterrupt>,
    /// All of the card's interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The counters of each queue.
    pub counts: QueueCounts,
    /// Kernel numbers of the XDP programs attached.
    pub xdp_programs: Vec<u32>,
    /// Every counter.
    pub counters: Counters,
}

/// The driver of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Its version, or the kernel's.
    pub version: String,
    /// The card's firmware; often empty.
    pub firmware: String,
    /// The card's address on its bus; empty without one.
    pub bus: String,
}

/// The PCI Express link, in the kernel's words (`8.0 GT/s PCIe`) and lanes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pcie {
    /// Speed in use.
    pub current_link_speed: String,
    /// Lanes in use.
    pub current_link_width: String,
    /// The card's best speed.
    pub max_link_speed: String,
    /// The card's most lanes.
    pub max_link_width: String,
}

/// The link's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Put up by the administrator.
    pub up: bool,
    /// Able to carry packets.
    pub operational: bool,
    /// Speed in bits per second, if known.
    pub speed_bps: Option<u64>,
    /// Whether the link is full duplex.
    pub full_duplex: Option<bool>,
    /// Whether that was negotiated.
    pub autoneg: Option<bool>,
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu_bytes: u32,
    /// Receive queues in use; the driver may have prepared more.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
}

/// A summary of an indirection table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Buckets.
    pub buckets: usize,
    /// First bucket, last bucket and their queue; a round-robin table has one entry per bucket.
    pub ranges: Vec<(usize, usize, u32)>,
    /// Buckets per queue, from queue 0 on.
    pub buckets_per_queue: Vec<usize>,
}

impl Table {
    /// Summarises a table.
    pub fn of(table: &[u32]) -> Self {
        let mut ranges: Vec<(usize, usize, u32)> = Vec::new();
        // A driver may answer with any number: one absurd queue must not use much memory.
        const MOST_QUEUES: usize = 4096;
        let queues = table.iter().max().map_or(0, |most| (*most as usize).saturating_add(1)).min(MOST_QUEUES);
        let mut buckets_per_queue = vec![0; queues];
        for (bucket, queue) in table.iter().enumerate() {
            match ranges.last_mut() {
                Some((_, last, same)) if same == queue => *last = bucket,
                _ => ranges.push((bucket, bucket, *queue)),
            }
            if let Some(count) = buckets_per_queue.get_mut(*queue as usize) {
                *count += 1;
            }
        }
        Self { buckets: table.len(), ranges, buckets_per_queue }
    }
}

impl Page {
    /// Reads everything.
    ///
    /// # Errors
    /// When the interface is gone; `absent` lists what a driver lacks.
    pub fn read(card: &mut Card) -> Result<Self, NicError> {
        let link = card.link()?;
        let driver = match card.ethtool.driver(card.name()) {
            Ok(found) => {
                Driver { name: found.name, version: found.version, firmware: found.firmware, bus: found.bus }
            }
            Err(_) => Driver { name: link.kind.clone().unwrap_or_default(), ..Driver::default() },
        };
        let mode =
            card.netlink.as_mut().and_then(|netlink| netlink.link_mode(link.index).ok()).unwrap_or_default();
        let settings = read_settings(card)?;
        Ok(Self {
            interface: link.name.clone(),
            index: link.index,
            mac: link.mac.map(|mac| wire::MacAddr(mac).to_string()),
            driver,
            pcie: read_pcie(card),
            numa_node: card.read("device/numa_node").ok().and_then(|node| node.parse().ok()),
            link: Link {
                up: link.flags & sys::rtnetlink::flag::UP != 0,
                operational: link.operational,
                speed_bps: mode.speed_mbps.map(|speed| u64::from(speed) * 1_000_000),
                full_duplex: mode.full_duplex,
                autoneg: mode.autoneg,
                mtu_bytes: link.mtu,
                rx_queues: card.queues_in_use(true).unwrap_or(link.rx_queues),
                tx_queues: card.queues_in_use(false).unwrap_or(link.tx_queues),
            },
            limits: read_limits(card),
            settings,
            table: scaling(card).ok().filter(|rss| !rss.table.is_empty()).map(|rss| Table::of(&rss.table)),
            queues: queue_interrupts(card)?,
            interrupts: card_interrupts(card)?,
            counts: read_queue_counts(card)?,
            xdp_programs: card.route.xdp_programs(link.index)?,
            counters: read_counters(card)?,
        })
    }

    /// A setting's value.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.settings.get(name).map(String::as_str)
    }

    /// A setting's value as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    /// The maximum of a setting.
    pub fn limit(&self, name: &str) -> Option<u32> {
        self.limits.iter().find(|(known, _)| known == name).map(|(_, limit)| *limit)
    }
}

fn read_limits(card: &mut Card) -> Vec<(String, u32)> {
    let index = card.index();
    let mut limits = Vec::new();
    for (prefix, group) in [("channels", &sys::ethtool::CHANNELS), ("ring", &sys::ethtool::RINGS)] {
        let values = card.netlink.as_mut().and_then(|netlink| netlink.read(group, index).ok());
        for (name, value) in values.unwrap_or_default() {
            limits.extend(name.strip_suffix("-max").map(|key| (format!("{prefix}.{key}"), value)));
        }
    }
    limits
}

fn read_pcie(card: &Card) -> Option<Pcie> {
    let folder = card.folder().ok()?;
    // A virtio device is a child of its PCI function, one folder up.
    let text = |folder: &Path, file: &str| crate::card::read(&folder.join(file)).ok();
    ["device", "device/.."].iter().find_map(|place| {
        let folder = folder.join(place);
        Some(Pcie {
            current_link_speed: text(&folder, "current_link_speed")?,
            current_link_width: text(&folder, "current_link_width")?,
            max_link_speed: text(&folder, "max_link_speed")?,
            max_link_width: text(&folder, "max_link_width")?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_ranges_and_shares() {
        let table = Table::of(&[0, 0, 1, 1, 1, 3]);
        assert_eq!(table.ranges, [(0, 1, 0), (2, 4, 1), (5, 5, 3)]);
        assert_eq!(table.buckets_per_queue, [2, 3, 0, 1]);
        assert_eq!(Table::of(&[]), Table { buckets: 0, ranges: vec![], buckets_per_queue: vec![] });
        assert!(Table::of(&[u32::MAX]).buckets_per_queue.len() <= 4096);
    }
}
