//! One end of the lab: its namespace, interface and addresses, and the kernel's counters there.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sys::ethtool::{self, EthtoolSocket, Feature};
use sys::netdev::{Napi, NetdevSocket};
use sys::netns::NetNs;
use sys::procfs::{NetCounters, net_counters};
use sys::rtnetlink::{Link, RouteSocket, flag};
use sys::sysfs::Sysfs;

use crate::error::{LabError, NotFree, SideName};
use crate::plan::LabPlan;

/// One end of the lab. It may be used from any thread; no method moves the calling thread.
#[derive(Debug)]
pub struct Side {
    name: SideName,
    namespace: NetNs,
    interface: String,
    index: u32,
    mac: [u8; 6],
    ipv4: Vec<Ipv4Addr>,
    ipv6: Vec<Ipv6Addr>,
    /// Both sockets were opened in the namespace and work on it from any thread.
    route: Mutex<RouteSocket>,
    ethtool: EthtoolSocket,
    /// For a real interface: the namespace it came from and returns to.
    origin: Option<NetNs>,
    /// For a card taken from the kernel's driver: its former interface and driver name. There is no
    /// interface here.
    left: Option<(Link, String)>,
}

impl Side {
    /// The side's namespace. A worker thread enters it, or uses [`Side::run`].
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// The interface's name: `lab-tx` or `lab-rx`, or a real one's own.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Whether the card is taken from the kernel's driver: then no interface exists here.
    pub fn is_taken(&self) -> bool {
        self.left.is_some()
    }

    /// The interface's number in this side's namespace; the other side may have the same number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The interface's hardware address, the same in every lab.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The IPv4 addresses, as many as planned.
    pub fn ipv4(&self) -> &[Ipv4Addr] {
        &self.ipv4
    }

    /// The IPv6 addresses, as many as planned.
    pub fn ipv6(&self) -> &[Ipv6Addr] {
        &self.ipv6
    }

    /// Runs `work` on a thread of its own in this side's namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.namespace.run(work).map_err(|source| LabError::Enter { side: self.name, source })
    }

    /// The current state of the interface, with its counters.
    ///
    /// With NAPI at the peer (`gro` or `threaded_napi` in the plan, or an XDP program there), a packet is counted
    /// at both ends when the peer has processed it, without the 14 bytes of its Ethernet header. A taken card is as
    /// it was before.
    pub fn link(&self) -> Result<Link, LabError> {
        if let Some((link, _)) = &self.left {
            return Ok(link.clone());
        }
        self.netlink(|route| route.link_by_index(self.index))
    }

    /// The interface's driver: `veth`, or a card's.
    pub fn driver(&self) -> Result<String, LabError> {
        if let Some((_, driver)) = &self.left {
            return Ok(driver.clone());
        }
        self.ethtool(|ethtool| ethtool.driver(&self.interface)).map(|driver| driver.name)
    }

    /// Receive queues in use; AF_XDP needs a socket for each.
    pub fn rx_queues(&self) -> Result<u32, LabError> {
        if self.is_taken() {
            return Ok(1);
        }
        let link = self.link()?;
        self.run(|| ethtool::rx_queues(&link))
    }

    /// The driver's counters (`ethtool -S`), such as `rx_queue_0_xdp_drops`.
    pub fn driver_statistics(&self) -> Result<Vec<(String, u64)>, LabError> {
        self.ethtool(|ethtool| ethtool.statistics(&self.interface))
    }

    /// The protocol counters of this side's namespace; see [`sys::procfs::net_counters`].
    pub fn net_counters(&self) -> Result<NetCounters, LabError> {
        self.run(net_counters)?.map_err(|source| LabError::Proc { side: self.name, source })
    }

    /// The interface's features (offloads) in their current state.
    pub fn features(&self) -> Result<Vec<Feature>, LabError> {
        if self.is_taken() {
            return Ok(Vec::new());
        }
        self.ethtool(|ethtool| ethtool.features(&self.interface))
    }

    /// The NAPI instances of the interface by queue, with their threads; none while veth runs without NAPI.
    pub fn napis(&self) -> Result<Vec<Napi>, LabError> {
        let napis = self.run(|| NetdevSocket::open()?.napis(self.index))?;
        napis.map_err(|source| LabError::Netlink { side: self.name, source })
    }

    /// A side whose interface does not exist yet.
    pub(crate) fn prepare(name: SideName, plan: &LabPlan) -> Result<Self, LabError> {
        let namespace = NetNs::create().map_err(|source| LabError::Namespace { side: name, source })?;
        let silent =
            || stop_forwarding().and_then(|()| if plan.has_ipv6() { Ok(()) } else { disable_ipv6() });
        let prepared = namespace.run(|| (silent(), RouteSocket::open(), EthtoolSocket::open()));
        let (stopped, route, ethtool) = prepared.map_err(|source| LabError::Enter { side: name, source })?;
        stopped.map_err(|source| LabError::Setting { side: name, setting: FORWARDING, source })?;
        let route = route.map_err(|source| LabError::Netlink { side: name, source })?;
        let ethtool = ethtool.map_err(|source| LabError::Ethtool { side: name, source })?;
        // Locally administered addresses (second bit of the first byte); a lab has only these two.
        let (interface, mac, ipv4, ipv6) = match name {
            SideName::Tx => ("lab-tx", [2, 0, 0, 0, 0, 1], plan.tx_ipv4(), plan.tx_ipv6()),
            SideName::Rx => ("lab-rx", [2, 0, 0, 0, 0, 2], plan.rx_ipv4(), plan.rx_ipv6()),
        };
        let route = Mutex::new(route);
        Ok(Self {
            name,
            namespace,
            interface: interface.into(),
            index: 0,
            mac,
            ipv4,
            ipv6,
            route,
            ethtool,
            origin: None,
            left: None,
        })
    }

    /// A real interface of the calling thread's namespace, if it can be used.
    pub(crate) fn find(&self, interface: &str, plan: &LabPlan) -> Result<Link, LabError> {
        let route = RouteSocket::open().and_then(|mut route| route.link_by_name(interface));
        let link = route.map_err(|source| LabError::Netlink { side: self.name, source })?;
        let reasons = [
            link.kind.clone().map(|kind| NotFree::Virtual { kind }),
            link.mac.is_none().then_some(NotFree::NoMac),
            (link.flags & flag::UP != 0).then_some(NotFree::Up),
            (link.mtu < plan.mtu).then_some(NotFree::Mtu { mtu: link.mtu, needed: plan.mtu }),
        ];
        match reasons.into_iter().flatten().next() {
            None => Ok(link),
            Some(reason) => {
                Err(LabError::NotFree { side: self.name, interface: interface.to_owned(), reason })
            }
        }
    }

    /// Leaves a real interface in place, for an engine that takes its card from the kernel.
    pub(crate) fn leave(&mut self, link: Link) -> Result<(), LabError> {
        let addresses = RouteSocket::open().and_then(|mut route| route.addresses(link.index));
        let addresses = addresses.map_err(|source| LabError::Netlink { side: self.name, source })?;
        if !addresses.is_empty() {
            let (side, reason) = (self.name, NotFree::Addressed { addresses });
            return Err(LabError::NotFree { side, interface: link.name, reason });
        }
        self.mac = link.mac.unwrap_or_default();
        let driver = EthtoolSocket::open().and_then(|ethtool| ethtool.driver(&link.name));
        let driver = driver.map_err(|source| LabError::Ethtool { side: self.name, source })?;
        self.interface.clone_from(&link.name);
        self.left = Some((link, driver.name));
        Ok(())
    }

    /// Moves a real interface here, until this side ends. Its settings stay.
    pub(crate) fn borrow(&mut self, link: Link) -> Result<(), LabError> {
        let origin = NetNs::current().map_err(|source| LabError::Namespace { side: self.name, source })?;
        RouteSocket::open()
            .and_then(|mut route| route.move_link(link.index, self.namespace.as_fd()))
            .map_err(|source| LabError::Netlink { side: self.name, source })?;
        self.mac = link.mac.unwrap_or_default();
        self.interface = link.name;
        self.origin = Some(origin);
        Ok(())
    }

    /// Silences the interface, sets its offloads and puts it up; the order matters.
    pub(crate) fn bring_up(&mut self, plan: &LabPlan) -> Result<(), LabError> {
        if self.is_taken() {
            return Ok(());
        }
        self.index = self.netlink(|route| route.link_by_name(&self.interface))?.index;
        // Without: a link-local address, hence router solicitations and multicast reports.
        self.netlink(|route| route.disable_address_generation(self.index))?;
        if let Some(qdisc) = plan.qdisc.filter(|_| self.name == SideName::Tx) {
            // It ends with the namespace: a real interface that returns has its default again.
            let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
            let set = route.set_root_qdisc(self.index, &qdisc.for_kernel());
            set.map_err(|source| LabError::Qdisc { kind: qdisc.kind(), source })?;
        }
        if self.origin.is_some() {
            // Other flags would outlive this process if it were killed; "up" does not.
            return self.netlink(|route| route.change_flags(self.index, flag::UP, flag::UP));
        }
        self.set_offloads(plan)?;
        // No ARP and no neighbour discovery; it also keeps IPv6 from joining a group for each address.
        let flags = flag::UP | flag::NO_ARP;
        self.netlink(|route| route.change_flags(self.index, flags, flags))
    }

    /// Gives the interface its addresses, and neighbour entries for the other side's.
    pub(crate) fn introduce(&self, peer: &Side) -> Result<(), LabError> {
        if self.is_taken() {
            return Ok(());
        }
        self.netlink(|route| {
            for (address, prefix) in self.addresses() {
                route.add_address(self.index, address, prefix)?;
            }
            for (address, _) in peer.addresses() {
                route.add_neighbour(self.index, address, peer.mac)?;
            }
            Ok(())
        })
    }

    /// Waits for the kernel's background work: until then it drops packets silently.
    pub(crate) fn wait_until_ready(&self, at_most: Duration) -> Result<(), LabError> {
        if self.is_taken() {
            return Ok(());
        }
        let deadline = Instant::now() + at_most;
        let ready = self.netlink(|route| {
            let mut ready = route.wait_until_up(self.index, deadline)?;
            for (address, _) in self.addresses() {
                ready &= route.wait_until_local(address, deadline)?;
            }
            Ok(ready)
        })?;
        if ready { Ok(()) } else { Err(LabError::NotReady { side: self.name, after: at_most }) }
    }

    /// Lets one kernel thread per queue process packets, on the CPUs of the plan.
    ///
    /// Through sysfs: `napi-set` of the netlink family `netdev` is newer (Linux 6.17) and for the machine's root only.
    pub(crate) fn thread_napi(&self, cpus: &[u32], go_first: bool) -> Result<(), LabError> {
        let out_of_reach = |source| LabError::ThreadedNapiOutOfReach { source };
        let sysfs = Sysfs::of(&self.namespace).map_err(out_of_reach)?;
        let file = format!("class/net/{}/threaded", self.interface);
        sysfs.write(&file, "1").map_err(|source| LabError::ThreadedNapiRefused { source })?;
        if cpus.is_empty() {
            return Ok(());
        }
        let napis = self.napis()?;
        for thread in napis.iter().filter_map(|napi| napi.thread).filter(|_| go_first) {
            // A cgroup may have no real-time budget (`cpu.rt_runtime_us`): then the threads keep normal scheduling.
            sys::cpu::go_first(thread).ok();
        }
        napis
            .iter()
            .zip(cpus.iter().cycle())
            .try_for_each(|(napi, &cpu)| napi.pin(cpu).map_err(|source| LabError::PinNapi { cpu, source }))
    }

    fn set_offloads(&self, plan: &LabPlan) -> Result<(), LabError> {
        let gro = plan.gro || (plan.threaded_napi && self.name == SideName::Rx);
        let features = self.features()?;
        let wanted: Vec<(&str, bool)> = features
            .iter()
            .filter(|feature| feature.changeable)
            .filter_map(|feature| match feature.name.as_str() {
                name @ "rx-gro" => Some((name, gro)),
                name if name.starts_with("tx-checksum-") => Some((name, plan.tx_checksum)),
                name if name.starts_with("tx-scatter-gather") => Some((name, plan.scatter_gather)),
                name if name.starts_with("tx-")
                    && (name.contains("segmentation") || name.contains("gso")) =>
                {
                    Some((name, plan.gso))
                }
                _ => None,
            })
            .collect();
        self.ethtool(|ethtool| ethtool.set_features(&self.interface, &wanted))
    }

    fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        // The prefixes cover both sides, so that each is on the other's link.
        let four = self.ipv4.iter().map(|&address| (IpAddr::V4(address), 15));
        four.chain(self.ipv6.iter().map(|&address| (IpAddr::V6(address), 48)))
    }

    pub(crate) fn netlink<T>(
        &self,
        ask: impl FnOnce(&mut RouteSocket) -> Result<T, sys::NetlinkError>,
    ) -> Result<T, LabError> {
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        ask(&mut route).map_err(|source| LabError::Netlink { side: self.name, source })
    }

    fn ethtool<T>(
        &self,
        ask: impl FnOnce(&EthtoolSocket) -> Result<T, sys::ethtool::EthtoolError>,
    ) -> Result<T, LabError> {
        ask(&self.ethtool).map_err(|source| LabError::Ethtool { side: self.name, source })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // After a kill the kernel does the same, towards the machine's initial namespace.
        if let Some(origin) = &self.origin {
            self.netlink(|route| {
                let index = route.link_by_name(&self.interface)?.index;
                route.move_link(index, origin.as_fd())
            })
            .ok();
        }
    }
}

/// An interface without IPv6 sends nothing on its own.
fn disable_ipv6() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
}

const FORWARDING: &str = "/proc/sys/net/ipv6/conf/default/forwarding";

/// A namespace can inherit IPv6 forwarding from the machine (`net.core.devconf_inherit_init_net`); its interfaces
/// then join the group of all routers and announce it to the other end.
fn stop_forwarding() -> io::Result<()> {
    if fs::read(FORWARDING)?.starts_with(b"0") { Ok(()) } else { fs::write(FORWARDING, "0") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_forwards_stops() {
        let Ok(namespace) = NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let before_and_after = namespace.run(|| {
            fs::write(FORWARDING, "1").unwrap();
            stop_forwarding().unwrap();
            fs::read_to_string(FORWARDING).unwrap()
        });
        assert_eq!(before_and_after.unwrap(), "0\n");
    }
}
