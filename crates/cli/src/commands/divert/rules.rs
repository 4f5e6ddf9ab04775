//! Rules and expressions from the command line and from files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use divert::{Expression, NetworkSet, Rule, RuleError, Sets, parse_rules};

use crate::failure::{Failure, Status, in_words};

/// An expression of the command line.
pub(super) fn expression(option: &str, text: &str) -> Result<Expression, Failure> {
    text.parse().map_err(|error: RuleError| {
        let failure = Failure::new(Status::Usage, format!("{option}: {}", in_words(&error)));
        marked(&error).into_iter().fold(failure, Failure::hint)
    })
}

/// A rule of the command line.
pub(super) fn one_rule(text: &str) -> Result<Rule, Failure> {
    text.parse().map_err(|error: RuleError| {
        let failure = Failure::new(Status::Usage, format!("rule '{text}': {}", in_words(&error)));
        marked(&error).into_iter().fold(failure, Failure::hint)
    })
}

/// The rules of a file, or everything that is wrong with them.
pub(super) fn read_rules(path: &Path) -> Result<Vec<Rule>, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display())))?;
    parse_rules(&text).map_err(|errors| {
        let words = |error: &RuleError| {
            let failure = Failure::new(Status::Usage, format!("{}: {}", path.display(), in_words(error)));
            marked(error).into_iter().fold(failure, Failure::hint)
        };
        Failure::all(errors.iter().map(words).collect()).expect("there is an error")
    })
}

/// The sets of files, or everything that is wrong with them.
pub(super) fn read_sets(files: &[(String, PathBuf)]) -> Result<Sets, Failure> {
    let (mut sets, mut problems) = (Sets::default(), Vec::new());
    for (name, path) in files {
        let refused = |error: &dyn std::fmt::Display| {
            Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display()))
        };
        match fs::read_to_string(path).map_err(|error| refused(&error)) {
            Ok(text) => match NetworkSet::parse(&text) {
                Ok(set) => sets.insert(name, set),
                Err(errors) => problems.extend(errors.iter().map(|error| {
                    Failure::new(Status::Usage, format!("{}: {}", path.display(), in_words(error)))
                })),
            },
            Err(failure) => problems.push(failure),
        }
    }
    Failure::all(problems).map_or(Ok(sets), Err)
}

/// Where in an expression the mistake is.
pub(super) fn marked(error: &RuleError) -> Option<String> {
    match error {
        RuleError::Line { source, .. } => marked(source),
        RuleError::Expression { expression, source } => {
            let marked = source.marked(expression).replace('\n', "\n       ");
            let hint = source.hint.as_ref().map(|hint| format!("\n       {hint}"));
            Some(format!("here:\n       {marked}{}", hint.unwrap_or_default()))
        }
        _ => None,
    }
}
