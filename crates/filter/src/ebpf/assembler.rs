//! Instructions, and labels for their jumps (the kernel's Documentation/bpf/standardization/instruction-set.rst).

use std::collections::{HashMap, HashSet};

use crate::{ast::Op, graph::Target, value::Size};

/// One instruction, field by field as in the kernel's `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EbpfInstruction {
    /// Class, operation and kind of source.
    pub code: u8,
    /// The register that is written or compared.
    pub dst: u8,
    /// The register that is read.
    pub src: u8,
    /// A jump's distance, or an offset into memory.
    pub offset: i16,
    /// A number.
    pub imm: i32,
}

impl EbpfInstruction {
    /// The eight bytes in this machine's byte order.
    pub fn to_bytes(self) -> [u8; 8] {
        let registers =
            if cfg!(target_endian = "little") { self.src << 4 | self.dst } else { self.dst << 4 | self.src };
        let ([a, b], [c, d, e, f]) = (self.offset.to_ne_bytes(), self.imm.to_ne_bytes());
        [self.code, registers, a, b, c, d, e, f]
    }
}

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register(u8);

/// The value that a step compares; also the return value.
pub(super) const R0: Register = Register(0);
/// The frame's first byte.
pub(super) const R1: Register = Register(1);
/// The end of the frame.
pub(super) const R2: Register = Register(2);
/// The second of two values.
pub(super) const R3: Register = Register(3);
/// Scratch.
pub(super) const R4: Register = Register(4);
/// Scratch.
pub(super) const R5: Register = Register(5);
/// A position in a chain of headers.
pub(super) const R6: Register = Register(6);
const STACK: Register = Register(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Label {
    Target(Target),
    Local(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    Number(u32),
    Register(Register),
}

/// Unsigned comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Equal = 0x10,
    Greater = 0x20,
    GreaterEqual = 0x30,
    NotEqual = 0x50,
    Less = 0xa0,
    LessEqual = 0xb0,
}

const LDX: u8 = 0x61;
const STX_DOUBLE: u8 = 0x7b;
const LDX_DOUBLE: u8 = 0x79;
const ALU32: u8 = 0x04;
const JMP: u8 = 0x05;
const ALU64: u8 = 0x07;
const JMP32: u8 = 0x06;
const FROM_REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const SUB: u8 = 0x10;
const NEG: u8 = 0x80;
const MOV: u8 = 0xb0;
const TO_BIG_ENDIAN: u8 = 0xdc;
const EXIT: u8 = 0x95;

#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<EbpfInstruction>,
    jumps: Vec<(usize, Label)>,
    wanted: HashSet<Label>,
    wanted_ends: Vec<Target>,
    places: HashMap<Label, usize>,
    locals: u32,
}

impl Assembler {
    pub(super) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// The instructions, all jumps resolved.
    pub(super) fn finish(mut self) -> Vec<EbpfInstruction> {
        for (from, label) in self.jumps {
            let to = self.places[&label];
            self.instructions[from].offset = (to - from - 1) as i16;
        }
        self.instructions
    }

    /// The exits that are jumped to.
    pub(super) fn wanted_ends(&self) -> Vec<Target> {
        self.wanted_ends.clone()
    }

    /// Whether any code so far jumps to a label, or falls through to it if it is placed here.
    pub(super) fn is_reached(&self, label: Label) -> bool {
        let runs_on = self.instructions.last().is_none_or(|last| ![JMP, EXIT].contains(&last.code));
        runs_on || self.wanted.contains(&label)
    }

    pub(super) fn local(&mut self) -> Label {
        self.locals += 1;
        Label::Local(self.locals)
    }

    pub(super) fn place(&mut self, label: Label) {
        self.places.insert(label, self.instructions.len());
    }

    /// Bytes of the frame, in memory order.
    pub(super) fn load(&mut self, dst: Register, from: Register, offset: i16, size: Size) {
        let code = match size {
            Size::Word => LDX,
            Size::Half => LDX | 0x08,
            Size::Byte => LDX | 0x10,
        };
        self.push(code, dst, from, offset, 0);
    }

    /// Bytes of the frame as a number.
    pub(super) fn number_of_bytes(&mut self, dst: Register, size: Size) {
        if size != Size::Byte {
            self.push(TO_BIG_ENDIAN, dst, Register(0), 0, 8 * size as i32);
        }
    }

    pub(super) fn spill(&mut self, slot: usize, from: Register) {
        self.push(STX_DOUBLE, STACK, from, stack_offset(slot), 0);
    }

    pub(super) fn unspill(&mut self, dst: Register, slot: usize) {
        self.push(LDX_DOUBLE, dst, STACK, stack_offset(slot), 0);
    }

    pub(super) fn set(&mut self, dst: Register, number: u32) {
        self.push(ALU32 | MOV, dst, Register(0), 0, number as i32);
    }

    /// All 64 bits.
    pub(super) fn shift_right(&mut self, dst: Register, bits: u32) {
        self.push(ALU64 | Op::Shr.bpf_code(), dst, Register(0), 0, bits as i32);
    }

    /// All 64 bits.
    pub(super) fn copy(&mut self, dst: Register, src: Register) {
        self.push(ALU64 | MOV | FROM_REGISTER, dst, src, 0, 0);
    }

    /// All 64 bits.
    pub(super) fn add_register(&mut self, dst: Register, src: Register) {
        self.push(ALU64 | ADD | FROM_REGISTER, dst, src, 0, 0);
    }

    /// All 64 bits.
    pub(super) fn subtract_register(&mut self, dst: Register, src: Register) {
        self.push(ALU64 | SUB | FROM_REGISTER, dst, src, 0, 0);
    }

    /// All 64 bits.
    pub(super) fn add_number(&mut self, dst: Register, number: u32) {
        self.push(ALU64 | ADD, dst, Register(0), 0, number as i32);
    }

    pub(super) fn negate(&mut self, dst: Register) {
        self.push(ALU32 | NEG, dst, Register(0), 0, 0);
    }

    /// Unsigned, 32 bits.
    pub(super) fn compute(&mut self, op: Op, dst: Register, with: Operand) {
        self.with_operand(ALU32 | op.bpf_code(), dst, with);
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.want(to);
        self.push(JMP, Register(0), Register(0), 0, 0);
    }

    /// Compares 32 bits.
    pub(super) fn branch(&mut self, condition: Condition, left: Register, right: Operand, to: Label) {
        self.want(to);
        self.with_operand(JMP32 | condition as u8, left, right);
    }

    /// Compares 64 bits; a number must be below 2^31.
    pub(super) fn branch_wide(&mut self, condition: Condition, left: Register, right: Operand, to: Label) {
        self.want(to);
        self.with_operand(JMP | condition as u8, left, right);
    }

    pub(super) fn exit(&mut self) {
        self.push(EXIT, Register(0), Register(0), 0, 0);
    }

    /// Makes the next instruction a jump target.
    fn want(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        if self.wanted.insert(label)
            && let Label::Target(end @ (Target::Match(_) | Target::Nothing)) = label
        {
            self.wanted_ends.push(end);
        }
    }

    fn with_operand(&mut self, code: u8, dst: Register, with: Operand) {
        match with {
            Operand::Number(number) => self.push(code, dst, Register(0), 0, number as i32),
            Operand::Register(src) => self.push(code | FROM_REGISTER, dst, src, 0, 0),
        }
    }

    fn push(&mut self, code: u8, dst: Register, src: Register, offset: i16, imm: i32) {
        self.instructions.push(EbpfInstruction { code, dst: dst.0, src: src.0, offset, imm });
    }
}

fn stack_offset(slot: usize) -> i16 {
    -8 * (slot as i16 + 1)
}
