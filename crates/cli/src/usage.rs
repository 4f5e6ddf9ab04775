//! Usage errors in linerate's own form: what is wrong, and a hint.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::failure::{Failure, Status};

/// A refused command line as a failure. Prints help and the version instead, and exits.
pub(crate) fn failure(error: &Error) -> Failure {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let message = message(error);
    let hint = hint(error, &message);
    Failure::new(Status::Usage, message).hint(hint)
}

/// The parser's own sentence, without its usage text and tips.
pub(crate) fn message(error: &Error) -> String {
    let text = error.render().to_string();
    let sentence = text.split("\n\n").next().unwrap_or_default();
    number_in_words(sentence.trim_start_matches("error: ").trim_end())
}

/// The standard library and the parser describe wrong numbers in terms of Rust.
fn number_in_words(sentence: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("invalid digit found in string", "not a whole number"),
        ("cannot parse integer from empty string", "not a whole number"),
        ("number too large to fit in target type", "too large"),
        ("number too small to fit in target type", "too small"),
        ("invalid float literal", "not a number"),
    ];
    for (from, to) in WORDS {
        if let Some(start) = sentence.strip_suffix(from) {
            return format!("{start}{to}");
        }
    }
    // `0 is not in 1..=255`, without a last number where any is allowed
    let range = || {
        let (start, said) = sentence.rsplit_once(": ")?;
        let (least, most) = said.split_once(" is not in ")?.1.split_once("..")?;
        Some(match most.strip_prefix('=') {
            Some(most) if ![u64::MAX.to_string(), u32::MAX.to_string()].contains(&most.to_owned()) => {
                format!("{start}: must be from {least} to {most}")
            }
            _ => format!("{start}: must be at least {least}"),
        })
    };
    range().unwrap_or_else(|| sentence.to_owned())
}

fn hint(error: &Error, message: &str) -> String {
    let similar = [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::SuggestedSubcommand]
        .into_iter()
        .find_map(|kind| first(error.get(kind)?))
        .or_else(|| expected_word(message, first(error.get(ContextKind::InvalidValue)?)?));
    let is_number = |word: &str| word.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_ok());
    match (similar, error.get(ContextKind::InvalidArg).and_then(first)) {
        (Some(similar), _) => format!("did you mean '{similar}'?"),
        (None, Some(word)) if is_number(word) => "numbers cannot be negative".into(),
        _ => "add --help for a description of each option".into(),
    }
}

fn first(value: &ContextValue) -> Option<&str> {
    match value {
        ContextValue::String(word) => Some(word),
        ContextValue::Strings(words) => words.first().map(String::as_str),
        _ => None,
    }
}

/// The word most like the given one in a message that ends with all allowed words: "unknown X 'Y': expected A, B or C".
fn expected_word<'m>(message: &'m str, given: &str) -> Option<&'m str> {
    let (_, expected) = message.rsplit_once(": expected ")?;
    let words = expected.split([',', ' ']).filter(|word| !["", "or"].contains(word));
    bench::nearest(given, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_numbers_are_described_without_rust() {
        let wrong = |said: &str| number_in_words(&format!("invalid value 'x' for '--threads <N>': {said}"));
        let is = |words: &str| format!("invalid value 'x' for '--threads <N>': {words}");
        assert_eq!(wrong("invalid digit found in string"), is("not a whole number"));
        assert_eq!(wrong("number too large to fit in target type"), is("too large"));
        assert_eq!(wrong("300 is not in 1..=255"), is("must be from 1 to 255"));
        assert_eq!(wrong("0 is not in 1..=18446744073709551615"), is("must be at least 1"));
        assert_eq!(wrong("0 is not in 1.."), is("must be at least 1"));
        assert_eq!(wrong("'x' is not a duration"), is("'x' is not a duration"));
    }

    #[test]
    fn the_most_similar_word_is_suggested() {
        let message = "unknown sending engine 'upd': expected udp, uring or xdp";
        assert_eq!(expected_word(message, "upd"), Some("udp"));
        assert_eq!(expected_word(message, "zebra"), None);
        assert_eq!(expected_word("'x' is not a number", "x"), None);
    }
}
