//! Hosts and networks, by number and by name.

use std::{
    net::{IpAddr, Ipv6Addr},
    ops::Range,
};

use crate::{
    ast::{Direction, Id, IdKind, Protocol, Qualifiers},
    error::{FilterError, FilterErrorKind},
    lexer::Dotted,
    names::shifted,
    value::{Member, Side, Size},
};

use super::{
    Compare, Cond, Lowering,
    link::{ARP, DECNET, IPV4, IPV6, RARP},
    offsets::LinkKind,
};

impl Lowering<'_> {
    /// Whether an address of the packet is in a set.
    fn set(&mut self, with: Qualifiers, name: &str, at: &Range<usize>) -> Result<Cond, FilterError> {
        if !self.has_sets {
            return Err(FilterError::meaning(at.clone(), "sets are available only in rules of a diversion"));
        }
        if with.protocol.is_some() {
            let error = FilterError::meaning(at.clone(), "a set cannot have a protocol before it");
            return Err(error.hint(format!("write for example: ip and src set {name}")));
        }
        let mut is_in = |side| {
            let member = self.values.member(Member { side, set: name.to_owned() });
            self.test(member, Compare::Equal, 1)
        };
        Ok(match with.direction {
            Some(Direction::Src) => is_in(Side::Source),
            Some(Direction::Dst) => is_in(Side::Destination),
            Some(Direction::And) => is_in(Side::Source).and(is_in(Side::Destination)),
            None | Some(Direction::Or) => is_in(Side::Source).or(is_in(Side::Destination)),
        })
    }

    pub(super) fn id(&mut self, with: Qualifiers, id: &Id, at: &Range<usize>) -> Result<Cond, FilterError> {
        let host_or_net = matches!(with.kind, None | Some(IdKind::Host | IdKind::Net));
        let not_here = |what: &str| {
            let kind = match with.kind {
                Some(IdKind::Port) => "port",
                Some(IdKind::PortRange) => "range of ports",
                Some(IdKind::Proto | IdKind::ProtoChain) => "protocol",
                Some(IdKind::Set) => "set",
                _ => "gateway",
            };
            FilterError::meaning(at.clone(), format!("{what} is not a {kind}"))
        };
        match id {
            Id::Number(number) => self.number(with, *number, at),
            Id::Name(name) => self.name(with, name, at),
            Id::Dotted(dotted) => match with.kind {
                None | Some(IdKind::Host | IdKind::Net) if with.protocol == Some(Protocol::Decnet) => {
                    self.decnet_dotted(*dotted, with.direction, at)
                }
                None | Some(IdKind::Host | IdKind::Net) => {
                    let (address, mask) = network(*dotted, at)?;
                    self.host(address, mask, with, at)
                }
                _ => Err(not_here("an IPv4 address")),
            },
            Id::DottedPrefix(dotted, bits) => {
                if *bits > 32 {
                    return Err(FilterError::meaning(
                        at.clone(),
                        format!("an IPv4 prefix has at most 32 bits, not {bits}"),
                    ));
                }
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                self.masked_host(*dotted, mask, with, at)
            }
            Id::DottedMask(dotted, mask) => {
                let (mask, _) = network(*mask, at)?;
                self.masked_host(*dotted, mask, with, at)
            }
            Id::Ipv6(_) | Id::Ipv6Prefix(..) if !host_or_net => Err(not_here("an IPv6 address")),
            Id::Ipv6(address) => self.host6(*address, 128, with, at),
            Id::Ipv6Prefix(_, bits @ 129..) => Err(FilterError::meaning(
                at.clone(),
                format!("an IPv6 prefix has at most 128 bits, not {bits}"),
            )),
            Id::Ipv6Prefix(address, bits) => {
                if with.kind != Some(IdKind::Net) && *bits != 128 {
                    return Err(prefix_of_a_host(at));
                }
                if address.to_bits() & !mask6(*bits) != 0 {
                    return Err(bits_behind(
                        &Ipv6Addr::from_bits(address.to_bits() & mask6(*bits)),
                        *bits,
                        at,
                    ));
                }
                self.host6(*address, *bits, with, at)
            }
            Id::Mac(address) => match (with.protocol, with.kind) {
                (Some(Protocol::Ether), None | Some(IdKind::Host)) => {
                    self.ether_address(*address, with.direction, at)
                }
                _ => {
                    let error =
                        FilterError::meaning(at.clone(), "an Ethernet address needs 'ether host' before it");
                    Err(error.hint("write ether host, ether src or ether dst"))
                }
            },
        }
    }

    fn number(&mut self, with: Qualifiers, number: u32, at: &Range<usize>) -> Result<Cond, FilterError> {
        match with.kind {
            None | Some(IdKind::Host | IdKind::Net) => match with.protocol {
                Some(Protocol::Decnet) => self.decnet(number, with.direction, at),
                Some(Protocol::Ether) => Err(not_an_ethernet_address(at)),
                _ => {
                    let net = with.kind == Some(IdKind::Net);
                    let (address, mask) = if net { shifted(number) } else { (number, u32::MAX) };
                    self.host(address, mask, with, at)
                }
            },
            Some(IdKind::Port | IdKind::PortRange) => {
                let port = self.port_number(number, at)?;
                self.ports(with, port..=port, None, at)
            }
            Some(IdKind::Proto) => self.protocol_id(with, number, at),
            Some(IdKind::ProtoChain) => self.protochain(with.protocol, number, at),
            Some(IdKind::Gateway) => Err(gateway(at)),
            Some(IdKind::Set) => {
                Err(FilterError::meaning(at.clone(), "a number is not a set")
                    .hint("for example: src set bad"))
            }
        }
    }

    fn name(&mut self, with: Qualifiers, name: &str, at: &Range<usize>) -> Result<Cond, FilterError> {
        match with.kind {
            Some(IdKind::Net) => {
                let Some((address, mask)) = self.names.network(name) else {
                    return Err(unknown("network", name, at).hint("or write its prefix: net 198.51.100.0/24"));
                };
                self.host(address.to_bits(), mask.to_bits(), with, at)
            }
            None | Some(IdKind::Host) => self.host_name(with, name, at),
            Some(IdKind::Port) => self.port_name(with, name, at),
            Some(IdKind::PortRange) => self.range_name(with, name, at),
            Some(IdKind::Proto) => {
                let number = self.protocol_number(name, with.protocol, at)?;
                self.protocol_id(with, number, at)
            }
            Some(IdKind::ProtoChain) => {
                let number = self.protocol_number(name, with.protocol, at)?;
                self.protochain(with.protocol, number, at)
            }
            Some(IdKind::Gateway) => Err(gateway(at)),
            Some(IdKind::Set) => self.set(with, name, at),
        }
    }

    fn host_name(&mut self, with: Qualifiers, name: &str, at: &Range<usize>) -> Result<Cond, FilterError> {
        match with.protocol {
            Some(Protocol::Ether) => {
                match self.names.ether(name) {
                    Some(address) => self.ether_address(address, with.direction, at),
                    None => Err(unknown("Ethernet host", name, at)
                        .hint("or write its address: ether host 2:0:0:0:0:1")),
                }
            }
            Some(Protocol::Decnet) => Err(unknown("DECnet host", name, at)),
            _ => {
                let addresses = self.names.host(name);
                let mut conds = Vec::new();
                for address in &addresses {
                    match (address, with.protocol) {
                        (IpAddr::V4(_), Some(Protocol::Ip6)) => {}
                        (IpAddr::V6(_), Some(Protocol::Ip | Protocol::Arp | Protocol::Rarp)) => {}
                        (IpAddr::V4(v4), _) => conds.push(self.host(v4.to_bits(), u32::MAX, with, at)?),
                        (IpAddr::V6(v6), _) => conds.push(self.host6(*v6, 128, with, at)?),
                    }
                }
                if conds.is_empty() {
                    return Err(unknown("host", name, at).hint("or write its address: host 192.0.2.1"));
                }
                Ok(Cond::any(conds))
            }
        }
    }

    fn masked_host(
        &mut self,
        dotted: Dotted,
        mask: u32,
        with: Qualifiers,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let (address, _) = network(dotted, at)?;
        if address & !mask != 0 {
            let right = std::net::Ipv4Addr::from(address & mask);
            return Err(bits_behind(&right, mask.count_ones(), at));
        }
        if with.kind != Some(IdKind::Net) {
            return Err(prefix_of_a_host(at));
        }
        self.host(address, mask, with, at)
    }

    /// An IPv4 address in IPv4, ARP or RARP packets.
    fn host(
        &mut self,
        address: u32,
        mask: u32,
        with: Qualifiers,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let mut packets = |ethertype, src: u32, dst: u32| {
            let network = self.link.network();
            self.by_direction(with.direction, |lowering, direction| {
                let offset = if direction == Direction::Src { src } else { dst };
                let packet = lowering.ethertype(ethertype, at)?;
                Ok(packet.and(lowering.bits(network.plus(offset), Size::Word, mask, address)))
            })
        };
        match with.protocol {
            Some(Protocol::Ip) => packets(IPV4, 12, 16),
            Some(Protocol::Arp) => packets(ARP, 14, 24),
            Some(Protocol::Rarp) => packets(RARP, 14, 24),
            None => {
                let ip = packets(IPV4, 12, 16)?;
                if self.link.labels > 0 {
                    return Ok(ip);
                }
                let mut packets =
                    |ethertype| self.host(address, mask, Qualifiers { protocol: ethertype, ..with }, at);
                Ok(ip.or(packets(Some(Protocol::Arp))?).or(packets(Some(Protocol::Rarp))?))
            }
            Some(Protocol::Ether) => Err(not_an_ethernet_address(at)),
            Some(Protocol::Ip6) => Err(FilterError::meaning(at.clone(), "an IPv4 address in IPv6 packets")),
            Some(_) => Err(no_addresses(at)),
        }
    }

    fn host6(
        &mut self,
        address: Ipv6Addr,
        bits: u32,
        with: Qualifiers,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        match with.protocol {
            None | Some(Protocol::Ip6) => {}
            Some(Protocol::Ether) => return Err(not_an_ethernet_address(at)),
            Some(Protocol::Ip | Protocol::Arp | Protocol::Rarp) => {
                return Err(FilterError::meaning(at.clone(), "an IPv6 address in packets that are not IPv6"));
            }
            Some(_) => return Err(no_addresses(at)),
        }
        let network = self.link.network();
        self.by_direction(with.direction, |lowering, direction| {
            let offset = if direction == Direction::Src { 8 } else { 24 };
            let packet = lowering.ethertype(IPV6, at)?;
            let words = (0..4).map(|word| {
                let shift = 96 - 32 * word;
                let (number, mask) = ((address.to_bits() >> shift) as u32, (mask6(bits) >> shift) as u32);
                lowering.bits(network.plus(offset + 4 * word), Size::Word, mask, number)
            });
            let same = Cond::all(words.filter(|cond| *cond != Cond::Always(true)).collect::<Vec<_>>());
            Ok(packet.and(same))
        })
    }

    pub(super) fn ether_address(
        &mut self,
        address: [u8; 6],
        direction: Option<Direction>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let before = self.ether_header(at)?;
        let header = self.link.header;
        let [a, b, c, d, e, f] = address;
        let same = self.by_direction(direction, |lowering, direction| {
            let offset = if direction == Direction::Src { 6 } else { 0 };
            let low = u32::from_be_bytes([c, d, e, f]);
            let low = lowering.field(header.plus(offset + 2), Size::Word, low);
            let high = u16::from_be_bytes([a, b]);
            Ok(low.and(lowering.field(header.plus(offset), Size::Half, high.into())))
        })?;
        Ok(Cond::all(before.into_iter().chain([same])))
    }

    /// Behind Geneve, a test whether an Ethernet header exists.
    pub(super) fn ether_header(&mut self, at: &Range<usize>) -> Result<Option<Cond>, FilterError> {
        if self.link.kind == LinkKind::Ppp {
            let error = FilterError::meaning(at.clone(), "PPPoE sessions carry no Ethernet addresses");
            return Err(error.hint("put tests of the outer headers before 'pppoes'"));
        }
        let inner = self.link.inner_ethernet;
        Ok(inner.map(|place| self.field(place, Size::Half, super::encapsulation::TRANSPARENT_BRIDGING)))
    }

    fn decnet_dotted(
        &mut self,
        dotted: Dotted,
        direction: Option<Direction>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let (area, node) = dotted.pair;
        if dotted.bits != 16 || area > 63 || node > 1023 {
            let error = FilterError::meaning(
                at.clone(),
                "a DECnet address must be AREA.NODE with an area below 64 and a node below 1024",
            );
            return Err(error);
        }
        self.decnet(area << 10 | node, direction, at)
    }

    /// DECnet phase IV: four kinds of headers, little-endian addresses.
    fn decnet(
        &mut self,
        address: u32,
        direction: Option<Direction>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let swapped = u32::from((address as u16).swap_bytes());
        let network = self.link.network();
        self.by_direction(direction, |lowering, direction| {
            let (long, short) = if direction == Direction::Src { (17, 5) } else { (9, 3) };
            let packet = lowering.ethertype(DECNET, at)?;
            let flags = network.plus(2);
            // Short and long headers, each without and with a byte of padding before it.
            let kinds = [
                (Size::Byte, 0x07, 0x02, short),
                (Size::Half, 0xff07, 0x8102, short + 1),
                (Size::Byte, 0x07, 0x06, long),
                (Size::Half, 0xff07, 0x8106, long + 1),
            ];
            let kinds = kinds.map(|(size, mask, kind, offset)| {
                let kind = lowering.bits(flags, size, mask, kind);
                kind.and(lowering.field(network.plus(offset), Size::Half, swapped))
            });
            Ok(packet.and(Cond::any(kinds)))
        })
    }

    /// The condition on one address or on both.
    pub(super) fn by_direction(
        &mut self,
        direction: Option<Direction>,
        mut one: impl FnMut(&mut Self, Direction) -> Result<Cond, FilterError>,
    ) -> Result<Cond, FilterError> {
        match direction {
            Some(direction @ (Direction::Src | Direction::Dst)) => one(self, direction),
            Some(Direction::And) => Ok(one(self, Direction::Src)?.and(one(self, Direction::Dst)?)),
            None | Some(Direction::Or) => Ok(one(self, Direction::Src)?.or(one(self, Direction::Dst)?)),
        }
    }
}

/// The address that a number with dots begins, and the mask of its bytes.
fn network(dotted: Dotted, at: &Range<usize>) -> Result<(u32, u32), FilterError> {
    let (a, b) = dotted.pair;
    if a > 255 || b > 255 {
        return Err(FilterError::meaning(at.clone(), "each number of an IPv4 address must be at most 255"));
    }
    let free = 32 - dotted.bits;
    Ok((dotted.value << free, u32::MAX << free))
}

fn mask6(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits).unwrap_or(0)
}

fn unknown(what: &str, name: &str, at: &Range<usize>) -> FilterError {
    FilterError::new(FilterErrorKind::UnknownName, at.clone(), format!("unknown {what} '{name}'"))
}

fn gateway(at: &Range<usize>) -> FilterError {
    let error = FilterError::meaning(at.clone(), "'gateway' needs two addresses of one host");
    error.hint("write ether host 2:0:0:0:0:1 and not host 192.0.2.1")
}

fn no_addresses(at: &Range<usize>) -> FilterError {
    let error = FilterError::meaning(at.clone(), "this protocol has no addresses of its own");
    error.hint("join two conditions: tcp and host 192.0.2.1")
}

fn not_an_ethernet_address(at: &Range<usize>) -> FilterError {
    let error = FilterError::meaning(at.clone(), "this is not an Ethernet address");
    error.hint("they look like 02:00:00:00:00:01")
}

fn prefix_of_a_host(at: &Range<usize>) -> FilterError {
    FilterError::meaning(at.clone(), "a host cannot have a prefix or mask").hint("write 'net' before it")
}

fn bits_behind(right: &dyn std::fmt::Display, bits: u32, at: &Range<usize>) -> FilterError {
    let error = FilterError::meaning(at.clone(), "the address has bits set outside its mask");
    error.hint(format!("the network is {right}/{bits}"))
}
