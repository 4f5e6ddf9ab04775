//! Lines of a file, and those that a parser cannot read.

/// A line that a parser cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not {expected}")]
pub struct ParseError {
    /// The line's number, from 1.
    pub line: usize,
    /// What it should be.
    pub expected: &'static str,
}

/// The lines with their numbers, and a constructor for errors about them.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (&str, impl Fn(&'static str) -> ParseError)> {
    let numbered = text.lines().enumerate();
    numbered.map(|(index, line)| (line, move |expected| ParseError { line: index + 1, expected }))
}
