//! From the syntax tree to tests of a frame's bytes.
//!
//! Order matters: `vlan`, `mpls`, `pppoes` and `geneve` shift the offsets of everything written after them, and a test that
//! reads outside the frame ends the whole filter. Both are as in libpcap.

use std::{net::Ipv4Addr, ops::Range};

use crate::{
    ast::{Link, Node, Primitive, Relation},
    error::FilterError,
    names::{Context, Names},
    value::{Size, ValueAt, ValueId, Values},
};

mod address;
mod arithmetic;
mod encapsulation;
mod link;
mod offsets;
mod port;
mod protocol;

use offsets::LinkState;

/// The Ethernet type of PPPoE's discovery.
const PPPOE_DISCOVERY: u32 = 0x8863;

/// A condition on a frame's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cond {
    Always(bool),
    Test(Test),
    Not(Box<Cond>),
    /// From left to right, as in the expression.
    Chain(Box<Cond>, Vec<(Link, Cond)>),
}

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Test {
    pub(crate) value: ValueId,
    pub(crate) compare: Compare,
    pub(crate) with: ValueId,
}

impl Test {
    /// The same comparison with values renumbered.
    pub(crate) fn moved(self, to: &[ValueId]) -> Self {
        Self { value: to[self.value.0 as usize], with: to[self.with.0 as usize], ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Equal,
    Greater,
    GreaterEqual,
}

impl Compare {
    pub(crate) fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Greater => a > b,
            Self::GreaterEqual => a >= b,
        }
    }
}

impl Cond {
    pub(crate) fn and(self, other: Self) -> Self {
        self.join(Link::And, other)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        self.join(Link::Or, other)
    }

    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Always(it) => Self::Always(!it),
            Self::Not(cond) => *cond,
            cond => Self::Not(Box::new(cond)),
        }
    }

    fn join(self, link: Link, other: Self) -> Self {
        match self {
            Self::Chain(first, mut rest) => {
                rest.push((link, other));
                Self::Chain(first, rest)
            }
            cond => Self::Chain(Box::new(cond), vec![(link, other)]),
        }
    }

    /// The same tests with values renumbered.
    fn moved(&self, to: &[ValueId]) -> Self {
        match self {
            Self::Always(it) => Self::Always(*it),
            Self::Test(test) => Self::Test(test.moved(to)),
            Self::Not(cond) => Self::Not(Box::new(cond.moved(to))),
            Self::Chain(first, rest) => {
                let rest = rest.iter().map(|(link, cond)| (*link, cond.moved(to)));
                Self::Chain(Box::new(first.moved(to)), rest.collect())
            }
        }
    }

    fn all(conds: impl IntoIterator<Item = Self>) -> Self {
        conds.into_iter().reduce(Self::and).unwrap_or(Self::Always(true))
    }

    fn any(conds: impl IntoIterator<Item = Self>) -> Self {
        conds.into_iter().reduce(Self::or).unwrap_or(Self::Always(false))
    }
}

/// An expression's tests, and the values that they compare: names are resolved, and offsets count from the start of the frame.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) cond: Cond,
    pub(crate) values: Values,
}

/// The tests of an expression.
pub(crate) fn lower(node: Option<&Node>, context: Context<'_>) -> Result<Tree, FilterError> {
    let Context { names, netmask, has_sets } = context;
    let mut lowering =
        Lowering { values: Values::default(), link: LinkState::ethernet(), names, netmask, has_sets };
    let cond = match node {
        Some(node) => lowering.node(node)?,
        None => Cond::Always(true),
    };
    Ok(Tree { cond, values: lowering.values })
}

impl Tree {
    /// Both, each with its own offsets.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut values = self.values.clone();
        let here = values.adopt(&other.values);
        // A nested chain keeps its brackets: "and" binds no closer than "or".
        let cond = Cond::Chain(Box::new(self.cond.clone()), vec![(Link::And, other.cond.moved(&here))]);
        Self { cond, values }
    }
}

struct Lowering<'n> {
    values: Values,
    link: LinkState,
    names: &'n dyn Names,
    netmask: Ipv4Addr,
    has_sets: bool,
}

impl Lowering<'_> {
    fn node(&mut self, node: &Node) -> Result<Cond, FilterError> {
        match node {
            Node::Leaf(primitive, at) => self.primitive(primitive, at),
            Node::Not(inner) => Ok(self.node(inner)?.negated()),
            Node::Chain(first, rest) => {
                let mut cond = self.node(first)?;
                for (link, node) in rest {
                    let next = self.node(node)?;
                    cond = cond.join(*link, next);
                }
                Ok(cond)
            }
        }
    }

    fn primitive(&mut self, primitive: &Primitive, at: &Range<usize>) -> Result<Cond, FilterError> {
        match primitive {
            Primitive::Protocol(protocol) => self.protocol(*protocol, at),
            Primitive::Match(qualifiers, id) => self.id(*qualifiers, id, at),
            Primitive::Relation(left, relation, right) => self.relation(left, *relation, right),
            Primitive::Broadcast(protocol) => self.broadcast(*protocol, at),
            Primitive::Multicast(protocol) => self.multicast(*protocol, at),
            Primitive::Less(most) => {
                let len = self.values.len();
                Ok(self.test(len, Compare::Greater, *most).negated())
            }
            Primitive::Greater(least) => {
                let len = self.values.len();
                Ok(self.test(len, Compare::GreaterEqual, *least))
            }
            Primitive::Byte(offset, relation, number) => {
                let byte = self.values.load(ValueAt { base: None, at: *offset }, Size::Byte);
                let number = self.values.constant(*number);
                Ok(self.compare(byte, *relation, number))
            }
            Primitive::Vlan(id) => self.vlan(*id, at),
            Primitive::Mpls(label) => self.mpls(*label, at),
            Primitive::Pppoed => self.ethertype(PPPOE_DISCOVERY, at),
            Primitive::Pppoes(session) => self.pppoes(*session, at),
            Primitive::Geneve(vni) => self.geneve(*vni, at),
            Primitive::Llc(kind) => self.llc(*kind, at),
        }
    }

    fn test(&mut self, value: ValueId, compare: Compare, with: u32) -> Cond {
        let with = self.values.constant(with);
        self.test_values(value, compare, with)
    }

    fn test_values(&mut self, value: ValueId, compare: Compare, with: ValueId) -> Cond {
        match (self.values.as_const(value), self.values.as_const(with)) {
            (Some(a), Some(b)) => Cond::Always(compare.holds(a, b)),
            // A constant goes to the right-hand side.
            (Some(_), None) => {
                let turned = |compare| Cond::Test(Test { value: with, compare, with: value });
                match compare {
                    Compare::Equal => turned(Compare::Equal),
                    Compare::Greater => turned(Compare::GreaterEqual).negated(),
                    Compare::GreaterEqual => turned(Compare::Greater).negated(),
                }
            }
            (None, _) => Cond::Test(Test { value, compare, with }),
        }
    }

    fn compare(&mut self, left: ValueId, relation: Relation, right: ValueId) -> Cond {
        let (compare, negated) = match relation {
            Relation::Equal => (Compare::Equal, false),
            Relation::NotEqual => (Compare::Equal, true),
            Relation::Greater => (Compare::Greater, false),
            Relation::LessEqual => (Compare::Greater, true),
            Relation::GreaterEqual => (Compare::GreaterEqual, false),
            Relation::Less => (Compare::GreaterEqual, true),
        };
        let cond = self.test_values(left, compare, right);
        if negated { cond.negated() } else { cond }
    }

    /// The field at a place equals a number.
    fn field(&mut self, place: ValueAt, size: Size, number: u32) -> Cond {
        let value = self.values.load(place, size);
        self.test(value, Compare::Equal, number)
    }

    /// The bits of a mask in the field at a place equal a number.
    fn bits(&mut self, place: ValueAt, size: Size, mask: u32, number: u32) -> Cond {
        let value = self.masked(place, size, mask);
        self.test(value, Compare::Equal, number)
    }

    fn masked(&mut self, place: ValueAt, size: Size, mask: u32) -> ValueId {
        let value = self.values.load(place, size);
        let mask = self.values.constant(mask);
        self.values.op(crate::ast::Op::And, value, mask)
    }
}
