//! What is wrong with an expression, and where.

use std::ops::Range;

/// Why an expression cannot be used: the mistake, where it is, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct FilterError {
    /// What kind of mistake it is.
    pub kind: FilterErrorKind,
    /// The mistake in one line.
    pub problem: String,
    /// The range of the mistake in the expression; empty, at the end, when something is missing there.
    pub at: Range<usize>,
    /// What to write instead.
    pub hint: Option<String>,
}

/// The kinds of mistakes in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterErrorKind {
    /// A syntax error.
    Syntax,
    /// An unknown name.
    UnknownName,
    /// Valid syntax without meaning: a port of ARP, a prefix of 33 bits.
    Meaning,
    /// Part of the language, but not about Ethernet frames, or not decidable from a frame.
    NotOfFrames,
    /// Too long or nested too deep.
    TooLarge,
}

impl FilterError {
    pub(crate) fn new(kind: FilterErrorKind, at: Range<usize>, problem: impl Into<String>) -> Self {
        Self { kind, problem: problem.into(), at, hint: None }
    }

    pub(crate) fn syntax(at: Range<usize>, problem: impl Into<String>) -> Self {
        Self::new(FilterErrorKind::Syntax, at, problem)
    }

    pub(crate) fn meaning(at: Range<usize>, problem: impl Into<String>) -> Self {
        Self::new(FilterErrorKind::Meaning, at, problem)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Two lines that show the place: the expression, and a mark under the mistake.
    pub fn marked(&self, expression: &str) -> String {
        let before = expression.get(..self.at.start).unwrap_or(expression).chars().count();
        let wide = expression.get(self.at.clone()).map_or(1, |meant| meant.chars().count().max(1));
        let line: String = expression.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{line}\n{}{}", " ".repeat(before), "^".repeat(wide))
    }
}
