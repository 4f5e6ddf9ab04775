//! What an agent says of its own machine, read in the network namespace that its packets use.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use nic::{Card, Page};
use sys::{
    capability::Capability,
    ethtool::{EthtoolNetlink, EthtoolSocket, FlowType},
    netns::NetNs,
    rtnetlink::RouteSocket,
};

use traffic::{Conditions, RxSpec, TxSpec};

use crate::message::{Description, EngineFinding, Spread};

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
