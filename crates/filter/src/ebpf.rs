//! Filters as eBPF, for XDP.
//!
//! The result is the body of `int chosen(void *data, void *data_end, __u64 in_sets)`: it reads the frame directly, checks
//! every length before it reads, has no loops, calls nothing, and returns the answer that belongs to the first filter
//! that matches.
//!
//! XDP sees a frame after the card and before the kernel: a VLAN tag that the card stripped is not in it, so turn
//! stripping off (`ethtool -K eth0 rxvlan off`) to match `vlan`. `len` counts the bytes in the first buffer of a frame;
//! what lies beyond the first 32 KiB counts as outside.

use crate::{
    filter::FilterSet,
    graph::{Graph, Step, Target},
    lower::Compare,
    value::ValueId,
};

mod assembler;
mod values;

pub use assembler::EbpfInstruction;

use assembler::{Assembler, Condition, Label, Operand, R0, R3};
use values::Code;

/// Why filters cannot be turned into eBPF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EbpfRefusal {
    /// More instructions than fit.
    #[error("the filters need {instructions} eBPF instructions, but at most {most} fit")]
    TooLong {
        /// So many are needed.
        instructions: usize,
        /// The limit.
        most: usize,
    },
    /// An arithmetic expression that needs more intermediate results than the BPF stack can hold.
    #[error("arithmetic needs more than {most} intermediate results")]
    TooDeep {
        /// The limit.
        most: usize,
    },
}

/// Jumps reach no further.
const FARTHEST: usize = i16::MAX as usize;
impl FilterSet {
    /// The body of a BPF function that takes the two ends of an XDP frame and the bits of [`members`](Self::members). It returns the answer of the first filter
    /// that matches, and `otherwise` when none does; registers 0 to 6 and 104 bytes of stack are its own.
    ///
    /// # Errors
    /// When the filters need more than `most` instructions, or too many intermediate results.
    ///
    /// # Panics
    /// When the numbers of answers and filters differ.
    pub fn to_ebpf(
        &self,
        answers: &[i32],
        otherwise: i32,
        most: usize,
    ) -> Result<Vec<EbpfInstruction>, EbpfRefusal> {
        assert_eq!(answers.len(), self.len(), "one answer per filter");
        let graph = &self.graph;
        let mut code =
            Code { graph, assembler: Assembler::default(), checked: 0, fault: Target::Nothing, slots: 0 };
        if !graph.values.members().is_empty() {
            code.assembler.spill(values::MEMBERS_SLOT, R3);
        }
        if !matches!(graph.start, Target::Step(_)) {
            code.assembler.jump(Label::Target(graph.start));
        }
        let flow = Flow::of(graph);
        for (number, step) in graph.in_order() {
            // Some follow only from faults of values that other steps have read: the kernel refuses code that nothing
            // reaches.
            if code.assembler.is_reached(Label::Target(Target::Step(number))) {
                code.step(number, step, flow.on_entry[number as usize]);
            }
        }
        code.ends(answers, otherwise);
        if code.slots > values::SLOTS {
            return Err(EbpfRefusal::TooDeep { most: values::SLOTS });
        }
        let (instructions, most) = (code.assembler.len(), most.min(FARTHEST));
        if instructions > most {
            return Err(EbpfRefusal::TooLong { instructions, most });
        }
        Ok(code.assembler.finish())
    }
}

/// What is known when a step begins, on every path to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The frame has at least this many bytes.
    checked: u32,
    /// This value is in the register already.
    holds: Option<ValueId>,
}

struct Flow {
    on_entry: Vec<Entry>,
}

impl Flow {
    fn of(graph: &Graph) -> Self {
        let mut on_entry: Vec<Option<Entry>> = vec![None; graph.steps.len()];
        if let Target::Step(first) = graph.start {
            on_entry[first as usize] = Some(Entry { checked: 0, holds: None });
        }
        for (number, step) in graph.in_order() {
            let Some(before) = on_entry[number as usize] else { continue };
            let read = [step.test.value, step.test.with].map(|value| readable_extent(graph, value));
            let after = Entry {
                checked: before.checked.max(read[0]).max(read[1]),
                // A computed comparison leaves other things in the registers.
                holds: graph.values.as_const(step.test.with).map(|_| step.test.value),
            };
            let fault = Entry { holds: None, ..before };
            for (target, entry) in [(step.yes, after), (step.no, after), (step.fault, fault)] {
                if let Target::Step(next) = target {
                    let known = &mut on_entry[next as usize];
                    *known = Some(known.map_or(entry, |known| known.both(entry)));
                }
            }
        }
        let unknown = Entry { checked: 0, holds: None };
        Self { on_entry: on_entry.into_iter().map(|entry| entry.unwrap_or(unknown)).collect() }
    }
}

impl Entry {
    fn both(self, other: Self) -> Self {
        Self {
            checked: self.checked.min(other.checked),
            holds: self.holds.filter(|_| self.holds == other.holds),
        }
    }
}

/// The frame has at least this many bytes once code with bounds checks has computed the value.
fn readable_extent(graph: &Graph, value: ValueId) -> u32 {
    let extent = graph.values.certain_extent(value);
    if extent <= values::FARTHEST_READ { extent } else { 0 }
}

impl Code<'_> {
    fn step(&mut self, number: u32, step: &Step, entry: Entry) {
        self.assembler.place(Label::Target(Target::Step(number)));
        (self.checked, self.fault) = (entry.checked, step.fault);
        let with = match self.graph.values.as_const(step.test.with) {
            Some(number) => {
                if entry.holds != Some(step.test.value) {
                    self.value(step.test.value, 0);
                }
                Operand::Number(number)
            }
            None => {
                self.two_values(step.test.value, step.test.with, 0);
                Operand::Register(R3)
            }
        };
        let (is, is_not) = match step.test.compare {
            Compare::Equal => (Condition::Equal, Condition::NotEqual),
            Compare::Greater => (Condition::Greater, Condition::LessEqual),
            Compare::GreaterEqual => (Condition::GreaterEqual, Condition::Less),
        };
        let next = number.checked_sub(1).map(Target::Step);
        if Some(step.yes) == next {
            self.assembler.branch(is_not, R0, with, Label::Target(step.no));
        } else {
            self.assembler.branch(is, R0, with, Label::Target(step.yes));
            if Some(step.no) != next {
                self.assembler.jump(Label::Target(step.no));
            }
        }
    }

    fn ends(&mut self, answers: &[i32], otherwise: i32) {
        for target in self.assembler.wanted_ends() {
            self.assembler.place(Label::Target(target));
            let answer = match target {
                Target::Match(filter) => answers[filter as usize],
                _ => otherwise,
            };
            self.assembler.set(R0, answer as u32);
            self.assembler.exit();
        }
    }
}
