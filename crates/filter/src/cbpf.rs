//! Filters as classic BPF, as sockets and capture files' tools take it (`SO_ATTACH_FILTER`, `tcpdump -ddd`).

use std::collections::HashMap;

use crate::{
    ast::Op,
    filter::Filter,
    graph::{Graph, Target},
    lower::Compare,
    run::ipv4_header,
    value::{Place, Size, Value, ValueId},
};

/// One instruction, field by field as in the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CbpfInstruction {
    /// Class, size, mode and operation.
    pub code: u16,
    /// Instructions that are skipped when a comparison holds.
    pub jt: u8,
    /// Instructions that are skipped when it does not.
    pub jf: u8,
    /// A number, an offset, or a distance.
    pub k: u32,
}

/// Why a filter cannot be classic BPF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CbpfRefusal {
    /// The kernel takes 4096 instructions.
    #[error("the filter needs {instructions} classic BPF instructions, and the kernel takes {MOST}")]
    TooLong {
        /// So many are needed.
        instructions: usize,
    },
    /// Arithmetic that needs more intermediate results than there are memory cells.
    #[error("arithmetic with more than {CELLS} intermediate results")]
    TooDeep,
    /// Classic BPF can neither loop nor remember enough to follow a chain of headers.
    #[error("'protochain' has no form in classic BPF that the kernel takes")]
    Protochain,
    /// A fault ends a classic BPF program without a match, and this filter would go on: only in sets of filters.
    #[error("the filter goes on behind a frame's end")]
    Fault,
}

/// Instructions that the kernel takes at most.
const MOST: usize = 4096;
const CELLS: usize = 16;
/// What a match returns: so many bytes of the frame are wanted, as tcpdump does.
const WHOLE_FRAME: u32 = 262_144;

/// Outside every frame. Higher offsets are negative to the kernel, and mean other things.
const OUTSIDE: u32 = i32::MAX as u32;

const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const TAX: u16 = 0x07;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xb0;
const WITH_X: u16 = 0x08;

impl Filter {
    /// The filter as a classic BPF program that returns 0 when a frame does not match.
    ///
    /// # Errors
    /// What classic BPF cannot express.
    pub fn program(&self) -> Result<Vec<CbpfInstruction>, CbpfRefusal> {
        let mut code = Code { graph: &self.graph, blocks: Vec::new(), now: Vec::new(), refusal: None };
        for (_, step) in self.graph.in_order() {
            if step.fault != Target::Nothing {
                return Err(CbpfRefusal::Fault);
            }
            code.now.clear();
            let compare = match step.test.compare {
                Compare::Equal => 0x10,
                Compare::Greater => 0x20,
                Compare::GreaterEqual => 0x30,
            };
            let branch = match self.graph.values.as_const(step.test.with) {
                Some(number) => {
                    code.value(step.test.value, 0);
                    (compare, number)
                }
                None => {
                    code.two_values(step.test.value, step.test.with, 0);
                    (compare | WITH_X, 0)
                }
            };
            code.blocks.push(Block { instructions: code.now.clone(), branch, yes: step.yes, no: step.no });
        }
        match code.refusal {
            Some(refusal) => Err(refusal),
            None => lay_out(&self.graph, &code.blocks),
        }
    }
}

/// A step's instructions, without the jump at their end.
struct Block {
    instructions: Vec<CbpfInstruction>,
    branch: (u16, u32),
    yes: Target,
    no: Target,
}

/// From the end, so that every distance is known when it is needed; far jumps take an instruction of their own.
fn lay_out(graph: &Graph, blocks: &[Block]) -> Result<Vec<CbpfInstruction>, CbpfRefusal> {
    let op = |code, k| CbpfInstruction { code, jt: 0, jf: 0, k };
    let mut backwards = vec![op(RET, 0), op(RET, WHOLE_FRAME)];
    // Distances from the end of the program to each target's first instruction.
    let mut places = HashMap::from([(Target::Nothing, 1), (Target::Match(0), 2)]);
    let last = graph.steps.len();
    for (index, block) in blocks.iter().enumerate().rev() {
        let distance = |to: Target, from: usize, places: &HashMap<Target, usize>| from - places[&to];
        let far = |target, backwards: &mut Vec<CbpfInstruction>| {
            let distance = distance(target, backwards.len(), &places);
            if distance > 250 {
                backwards.push(op(JMP, distance as u32));
                return 0;
            }
            distance
        };
        let no = far(block.no, &mut backwards);
        let length = backwards.len();
        let yes = far(block.yes, &mut backwards);
        let no = no + (backwards.len() - length);
        let (code, k) = block.branch;
        backwards.push(CbpfInstruction { code: JMP | code, jt: yes as u8, jf: no as u8, k });
        backwards.extend(block.instructions.iter().rev());
        places.insert(Target::Step((last - 1 - index) as u32), backwards.len());
    }
    if let Target::Match(_) | Target::Nothing = graph.start {
        let from = backwards.len();
        backwards.push(op(JMP, (from - places[&graph.start]) as u32));
    }
    backwards.reverse();
    match backwards.len() {
        instructions @ 4097.. => Err(CbpfRefusal::TooLong { instructions }),
        _ => Ok(backwards),
    }
}

struct Code<'g> {
    graph: &'g Graph,
    blocks: Vec<Block>,
    now: Vec<CbpfInstruction>,
    refusal: Option<CbpfRefusal>,
}

impl Code<'_> {
    /// Leaves a value in A; overwrites X and the memory cells from `cell` on.
    fn value(&mut self, value: ValueId, cell: usize) {
        match self.graph.values.of(value) {
            Value::Const(number) => self.push(LD | IMM, number),
            Value::Len => self.push(LD | LEN, 0),
            Value::Load(Place { base: None, at }, size) => self.push(LD | ABS | width(size), at.min(OUTSIDE)),
            Value::Load(Place { base: Some(base), at }, size) => {
                match ipv4_header(&self.graph.values, base) {
                    Some(header) => self.push(LDX | MSH, header),
                    None => {
                        self.value(base, cell);
                        self.push(TAX, 0);
                    }
                }
                self.push(LD | IND | width(size), at.min(OUTSIDE));
            }
            Value::Op(op, left, right) => match self.graph.values.as_const(right) {
                Some(number) => {
                    self.value(left, cell);
                    self.compute(op, Some(number));
                }
                None => {
                    self.two_values(left, right, cell);
                    self.compute(op, None);
                }
            },
            Value::Neg(inner) => {
                self.value(inner, cell);
                self.push(ALU | 0x80, 0);
            }
            Value::If { test, equals, then, otherwise } => {
                self.value(test, cell);
                let branch = self.now.len();
                self.push(JMP | 0x10, equals);
                self.value(then, cell);
                let end = self.now.len();
                self.push(JMP, 0);
                self.value(otherwise, cell);
                let (to_otherwise, to_end) = (end - branch, self.now.len() - end - 1);
                match u8::try_from(to_otherwise) {
                    Ok(distance) => self.now[branch].jf = distance,
                    Err(_) => self.refusal = Some(CbpfRefusal::TooLong { instructions: MOST + 1 }),
                }
                self.now[end].k = to_end as u32;
            }
            Value::Chain { .. } => self.refusal = Some(CbpfRefusal::Protochain),
        }
    }

    /// Leaves one value in A and another in X.
    fn two_values(&mut self, left: ValueId, right: ValueId, cell: usize) {
        if cell >= CELLS {
            self.refusal = Some(CbpfRefusal::TooDeep);
            return;
        }
        self.value(left, cell);
        self.push(ST, cell as u32);
        self.value(right, cell + 1);
        self.push(TAX, 0);
        self.push(LD | MEM, cell as u32);
    }

    fn compute(&mut self, op: Op, number: Option<u32>) {
        let code = u16::from(op.bpf_code());
        match (op, number) {
            // The kernel takes neither; the one is a fault, the other 0.
            (Op::Div | Op::Mod, Some(0)) => self.push(LD | ABS, OUTSIDE),
            (Op::Shl | Op::Shr, Some(32..)) => self.push(LD | IMM, 0),
            (_, Some(number)) => self.push(ALU | code, number),
            (_, None) => self.push(ALU | code | WITH_X, 0),
        }
    }

    fn push(&mut self, code: u16, k: u32) {
        self.now.push(CbpfInstruction { code, jt: 0, jf: 0, k });
    }
}

fn width(size: Size) -> u16 {
    match size {
        Size::Word => 0x00,
        Size::Half => 0x08,
        Size::Byte => 0x10,
    }
}
