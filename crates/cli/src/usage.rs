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
fn message(error: &Error) -> String {
    let text = error.render().to_string();
    let sentence = text.split("\n\n").next().unwrap_or_default();
    sentence.trim_start_matches("error: ").trim_end().to_owned()
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
    fn the_most_similar_word_is_suggested() {
        let message = "unknown sending engine 'upd': expected udp, uring or xdp";
        assert_eq!(expected_word(message, "upd"), Some("udp"));
        assert_eq!(expected_word(message, "zebra"), None);
        assert_eq!(expected_word("'x' is not a number", "x"), None);
    }
}
