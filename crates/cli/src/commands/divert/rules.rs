//! Rules and expressions from the command line and from files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use divert::{Expression, NetworkSet, RateLimit, Rule, RuleError, RuleVerdict, Ruleset, Sets, parse_rules};

use crate::{
    args::DivertArgs,
    failure::{Failure, Status, in_words},
};

/// An expression of the command line.
pub(super) fn expression(option: &str, text: &str) -> Result<Expression, Failure> {
    text.parse().map_err(|error: RuleError| {
        let failure = Failure::new(Status::Usage, format!("{option}: {}", in_words(&error)));
        marked(&error).into_iter().fold(failure, Failure::hint)
    })
}

/// Which packets, and what to do with them: the part that SIGHUP reads again.
pub(super) fn ruleset(args: &DivertArgs) -> Result<Ruleset, Failure> {
    let mut problems = Vec::new();
    let selection = args.matching.as_ref().map(|text| expression("--match", text)).transpose();
    let selection = selection.unwrap_or_else(|failure| {
        problems.push(failure);
        None
    });
    let rules = rules(args).unwrap_or_else(|failure| {
        problems.push(failure);
        Vec::new()
    });
    let sets = read_sets(&args.sets).unwrap_or_else(|failure| {
        problems.push(failure);
        Sets::default()
    });
    Failure::all(problems).map_or(Ok(Ruleset { selection, rules, sets }), Err)
}

/// The rules that the options give.
fn rules(args: &DivertArgs) -> Result<Vec<Rule>, Failure> {
    if let Some(path) = &args.rules {
        return read_rules(path);
    }
    if !args.rule.is_empty() {
        let (rules, problems): (Vec<_>, Vec<_>) =
            args.rule.iter().map(|text| one_rule(text)).partition(Result::is_ok);
        let problems = problems.into_iter().filter_map(Result::err).collect();
        return Failure::all(problems).map_or(Ok(rules.into_iter().flatten().collect()), Err);
    }
    if let Some(keep) = &args.keep {
        let keep = expression("--keep", keep)?;
        return Ok(vec![Rule::new(RuleVerdict::Pass, keep), Rule::new(RuleVerdict::Drop, Expression::all())]);
    }
    if let Some(drop) = &args.drop {
        let drop = expression("--drop", drop)?;
        let leaves_some = !drop.is_all();
        let mut rules = vec![Rule::new(RuleVerdict::Drop, drop)];
        rules.extend(leaves_some.then(|| Rule::new(RuleVerdict::Pass, Expression::all())));
        return Ok(rules);
    }
    if let Some(rate) = args.limit {
        let limit = RateLimit::new(rate, args.per.unwrap_or_default())
            .map_err(|error| Failure::new(Status::Usage, error))?;
        return Ok(vec![Rule { limit: Some(limit), ..Rule::new(RuleVerdict::Pass, Expression::all()) }]);
    }
    Err(Failure::new(Status::Usage, "say what to do with matching packets").hint(
        "add --keep EXPR, --drop EXPR (all for every packet), --limit RATE, --rule RULE or --rules FILE",
    ))
}

/// A rule of the command line.
fn one_rule(text: &str) -> Result<Rule, Failure> {
    text.parse().map_err(|error: RuleError| {
        let failure = Failure::new(Status::Usage, format!("rule '{text}': {}", in_words(&error)));
        marked(&error).into_iter().fold(failure, Failure::hint)
    })
}

/// The rules of a file, or all its mistakes.
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

/// The sets from their files, or all mistakes.
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

/// The position of the mistake in an expression.
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
