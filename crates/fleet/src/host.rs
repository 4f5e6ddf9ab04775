//! What an agent says of its own machine, read in the network namespace that its packets use.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    thread,
    time::Duration,
};

use nic::{Card, Page};
use sys::{
    capability::Capability,
    ethtool::{EthtoolNetlink, EthtoolSocket, FlowType},
    netns::NetNs,
    rtnetlink::{RouteKind, RouteQuestion, RouteSocket},
};

use traffic::{Conditions, RxSpec, TxSpec};

use trial::any_like;

use crate::message::{Description, EngineFinding, PathFinding, Spread};

/// `ETH_RSS_HASH_TOP`.
const TOEPLITZ: u32 = 1;
/// `RXH_L4_B_0_1` and `RXH_L4_B_2_3`.
const PORTS: u64 = 1 << 6 | 1 << 7;

/// Fills in the address, its interface and the engines that work. Without an address, the one is taken that packets to a
/// benchmarking address or to others would leave from.
pub fn describe_host(
    description: &mut Description,
    address: Option<IpAddr>,
    namespace: Option<&NetNs>,
) -> std::io::Result<()> {
    match namespace {
        Some(namespace) => namespace.run(|| describe_here(description, address)),
        None => {
            describe_here(description, address);
            Ok(())
        }
    }
}

fn describe_here(description: &mut Description, address: Option<IpAddr>) {
    let Some(address) = address.or_else(usual_address) else { return };
    description.facts.address = address.to_string();
    let Ok(mut route) = RouteSocket::open() else { return };
    let links = route.links().unwrap_or_default();
    let mut has_it =
        links.iter().filter(|link| route.addresses(link.index).is_ok_and(|own| own.contains(&address)));
    let Some(link) = has_it.next() else { return };
    let facts = &mut description.facts;
    facts.interface = Some(link.name.clone());
    facts.mtu_bytes = Some(link.mtu);
    if let Some(page) = Card::open(&link.name).ok().and_then(|mut card| Page::read(&mut card).ok()) {
        facts.driver = Some(page.driver.name.clone());
        // A pair of virtual interfaces states a speed that nothing keeps.
        facts.speed_bps = page.link.speed_bps.filter(|_| !page.driver.bus.is_empty());
    }
    description.spread = spread(&link.name, link.index);
    description.engines = engines();
}

/// How long a router may take to answer a packet that is too large for its next link.
const ROUTER_AT_MOST: Duration = Duration::from_millis(200);
/// The discard protocol: no linerate listens there.
const DISCARD: u16 = 9;

/// How packets of this size get to these addresses. A datagram to each makes a router with a narrower link answer, and the
/// kernel remembers what it said.
pub(crate) fn find_paths(
    to: &[IpAddr],
    packet_bytes: u32,
    namespace: Option<&NetNs>,
) -> io::Result<Vec<PathFinding>> {
    match namespace {
        Some(namespace) => namespace.run(|| paths_here(to, packet_bytes)),
        None => Ok(paths_here(to, packet_bytes)),
    }
}

fn paths_here(to: &[IpAddr], packet_bytes: u32) -> Vec<PathFinding> {
    let fits = |path: &PathFinding| path.mtu_bytes >= packet_bytes;
    let tried = to.iter().filter(|to| fits(&path(**to)) && send_one(**to, packet_bytes).is_ok()).count();
    if tried > 0 {
        thread::sleep(ROUTER_AT_MOST);
    }
    to.iter().map(|to| path(*to)).collect()
}

fn path(to: IpAddr) -> PathFinding {
    let find = || {
        let mut kernel = RouteSocket::open().ok()?;
        let route = kernel.route(&RouteQuestion { to, from: None, interface: None }).ok()??;
        let is_way = matches!(route.kind, RouteKind::Unicast | RouteKind::Local);
        let link = kernel.link_by_index(route.interface).ok().filter(|_| is_way)?;
        Some((link.name, route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu))))
    };
    let (interface, mtu_bytes) = find().unzip();
    PathFinding { to, interface, mtu_bytes: mtu_bytes.unwrap_or(0) }
}

/// Not fragmented: the kernel sends what fits the path's MTU with "don't fragment".
fn send_one(to: IpAddr, packet_bytes: u32) -> io::Result<()> {
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let payload = vec![0; packet_bytes.saturating_sub(headers) as usize];
    UdpSocket::bind((any_like(to), 0))?.send_to(&payload, (to, DISCARD)).map(|_| ())
}

/// Engines by what this process may do: trying them would attach programs, at which some cards reset their link.
fn engines() -> Vec<EngineFinding> {
    let conditions = Conditions {
        is_one_size: true,
        fits_mtu: true,
        raw_sockets: Capability::NetRaw.held(),
        bpf: Capability::Bpf.held() && Capability::NetAdmin.held(),
        root: Capability::SysAdmin.held(),
        real_interfaces: true,
        take_device: false,
    };
    let finding = |side: &str, name: &str, reason: Option<String>| EngineFinding {
        engine: format!("{side} {name}"),
        works: reason.is_none(),
        detail: reason.unwrap_or_else(|| "works".into()),
    };
    let each = traffic::engines().iter().flat_map(|engine| {
        let tx =
            engine.name.parse::<TxSpec>().ok().map(|it| finding("tx", engine.name, it.why_not(&conditions)));
        let rx =
            engine.name.parse::<RxSpec>().ok().map(|it| finding("rx", engine.name, it.why_not(&conditions)));
        [tx, rx].into_iter().flatten()
    });
    each.collect()
}

/// How the card chooses queues; `None` where its driver does not report it.
fn spread(interface: &str, index: u32) -> Option<Spread> {
    let rss = EthtoolNetlink::open().ok()?.rss(index).ok()?;
    let fields = EthtoolSocket::open().ok()?.hash_fields(interface, FlowType::Udp4).ok()?;
    let is_plain = rss.function.is_none_or(|function| function == TOEPLITZ) && rss.transform == 0;
    (is_plain && !rss.key.is_empty() && !rss.table.is_empty()).then_some(Spread {
        key: rss.key,
        table: rss.table,
        ports: fields & PORTS != 0,
    })
}

/// The address that packets to elsewhere leave from; nothing is sent.
fn usual_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 18, 0, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd};

    use sys::rtnetlink::{VethEnd, VethPair};
    use testing::Hosts;

    use super::*;

    #[test]
    fn a_router_with_a_narrower_link_is_found() {
        let Some(hosts) = Hosts::join() else { return };
        // Host B is a router to a third host by a link of 1280 bytes.
        let far = NetNs::create().unwrap();
        let pair = VethPair {
            near: VethEnd { name: "vc", mac: [2, 0, 0, 0, 0, 3] },
            far: VethEnd { name: "vd", mac: [2, 0, 0, 0, 0, 4] },
            far_namespace: far.as_fd(),
            queues: 1,
            mtu: 1280,
        };
        hosts.b.run(|| RouteSocket::open().unwrap().create_veth(&pair).unwrap()).unwrap();
        for (host, name, address) in [(&hosts.b, "vc", "198.19.0.1/24"), (&far, "vd", "198.19.0.2/24")] {
            hosts.ip(host, &format!("address add {address} dev {name}"));
            hosts.ip(host, &format!("link set {name} up"));
        }
        hosts.b.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap()).unwrap();
        hosts.ip(&hosts.a, "route add 198.19.0.0/24 via 198.18.0.2");
        let found = |to: &str, bytes| {
            let paths = find_paths(&[to.parse().unwrap()], bytes, Some(&hosts.a)).unwrap();
            let [path] = &paths[..] else { panic!("one path: {paths:?}") };
            (path.interface.clone(), path.mtu_bytes)
        };
        let by_va = |mtu| (Some("va".to_owned()), mtu);
        assert_eq!(found("198.18.0.2", 1500), by_va(1500));
        assert_eq!(found("198.19.0.2", 1280), by_va(1500), "it fits");
        testing::wait_for("the router's answer", || found("198.19.0.2", 1281) == by_va(1280));
        assert_eq!(found("203.0.113.1", 64), (None, 0));
    }
}
