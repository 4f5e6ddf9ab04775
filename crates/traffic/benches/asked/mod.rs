//! Words behind `--` choose what a bench measures; none is everything.

/// Whether a row is asked for, which some words fit.
pub(crate) fn is_asked(fits: impl Fn(&str) -> bool) -> bool {
    let mut words = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| fits(&word))
}
