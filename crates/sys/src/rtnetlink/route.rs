//! How the kernel would send to an address: the route, the next hop's hardware address, the port behind a virtual interface.
//!
//! Formats: rtnetlink(7), `linux/rtnetlink.h`, `linux/neighbour.h`, `linux/if_link.h`.

use std::io;
use std::net::IpAddr;
use std::time::Instant;

use super::{Changes, RouteSocket, family, neighbour_header, number, octets};
use crate::netlink::{Attributes, NetlinkError, Request, field};

/// A route lookup for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteQuestion {
    /// The destination.
    pub to: IpAddr,
    /// The source address, if routing rules depend on it.
    pub from: Option<IpAddr>,
    /// The number of the outgoing interface; `None` lets routing choose.
    pub interface: Option<u32>,
}

/// The route that the kernel takes to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The fate of packets.
    pub kind: RouteKind,
    /// The number of the outgoing interface.
    pub interface: u32,
    /// The router; `None` if the destination itself is the next hop.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// The largest packet in bytes if the route or path MTU discovery sets less than the interface's MTU.
    pub mtu: Option<u32>,
}

/// The fate of packets on a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// They go to the next hop.
    Unicast,
    /// They are for this host.
    Local,
    /// They are for many hosts: broadcast, anycast or multicast.
    Many,
    /// They are refused: blackhole, unreachable or prohibit.
    Refused,
}

/// The kernel's entry of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its hardware address, if it is known and an Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*` of `linux/neighbour.h`.
    state: u16,
}

impl Neighbour {
    /// Whether the kernel would send to this address now: confirmed, permanent, or stale and about to be confirmed again.
    pub fn is_valid(&self) -> bool {
        const VALID: u16 = libc::NUD_PERMANENT
            | libc::NUD_NOARP
            | libc::NUD_REACHABLE
            | libc::NUD_PROBE
            | libc::NUD_STALE
            | libc::NUD_DELAY;
        self.state & VALID != 0 && self.mac.is_some()
    }

    /// Whether an administrator set it: the kernel never resolves it.
    pub fn is_permanent(&self) -> bool {
        self.state & libc::NUD_PERMANENT != 0
    }

    /// Whether resolution failed without an answer.
    pub fn has_failed(&self) -> bool {
        self.state & libc::NUD_FAILED != 0
    }
}

impl RouteSocket {
    /// The route to an address; `None` if there is none.
    pub fn route(&mut self, question: &RouteQuestion) -> Result<Option<Route>, NetlinkError> {
        let mut route = None;
        match self.socket.ask(question.request(), |body| route = Route::parse(body)) {
            Ok(()) => Ok(route),
            Err(refusal) => match refusal.source.raw_os_error() {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => Ok(None),
                _ => Err(refusal.of("find the route to", question.to.to_string())),
            },
        }
    }

    /// The kernel's entry of a neighbour; `None` without one.
    pub fn neighbour(&mut self, index: u32, address: IpAddr) -> Result<Option<Neighbour>, NetlinkError> {
        let mut request = Request::new(libc::RTM_GETNEIGH, 0, &neighbour_header(index, address, 0, 0));
        request.attribute(libc::NDA_DST, &octets(address));
        let mut found = None;
        match self.socket.ask(request, |body| found = Neighbour::parse(body)) {
            Err(refusal) if refusal.source.kind() != io::ErrorKind::NotFound => {
                Err(refusal.of("look up", format!("the neighbour {address} on {}", number(index))))
            }
            _ => Ok(found),
        }
    }

    /// Makes the kernel resolve a neighbour's hardware address, or confirm a stale one, as a packet to it would. Needs
    /// CAP_NET_ADMIN. Not for a permanent entry: since Linux 5.16 this ends its permanence (`__neigh_update` in
    /// net/core/neighbour.c).
    pub fn use_neighbour(&mut self, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let header = neighbour_header(index, address, 0, NTF_USE);
        let mut request = Request::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE, &header);
        request.attribute(libc::NDA_DST, &octets(address));
        self.ask(request, "resolve", format!("the neighbour {address} on {}", number(index)))
    }

    /// The neighbour once resolution has succeeded or failed, or at `deadline`.
    pub fn wait_for_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        deadline: Instant,
    ) -> Result<Option<Neighbour>, NetlinkError> {
        let changes = Changes { group: libc::RTNLGRP_NEIGH, of: "neighbours" };
        let mut found = None;
        self.wait(changes, deadline, |route| {
            found = route.neighbour(index, address)?;
            Ok(found.is_some_and(|neighbour| neighbour.is_valid() || neighbour.has_failed()))
        })?;
        Ok(found)
    }
}

/// `NTF_USE` of `linux/neighbour.h`.
const NTF_USE: u8 = 1;

/// Length of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;

/// Length of `struct ndmsg`.
const NEIGHBOUR_HEADER: usize = 12;

impl RouteQuestion {
    /// `struct rtmsg`: family, lengths of destination and source, then fields that a request leaves 0.
    fn request(&self) -> Request {
        let bits = |address: IpAddr| octets(address).len() as u8 * 8;
        let mut header = [0; ROUTE_HEADER];
        (header[0], header[1]) = (family(self.to), bits(self.to));
        header[2] = self.from.map_or(0, bits);
        let mut request = Request::new(libc::RTM_GETROUTE, 0, &header);
        request.attribute(libc::RTA_DST, &octets(self.to));
        if let Some(from) = self.from {
            request.attribute(libc::RTA_SRC, &octets(from));
        }
        if let Some(interface) = self.interface {
            request.u32(libc::RTA_OIF, interface);
        }
        request
    }
}

impl Route {
    fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body.get(ROUTE_HEADER..)?);
        let kind = match body[7] {
            libc::RTN_UNICAST => RouteKind::Unicast,
            libc::RTN_LOCAL => RouteKind::Local,
            libc::RTN_BROADCAST | libc::RTN_ANYCAST | libc::RTN_MULTICAST => RouteKind::Many,
            _ => RouteKind::Refused,
        };
        let metrics = attributes.find(libc::RTA_METRICS).map(Attributes);
        Some(Self {
            kind,
            interface: attributes.u32(libc::RTA_OIF).unwrap_or(0),
            gateway: attributes.find(libc::RTA_GATEWAY).and_then(address).or_else(|| {
                // `struct rtvia`: a router of the other version of IP; its family, then its address.
                attributes.find(RTA_VIA).and_then(|via| address(via.get(2..)?))
            }),
            source: attributes.find(libc::RTA_PREFSRC).and_then(address),
            mtu: metrics.and_then(|metrics| metrics.u32(RTAX_MTU)).filter(|mtu| *mtu > 0),
        })
    }
}

/// `RTAX_MTU` of `linux/rtnetlink.h`.
const RTAX_MTU: u16 = 2;
/// The same number with every C library; the `libc` crate has it for glibc only.
const RTA_VIA: u16 = 18;

impl Neighbour {
    fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body.get(NEIGHBOUR_HEADER..)?);
        Some(Self {
            state: u16::from_ne_bytes(field(body, 8)?),
            mac: attributes.find(libc::NDA_LLADDR).and_then(|mac| mac.try_into().ok()),
        })
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?)),
    }
}

#[cfg(test)]
mod tests;
