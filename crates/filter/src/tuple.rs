//! Filters that test only addresses, protocols and ports: a table can look up a thousand of them at once.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use crate::{
    ast::{Direction, Id, IdKind, Link, Node, Primitive, Protocol, Qualifiers},
    lexer::Dotted,
    names::{Context, shifted},
};

/// Conditions that must all hold for a packet.
///
/// Rules apply to frames without a VLAN tag that hold the headers they test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TupleRule {
    /// IPv6 packets; else IPv4 packets.
    pub v6: bool,
    /// The protocol over IP; `None`: any.
    pub protocol: Option<u8>,
    /// The source address.
    pub src: Prefix,
    /// The destination address.
    pub dst: Prefix,
    /// Source ports; `None`: any, and packets without ports. A packet has ports when it is TCP, UDP or SCTP and no
    /// later fragment.
    pub src_ports: Option<RangeInclusive<u16>>,
    /// Destination ports.
    pub dst_ports: Option<RangeInclusive<u16>>,
}

/// An address prefix; length 0 matches every address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Bits of the address, the highest first; those behind the prefix are 0, and so are an IPv4 address's last 96.
    pub bits: u128,
    /// Prefix length.
    pub len: u8,
}

/// A filter that needs more rules does not suit a table.
const MOST_RULES: usize = 64;
/// After an IPv6 header it hides the packet's protocol.
const FRAGMENT: u8 = 44;
const PROTOCOLS_WITH_PORTS: [u8; 3] = [6, 17, 132];

impl TupleRule {
    /// Whether IPv6 packets with a fragment header before this protocol match too.
    pub fn follows_fragment_header(&self) -> bool {
        self.v6 && self.protocol.is_some() && self.src_ports.is_none() && self.dst_ports.is_none()
    }
}

impl Prefix {
    const ANY: Self = Self { bits: 0, len: 0 };

    /// The address.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { Ipv6Addr::from(self.bits).into() } else { Ipv4Addr::from((self.bits >> 96) as u32).into() }
    }

    /// Whether an address, in the same bit layout, has this prefix.
    pub fn contains(&self, bits: u128) -> bool {
        (bits ^ self.bits).leading_zeros() >= u32::from(self.len)
    }

    fn both(self, other: Self) -> Option<Self> {
        let (short, long) = if self.len <= other.len { (self, other) } else { (other, self) };
        short.contains(long.bits).then_some(long)
    }
}

/// The kind of packet that has the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    Ipv4,
    Ipv6,
    Arp,
    Rarp,
}

/// A conjunction that applies to any kind of packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tuple {
    family: Family,
    protocol: Option<u8>,
    /// By source and destination.
    prefixes: [Prefix; 2],
    ports: [Option<(u16, u16)>; 2],
}

/// A disjunction of conjunctions: an expression that tests only addresses, protocols and ports.
#[derive(Debug, Clone)]
pub(crate) struct Conjunctions(Vec<Tuple>);

impl Conjunctions {
    /// From an expression that tests nothing else.
    pub(crate) fn of(node: Option<&Node>, context: Context<'_>) -> Option<Self> {
        any_of(node?, context).map(Self)
    }

    /// The conjunction of both, multiplied out; `None` when it has too many terms.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        distinct(pairs(&self.0, &other.0)).map(Self)
    }

    /// As rules; `None` when a term tests something else, or beyond 64 rules.
    pub(crate) fn rules(&self) -> Option<Vec<TupleRule>> {
        let rules: Option<Vec<_>> = self.0.iter().map(Tuple::rule).collect();
        rules.filter(|rules| rules.len() <= MOST_RULES)
    }
}

impl Tuple {
    fn any(family: Family) -> Self {
        Self { family, protocol: None, prefixes: [Prefix::ANY; 2], ports: [None; 2] }
    }

    fn both(&self, other: &Self) -> Option<Self> {
        let [src, dst] = [0, 1].map(|side| self.prefixes[side].both(other.prefixes[side]));
        let protocol = match (self.protocol, other.protocol) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let mut ports = self.ports;
        for (ports, other) in ports.iter_mut().zip(other.ports) {
            *ports = match (*ports, other) {
                (Some((a, b)), Some((c, d))) => {
                    Some((a.max(c), b.min(d))).filter(|(first, last)| first <= last)?.into()
                }
                (ports, other) => ports.or(other),
            };
        }
        (self.family == other.family)
            .then_some(())
            .and_then(|()| Some(Self { family: self.family, protocol, prefixes: [src?, dst?], ports }))
    }

    fn rule(&self) -> Option<TupleRule> {
        let v6 = match self.family {
            Family::Ipv4 => false,
            Family::Ipv6 => true,
            Family::Arp | Family::Rarp => return None,
        };
        let [src, dst] = self.prefixes;
        let [src_ports, dst_ports] = self.ports.map(|ports| ports.map(|(first, last)| first..=last));
        Some(TupleRule { v6, protocol: self.protocol, src, dst, src_ports, dst_ports })
    }
}

/// The terms of the disjunction.
fn any_of(node: &Node, context: Context<'_>) -> Option<Vec<Tuple>> {
    match node {
        Node::Not(_) => None,
        Node::Leaf(Primitive::Protocol(protocol), _) => of_protocol(*protocol),
        Node::Leaf(Primitive::Match(qualifiers, id), _) => of_id(*qualifiers, id, context),
        Node::Leaf(..) => None,
        Node::Chain(first, rest) => {
            let mut tuples = any_of(first, context)?;
            for (link, node) in rest {
                let more = any_of(node, context)?;
                tuples = distinct(match link {
                    Link::Or => [tuples, more].concat(),
                    Link::And => pairs(&tuples, &more),
                })?;
            }
            Some(tuples)
        }
    }
}

/// Merges each pair of conjunctions that does not contradict itself; stops when there are too many.
fn pairs(some: &[Tuple], more: &[Tuple]) -> Vec<Tuple> {
    let pairs = some.iter().flat_map(|one| more.iter().filter_map(|other| one.both(other)));
    pairs.take(4 * MOST_RULES + 1).collect()
}

/// Without duplicates; `None` when there are too many.
fn distinct(mut tuples: Vec<Tuple>) -> Option<Vec<Tuple>> {
    let mut known = HashSet::new();
    tuples.retain(|tuple| known.insert(tuple.clone()));
    (tuples.len() <= 4 * MOST_RULES).then_some(tuples)
}

fn of_protocol(protocol: Protocol) -> Option<Vec<Tuple>> {
    let over = |families: &[Family], number| Some(numbered(families, number));
    let both = &[Family::Ipv4, Family::Ipv6];
    match protocol {
        Protocol::Ip => Some(vec![Tuple::any(Family::Ipv4)]),
        Protocol::Ip6 => Some(vec![Tuple::any(Family::Ipv6)]),
        Protocol::Arp => Some(vec![Tuple::any(Family::Arp)]),
        Protocol::Rarp => Some(vec![Tuple::any(Family::Rarp)]),
        Protocol::Tcp => over(both, 6),
        Protocol::Udp => over(both, 17),
        Protocol::Sctp => over(both, 132),
        Protocol::Pim => over(both, 103),
        Protocol::Ah => over(both, 51),
        Protocol::Esp => over(both, 50),
        Protocol::Icmp => over(&[Family::Ipv4], 1),
        Protocol::Igmp => over(&[Family::Ipv4], 2),
        Protocol::Igrp => over(&[Family::Ipv4], 9),
        Protocol::Vrrp | Protocol::Carp => over(&[Family::Ipv4], 112),
        Protocol::Icmp6 => over(&[Family::Ipv6], 58),
        _ => None,
    }
}

fn numbered(families: &[Family], number: u8) -> Vec<Tuple> {
    families.iter().map(|family| Tuple { protocol: Some(number), ..Tuple::any(*family) }).collect()
}

fn of_id(with: Qualifiers, id: &Id, context: Context<'_>) -> Option<Vec<Tuple>> {
    match with.kind {
        None | Some(IdKind::Host | IdKind::Net) => of_address(with, id, context),
        Some(IdKind::Port | IdKind::PortRange) => of_ports(with, id, context),
        Some(IdKind::Proto) => {
            let families: &[_] = match with.protocol {
                None => &[Family::Ipv4, Family::Ipv6],
                Some(Protocol::Ip) => &[Family::Ipv4],
                Some(Protocol::Ip6) => &[Family::Ipv6],
                Some(_) => return None,
            };
            let number = match id {
                Id::Number(number) => u8::try_from(*number).ok()?,
                Id::Name(name) => context.names.protocol(name)?,
                _ => return None,
            };
            (number != FRAGMENT).then(|| numbered(families, number))
        }
        Some(IdKind::ProtoChain | IdKind::Gateway | IdKind::Set) => None,
    }
}

fn of_address(with: Qualifiers, id: &Id, context: Context<'_>) -> Option<Vec<Tuple>> {
    let v4 = |address: u32, mask: u32| {
        let len = mask.leading_ones();
        (mask.count_ones() == len)
            .then(|| (false, Prefix { bits: u128::from(address & mask) << 96, len: len as u8 }))
    };
    let v6 = |bits, len| Some((true, Prefix { bits, len }));
    let dotted = |dotted: Dotted| (dotted.value << (32 - dotted.bits), u32::MAX << (32 - dotted.bits));
    let prefixes = match id {
        Id::Number(number) if with.kind == Some(IdKind::Net) => {
            let (address, mask) = shifted(*number);
            vec![v4(address, mask)?]
        }
        Id::Number(number) => vec![v4(*number, u32::MAX)?],
        Id::Dotted(address) => vec![v4(dotted(*address).0, dotted(*address).1)?],
        Id::DottedPrefix(address, len) => {
            vec![v4(dotted(*address).0, u32::MAX.checked_shl(32 - len).unwrap_or(0))?]
        }
        Id::DottedMask(address, mask) => vec![v4(dotted(*address).0, dotted(*mask).0)?],
        Id::Ipv6(address) => vec![v6(address.to_bits(), 128)?],
        Id::Ipv6Prefix(address, len) => vec![v6(address.to_bits(), *len as u8)?],
        Id::Name(name) if with.kind == Some(IdKind::Net) => {
            let (address, mask) = context.names.network(name)?;
            vec![v4(address.to_bits(), mask.to_bits())?]
        }
        Id::Name(name) => {
            let addresses = context.names.host(name).into_iter().map(|address| match address {
                IpAddr::V4(address) => v4(address.to_bits(), u32::MAX),
                IpAddr::V6(address) => v6(address.to_bits(), 128),
            });
            addresses.collect::<Option<_>>()?
        }
        Id::Mac(_) => return None,
    };
    let mut tuples = Vec::new();
    for (is_v6, prefix) in prefixes {
        let families: &[_] = match (is_v6, with.protocol) {
            (true, None | Some(Protocol::Ip6)) => &[Family::Ipv6],
            (false, None) => &[Family::Ipv4, Family::Arp, Family::Rarp],
            (false, Some(Protocol::Ip)) => &[Family::Ipv4],
            (false, Some(Protocol::Arp)) => &[Family::Arp],
            (false, Some(Protocol::Rarp)) => &[Family::Rarp],
            (true, Some(Protocol::Ip | Protocol::Arp | Protocol::Rarp)) | (false, Some(Protocol::Ip6)) => &[],
            (_, Some(_)) => return None,
        };
        for family in families {
            tuples.extend(by_direction(with.direction, |tuple, side| tuple.prefixes[side] = prefix, *family));
        }
    }
    Some(tuples)
}

fn of_ports(with: Qualifiers, id: &Id, context: Context<'_>) -> Option<Vec<Tuple>> {
    let (ports, over) = match id {
        Id::Number(number) => {
            let port = u16::try_from(*number).ok()?;
            ((port, port), None)
        }
        Id::Name(name) => match name.split_once('-').filter(|_| with.kind == Some(IdKind::PortRange)) {
            Some((first, last)) => {
                let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
                ((first.min(last), first.max(last)), None)
            }
            None => {
                let service = context.names.service(name)?;
                match (with.protocol, service.tcp, service.udp) {
                    (Some(Protocol::Tcp), Some(port), _) | (Some(Protocol::Udp), _, Some(port)) => {
                        ((port, port), None)
                    }
                    (None, Some(tcp), Some(udp)) if tcp == udp => ((tcp, tcp), None),
                    (None, Some(port), _) => ((port, port), Some(6)),
                    (None, None, Some(port)) => ((port, port), Some(17)),
                    _ => return None,
                }
            }
        },
        _ => return None,
    };
    let numbers = match (with.protocol, over) {
        (Some(Protocol::Tcp), _) => vec![6],
        (Some(Protocol::Udp), _) => vec![17],
        (Some(Protocol::Sctp), _) => vec![132],
        (None, Some(number)) => vec![number],
        (None, None) => PROTOCOLS_WITH_PORTS.to_vec(),
        (Some(_), _) => return None,
    };
    let mut tuples = Vec::new();
    for number in numbers {
        for family in [Family::Ipv4, Family::Ipv6] {
            let set = |tuple: &mut Tuple, side: usize| {
                (tuple.protocol, tuple.ports[side]) = (Some(number), Some(ports));
            };
            tuples.extend(by_direction(with.direction, set, family));
        }
    }
    Some(tuples)
}

/// The same test for one side, for both, or for either.
fn by_direction(direction: Option<Direction>, set: impl Fn(&mut Tuple, usize), family: Family) -> Vec<Tuple> {
    let with = |sides: &[usize]| {
        let mut tuple = Tuple::any(family);
        sides.iter().for_each(|side| set(&mut tuple, *side));
        tuple
    };
    match direction {
        Some(Direction::Src) => vec![with(&[0])],
        Some(Direction::Dst) => vec![with(&[1])],
        Some(Direction::And) => vec![with(&[0, 1])],
        None | Some(Direction::Or) => vec![with(&[0]), with(&[1])],
    }
}
