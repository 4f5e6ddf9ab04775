//! Skips tests whose outcome is known, and merges equal ones.
//!
//! What is known on an edge follows from what all paths to it passed (edge dominators, as in McCanne and Jacobson's
//! optimiser). Values never change, so a known outcome stays known.

use std::collections::HashMap;

use crate::{
    ast::Op,
    lower::{Compare, Test},
    value::{Size, Value, ValueAt, ValueId, Values},
};

use super::{Graph, Step, Target};

/// More rounds than any realistic expression needs.
const ROUNDS: usize = 32;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Yes,
    No,
    Fault,
}

const OUTCOMES: [Outcome; 3] = [Outcome::Yes, Outcome::No, Outcome::Fault];

impl Graph {
    pub(super) fn optimise(&mut self) {
        for _ in 0..ROUNDS {
            let before = (self.steps.len(), self.start);
            let changed = self.step_over();
            self.merge();
            if !changed && before == (self.steps.len(), self.start) {
                break;
            }
        }
    }

    /// Leads edges past tests whose outcome is known there.
    fn step_over(&mut self) -> bool {
        let known = self.known();
        let mut changed = false;
        for number in (0..self.steps.len()).rev() {
            // Unreachable steps: anything is vacuously known there.
            let Some(dominators) = &known[number] else { continue };
            for outcome in OUTCOMES {
                let old = self.follow(number, outcome);
                let mut facts = Facts { graph: self, dominators, last: (number as u32, outcome) };
                let new = facts.past(old);
                if new != old {
                    changed = true;
                    let step = &mut self.steps[number];
                    match outcome {
                        Outcome::Yes => step.yes = new,
                        Outcome::No => step.no = new,
                        Outcome::Fault => step.fault = new,
                    }
                }
            }
        }
        changed
    }

    fn follow(&self, number: usize, outcome: Outcome) -> Target {
        let step = &self.steps[number];
        match outcome {
            Outcome::Yes => step.yes,
            Outcome::No => step.no,
            Outcome::Fault => step.fault,
        }
    }

    /// For each step the edges that every path to it takes; `None` when no path leads there.
    fn known(&self) -> Vec<Option<Edges>> {
        let mut known: Vec<Option<Edges>> = vec![None; self.steps.len()];
        if let Target::Step(first) = self.start {
            known[first as usize] = Some(Edges::none(self.steps.len()));
        }
        for number in (0..self.steps.len()).rev() {
            let Some(here) = known[number].clone() else { continue };
            for outcome in OUTCOMES {
                let Target::Step(next) = self.follow(number, outcome) else { continue };
                let mut on_edge = here.clone();
                on_edge.insert(number as u32, outcome);
                match &mut known[next as usize] {
                    Some(known) => known.keep_common(&on_edge),
                    none => *none = Some(on_edge),
                }
            }
        }
        known
    }

    /// Drops tests whose branches lead to the same step, merges equal tests, and removes unreachable steps.
    pub(super) fn merge(&mut self) {
        let mut reachable = vec![false; self.steps.len()];
        let visit = |target, reachable: &mut Vec<bool>| {
            if let Target::Step(step) = target {
                reachable[step as usize] = true;
            }
        };
        visit(self.start, &mut reachable);
        for number in (0..self.steps.len()).rev() {
            if reachable[number] {
                for outcome in OUTCOMES {
                    visit(self.follow(number, outcome), &mut reachable);
                }
            }
        }
        let mut kept: Vec<Step> = Vec::new();
        let mut same: HashMap<Step, u32> = HashMap::new();
        let mut now: Vec<Target> = Vec::with_capacity(self.steps.len());
        let moved = |target, now: &[Target]| match target {
            Target::Step(step) => now[step as usize],
            target => target,
        };
        for (step, reachable) in self.steps.iter().zip(reachable) {
            let step = Step {
                test: step.test,
                yes: moved(step.yes, &now),
                no: moved(step.no, &now),
                fault: moved(step.fault, &now),
            };
            now.push(if !reachable {
                Target::Nothing
            } else if step.yes == step.no && step.yes == step.fault {
                step.yes
            } else {
                Target::Step(*same.entry(step).or_insert_with(|| {
                    kept.push(step);
                    kept.len() as u32 - 1
                }))
            });
        }
        self.start = moved(self.start, &now);
        self.steps = kept;
    }
}

/// A set of edges, three per step.
#[derive(Debug, Clone)]
struct Edges(Vec<u64>);

impl Edges {
    fn none(steps: usize) -> Self {
        Self(vec![0; (3 * steps).div_ceil(64)])
    }

    fn insert(&mut self, step: u32, outcome: Outcome) {
        let bit = 3 * step as usize + outcome as usize;
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn keep_common(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= b;
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Outcome)> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                let edge = 64 * index + bit;
                Some(((edge / 3) as u32, OUTCOMES[edge % 3]))
            })
        })
    }
}

/// What is known on an edge.
struct Facts<'g> {
    graph: &'g Graph,
    dominators: &'g Edges,
    last: (u32, Outcome),
}

impl Facts<'_> {
    fn past(&mut self, mut target: Target) -> Target {
        while let Target::Step(number) = target {
            let step = &self.graph.steps[number as usize];
            target = match self.outcome(&step.test) {
                Some(outcome) => self.graph.follow(number as usize, outcome),
                // A value whose result does not matter is still read, unless reading it certainly succeeds: a fault ends the filter.
                None if step.yes == step.no
                    && [step.test.value, step.test.with].iter().all(|it| self.is_certain(*it)) =>
                {
                    step.yes
                }
                None => break,
            };
        }
        target
    }

    fn tests(&self) -> impl Iterator<Item = (&Test, Outcome)> {
        let edges = self.dominators.iter().chain([self.last]);
        edges.map(|(step, outcome)| (&self.graph.steps[step as usize].test, outcome))
    }

    fn outcome(&self, test: &Test) -> Option<Outcome> {
        let values = &self.graph.values;
        for (known, outcome) in self.tests() {
            if known == test {
                return Some(outcome);
            }
            if outcome == Outcome::Fault && known.value == test.value && values.as_const(known.with).is_some()
            {
                return Some(Outcome::Fault);
            }
        }
        let with = values.as_const(test.with)?;
        let (least, most, not) = self.range(test.value);
        let (least, most) = match (values.of(test.value), self.number(test.value)) {
            (_, Some(number)) => (number, number),
            // The mask and the field size bound a value; they do not prove that it can be read.
            _ if least == 0 && most == u32::MAX && not.is_empty() && !self.is_certain(test.value) => {
                return None;
            }
            (value, None) => (least, most.min(largest(values, value))),
        };
        let holds = |holds| Some(if holds { Outcome::Yes } else { Outcome::No });
        match test.compare {
            Compare::Equal if with < least || with > most || not.contains(&with) => holds(false),
            Compare::Equal if least == most => holds(true),
            Compare::Greater if least > with => holds(true),
            Compare::Greater if most <= with => holds(false),
            Compare::GreaterEqual if least >= with => holds(true),
            Compare::GreaterEqual if most < with => holds(false),
            _ => None,
        }
    }

    /// Whether computing a value certainly succeeds.
    fn is_certain(&self, value: ValueId) -> bool {
        let values = &self.graph.values;
        let computed =
            || self.tests().filter(|(_, outcome)| *outcome != Outcome::Fault).map(|(test, _)| test);
        match values.of(value) {
            Value::Const(_) | Value::Len => true,
            Value::Load(ValueAt { base: None, .. }, _) => {
                let end = values.certain_extent(value);
                computed().any(|test| {
                    values.certain_extent(test.value).max(values.certain_extent(test.with)) >= end
                })
            }
            Value::Op(op, left, right) if !matches!(op, Op::Div | Op::Mod) => {
                self.is_certain(left) && self.is_certain(right)
            }
            _ => computed().any(|test| test.value == value || test.with == value),
        }
    }

    /// What tests established about a value: its bounds, and the values it does not have.
    fn range(&self, value: ValueId) -> (u32, u32, Vec<u32>) {
        let (mut least, mut most, mut not) = (0, u32::MAX, Vec::new());
        for (test, outcome) in self.tests() {
            if test.value != value {
                continue;
            }
            let Some(with) = self.graph.values.as_const(test.with) else { continue };
            match (test.compare, outcome) {
                (_, Outcome::Fault) => {}
                (Compare::Equal, Outcome::Yes) => (least, most) = (with, with),
                (Compare::Equal, Outcome::No) => not.push(with),
                (Compare::Greater, Outcome::Yes) => least = least.max(with.saturating_add(1)),
                (Compare::Greater, Outcome::No) => most = most.min(with),
                (Compare::GreaterEqual, Outcome::Yes) => least = least.max(with),
                (Compare::GreaterEqual, Outcome::No) => most = most.min(with.saturating_sub(1)),
            }
        }
        (least, most, not)
    }

    /// A value whose number is known: it was found equal to one, or follows from such values.
    fn number(&self, value: ValueId) -> Option<u32> {
        let values = &self.graph.values;
        if let Some(number) = values.as_const(value) {
            return Some(number);
        }
        let (least, most, _) = self.range(value);
        if least == most {
            return Some(least);
        }
        match values.of(value) {
            Value::Op(op, left, right) => crate::value::compute(op, self.number(left)?, self.number(right)?),
            _ => None,
        }
    }
}

/// The largest number that a value can be.
fn largest(values: &Values, value: Value) -> u32 {
    match value {
        Value::Load(_, Size::Byte) => 0xff,
        Value::Load(_, Size::Half) => 0xffff,
        Value::Op(Op::And, _, mask) => values.as_const(mask).unwrap_or(u32::MAX),
        _ => u32::MAX,
    }
}
