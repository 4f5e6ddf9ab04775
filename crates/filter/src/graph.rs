//! The decision graph of a filter: both the interpreter and the eBPF compiler work from it.
//!
//! A graph answers for one filter or for several in order: the first that matches. There are no loops; a test's
//! successors have smaller numbers.

use crate::{
    ast::Link,
    lower::{Cond, Test, Tree},
    value::Values,
};

mod optimise;

/// Where a test leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// Another test.
    Step(u32),
    /// The filter of this number matches.
    Match(u32),
    /// None does.
    Nothing,
}

/// A test and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) test: Test,
    pub(crate) yes: Target,
    pub(crate) no: Target,
    /// The value could not be computed: the frame is too short, or a division by zero.
    pub(crate) fault: Target,
}

#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) values: Values,
    pub(crate) steps: Vec<Step>,
    pub(crate) start: Target,
}

/// Optimisation takes time quadratic in the number of steps.
const OPTIMISE_AT_MOST: usize = 4096;
/// Optimised filters share little; beyond this number they are only concatenated.
const OPTIMISE_JOINED_AT_MOST: usize = 512;

impl Graph {
    /// The graph of one expression.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut graph = Self { values: tree.values.clone(), steps: Vec::new(), start: Target::Nothing };
        graph.start = graph.add(&tree.cond, Target::Match(0), Target::Nothing, Target::Nothing);
        if graph.steps.len() <= OPTIMISE_AT_MOST {
            graph.optimise();
        } else {
            graph.merge();
        }
        graph
    }

    /// The first of several that matches, by its index.
    pub(crate) fn first_of<'g>(
        graphs: impl DoubleEndedIterator<Item = &'g Self> + ExactSizeIterator,
    ) -> Self {
        let mut whole = Self { values: Values::default(), steps: Vec::new(), start: Target::Nothing };
        for (number, graph) in graphs.enumerate().rev() {
            let (next, before) = (whole.start, whole.steps.len() as u32);
            let here = whole.values.adopt(&graph.values);
            let target = |target| match target {
                Target::Step(step) => Target::Step(before + step),
                Target::Match(_) => Target::Match(number as u32),
                Target::Nothing => next,
            };
            for step in &graph.steps {
                whole.steps.push(Step {
                    test: step.test.moved(&here),
                    yes: target(step.yes),
                    no: target(step.no),
                    fault: target(step.fault),
                });
            }
            whole.start = target(graph.start);
        }
        if whole.steps.len() <= OPTIMISE_JOINED_AT_MOST {
            whole.optimise();
        } else {
            whole.merge();
        }
        whole
    }

    /// Steps in topological order: each before its successors.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u32, &Step)> {
        self.steps.iter().enumerate().rev().map(|(number, step)| (number as u32, step))
    }

    fn add(&mut self, cond: &Cond, yes: Target, no: Target, fault: Target) -> Target {
        match cond {
            Cond::Always(true) => yes,
            Cond::Always(false) => no,
            Cond::Not(cond) => self.add(cond, no, yes, fault),
            Cond::Test(test) => {
                self.steps.push(Step { test: *test, yes, no, fault });
                Target::Step(self.steps.len() as u32 - 1)
            }
            Cond::Chain(first, rest) => {
                // From the end: each earlier part leads to the next part, or past it.
                let (mut yes, mut no) = (yes, no);
                for (link, cond) in rest.iter().rev() {
                    let last = self.add(cond, yes, no, fault);
                    match link {
                        Link::And => yes = last,
                        Link::Or => no = last,
                    }
                }
                self.add(first, yes, no, fault)
            }
        }
    }
}
