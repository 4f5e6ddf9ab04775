//! What an expression computes from a frame: pure values without duplicates.

use std::collections::HashMap;

use crate::ast::Op;

/// The number of a value; its operands have smaller numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub(crate) u32);

/// 32 bits, unsigned. Reading outside the frame and dividing by zero are faults, which yield no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Const(u32),
    /// Bytes of the frame.
    Len,
    /// Big-endian bytes of the frame.
    Load(ValueAt, Size),
    Op(Op, ValueId, ValueId),
    Neg(ValueId),
    /// One value or another; the other is not computed.
    If {
        test: ValueId,
        equals: u32,
        then: ValueId,
        otherwise: ValueId,
    },
    /// 1 when a protocol is in the header chain of the IP packet at that offset, else 0.
    Chain {
        start: ValueAt,
        v6: bool,
        protocol: u32,
    },
    /// 1 when the member of this number is true of the frame, or else 0.
    Member(u32),
}

/// An address of a frame and a set of networks that it may be in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Whose address.
    pub side: Side,
    /// The set's name.
    pub set: String,
}

/// One of a packet's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// An offset into the frame: an optional computed part and a constant; their sum does not wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ValueAt {
    pub(crate) base: Option<ValueId>,
    pub(crate) at: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Size {
    Byte = 1,
    Half = 2,
    Word = 4,
}

impl ValueAt {
    /// So many bytes further.
    pub(crate) fn plus(self, more: u32) -> Self {
        Self { base: self.base, at: self.at.saturating_add(more) }
    }
}

/// All values of a filter, or of several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    known: HashMap<Value, ValueId>,
    values: Vec<Value>,
    members: Vec<Member>,
}

impl Values {
    pub(crate) fn of(&self, id: ValueId) -> Value {
        self.values[id.0 as usize]
    }

    pub(crate) fn as_const(&self, id: ValueId) -> Option<u32> {
        match self.of(id) {
            Value::Const(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn constant(&mut self, number: u32) -> ValueId {
        self.intern(Value::Const(number))
    }

    pub(crate) fn len(&mut self) -> ValueId {
        self.intern(Value::Len)
    }

    pub(crate) fn load(&mut self, place: ValueAt, size: Size) -> ValueId {
        // A constant base is folded into the offset.
        let fixed = place.base.and_then(|base| self.as_const(base));
        let place = match fixed.and_then(|base| base.checked_add(place.at)) {
            Some(at) => ValueAt { base: None, at },
            None => place,
        };
        self.intern(Value::Load(place, size))
    }

    pub(crate) fn op(&mut self, op: Op, left: ValueId, right: ValueId) -> ValueId {
        let (a, b) = (self.as_const(left), self.as_const(right));
        if let (Some(a), Some(b)) = (a, b)
            && let Some(number) = compute(op, a, b)
        {
            return self.constant(number);
        }
        match (op, a, b) {
            (Op::Add | Op::Sub | Op::Or | Op::Xor | Op::Shl | Op::Shr, _, Some(0))
            | (Op::Mul | Op::Div, _, Some(1))
            | (Op::And, _, Some(u32::MAX)) => left,
            (Op::Add | Op::Or | Op::Xor, Some(0), _)
            | (Op::Mul, Some(1), _)
            | (Op::And, Some(u32::MAX), _) => right,
            // As in libpcap's optimiser: a value that does not matter is not read.
            (Op::Mul | Op::And, _, Some(0)) => right,
            _ => self.intern(Value::Op(op, left, right)),
        }
    }

    pub(crate) fn member(&mut self, member: Member) -> ValueId {
        let at = self.members.iter().position(|known| *known == member).unwrap_or_else(|| {
            self.members.push(member);
            self.members.len() - 1
        });
        self.intern(Value::Member(at as u32))
    }

    /// What must be known of a frame besides its bytes, in the order of their numbers.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn neg(&mut self, value: ValueId) -> ValueId {
        match self.as_const(value) {
            Some(number) => self.constant(number.wrapping_neg()),
            None => self.intern(Value::Neg(value)),
        }
    }

    pub(crate) fn either(
        &mut self,
        test: ValueId,
        equals: u32,
        then: ValueId,
        otherwise: ValueId,
    ) -> ValueId {
        self.intern(Value::If { test, equals, then, otherwise })
    }

    pub(crate) fn chain(&mut self, start: ValueAt, v6: bool, protocol: u32) -> ValueId {
        self.intern(Value::Chain { start, v6, protocol })
    }

    /// The frame has at least this many bytes if this value could be computed: it always reads them.
    pub(crate) fn certain_extent(&self, value: ValueId) -> u32 {
        match self.of(value) {
            Value::Const(_) | Value::Len | Value::Chain { .. } | Value::Member(_) => 0,
            Value::Load(ValueAt { base: None, at }, size) => at.saturating_add(size as u32),
            Value::Load(ValueAt { base: Some(inner), .. }, _) | Value::Neg(inner) => {
                self.certain_extent(inner)
            }
            Value::Op(_, left, right) => self.certain_extent(left).max(self.certain_extent(right)),
            Value::If { test, .. } => self.certain_extent(test),
        }
    }

    fn intern(&mut self, value: Value) -> ValueId {
        *self.known.entry(value).or_insert_with(|| {
            self.values.push(value);
            ValueId(self.values.len() as u32 - 1)
        })
    }

    /// Adds the values of another filter and returns their new numbers, in its order.
    pub(crate) fn adopt(&mut self, other: &Self) -> Vec<ValueId> {
        let mut here: Vec<ValueId> = Vec::with_capacity(other.values.len());
        for value in &other.values {
            let to = |id: ValueId| here[id.0 as usize];
            let place = |place: ValueAt| ValueAt { base: place.base.map(to), at: place.at };
            let value = match *value {
                value @ (Value::Const(_) | Value::Len) => value,
                Value::Member(member) => {
                    here.push(self.member(other.members[member as usize].clone()));
                    continue;
                }
                Value::Load(at, size) => Value::Load(place(at), size),
                Value::Op(op, left, right) => Value::Op(op, to(left), to(right)),
                Value::Neg(value) => Value::Neg(to(value)),
                Value::If { test, equals, then, otherwise } => {
                    Value::If { test: to(test), equals, then: to(then), otherwise: to(otherwise) }
                }
                Value::Chain { start, v6, protocol } => Value::Chain { start: place(start), v6, protocol },
            };
            here.push(self.intern(value));
        }
        here
    }
}

/// The result; `None` is a division by zero.
pub(crate) fn compute(op: Op, a: u32, b: u32) -> Option<u32> {
    Some(match op {
        Op::Add => a.wrapping_add(b),
        Op::Sub => a.wrapping_sub(b),
        Op::Mul => a.wrapping_mul(b),
        Op::Div => a.checked_div(b)?,
        Op::Mod => a.checked_rem(b)?,
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Shl => a.checked_shl(b).unwrap_or(0),
        Op::Shr => a.checked_shr(b).unwrap_or(0),
    })
}
