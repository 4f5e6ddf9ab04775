//! Values in registers.

use crate::{
    ast::Op,
    graph::{Graph, Target},
    run::{CHAIN_AUTHENTICATION, CHAIN_END, CHAIN_HEADERS, CHAIN_OPTIONS, ipv4_header},
    value::{Size, Value, ValueAt, ValueId},
};

use super::assembler::{Assembler, Condition, Label, Operand, R0, R1, R2, R3, R4, R5, R6, Register};

/// The verifier allows a packet pointer to move by 65535; half of it for the computed part, half for the fixed part.
pub(super) const FARTHEST_READ: u32 = 0x7f00;

/// Intermediate results on the stack, 8 bytes each.
pub(super) const SLOTS: usize = 12;

/// Where the bits of the members are on the stack: behind the intermediate results.
pub(super) const MEMBERS_SLOT: usize = SLOTS;

/// The code so far, and what is known at this point.
pub(super) struct Code<'g> {
    pub(super) graph: &'g Graph,
    pub(super) assembler: Assembler,
    /// The frame has at least this many bytes at this point of the code.
    pub(super) checked: u32,
    /// Where a fault jumps to at this point of the code.
    pub(super) fault: Target,
    /// The most intermediate results so far.
    pub(super) slots: usize,
}

impl Code<'_> {
    /// Leaves a value in R0 and overwrites R3, R4 and R5; stack slots from `slot` on are free.
    pub(super) fn value(&mut self, value: ValueId, slot: usize) {
        match self.graph.values.of(value) {
            Value::Const(number) => self.assembler.set(R0, number),
            Value::Len => {
                self.assembler.copy(R0, R2);
                self.assembler.subtract_register(R0, R1);
            }
            Value::Load(ValueAt { base: None, at }, size) => self.load_fixed(at, size),
            Value::Load(ValueAt { base: Some(base), at }, size) => {
                self.value(base, slot);
                if ipv4_header(&self.graph.values, base).is_none() {
                    self.limit(R0);
                }
                if at > FARTHEST_READ {
                    return self.always_fault();
                }
                self.pointer(R0, at + size as u32);
                self.assembler.load(R0, R4, at as i16, size);
                self.assembler.number_of_bytes(R0, size);
            }
            Value::Op(op, left, right) => match self.graph.values.as_const(right) {
                Some(number) => {
                    self.value(left, slot);
                    self.compute_number(op, number);
                }
                None => {
                    self.two_values(left, right, slot);
                    self.compute(op);
                }
            },
            Value::Member(member) => {
                self.assembler.unspill(R0, MEMBERS_SLOT);
                self.assembler.shift_right(R0, member);
                self.assembler.compute(Op::And, R0, Operand::Number(1));
            }
            Value::Neg(inner) => {
                self.value(inner, slot);
                self.assembler.negate(R0);
            }
            Value::If { test, equals, then, otherwise } => {
                let (other, end) = (self.assembler.local(), self.assembler.local());
                self.value(test, slot);
                self.assembler.branch(Condition::NotEqual, R0, Operand::Number(equals), other);
                let before = self.checked;
                self.value(then, slot);
                self.assembler.jump(end);
                let after_then = std::mem::replace(&mut self.checked, before);
                self.assembler.place(other);
                self.value(otherwise, slot);
                self.assembler.place(end);
                self.checked = self.checked.min(after_then);
            }
            Value::Chain { start, v6, protocol } => self.chain(start.at, v6, protocol),
        }
    }

    /// Leaves one value in R0 and another in R3.
    pub(super) fn two_values(&mut self, left: ValueId, right: ValueId, slot: usize) {
        self.slots = self.slots.max(slot + 1);
        self.value(left, slot);
        self.assembler.spill(slot, R0);
        self.value(right, slot + 1);
        self.assembler.copy(R3, R0);
        self.assembler.unspill(R0, slot);
    }

    fn load_fixed(&mut self, at: u32, size: Size) {
        let end = at.saturating_add(size as u32);
        if end > FARTHEST_READ {
            return self.always_fault();
        }
        if end > self.checked {
            self.assembler.copy(R4, R1);
            self.assembler.add_number(R4, end);
            let fault = self.fault();
            self.assembler.branch_wide(Condition::Greater, R4, Operand::Register(R2), fault);
            self.checked = end;
        }
        self.assembler.load(R0, R1, at as i16, size);
        self.assembler.number_of_bytes(R0, size);
    }

    /// R4 is the frame plus an offset, and that many bytes behind it are in the frame.
    fn pointer(&mut self, offset: Register, bytes: u32) {
        self.assembler.copy(R4, R1);
        self.assembler.add_register(R4, offset);
        self.assembler.copy(R5, R4);
        self.assembler.add_number(R5, bytes);
        let fault = self.fault();
        self.assembler.branch_wide(Condition::Greater, R5, Operand::Register(R2), fault);
    }

    /// The verifier must know that an offset is small: mask all 64 bits, because a byte swap discards the known bounds.
    fn limit(&mut self, offset: Register) {
        let fault = self.fault();
        self.assembler.branch_wide(Condition::Greater, offset, Operand::Number(FARTHEST_READ), fault);
    }

    /// An always-taken jump that looks conditional to the verifier: the code after it must not look unreachable.
    fn always_fault(&mut self) {
        let fault = self.fault();
        self.assembler.set(R0, 0);
        self.assembler.branch(Condition::Equal, R0, Operand::Number(0), fault);
    }

    fn fault(&self) -> Label {
        Label::Target(self.fault)
    }

    fn compute_number(&mut self, op: Op, number: u32) {
        match (op, number) {
            (Op::Div | Op::Mod, 0) => self.always_fault(),
            (Op::Shl | Op::Shr, 32..) => self.assembler.set(R0, 0),
            _ => self.assembler.compute(op, R0, Operand::Number(number)),
        }
    }

    /// R0 with R3.
    fn compute(&mut self, op: Op) {
        match op {
            Op::Div | Op::Mod => {
                let fault = self.fault();
                self.assembler.branch(Condition::Equal, R3, Operand::Number(0), fault);
                self.assembler.compute(op, R0, Operand::Register(R3));
            }
            Op::Shl | Op::Shr => {
                let (small, end) = (self.assembler.local(), self.assembler.local());
                self.assembler.branch(Condition::Less, R3, Operand::Number(32), small);
                self.assembler.set(R0, 0);
                self.assembler.jump(end);
                self.assembler.place(small);
                self.assembler.compute(op, R0, Operand::Register(R3));
                self.assembler.place(end);
            }
            _ => self.assembler.compute(op, R0, Operand::Register(R3)),
        }
    }

    /// `run::chain`, unrolled: the next header's number in R0, its offset from `start` in R6.
    fn chain(&mut self, start: u32, v6: bool, protocol: u32) {
        if start > FARTHEST_READ {
            return self.always_fault();
        }
        if v6 {
            self.load_fixed(start + 6, Size::Byte);
            self.assembler.set(R6, 40);
        } else {
            self.load_fixed(start, Size::Byte);
            self.assembler.compute(Op::And, R0, Operand::Number(15));
            self.assembler.compute(Op::Shl, R0, Operand::Number(2));
            self.assembler.copy(R6, R0);
            self.load_fixed(start + 9, Size::Byte);
        }
        let end = self.assembler.local();
        for _ in 0..CHAIN_HEADERS {
            let (options, next) = (self.assembler.local(), self.assembler.local());
            for number in [protocol, CHAIN_END] {
                self.assembler.branch(Condition::Equal, R0, Operand::Number(number), end);
            }
            if v6 {
                for number in CHAIN_OPTIONS {
                    self.assembler.branch(Condition::Equal, R0, Operand::Number(number), options);
                }
            }
            self.assembler.branch(Condition::NotEqual, R0, Operand::Number(CHAIN_AUTHENTICATION), end);
            self.next_header(start);
            self.assembler.add_number(R3, 2);
            self.assembler.compute(Op::Shl, R3, Operand::Number(2));
            self.assembler.copy(R6, R3);
            if v6 {
                self.assembler.jump(next);
                self.assembler.place(options);
                self.next_header(start);
                self.assembler.add_number(R3, 1);
                self.assembler.compute(Op::Shl, R3, Operand::Number(3));
                self.assembler.add_register(R6, R3);
            }
            self.assembler.place(next);
        }
        self.assembler.place(end);
        let (found, done) = (self.assembler.local(), self.assembler.local());
        self.assembler.branch(Condition::Equal, R0, Operand::Number(protocol), found);
        self.assembler.set(R0, 0);
        self.assembler.jump(done);
        self.assembler.place(found);
        self.assembler.set(R0, 1);
        self.assembler.place(done);
    }

    /// The first two bytes of the header at R6: what follows it in R0, and its length in R3.
    fn next_header(&mut self, start: u32) {
        self.limit(R6);
        self.pointer(R6, start + 2);
        self.assembler.load(R0, R4, start as i16, Size::Byte);
        self.assembler.load(R3, R4, start as i16 + 1, Size::Byte);
    }
}
