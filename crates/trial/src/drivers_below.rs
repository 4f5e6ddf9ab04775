//! The interfaces whose drivers carry the packets of another one: the card below a VLAN, the ports of a bond or a bridge.

use sys::rtnetlink::{Link, RouteSocket};

/// Names of the interfaces at the bottom of `interface`, in the calling thread's namespace: itself where nothing is below it,
/// or where the kernel does not say.
pub(crate) fn drivers_below(interface: &str) -> Vec<String> {
    let links = RouteSocket::open().and_then(|mut kernel| kernel.links()).unwrap_or_default();
    let bottom = links.iter().find(|link| link.name == interface).map(|top| bottom_of(&links, top));
    let names: Vec<String> = bottom.into_iter().flatten().map(|link| link.name.clone()).collect();
    if names.is_empty() { vec![interface.to_owned()] } else { names }
}

fn bottom_of<'l>(links: &'l [Link], top: &'l Link) -> Vec<&'l Link> {
    let mut bottom = Vec::new();
    let mut visited = vec![top.index];
    let mut open = vec![top];
    while let Some(link) = open.pop() {
        let is_below = |other: &&Link| match link.kind.as_deref() {
            // A veth's lower link is its peer.
            Some("vlan" | "macvlan" | "ipvlan") => link.lower == Some(other.index),
            Some("bond" | "bridge" | "team") => other.master == Some(link.index),
            _ => false,
        };
        let below: Vec<&Link> = links.iter().filter(is_below).collect();
        if below.is_empty() {
            bottom.push(link);
        }
        for other in below {
            if !visited.contains(&other.index) {
                visited.push(other.index);
                open.push(other);
            }
        }
    }
    bottom.sort_by_key(|link| link.index);
    bottom
}

#[cfg(test)]
mod tests {
    use sys::rtnetlink::LinkStats;

    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>, lower: Option<u32>, master: Option<u32>) -> Link {
        Link {
            index,
            name: name.into(),
            flags: 0,
            operational: true,
            mac: None,
            mtu: 1500,
            tx_queues: 1,
            rx_queues: 1,
            kind: kind.map(str::to_owned),
            lower,
            master,
            vlan: None,
            active_port: None,
            stats: LinkStats::default(),
        }
    }

    #[test]
    fn a_vlan_on_a_bond_has_the_drivers_of_the_bonds_ports() {
        let links = [
            link(2, "eth0", None, None, Some(4)),
            link(3, "eth1", None, None, Some(4)),
            link(4, "bond0", Some("bond"), None, None),
            link(5, "bond0.7", Some("vlan"), Some(4), None),
            link(6, "va", Some("veth"), Some(7), None),
            link(7, "sa", Some("veth"), Some(6), Some(8)),
            link(8, "br0", Some("bridge"), None, None),
            link(9, "bond1", Some("bond"), None, None),
        ];
        for (top, expected) in [
            (5, vec!["eth0", "eth1"]),
            (4, vec!["eth0", "eth1"]),
            (2, vec!["eth0"]),
            (6, vec!["va"]),
            (8, vec!["sa"]),
            (9, vec!["bond1"]),
        ] {
            let top = links.iter().find(|link| link.index == top).unwrap();
            let names: Vec<&str> = bottom_of(&links, top).iter().map(|link| link.name.as_str()).collect();
            assert_eq!(names, expected, "{}", top.name);
        }
    }
}
