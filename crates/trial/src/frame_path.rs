//! The path of whole frames to a receiver on another host: the interface, both hardware addresses and the tags, from the
//! kernel's own routes and neighbours.
//!
//! The kernel resolves and confirms neighbours; this module only triggers that and reads the result. Frames of a VLAN
//! interface leave through the interface below with the tag in the frame, and those of a bond through its active port.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sys::{
    NetlinkError,
    rtnetlink::{Link, Neighbour, Route, RouteKind, RouteQuestion, RouteSocket},
};
use thiserror::Error;
use traffic::TxTraffic;
use wire::{MacAddr, Template, VlanProtocol, VlanTag};

/// The longest time for a neighbour: the kernel sends three requests, a second apart, and may start late.
const PATIENCE: Duration = Duration::from_secs(5);
/// VLAN on bond on VLAN: no machine has more levels.
const MOST_LAYERS: usize = 8;
/// Bytes of the frame in front of the IP header, without tags.
const ETHERNET_BYTES: usize = 14;

/// Hardware addresses from the user; the kernel resolves the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GivenMacs {
    /// The source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<MacAddr>,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<MacAddr>,
}

/// The path of frames to a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FramePath {
    /// The interface whose driver gets the frames.
    pub interface: String,
    /// The interface's number.
    pub index: u32,
    /// The interface of the route; for VLANs and bonds it differs.
    pub route_interface: String,
    /// The source MAC address.
    pub src_mac: MacAddr,
    /// The next hop's.
    pub dst_mac: MacAddr,
    /// VLAN tags, outermost first.
    pub vlan: Vec<VlanTag>,
    /// The source address.
    pub local: IpAddr,
    /// The next hop: the receiver, or a router.
    pub next_hop: IpAddr,
    /// The largest IP packet in bytes.
    pub mtu: u32,
}

/// Why frames cannot reach a receiver.
#[derive(Debug, Error)]
pub enum FramePathError {
    /// The kernel has no route.
    #[error("no route to {target}{}", by(.interface.as_deref()))]
    NoRoute {
        /// The receiver.
        target: IpAddr,
        /// The requested interface.
        interface: Option<String>,
    },
    /// The receiver is this host.
    #[error("{target} is an address of this host, but whole frames need another host")]
    Local {
        /// The receiver.
        target: IpAddr,
    },
    /// A group of hosts.
    #[error("{target} is a broadcast or multicast address, but frames need a single receiver")]
    Many {
        /// The receiver.
        target: IpAddr,
    },
    /// A tunnel, a point-to-point link or the like.
    #[error("the route to {target} uses {interface}, which has no Ethernet header")]
    NotEthernet {
        /// The receiver.
        target: IpAddr,
        /// The route's interface.
        interface: String,
    },
    /// A card without a kernel driver has no neighbours.
    #[error("frames from the card of {interface} need the receiver's MAC address (--dst-mac)")]
    NoDestination {
        /// The card's interface.
        interface: String,
    },
    /// No source address fits.
    #[error("{interface} has no source address for {target}")]
    NoSource {
        /// The receiver.
        target: IpAddr,
        /// The route's interface.
        interface: String,
    },
    /// ARP or neighbour discovery got no reply.
    #[error("{next_hop} does not answer on {interface}: its MAC address is unknown")]
    NoNeighbour {
        /// The receiver or the router.
        next_hop: IpAddr,
        /// The route's interface.
        interface: String,
    },
    /// The tag of a VLAN interface.
    #[error("frames through {interface} would need more than two VLAN tags")]
    TooManyTags {
        /// The route's interface.
        interface: String,
    },
    /// A packet larger than the path's MTU.
    #[error("IP packets of {bytes} bytes are larger than the MTU {mtu} of the path to {target}")]
    TooLarge {
        /// The receiver.
        target: IpAddr,
        /// The largest packet.
        bytes: usize,
        /// The path's MTU.
        mtu: u32,
    },
    /// One sender, two paths.
    #[error("frames to {first} and {second} take different paths, but a sender must have one path")]
    SeveralPaths {
        /// A receiver.
        first: IpAddr,
        /// Another.
        second: IpAddr,
    },
    /// The packets' description.
    #[error(transparent)]
    Frames(#[from] wire::SpecError),
    /// A query to the kernel failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

fn by(interface: Option<&str>) -> String {
    interface.map(|interface| format!(" through {interface}")).unwrap_or_default()
}

impl FramePath {
    /// The path to `target` in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`FramePathError`].
    pub fn find(
        target: SocketAddr,
        bind: Option<IpAddr>,
        interface: Option<&str>,
        given: GivenMacs,
    ) -> Result<Self, FramePathError> {
        let mut kernel = RouteSocket::open()?;
        let to = target.ip();
        let asked = interface.map(|name| kernel.link_by_name(name)).transpose()?.map(|link| link.index);
        let scope = if let SocketAddr::V6(v6) = target { Some(v6.scope_id()) } else { None };
        let asked = asked.or(scope.filter(|scope| *scope > 0));
        let question = RouteQuestion { to, from: bind, interface: asked };
        let route = kernel.route(&question)?.filter(|route| route.kind != RouteKind::Refused);
        let route =
            route.ok_or(FramePathError::NoRoute { target: to, interface: interface.map(str::to_owned) })?;
        match route.kind {
            RouteKind::Local => return Err(FramePathError::Local { target: to }),
            RouteKind::Many => return Err(FramePathError::Many { target: to }),
            RouteKind::Unicast | RouteKind::Refused => {}
        }
        Self::along(&mut kernel, &route, (to, bind), given)
    }

    /// The path of a card that its sender takes from the kernel, to the other end of its cable: routes and neighbours do not
    /// matter. Packets have this host's address towards the target.
    ///
    /// # Errors
    /// [`FramePathError`].
    fn of_card(
        target: IpAddr,
        bind: Option<IpAddr>,
        interface: &str,
        given: GivenMacs,
    ) -> Result<Self, FramePathError> {
        let mut kernel = RouteSocket::open()?;
        let link = kernel.link_by_name(interface)?;
        let not_ethernet = || FramePathError::NotEthernet { target, interface: interface.into() };
        let own = link.mac.filter(|mac| *mac != [0; 6]).ok_or_else(not_ethernet)?;
        let no_mac = || FramePathError::NoDestination { interface: interface.into() };
        let no_source = || FramePathError::NoSource { target, interface: interface.into() };
        let source = match bind {
            Some(bind) => Some(bind),
            None => {
                let question = RouteQuestion { to: target, from: None, interface: None };
                kernel.route(&question)?.and_then(|route| route.source)
            }
        };
        Ok(Self {
            interface: interface.into(),
            index: link.index,
            route_interface: interface.into(),
            src_mac: given.src.unwrap_or(MacAddr(own)),
            dst_mac: given.dst.ok_or_else(no_mac)?,
            vlan: Vec::new(),
            local: source.ok_or_else(no_source)?,
            next_hop: target,
            mtu: link.mtu,
        })
    }

    fn along(
        kernel: &mut RouteSocket,
        route: &Route,
        (target, bind): (IpAddr, Option<IpAddr>),
        given: GivenMacs,
    ) -> Result<Self, FramePathError> {
        let link = kernel.link_by_index(route.interface)?;
        let interface = link.name.clone();
        let not_ethernet = || FramePathError::NotEthernet { target, interface: interface.clone() };
        let own = link.mac.filter(|mac| *mac != [0; 6]).ok_or_else(not_ethernet)?;
        let next_hop = route.gateway.unwrap_or(target);
        let dst_mac = match given.dst {
            Some(mac) => mac,
            None => resolve(kernel, &link, next_hop)?,
        };
        let local = bind
            .or(route.source)
            .ok_or_else(|| FramePathError::NoSource { target, interface: interface.clone() })?;
        let mtu = route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
        let (port, vlan) = port_below(kernel, link)?;
        if vlan.len() > 2 {
            return Err(FramePathError::TooManyTags { interface });
        }
        Ok(Self {
            interface: port.name,
            index: port.index,
            route_interface: interface,
            src_mac: given.src.unwrap_or(MacAddr(own)),
            dst_mac,
            vlan,
            local,
            next_hop,
            mtu,
        })
    }

    /// Puts the path into a sender's frames. Payloads do not change: tags make frames larger.
    ///
    /// # Errors
    /// [`FramePathError::TooLarge`], and tags in addition to the user's own.
    pub fn apply(&self, traffic: &mut TxTraffic) -> Result<(), FramePathError> {
        let own_tags = !traffic.frames.vlan.is_empty();
        if !self.vlan.is_empty() {
            if own_tags {
                return Err(FramePathError::TooManyTags { interface: self.route_interface.clone() });
            }
            traffic.frames.sizes = traffic.frames.sizes.behind((self.vlan.len() * VlanTag::LEN) as u32);
            traffic.frames.vlan.clone_from(&self.vlan);
        }
        traffic.interface = Some(self.interface.clone());
        (traffic.frames.src_mac, traffic.frames.dst_mac) = (self.src_mac, self.dst_mac);
        for worker in &mut traffic.workers {
            worker.local = (self.local, worker.local.port()).into();
        }
        let tags = traffic.frames.vlan.len() * VlanTag::LEN;
        let longest = Template::new(&traffic.frames)?.max_frame_len();
        let bytes = longest.saturating_sub(ETHERNET_BYTES + tags);
        if bytes > self.mtu as usize {
            let target = traffic.workers.first().map_or(self.next_hop, |worker| worker.target.ip());
            return Err(FramePathError::TooLarge { target, bytes, mtu: self.mtu });
        }
        Ok(())
    }
}

/// Puts the path of a card that its sender takes from the kernel into the workers' frames.
///
/// # Errors
/// [`FramePathError`].
pub(crate) fn give_way_of_card(
    traffic: &mut TxTraffic,
    interface: &str,
    given: GivenMacs,
) -> Result<FramePath, FramePathError> {
    let worker = &traffic.workers[0];
    let bound = Some(worker.local.ip()).filter(|address| !address.is_unspecified());
    let path = FramePath::of_card(worker.target.ip(), bound, interface, given)?;
    path.apply(traffic)?;
    Ok(path)
}

/// Finds the path of frames to the workers' targets, and puts it into their frames.
///
/// # Errors
/// [`FramePathError`].
pub(crate) fn give_way(
    traffic: &mut TxTraffic,
    interface: Option<&str>,
    given: GivenMacs,
) -> Result<FramePath, FramePathError> {
    let target_of = |at: usize| traffic.workers[at].target;
    let bound = Some(traffic.workers[0].local.ip()).filter(|address| !address.is_unspecified());
    let first = target_of(0);
    let path = FramePath::find(first, bound, interface, given)?;
    for other in (1..traffic.workers.len()).map(target_of).filter(|target| target.ip() != first.ip()) {
        let way = FramePath::find(other, bound, interface, given)?;
        if (&way.interface, way.dst_mac, &way.vlan, way.local)
            != (&path.interface, path.dst_mac, &path.vlan, path.local)
        {
            return Err(FramePathError::SeveralPaths { first: first.ip(), second: other.ip() });
        }
    }
    path.apply(traffic)?;
    Ok(path)
}

/// The next hop's hardware address, resolved by the kernel. A stale one is used and
/// confirmed again, as for the kernel's own packets.
fn resolve(kernel: &mut RouteSocket, link: &Link, next_hop: IpAddr) -> Result<MacAddr, FramePathError> {
    let index = link.index;
    let missing = || FramePathError::NoNeighbour { next_hop, interface: link.name.clone() };
    let known = kernel.neighbour(index, next_hop)?;
    let found = match known.filter(Neighbour::is_permanent) {
        Some(permanent) => Some(permanent),
        None => {
            kernel.use_neighbour(index, next_hop)?;
            kernel.wait_for_neighbour(index, next_hop, Instant::now() + PATIENCE)?
        }
    };
    let valid = found.filter(|neighbour| neighbour.is_valid());
    valid.and_then(|neighbour| neighbour.mac).map(MacAddr).ok_or_else(missing)
}

/// The interface whose driver sends the packets of `link`, and the tags that are added on the way.
fn port_below(kernel: &mut RouteSocket, link: Link) -> Result<(Link, Vec<VlanTag>), NetlinkError> {
    let mut at = link;
    let mut tags = Vec::new();
    for _ in 0..MOST_LAYERS {
        let below = match (at.vlan, at.lower, at.kind.as_deref()) {
            (Some((protocol, id)), Some(lower), _) => {
                let protocol = VlanProtocol::from_ethertype(protocol).unwrap_or(VlanProtocol::Customer);
                tags.insert(0, VlanTag::from_wire(protocol, id));
                Some(kernel.link_by_index(lower)?)
            }
            (_, _, Some("bond")) => match at.active_port {
                Some(port) => Some(kernel.link_by_index(port)?),
                // Every port sends: any of them will do.
                None => {
                    let ports = kernel.links()?;
                    ports.into_iter().find(|port| port.master == Some(at.index) && port.operational)
                }
            },
            _ => None,
        };
        match below {
            Some(below) => at = below,
            None => break,
        }
    }
    Ok((at, tags))
}

#[cfg(test)]
mod tests;
