//! The hardware interfaces that a run between hosts uses, with the settings that affect packet rates.

use std::net::{IpAddr, UdpSocket};

use measure::NicFacts;
use nic::{Card, NicError, Page};
use sys::rtnetlink::RouteSocket;
use traffic::{ReceiverPlan, SenderPlan};
use trial::any_like;

/// The source address of this host's packets to `target`; `None` without a route. Sends nothing.
fn local_address_towards(target: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((any_like(target), 0)).ok()?;
    socket.connect((target, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The hardware interfaces that have one of these addresses, or all of them when one is "any"; `role` is `tx`, `rx`
/// or `both`. Unreadable settings are left out, because a run must not fail for them.
fn read_interfaces(addresses: &[IpAddr], role: &str) -> Vec<NicFacts> {
    let Ok(mut route) = RouteSocket::open() else { return Vec::new() };
    let any = addresses.iter().any(IpAddr::is_unspecified);
    let links = route.links().unwrap_or_default().into_iter().filter(|link| link.operational);
    let mut used = Vec::new();
    for link in links {
        let own = route.addresses(link.index).unwrap_or_default();
        if any || own.iter().any(|own| addresses.contains(own)) {
            used.extend(read_interface(&link.name, role).ok().flatten());
        }
    }
    used
}

/// The interfaces of senders: the named one, or those of the routes to their targets.
pub fn sending_interfaces<'p>(plans: impl Iterator<Item = &'p SenderPlan>) -> Vec<NicFacts> {
    let (mut named, mut addresses) = (Vec::new(), Vec::new());
    for plan in plans {
        match &plan.traffic.interface {
            Some(interface) => named.push(interface.clone()),
            None => addresses.extend(
                plan.traffic.workers.iter().filter_map(|worker| local_address_towards(worker.target.ip())),
            ),
        }
    }
    named.sort();
    named.dedup();
    let named = named.iter().filter_map(|name| read_interface(name, "tx").ok().flatten());
    named.chain(read_interfaces(&addresses, "tx")).collect()
}

/// Interfaces by name, each with its role.
pub fn named_interfaces(named: &[(&str, &str)]) -> Vec<NicFacts> {
    named.iter().filter_map(|(name, role)| read_interface(name, role).ok().flatten()).collect()
}

/// The interfaces of a receiver.
pub fn receiving_interfaces(plan: &ReceiverPlan) -> Vec<NicFacts> {
    match &plan.traffic.interface {
        Some(interface) => read_interface(interface, "rx").ok().flatten().into_iter().collect(),
        None => read_interfaces(&[plan.traffic.local.ip()], "rx"),
    }
}

/// One interface by name; `None` when it is not hardware.
///
/// # Errors
/// When no such interface exists.
fn read_interface(name: &str, role: &str) -> Result<Option<NicFacts>, NicError> {
    let page = Page::read(&mut Card::open(name)?)?;
    Ok((!page.driver.bus.is_empty()).then(|| facts(&page, role)))
}

/// Settings under the names that the model's calibration reads, then all others under their own.
fn facts(page: &Page, role: &str) -> NicFacts {
    let known = [
        ("rx_ring", page.setting("ring.rx")),
        ("rx_usecs", page.setting("coalesce.rx-usecs")),
        ("rx_frames", page.setting("coalesce.rx-frames")),
        ("current_link_speed", page.pcie.as_ref().map(|pcie| pcie.current_link_speed.as_str())),
        ("current_link_width", page.pcie.as_ref().map(|pcie| pcie.current_link_width.as_str())),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let all = page.settings.settings.clone();
    NicFacts {
        name: page.interface.clone(),
        driver: page.driver.name.clone(),
        role: role.into(),
        mtu_bytes: page.link.mtu_bytes,
        rx_queues: page.link.rx_queues,
        tx_queues: page.link.tx_queues,
        speed_bps: page.link.speed_bps,
        settings: all.into_iter().chain(known).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_is_not_hardware_and_its_address_leads_to_itself() {
        let here = Ipv4Addr::LOCALHOST.into();
        assert_eq!(local_address_towards(here), Some(here));
        assert_eq!(read_interfaces(&[here], "both"), []);
        assert!(read_interface("lo", "rx").unwrap().is_none());
        assert!(read_interface("nope0", "rx").is_err());
    }
}
