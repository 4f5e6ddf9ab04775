//! rtnetlink: links, addresses and neighbours of one network namespace.
//!
//! Formats: rtnetlink(7), `linux/if_link.h`, `linux/if_addr.h`, `linux/neighbour.h`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

use crate::netlink::{Attributes, NetlinkError, Refusal, Request, Socket, field};

mod link;
mod qdisc;
mod route;
mod xdp;

use link::link_header;
pub use link::{Link, LinkStats};
pub use qdisc::{NewQdisc, Qdisc};
pub use route::{Neighbour, Route, RouteKind, RouteQuestion};

/// A routing socket in the namespace of the thread that opened it; from there any thread may use it.
#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
}

/// Flags of a link, out of `IFF_*` in `linux/if.h`.
pub mod flag {
    /// Put up by the administrator.
    pub const UP: u32 = libc::IFF_UP as u32;
    /// Resolves no hardware addresses: neither by ARP nor by neighbour discovery.
    pub const NO_ARP: u32 = libc::IFF_NOARP as u32;
    /// Accepts packets for every hardware address.
    pub const PROMISCUOUS: u32 = libc::IFF_PROMISC as u32;
}

/// Two ends of a virtual cable to be created.
#[derive(Debug)]
pub struct VethPair<'a> {
    /// The end in the socket's own namespace.
    pub near: VethEnd<'a>,
    /// The other end.
    pub far: VethEnd<'a>,
    /// The namespace of the other end.
    pub far_namespace: BorrowedFd<'a>,
    /// Transmit queues and receive queues of either end.
    pub queues: u32,
    /// Largest packet in bytes, without the Ethernet header, of either end.
    pub mtu: u32,
}

/// One end of a [`VethPair`].
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// At most 15 bytes.
    pub name: &'a str,
    /// The hardware address.
    pub mac: [u8; 6],
}

impl RouteSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Socket::open(libc::NETLINK_ROUTE).map(|socket| Self { socket })
    }

    /// Creates a veth pair; both ends are down.
    pub fn create_veth(&mut self, pair: &VethPair<'_>) -> Result<(), NetlinkError> {
        let object = format!("veth pair {} and {}", pair.near.name, pair.far.name);
        self.ask(veth_request(pair), "create", object)
    }

    /// Creates a plain bridge: no spanning tree, and no multicast queries.
    pub fn create_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.ask(bridge_request(name), "create", format!("bridge {name}"))
    }

    /// Makes a link a port of a bridge.
    pub fn add_to_bridge(&mut self, index: u32, bridge: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0));
        request.u32(libc::IFLA_MASTER, bridge);
        self.ask(request, "add to a bridge", number(index))
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &link_header(0, 0, 0));
        let mut links = Vec::new();
        self.socket
            .ask(request, |body| links.extend(Link::parse(body)))
            .map_err(|refusal| refusal.of("list", "the network interfaces"))?;
        Ok(links)
    }

    /// The link of this name.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut request = Request::new(libc::RTM_GETLINK, 0, &link_header(0, 0, 0));
        request.string(libc::IFLA_IFNAME, name);
        self.one_link(request, format!("interface {name}"))
    }

    /// The link of this number.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, NetlinkError> {
        self.one_link(Request::new(libc::RTM_GETLINK, 0, &link_header(index, 0, 0)), number(index))
    }

    /// Sets the link's flags in `mask` to `on`; both consist of [`flag`].
    pub fn change_flags(&mut self, index: u32, on: u32, mask: u32) -> Result<(), NetlinkError> {
        let header = link_header(index, on, mask);
        self.ask(Request::new(libc::RTM_NEWLINK, 0, &header), "change the flags of", number(index))
    }

    /// Waits until the link can carry packets, or until `deadline`; returns whether it can.
    ///
    /// The kernel starts a link's queues some time after both ends are up; earlier packets are dropped.
    pub fn wait_until_up(&mut self, index: u32, deadline: Instant) -> Result<bool, NetlinkError> {
        let changes = Changes { group: libc::RTNLGRP_LINK, of: "network interfaces" };
        self.wait(changes, deadline, |route| Ok(route.link_by_index(index)?.operational))
    }

    /// Waits until the namespace accepts packets for `address`, or until `deadline`; returns whether it does.
    ///
    /// The kernel adds the local route of an IPv6 address some time after the address, in a background worker;
    /// earlier packets are dropped.
    pub fn wait_until_local(&mut self, address: IpAddr, deadline: Instant) -> Result<bool, NetlinkError> {
        let changes = Changes { group: libc::RTNLGRP_IPV6_ROUTE, of: "routes" };
        self.wait(changes, deadline, |route| route.is_local(address))
    }

    fn is_local(&mut self, address: IpAddr) -> Result<bool, NetlinkError> {
        let mut kind = None;
        match self.socket.ask(route_request(address), |body| kind = route_type(body)) {
            Err(refusal) if refusal.source.kind() != io::ErrorKind::NetworkUnreachable => {
                Err(refusal.of("find the route to", address.to_string()))
            }
            _ => Ok(kind == Some(libc::RTN_LOCAL)),
        }
    }

    fn wait(
        &mut self,
        changes: Changes,
        deadline: Instant,
        mut met: impl FnMut(&mut Self) -> Result<bool, NetlinkError>,
    ) -> Result<bool, NetlinkError> {
        let failed = |source: io::Error| Refusal::from(source).of("wait for changes of", changes.of);
        let group = changes.group as libc::c_int;
        // Subscribes before reading, so that no change in between is missed.
        self.socket.set_option(libc::NETLINK_ADD_MEMBERSHIP, group).map_err(failed)?;
        let outcome = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match met(self) {
                Ok(false) if !left.is_zero() => self.socket.wait(left).map_err(failed)?,
                outcome => break outcome,
            }
        };
        self.socket.set_option(libc::NETLINK_DROP_MEMBERSHIP, group).map_err(failed)?;
        outcome
    }

    /// Keeps the kernel from generating an IPv6 address for the link; call it while the link is down.
    pub fn disable_address_generation(&mut self, index: u32) -> Result<(), NetlinkError> {
        const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
        const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0));
        request.nested(libc::IFLA_AF_SPEC, |request| {
            request.nested(libc::AF_INET6 as u16, |request| {
                request.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        self.ask(request, "disable IPv6 address generation on", number(index))
    }

    /// Adds an address without duplicate address detection; see [`RouteSocket::wait_until_local`].
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<(), NetlinkError> {
        let object = format!("address {address}/{prefix} to {}", number(index));
        self.ask(address_request(index, address, prefix), "add", object)
    }

    /// Removes an address.
    pub fn delete_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<(), NetlinkError> {
        let object = format!("address {address}/{prefix} of {}", number(index));
        self.ask(address_message(libc::RTM_DELADDR, 0, index, address, prefix), "delete", object)
    }

    /// Moves a link to another namespace, where it is down and without addresses. A namespace that ends returns
    /// hardware back to the machine's initial one.
    pub fn move_to(&mut self, index: u32, namespace: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0));
        request.u32(libc::IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
        self.ask(request, "move", format!("{} to another namespace", number(index)))
    }

    /// The addresses of an interface.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<IpAddr>, NetlinkError> {
        // Length of `struct ifaddrmsg`: all zeros request everything.
        let request = Request::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; ADDRESS_HEADER]);
        let mut addresses = Vec::new();
        self.socket
            .ask(request, |body| addresses.extend(address_of(body, index)))
            .map_err(|refusal| refusal.of("list the addresses of", number(index)))?;
        Ok(addresses)
    }

    /// Adds a permanent neighbour.
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> Result<(), NetlinkError> {
        let object = format!("neighbour {address} to {}", number(index));
        self.ask(neighbour_request(index, address, mac), "add", object)
    }

    /// Moves a link into another namespace, where it is down and has no addresses. Needs CAP_NET_ADMIN there too.
    ///
    /// When that namespace ends, the kernel moves hardware back to the initial one and deletes the rest.
    pub fn move_link(&mut self, index: u32, to: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        self.ask(move_request(index, to), "move", number(index))
    }

    /// Gives a link another name; it must be down.
    pub fn rename_link(&mut self, index: u32, name: &str) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0));
        request.string(libc::IFLA_IFNAME, name);
        self.ask(request, "rename", number(index))
    }

    /// Sets the largest packet of a link, without the link's own header.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0));
        request.u32(libc::IFLA_MTU, mtu);
        self.ask(request, "set the MTU of", number(index))
    }

    /// Deletes a link; the peer of a veth is deleted too.
    pub fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.ask(Request::new(libc::RTM_DELLINK, 0, &link_header(index, 0, 0)), "delete", number(index))
    }

    fn ask(&mut self, request: Request, action: &'static str, object: String) -> Result<(), NetlinkError> {
        self.socket.ask(request, |_| ()).map_err(|refusal| refusal.of(action, object))
    }

    fn one_link(&mut self, request: Request, object: String) -> Result<Link, NetlinkError> {
        let mut link = None;
        match self.socket.ask(request, |body| link = Link::parse(body)) {
            Ok(()) => link.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into()),
            Err(refusal) => Err(refusal),
        }
        .map_err(|refusal| refusal.of("read", object))
    }
}

/// A multicast group of rtnetlink, and the objects whose changes it reports.
#[derive(Clone, Copy)]
struct Changes {
    group: libc::c_uint,
    of: &'static str,
}

fn number(index: u32) -> String {
    format!("interface number {index}")
}

const CREATE: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

fn veth_request(pair: &VethPair<'_>) -> Request {
    const VETH_INFO_PEER: u16 = 1;
    let either_end = |request: &mut Request, end: VethEnd<'_>| {
        request.string(libc::IFLA_IFNAME, end.name);
        request.attribute(libc::IFLA_ADDRESS, &end.mac);
        request.u32(libc::IFLA_MTU, pair.mtu);
        request.u32(libc::IFLA_NUM_TX_QUEUES, pair.queues);
        request.u32(libc::IFLA_NUM_RX_QUEUES, pair.queues);
    };
    let mut request = Request::new(libc::RTM_NEWLINK, CREATE, &link_header(0, 0, 0));
    either_end(&mut request, pair.near);
    request.nested(libc::IFLA_LINKINFO, |request| {
        request.string(libc::IFLA_INFO_KIND, "veth");
        request.nested(libc::IFLA_INFO_DATA, |request| {
            request.nested(VETH_INFO_PEER, |request| {
                request.raw(&link_header(0, 0, 0));
                either_end(request, pair.far);
                request.u32(libc::IFLA_NET_NS_FD, pair.far_namespace.as_raw_fd() as u32);
            });
        });
    });
    request
}

fn bridge_request(name: &str) -> Request {
    const IFLA_BR_MCAST_SNOOPING: u16 = 23;
    let mut request = Request::new(libc::RTM_NEWLINK, CREATE, &link_header(0, 0, 0));
    request.string(libc::IFLA_IFNAME, name);
    request.nested(libc::IFLA_LINKINFO, |request| {
        request.string(libc::IFLA_INFO_KIND, "bridge");
        request.nested(libc::IFLA_INFO_DATA, |request| request.attribute(IFLA_BR_MCAST_SNOOPING, &[0]));
    });
    request
}

fn move_request(index: u32, to: BorrowedFd<'_>) -> Request {
    let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0, 0));
    request.u32(libc::IFLA_NET_NS_FD, to.as_raw_fd() as u32);
    request
}

/// `struct ifaddrmsg`: family, prefix length, flags, scope, index; then the address.
fn address_request(index: u32, address: IpAddr, prefix: u8) -> Request {
    address_message(libc::RTM_NEWADDR, CREATE, index, address, prefix)
}

fn address_message(kind: u16, how: libc::c_int, index: u32, address: IpAddr, prefix: u8) -> Request {
    let flags = libc::IFA_F_NODAD as u8;
    let [a, b, c, d] = index.to_ne_bytes();
    let header = [family(address), prefix, flags, libc::RT_SCOPE_UNIVERSE, a, b, c, d];
    let mut request = Request::new(kind, how, &header);
    request.attribute(libc::IFA_LOCAL, &octets(address));
    request.attribute(libc::IFA_ADDRESS, &octets(address));
    request
}

/// Length of `struct ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;

/// The address in a message, when it is one of this interface.
fn address_of(body: &[u8], index: u32) -> Option<IpAddr> {
    let attributes = Attributes(body.get(ADDRESS_HEADER..)?);
    if u32::from_ne_bytes(field(body, 4)?) != index {
        return None;
    }
    // On a point-to-point link IFA_ADDRESS is the peer's address.
    let octets = attributes.find(libc::IFA_LOCAL).or_else(|| attributes.find(libc::IFA_ADDRESS))?;
    match octets.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?)),
    }
}

/// `struct ndmsg`: family, 3 bytes of padding, index, state u16, flags, type.
fn neighbour_header(index: u32, address: IpAddr, state: u16, flags: u8) -> [u8; 12] {
    let [a, b, c, d] = index.to_ne_bytes();
    let [low, high] = state.to_ne_bytes();
    [family(address), 0, 0, 0, a, b, c, d, low, high, flags, 0]
}

/// A neighbour's address and MAC after its header.
fn neighbour_request(index: u32, address: IpAddr, mac: [u8; 6]) -> Request {
    let header = neighbour_header(index, address, libc::NUD_PERMANENT, 0);
    let mut request = Request::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &header);
    request.attribute(libc::NDA_DST, &octets(address));
    request.attribute(libc::NDA_LLADDR, &mac);
    request
}

/// `struct rtmsg`: family, length of the destination, then ten bytes that a request leaves 0.
fn route_request(address: IpAddr) -> Request {
    let octets = octets(address);
    let mut header = [0; 12];
    header[0] = family(address);
    header[1] = octets.len() as u8 * 8;
    let mut request = Request::new(libc::RTM_GETROUTE, 0, &header);
    request.attribute(libc::RTA_DST, &octets);
    request
}

/// The type of route in an answer, in `struct rtmsg`.
fn route_type(body: &[u8]) -> Option<u8> {
    body.get(7).copied()
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    family as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests;
