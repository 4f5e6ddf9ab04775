//! Protocols by name and by number, and chains of headers.

use std::ops::Range;

use crate::{
    ast::{Direction, IsisPdu, Protocol, Qualifiers},
    error::{FilterError, FilterErrorKind},
    value::Size,
};

use super::{
    Compare, Cond, Lowering,
    link::{self, IPV4, IPV6, SAP_ISO},
};

/// OSI network protocols.
const CLNP: u32 = 0x81;
const ES_IS: u32 = 0x82;
const IS_IS: u32 = 0x83;
const FRAGMENT: u32 = 44;

impl Lowering<'_> {
    pub(super) fn protocol(&mut self, protocol: Protocol, at: &Range<usize>) -> Result<Cond, FilterError> {
        let over = |protocol| Some(protocol);
        let (below, number) = match protocol {
            Protocol::Tcp => (None, 6),
            Protocol::Udp => (None, 17),
            Protocol::Sctp => (None, 132),
            Protocol::Pim => (None, 103),
            Protocol::Ah => (None, 51),
            Protocol::Esp => (None, 50),
            Protocol::Icmp => (over(Protocol::Ip), 1),
            Protocol::Igmp => (over(Protocol::Ip), 2),
            Protocol::Igrp => (over(Protocol::Ip), 9),
            Protocol::Vrrp | Protocol::Carp => (over(Protocol::Ip), 112),
            Protocol::Icmp6 => (over(Protocol::Ip6), 58),
            Protocol::Clnp => (over(Protocol::Iso), CLNP),
            Protocol::Esis => (over(Protocol::Iso), ES_IS),
            Protocol::Isis => (over(Protocol::Iso), IS_IS),
            Protocol::IsisPdu(pdu) => {
                let mut conds = Vec::new();
                for kind in isis_types(pdu) {
                    conds.push(self.numbered(Some(Protocol::Isis), *kind, at)?);
                }
                return Ok(Cond::any(conds));
            }
            Protocol::Ether => {
                let error = FilterError::syntax(at.clone(), "'ether' alone is not a condition");
                return Err(
                    error.hint("write ether host, ether proto, ether broadcast, ether multicast or ether[0]")
                );
            }
            Protocol::Radio => {
                return Err(FilterError::meaning(at.clone(), "an Ethernet frame has no radio header"));
            }
            other => {
                let number = link::link_number(other).expect("the link header names all others");
                return self.ethertype(number, at);
            }
        };
        self.numbered(below, number, at)
    }

    /// `proto` with a number or a name.
    pub(super) fn protocol_id(
        &mut self,
        qualifiers: Qualifiers,
        number: u32,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        self.numbered(qualifiers.protocol, number, at)
    }

    /// The number of a protocol over another, by its name.
    pub(super) fn protocol_number(
        &self,
        name: &str,
        below: Option<Protocol>,
        at: &Range<usize>,
    ) -> Result<u32, FilterError> {
        let known = match below {
            None | Some(Protocol::Ip | Protocol::Ip6) => self.names.protocol(name).map(u32::from),
            Some(Protocol::Iso) => match name {
                "clnp" => Some(CLNP),
                "esis" | "es-is" => Some(ES_IS),
                "isis" | "is-is" => Some(IS_IS),
                _ => None,
            },
            Some(Protocol::Ether) => link::link_number_of(name),
            Some(_) => None,
        };
        known.ok_or_else(|| {
            let problem = format!("unknown protocol '{name}'");
            FilterError::new(FilterErrorKind::UnknownName, at.clone(), problem).hint("or write its number")
        })
    }

    /// A packet of this protocol over that one; over IPv4 or IPv6 when none is named.
    pub(super) fn numbered(
        &mut self,
        below: Option<Protocol>,
        number: u32,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let network = self.link.network();
        Ok(match below {
            None => {
                let v4 = self.numbered(Some(Protocol::Ip), number, at)?;
                v4.or(self.numbered(Some(Protocol::Ip6), number, at)?)
            }
            Some(Protocol::Ether) => self.ethertype(number, at)?,
            Some(Protocol::Ip) => {
                let v4 = self.ethertype(IPV4, at)?;
                v4.and(self.field(network.plus(9), Size::Byte, number))
            }
            Some(Protocol::Ip6) => {
                let v6 = self.ethertype(IPV6, at)?;
                let next = self.field(network.plus(6), Size::Byte, number);
                let fragment = self.field(network.plus(6), Size::Byte, FRAGMENT);
                let inside = self.field(network.plus(40), Size::Byte, number);
                v6.and(next.or(fragment.and(inside)))
            }
            Some(Protocol::Iso) => {
                let iso = self.ethertype(SAP_ISO, at)?;
                iso.and(self.field(self.link.network_802(), Size::Byte, number))
            }
            Some(Protocol::Isis) => {
                let isis = self.numbered(Some(Protocol::Iso), IS_IS, at)?;
                isis.and(self.field(self.link.network_802().plus(4), Size::Byte, number))
            }
            Some(_) => {
                let error = FilterError::meaning(at.clone(), "this protocol carries no numbered protocols");
                return Err(error.hint("'proto' goes with ip, ip6, ether and iso"));
            }
        })
    }

    pub(super) fn protochain(
        &mut self,
        below: Option<Protocol>,
        number: u32,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        if self.link.payload.base.is_some() {
            return Err(FilterError::meaning(at.clone(), "'protochain' cannot follow 'geneve'"));
        }
        let mut version = |ethertype, v6| {
            let packet = self.ethertype(ethertype, at)?;
            let start = self.link.network();
            let found = self.values.chain(start, v6, number);
            Ok(packet.and(self.test(found, Compare::Equal, 1)))
        };
        match below {
            None => Ok(version(IPV4, false)?.or(version(IPV6, true)?)),
            Some(Protocol::Ip) => version(IPV4, false),
            Some(Protocol::Ip6) => version(IPV6, true),
            Some(_) => {
                let error = FilterError::meaning(at.clone(), "this protocol has no chain of headers");
                Err(error.hint("'protochain' goes with ip and ip6"))
            }
        }
    }

    pub(super) fn broadcast(
        &mut self,
        protocol: Option<Protocol>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        match protocol {
            None | Some(Protocol::Ether) => self.ether_address([0xff; 6], Some(Direction::Dst), at),
            Some(Protocol::Ip) => {
                let v4 = self.ethertype(IPV4, at)?;
                let host = !self.netmask.to_bits();
                let dst = self.link.network().plus(16);
                let zeros = self.bits(dst, Size::Word, host, 0);
                Ok(v4.and(zeros.or(self.bits(dst, Size::Word, host, host))))
            }
            Some(_) => Err(FilterError::meaning(at.clone(), "only Ethernet and IPv4 have broadcasts")),
        }
    }

    pub(super) fn multicast(
        &mut self,
        protocol: Option<Protocol>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        match protocol {
            None | Some(Protocol::Ether) => {
                let header = self.ether_header(at)?;
                let group = self.bits(self.link.header, Size::Byte, 1, 0).negated();
                Ok(Cond::all(header.into_iter().chain([group])))
            }
            Some(Protocol::Ip) => {
                let v4 = self.ethertype(IPV4, at)?;
                let dst = self.values.load(self.link.network().plus(16), Size::Byte);
                Ok(v4.and(self.test(dst, Compare::GreaterEqual, 224)))
            }
            Some(Protocol::Ip6) => {
                let v6 = self.ethertype(IPV6, at)?;
                Ok(v6.and(self.field(self.link.network().plus(24), Size::Byte, 0xff)))
            }
            Some(_) => Err(FilterError::meaning(at.clone(), "only Ethernet, IPv4 and IPv6 have multicasts")),
        }
    }
}

/// Numbers of protocol data units (ISO 10589).
fn isis_types(pdu: IsisPdu) -> &'static [u32] {
    match pdu {
        IsisPdu::L1 => &[26, 24, 18, 15, 17],
        IsisPdu::L2 => &[27, 25, 20, 16, 17],
        IsisPdu::Iih => &[17, 15, 16],
        IsisPdu::Lsp => &[18, 20],
        IsisPdu::Snp => &[27, 26, 24, 25],
        IsisPdu::Csnp => &[24, 25],
        IsisPdu::Psnp => &[26, 27],
    }
}
