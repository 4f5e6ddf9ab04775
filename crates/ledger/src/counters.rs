//! Counters of one network namespace: an interface, its driver and its queueing discipline, and the protocols.

use sys::{
    NetlinkError,
    ethtool::EthtoolSocket,
    procfs::{self, NetCounters, ProcError},
    rtnetlink::{LinkStats, RouteSocket},
};
use thiserror::Error;

use crate::{
    drivers::{CounterKind, Drivers},
    emulated,
    evidence::grown,
};

/// A reading, or the difference of two.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostCounters {
    /// The interface's counters; zero without an interface.
    pub link: LinkStats,
    /// The interface's driver; empty when it has no name.
    pub driver: String,
    /// The driver's own counters in its order.
    pub driver_counters: Vec<(String, u64)>,
    /// Whether the card is an emulated one that does not count frames for which it had no receive descriptor.
    pub hides_missed: bool,
    /// Buffers that the interface's queueing discipline dropped.
    pub qdisc_drops: u64,
    /// Counters of IP, UDP and TCP.
    pub protocols: NetCounters,
}

/// Why counters cannot be read.
#[derive(Debug, Error)]
pub enum CounterError {
    /// The interface.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The protocols.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

impl HostCounters {
    /// Reads the protocols' counters of the calling thread's namespace, and those of an interface there. A driver
    /// without counters is not an error.
    ///
    /// # Errors
    /// [`CounterError`]: the interface does not exist, or `/proc` cannot be read.
    pub fn read(interface: Option<&str>) -> Result<Self, CounterError> {
        let protocols = procfs::net_counters()?;
        let Some(interface) = interface else { return Ok(Self { protocols, ..Self::default() }) };
        let mut route = RouteSocket::open()?;
        let link = route.link_by_name(interface)?;
        let qdisc_drops = route.root_qdisc(link.index)?.map_or(0, |qdisc| qdisc.drops.into());
        let mut counters = Self { link: link.stats, qdisc_drops, protocols, ..Self::default() };
        if let Ok(ethtool) = EthtoolSocket::open() {
            let statistics = || ethtool.statistics(interface).unwrap_or_default();
            let driver = ethtool.driver(interface).unwrap_or_default();
            counters.driver_counters = statistics();
            if emulated::adds_up_what_it_missed(&driver) {
                let missed = emulated::correct(&mut counters.driver_counters, statistics);
                counters.link.rx_missed_errors = missed.unwrap_or(counters.link.rx_missed_errors);
            }
            counters.hides_missed = emulated::hides_what_it_missed(&driver);
            counters.driver = driver.name;
        }
        Ok(counters)
    }

    /// The difference to an earlier reading of the same interface.
    #[must_use]
    pub fn since(&self, earlier: &Self, drivers: &Drivers) -> Self {
        let before = |index: usize, name: &str| {
            // Queues appear and vanish: a counter is identified by its index and its name.
            let same = earlier.driver_counters.get(index).filter(|(other, _)| other == name);
            same.or_else(|| earlier.driver_counters.iter().find(|(other, _)| other == name))
                .map_or(0, |(_, value)| *value)
        };
        let bits = |name: &str| match drivers.kind(&self.driver, name) {
            CounterKind::Loss(loss) => loss.bits,
            _ => 64,
        };
        let counters = self.driver_counters.iter().enumerate();
        Self {
            link: self.link.since(&earlier.link),
            driver: self.driver.clone(),
            hides_missed: self.hides_missed,
            driver_counters: counters
                .map(|(index, (name, value))| (name.clone(), grown(before(index, name), *value, bits(name))))
                .collect(),
            qdisc_drops: grown(earlier.qdisc_drops, self.qdisc_drops, 32),
            protocols: self.protocols.since(&earlier.protocols),
        }
    }

    /// The sum of an IPv4 counter and its IPv6 counterpart.
    pub fn both(&self, v4: &str, v6: &str) -> u64 {
        [v4, v6].into_iter().filter_map(|name| self.protocols.value(name)).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(counters: &[(&str, u64)]) -> HostCounters {
        let driver_counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        HostCounters { driver: "veth".into(), driver_counters, ..HostCounters::default() }
    }

    #[test]
    fn counters_are_subtracted_by_name_also_when_queues_came_or_went() {
        let drivers = Drivers::built_in();
        let before = reading(&[("rx_queue_0_drops", 5), ("rx_queue_1_drops", 7)]);
        let after = reading(&[("peer_ifindex", 2), ("rx_queue_0_drops", 9), ("rx_queue_1_drops", 7)]);
        let grown: Vec<u64> =
            after.since(&before, &drivers).driver_counters.iter().map(|(_, value)| *value).collect();
        assert_eq!(grown, [2, 4, 0]);
    }

    #[test]
    fn counters_of_the_same_name_are_told_apart_by_their_place() {
        // vmxnet3 uses the same counter names for every queue.
        let before = reading(&[("  pkts rx OOB", 5), ("  pkts rx OOB", 100)]);
        let after = reading(&[("  pkts rx OOB", 6), ("  pkts rx OOB", 103)]);
        let grown: Vec<u64> = after
            .since(&before, &Drivers::built_in())
            .driver_counters
            .iter()
            .map(|(_, value)| *value)
            .collect();
        assert_eq!(grown, [1, 3]);
    }

    #[test]
    fn loopback_can_be_read_and_a_missing_interface_cannot() {
        let read = HostCounters::read(Some("lo")).unwrap();
        assert!(read.protocols.value("UdpInDatagrams").is_some());
        let error = HostCounters::read(Some("absent0")).unwrap_err();
        assert!(error.to_string().contains("absent0"), "{error}");
    }
}
