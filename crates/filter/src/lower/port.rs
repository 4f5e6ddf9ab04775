//! Ports of TCP, UDP and SCTP.

use std::ops::{Range, RangeInclusive};

use crate::{
    ast::{Direction, Protocol, Qualifiers},
    error::{FilterError, FilterErrorKind},
    value::{Size, ValueAt},
};

use super::{
    Compare, Cond, Lowering,
    link::{IPV4, IPV6},
};

const TCP: u32 = 6;
const UDP: u32 = 17;
const SCTP: u32 = 132;

impl Lowering<'_> {
    pub(super) fn port_number(&self, number: u32, at: &Range<usize>) -> Result<u16, FilterError> {
        number.try_into().map_err(|_| {
            FilterError::meaning(at.clone(), format!("port {number} is out of range: must be at most 65535"))
        })
    }

    pub(super) fn port_name(
        &mut self,
        with: Qualifiers,
        name: &str,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let (port, protocol) = self.service(with, name, at)?;
        self.ports(with, port..=port, protocol, at)
    }

    /// `6000-6008`, read as one name.
    pub(super) fn range_name(
        &mut self,
        with: Qualifiers,
        name: &str,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let Some((first, last)) = name.split_once('-') else {
            return self.port_name(with, name, at);
        };
        let end = |text: &str| match text.parse::<u32>() {
            Ok(number) => Ok((self.port_number(number, at)?, None)),
            Err(_) => self.service(with, text, at),
        };
        let ((first, a), (last, b)) = (end(first)?, end(last)?);
        // As in libpcap, a range may be written either way round.
        self.ports(with, first.min(last)..=first.max(last), if a == b { a } else { None }, at)
    }

    /// A service's port, and its protocol when it has only one.
    fn service(
        &self,
        with: Qualifiers,
        name: &str,
        at: &Range<usize>,
    ) -> Result<(u16, Option<u32>), FilterError> {
        let service = self.names.service(name).unwrap_or_default();
        let found = match with.protocol {
            Some(Protocol::Tcp) => service.tcp.map(|port| (port, None)),
            Some(Protocol::Udp) => service.udp.map(|port| (port, None)),
            _ => match (service.tcp, service.udp) {
                (Some(tcp), Some(udp)) if tcp == udp => Some((tcp, None)),
                (Some(tcp), _) => Some((tcp, Some(TCP))),
                (None, Some(udp)) => Some((udp, Some(UDP))),
                (None, None) => None,
            },
        };
        found.ok_or_else(|| {
            let problem = format!("unknown port '{name}'");
            let error = FilterError::new(FilterErrorKind::UnknownName, at.clone(), problem);
            if name.contains('-') {
                return error.hint(format!("write a range as portrange {name}"));
            }
            error.hint("or write its number")
        })
    }

    pub(super) fn ports(
        &mut self,
        with: Qualifiers,
        ports: RangeInclusive<u16>,
        over: Option<u32>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let numbers: &[u32] = match (with.protocol, over) {
            (Some(Protocol::Tcp), _) | (None, Some(TCP)) => &[TCP],
            (Some(Protocol::Udp), _) | (None, Some(UDP)) => &[UDP],
            (Some(Protocol::Sctp), _) => &[SCTP],
            (None, _) => &[SCTP, TCP, UDP],
            (Some(_), _) => {
                let error = FilterError::meaning(at.clone(), "only tcp, udp and sctp have ports");
                return Err(error.hint("join two conditions: ip and port 53"));
            }
        };
        let network = self.link.network();
        let mut v6 = Vec::new();
        for number in numbers {
            let protocol = self.field(network.plus(6), Size::Byte, *number);
            v6.push(protocol.and(self.either_port(network.plus(40), with.direction, &ports)?));
        }
        let v6 = self.ethertype(IPV6, at)?.and(Cond::any(v6));
        let mut v4 = Vec::new();
        let transport = self.behind_ipv4();
        for number in numbers {
            let protocol = self.field(network.plus(9), Size::Byte, *number);
            let first = self.first_fragment();
            v4.push(protocol.and(first).and(self.either_port(transport, with.direction, &ports)?));
        }
        let v4 = self.ethertype(IPV4, at)?.and(Cond::any(v4));
        Ok(v6.or(v4))
    }

    fn either_port(
        &mut self,
        transport: ValueAt,
        direction: Option<Direction>,
        ports: &RangeInclusive<u16>,
    ) -> Result<Cond, FilterError> {
        self.by_direction(direction, |lowering, direction| {
            let place = if direction == Direction::Src { transport } else { transport.plus(2) };
            let (first, last) = (u32::from(*ports.start()), u32::from(*ports.end()));
            if first == last {
                return Ok(lowering.field(place, Size::Half, first));
            }
            let port = lowering.values.load(place, Size::Half);
            let above = lowering.test(port, Compare::GreaterEqual, first);
            Ok(above.and(lowering.test(port, Compare::Greater, last).negated()))
        })
    }

    /// Later fragments have no ports.
    pub(super) fn first_fragment(&mut self) -> Cond {
        self.bits(self.link.network().plus(6), Size::Half, 0x1fff, 0)
    }

    /// The offset of the header behind an IPv4 header.
    pub(super) fn behind_ipv4(&mut self) -> ValueAt {
        let network = self.link.network();
        let words = self.masked(network, Size::Byte, 0x0f);
        let two = self.values.constant(2);
        let mut base = self.values.op(crate::ast::Op::Shl, words, two);
        if let Some(outer) = network.base {
            base = self.values.op(crate::ast::Op::Add, base, outer);
        }
        ValueAt { base: Some(base), at: network.at }
    }
}
