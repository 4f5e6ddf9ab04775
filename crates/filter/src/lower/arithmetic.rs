//! Comparisons of numbers: a field of a protocol first requires that the frame has that protocol.

use std::ops::Range;

use crate::{
    ast::{Arith, Op, Protocol, Relation},
    error::FilterError,
    value::{Size, ValueAt, ValueId},
};

use super::{Cond, Lowering};

impl Lowering<'_> {
    pub(super) fn relation(
        &mut self,
        left: &Arith,
        relation: Relation,
        right: &Arith,
    ) -> Result<Cond, FilterError> {
        let mut protocols = Vec::new();
        let left = self.arithmetic(left, &mut protocols)?;
        let right = self.arithmetic(right, &mut protocols)?;
        let holds = self.compare(left, relation, right);
        Ok(Cond::all(protocols.into_iter().chain([holds])))
    }

    /// The number; the protocols it requires are added to `protocols`.
    fn arithmetic(&mut self, arith: &Arith, protocols: &mut Vec<Cond>) -> Result<ValueId, FilterError> {
        Ok(match arith {
            Arith::Number(number) => self.values.constant(*number),
            Arith::Len => self.values.len(),
            Arith::Neg(inner) => {
                let inner = self.arithmetic(inner, protocols)?;
                self.values.neg(inner)
            }
            Arith::Op(op, left, right, at) => {
                let left = self.arithmetic(left, protocols)?;
                // As in libpcap, a computation requires only the protocol of its first operand.
                let right = self.arithmetic(right, &mut Vec::new())?;
                if matches!(op, Op::Div | Op::Mod) && self.values.as_const(right) == Some(0) {
                    return Err(FilterError::meaning(at.clone(), "division by zero"));
                }
                self.values.op(*op, left, right)
            }
            Arith::Load { protocol, index, size, at } => {
                let mut inner = Vec::new();
                let index = self.arithmetic(index, &mut inner)?;
                let size = match size {
                    1 => Size::Byte,
                    2 => Size::Half,
                    _ => Size::Word,
                };
                let (place, conds) = self.header(*protocol, inner, at)?;
                protocols.extend(conds);
                let base = match place.base {
                    Some(base) => self.values.op(Op::Add, index, base),
                    None => index,
                };
                self.values.load(ValueAt { base: Some(base), at: place.at }, size)
            }
        })
    }

    /// Where a protocol's header is, and what must hold for it to be there.
    fn header(
        &mut self,
        protocol: Protocol,
        index: Vec<Cond>,
        at: &Range<usize>,
    ) -> Result<(ValueAt, Vec<Cond>), FilterError> {
        let mut conds = index;
        let place = match protocol {
            Protocol::Ether => self.link.header,
            Protocol::Ip
            | Protocol::Ip6
            | Protocol::Arp
            | Protocol::Rarp
            | Protocol::Atalk
            | Protocol::Decnet
            | Protocol::Lat
            | Protocol::Sca
            | Protocol::Mopdl
            | Protocol::Moprc => {
                conds.push(self.protocol(protocol, at)?);
                self.link.network()
            }
            Protocol::Tcp
            | Protocol::Udp
            | Protocol::Sctp
            | Protocol::Icmp
            | Protocol::Igmp
            | Protocol::Igrp
            | Protocol::Pim
            | Protocol::Vrrp
            | Protocol::Carp => {
                conds.insert(0, self.protocol(Protocol::Ip, at)?);
                conds.push(self.protocol(protocol, at)?);
                conds.push(self.first_fragment());
                self.behind_ipv4()
            }
            Protocol::Icmp6 => {
                conds.push(self.protocol(Protocol::Ip6, at)?);
                let network = self.link.network();
                conds.push(self.field(network.plus(6), Size::Byte, 58));
                network.plus(40)
            }
            _ => {
                let error = FilterError::meaning(at.clone(), "fields of this protocol cannot be read");
                return Err(error.hint("count from the link header: ether[14]"));
            }
        };
        Ok((place, conds))
    }
}
