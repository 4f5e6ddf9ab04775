//! Headers around packets: each shifts the offsets of everything written after it in the expression.

use std::ops::Range;

use crate::{
    ast::{Op, Protocol},
    error::{FilterError, FilterErrorKind},
    value::{Size, ValueAt, ValueId},
};

use super::{
    Cond, Lowering,
    link::{self, IPV4, IPV6},
    offsets::{LinkKind, LinkState},
};

/// Geneve's protocol type of an Ethernet frame (RFC 8926).
pub(super) const TRANSPARENT_BRIDGING: u32 = 0x6558;
const GENEVE_PORT: u16 = 6081;
/// Each doubles the amount of computation.
const MAX_TUNNELS: u32 = 2;

impl Lowering<'_> {
    pub(super) fn vlan(&mut self, id: Option<u32>, at: &Range<usize>) -> Result<Cond, FilterError> {
        if self.link.labels > 0 {
            return Err(FilterError::meaning(at.clone(), "VLAN tags cannot follow MPLS labels"));
        }
        if self.link.kind == LinkKind::Ppp {
            return Err(FilterError::meaning(at.clone(), "VLAN tags cannot be inside PPPoE"));
        }
        at_most(id, 0xfff, "VLAN", at)?;
        let mut tags = Vec::new();
        for tag in [0x8100, 0x88a8, 0x9100] {
            tags.push(self.ethertype(tag, at)?);
        }
        let mut cond = Cond::any(tags);
        if let Some(id) = id {
            cond = cond.and(self.bits(self.link.payload, Size::Half, 0xfff, id));
        }
        self.link.ethertype = self.link.ethertype.plus(4);
        self.link.payload = self.link.payload.plus(4);
        Ok(cond)
    }

    pub(super) fn mpls(&mut self, label: Option<u32>, at: &Range<usize>) -> Result<Cond, FilterError> {
        at_most(label, 0xf_ffff, "MPLS label", at)?;
        let place = self.link.network();
        let mut cond = if self.link.labels > 0 {
            // The label before is not the last.
            self.bits(ValueAt { at: place.at - 2, ..place }, Size::Byte, 1, 0)
        } else {
            self.ethertype(link::MPLS, at)?
        };
        if let Some(label) = label {
            cond = cond.and(self.bits(place, Size::Word, 0xffff_f000, label << 12));
        }
        self.link.network += 4;
        self.link.network_802 += 4;
        self.link.labels += 1;
        Ok(cond)
    }

    pub(super) fn pppoes(&mut self, session: Option<u32>, at: &Range<usize>) -> Result<Cond, FilterError> {
        at_most(session, 0xffff, "PPPoE session", at)?;
        let mut cond = self.ethertype(link::PPPOE_SESSION, at)?;
        let header = self.link.payload;
        if let Some(session) = session {
            cond = cond.and(self.bits(header, Size::Word, 0xffff, session));
        }
        let inner = self.link.network().plus(6);
        self.link = LinkState {
            kind: LinkKind::Ppp,
            header: inner,
            ethertype: inner,
            payload: inner.plus(2),
            network: 0,
            network_802: 0,
            labels: 0,
            inner_ethernet: None,
            ..self.link
        };
        Ok(cond)
    }

    pub(super) fn geneve(&mut self, vni: Option<u32>, at: &Range<usize>) -> Result<Cond, FilterError> {
        at_most(vni, 0xff_ffff, "Geneve network", at)?;
        if self.link.tunnels == MAX_TUNNELS {
            let problem = format!("'geneve' is allowed at most {MAX_TUNNELS} times");
            return Err(FilterError::new(FilterErrorKind::TooLarge, at.clone(), problem));
        }
        let behind_v4 = self.behind_ipv4();
        let behind_v6 = self.link.network().plus(40);
        let v4 = self.geneve_over(Protocol::Ip, behind_v4, vni, at)?;
        let v6 = self.geneve_over(Protocol::Ip6, behind_v6, vni, at)?;

        // Where the Geneve header is depends on the frame, and so does everything behind it.
        let (test, equals) = self.is_ipv4();
        let (behind_v4, behind_v6) = (self.offset(behind_v4.plus(8)), self.offset(behind_v6.plus(8)));
        let start = self.values.either(test, equals, behind_v4, behind_v6);
        let header = ValueAt { base: Some(start), at: 0 };
        let words = self.masked(header, Size::Byte, 0x3f);
        let four = self.values.constant(4);
        let options = self.values.op(Op::Mul, words, four);
        let inner = self.values.op(Op::Add, options, start);
        let inner = ValueAt { base: Some(inner), at: 8 };
        let kind = self.values.load(header.plus(2), Size::Half);
        let mut choice = |ethernet: ValueAt, other: ValueAt| {
            let (ethernet, other) = (self.offset(ethernet), self.offset(other));
            let base = self.values.either(kind, TRANSPARENT_BRIDGING, ethernet, other);
            ValueAt { base: Some(base), at: 0 }
        };
        let ethertype = choice(inner.plus(12), header.plus(2));
        let payload = choice(inner.plus(14), inner);
        self.link = LinkState {
            header: inner,
            ethertype,
            payload,
            tunnels: self.link.tunnels + 1,
            inner_ethernet: Some(header.plus(2)),
            ..LinkState::ethernet()
        };
        Ok(v4.or(v6))
    }

    /// UDP to Geneve's port, version 0, and the network's number.
    fn geneve_over(
        &mut self,
        ip: Protocol,
        transport: ValueAt,
        vni: Option<u32>,
        at: &Range<usize>,
    ) -> Result<Cond, FilterError> {
        let network = self.link.network();
        let mut cond = if ip == Protocol::Ip {
            let udp = self.ethertype(IPV4, at)?.and(self.field(network.plus(9), Size::Byte, 17));
            udp.and(self.first_fragment())
        } else {
            self.ethertype(IPV6, at)?.and(self.field(network.plus(6), Size::Byte, 17))
        };
        cond = cond.and(self.field(transport.plus(2), Size::Half, GENEVE_PORT.into()));
        cond = cond.and(self.bits(transport.plus(8), Size::Byte, 0xc0, 0));
        if let Some(vni) = vni {
            cond = cond.and(self.bits(transport.plus(12), Size::Word, 0xffff_ff00, vni << 8));
        }
        Ok(cond)
    }

    /// A value, and its number when the packet is IPv4 and not IPv6.
    fn is_ipv4(&mut self) -> (ValueId, u32) {
        let number = match self.link.kind {
            _ if self.link.labels > 0 => {
                return (self.masked(self.link.network(), Size::Byte, 0xf0), 0x40);
            }
            LinkKind::Ethernet => IPV4,
            LinkKind::Ppp => 0x21,
        };
        (self.values.load(self.link.ethertype, Size::Half), number)
    }

    /// A position as a number.
    fn offset(&mut self, place: ValueAt) -> ValueId {
        let at = self.values.constant(place.at);
        match place.base {
            Some(base) => self.values.op(Op::Add, base, at),
            None => at,
        }
    }
}

fn at_most(number: Option<u32>, most: u32, what: &str, at: &Range<usize>) -> Result<(), FilterError> {
    match number {
        Some(number) if number > most => Err(FilterError::meaning(
            at.clone(),
            format!("{what} {number} is out of range: must be at most {most}"),
        )),
        _ => Ok(()),
    }
}
