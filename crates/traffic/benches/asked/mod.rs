//! Words after `--` choose the rows of a bench; none means all.

/// Whether a row is selected: its name contains one of the words.
pub(crate) fn is_asked(fits: impl Fn(&str) -> bool) -> bool {
    let mut words = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| fits(&word))
}
