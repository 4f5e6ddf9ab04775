//! Verdicts in user space: steps in one array, each a load, a mask, a comparison and a jump.

use crate::{
    ast::Op,
    graph::{Graph, Target},
    lower::Compare,
    value::{Size, Value, ValueAt, ValueId, Values, compute},
};

/// A filter, or several, ready to run.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    steps: Box<[MachineStep]>,
    start: u32,
    values: Values,
}

#[derive(Debug, Clone, Copy)]
struct MachineStep {
    source: Source,
    compare: Compare,
    /// Where the field is, from the source's base on.
    at: u32,
    mask: u32,
    /// A number; of a computed comparison, the value's number.
    with: u32,
    yes: u32,
    no: u32,
    fault: u32,
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
enum Source {
    Byte,
    Half,
    Word,
    /// The same, behind the IPv4 header at that offset.
    ByteBehind(u32),
    HalfBehind(u32),
    WordBehind(u32),
    Len,
    Member(u32),
    /// Anything else, compared with a number.
    Computed(ValueId),
    /// Anything else, compared with anything else.
    BothComputed(ValueId),
}

/// Jump targets from here on end the run: this plus the index of the filter that matches.
const END: u32 = 1 << 31;
const NOTHING: u32 = u32::MAX;

impl Machine {
    pub(crate) fn new(graph: &Graph) -> Self {
        let last = graph.steps.len() as u32;
        let jump = |target| match target {
            Target::Step(step) => last - 1 - step,
            Target::Match(filter) => END + filter,
            Target::Nothing => NOTHING,
        };
        let steps = graph.in_order().map(|(_, step)| {
            let (source, at, mask) = source(&graph.values, step.test.value);
            let (source, with) = match graph.values.as_const(step.test.with) {
                Some(with) => (source, with),
                None => (Source::BothComputed(step.test.value), step.test.with.0),
            };
            MachineStep {
                source,
                compare: step.test.compare,
                at,
                mask,
                with,
                yes: jump(step.yes),
                no: jump(step.no),
                fault: jump(step.fault),
            }
        });
        Self { steps: steps.collect(), start: jump(graph.start), values: graph.values.clone() }
    }

    /// The first filter that matches.
    #[inline]
    pub(crate) fn run(&self, frame: &[u8], in_sets: u64) -> Option<u32> {
        let mut next = self.start;
        while let Some(step) = self.steps.get(next as usize) {
            next = match self.value(step, frame, in_sets) {
                Some(value) => {
                    let with = match step.source {
                        Source::BothComputed(_) => evaluate(&self.values, ValueId(step.with), frame, in_sets),
                        _ => Some(step.with),
                    };
                    let value = value & step.mask;
                    match with {
                        Some(with) if step.compare.holds(value, with) => step.yes,
                        Some(_) => step.no,
                        None => step.fault,
                    }
                }
                None => step.fault,
            };
        }
        (next != NOTHING).then(|| next - END)
    }

    #[inline]
    fn value(&self, step: &MachineStep, frame: &[u8], in_sets: u64) -> Option<u32> {
        let at = step.at as usize;
        match step.source {
            Source::Byte => byte(frame, at),
            Source::Half => half(frame, at),
            Source::Word => word(frame, at),
            Source::ByteBehind(header) => byte(frame, behind(frame, header)? + at),
            Source::HalfBehind(header) => half(frame, behind(frame, header)? + at),
            Source::WordBehind(header) => word(frame, behind(frame, header)? + at),
            Source::Len => Some(frame.len() as u32),
            Source::Member(member) => Some((in_sets >> member & 1) as u32),
            Source::Computed(value) | Source::BothComputed(value) => {
                evaluate(&self.values, value, frame, in_sets)
            }
        }
    }
}

fn source(values: &Values, value: ValueId) -> (Source, u32, u32) {
    let (inner, mask) = match values.of(value) {
        Value::Op(Op::And, inner, mask) => match values.as_const(mask) {
            Some(mask) => (inner, mask),
            None => (value, u32::MAX),
        },
        _ => (value, u32::MAX),
    };
    match values.of(inner) {
        Value::Len => (Source::Len, 0, mask),
        Value::Member(member) => (Source::Member(member), 0, mask),
        Value::Load(ValueAt { base: None, at }, size) => {
            let source = match size {
                Size::Byte => Source::Byte,
                Size::Half => Source::Half,
                Size::Word => Source::Word,
            };
            (source, at, mask)
        }
        Value::Load(ValueAt { base: Some(base), at }, size) => match ipv4_header(values, base) {
            Some(header) => {
                let source = match size {
                    Size::Byte => Source::ByteBehind(header),
                    Size::Half => Source::HalfBehind(header),
                    Size::Word => Source::WordBehind(header),
                };
                (source, at, mask)
            }
            None => (Source::Computed(inner), 0, mask),
        },
        _ => (Source::Computed(inner), 0, mask),
    }
}

/// The offset of the IPv4 header whose length this value is.
pub(crate) fn ipv4_header(values: &Values, value: ValueId) -> Option<u32> {
    let Value::Op(Op::Shl, words, two) = values.of(value) else { return None };
    let Value::Op(Op::And, first, nibble) = values.of(words) else { return None };
    let Value::Load(ValueAt { base: None, at }, Size::Byte) = values.of(first) else { return None };
    (values.as_const(two) == Some(2) && values.as_const(nibble) == Some(15)).then_some(at)
}

#[inline]
fn behind(frame: &[u8], header: u32) -> Option<usize> {
    frame.get(header as usize).map(|first| usize::from(first & 15) * 4)
}

#[inline]
fn byte(frame: &[u8], at: usize) -> Option<u32> {
    frame.get(at).map(|byte| u32::from(*byte))
}

#[inline]
fn half(frame: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?).into())
}

#[inline]
fn word(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// Any value of a frame; `None` is a fault.
pub(crate) fn evaluate(values: &Values, value: ValueId, frame: &[u8], in_sets: u64) -> Option<u32> {
    let of = |value| evaluate(values, value, frame, in_sets);
    match values.of(value) {
        Value::Const(number) => Some(number),
        Value::Len => Some(frame.len() as u32),
        Value::Member(member) => Some((in_sets >> member & 1) as u32),
        Value::Load(place, size) => {
            let base = place.base.map_or(Some(0), of)?;
            load(frame, u64::from(base) + u64::from(place.at), size)
        }
        Value::Op(op, left, right) => compute(op, of(left)?, of(right)?),
        Value::Neg(value) => of(value).map(u32::wrapping_neg),
        Value::If { test, equals, then, otherwise } => of(if of(test)? == equals { then } else { otherwise }),
        Value::Chain { start, v6, protocol } => chain(frame, start, v6, protocol),
    }
}

fn load(frame: &[u8], at: u64, size: Size) -> Option<u32> {
    let at = usize::try_from(at).ok()?;
    match size {
        Size::Byte => byte(frame, at),
        Size::Half => half(frame, at),
        Size::Word => word(frame, at),
    }
}

/// The most headers that are followed.
pub(crate) const CHAIN_HEADERS: u32 = 8;
/// Numbers of headers that another follows: hop-by-hop and destination options, routing, fragment; authentication;
/// and of the end.
pub(crate) const CHAIN_OPTIONS: [u32; 4] = [0, 60, 43, 44];
pub(crate) const CHAIN_AUTHENTICATION: u32 = 51;
pub(crate) const CHAIN_END: u32 = 59;

/// Whether a protocol is among an IP packet's headers, found as libpcap does: IPv4 has only the authentication header,
/// and after one of these the search continues from its own length on, not from its end.
fn chain(frame: &[u8], start: ValueAt, v6: bool, protocol: u32) -> Option<u32> {
    let start = start.at as usize;
    let (mut next, mut at) = match v6 {
        true => (byte(frame, start + 6)?, 40),
        false => (byte(frame, start + 9)?, (byte(frame, start)? & 15) * 4),
    };
    for _ in 0..CHAIN_HEADERS {
        if next == protocol || next == CHAIN_END {
            break;
        }
        let here = start + at as usize;
        if v6 && CHAIN_OPTIONS.contains(&next) {
            (next, at) = (byte(frame, here)?, at + (byte(frame, here + 1)? + 1) * 8);
        } else if next == CHAIN_AUTHENTICATION {
            (next, at) = (byte(frame, here)?, (byte(frame, here + 1)? + 2) * 4);
        } else {
            break;
        }
    }
    Some(u32::from(next == protocol))
}
