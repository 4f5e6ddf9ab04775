//! What a parameter is, and what is wrong with values.

use std::{borrow::Cow, fmt};

use serde::Serialize;
use thiserror::Error;
use wire::Rate;

/// A parameter as in help and documentation; its default is in `Config::default()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The dotted name, as in the configuration's JSON.
    pub name: &'static str,
    /// A shorter name that sweeps also take; empty when there is none.
    pub short: &'static str,
    /// The unit; empty for words and switches.
    pub unit: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// The source of its default; empty when it is the user's choice.
    pub source: &'static str,
}

impl Parameter {
    pub(crate) const fn new(name: &'static str, unit: &'static str, meaning: &'static str) -> Self {
        Self { name, short: "", unit, meaning, source: "" }
    }

    pub(crate) const fn short(self, short: &'static str) -> Self {
        Self { short, ..self }
    }

    pub(crate) const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// A rate or time with a unit of its own, `100kpps`, `10Gbps` or `5us`, as a number in the parameter's unit; other text
    /// unchanged.
    pub(crate) fn in_its_unit<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let nanoseconds = || Some(wire::parse_duration(text).ok()?.as_nanos() as f64);
        let number = match (self.unit, text.parse()) {
            ("frame/s", Ok(Rate::Max)) => return "null".into(),
            ("frame/s", Ok(Rate::Pps(rate))) | ("bit/s", Ok(Rate::Bps(rate))) => Some(rate),
            ("ns", _) => nanoseconds(),
            ("us", _) => nanoseconds().map(|ns| ns / 1e3),
            _ => None,
        };
        number.map_or(text.into(), |number| number.to_string().into())
    }
}

/// Why a simulation was refused before its start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// All values that cannot be simulated.
    #[error("cannot simulate this configuration:\n{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// A name that no parameter has.
    #[error("unknown parameter '{name}'{}", suggestion(.similar))]
    UnknownParameter {
        /// The given text.
        name: String,
        /// A parameter with a similar name.
        similar: Option<&'static str>,
    },
    /// A value of the wrong kind.
    #[error("cannot set {name} to '{value}': {reason}")]
    WrongValue {
        /// The parameter.
        name: String,
        /// The given text.
        value: String,
        /// What the parameter takes.
        reason: String,
    },
    /// A preset that does not exist.
    #[error("unknown preset '{name}': expected {known}")]
    UnknownPreset {
        /// The given text.
        name: String,
        /// The known presets.
        known: String,
    },
}

/// One value that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The parameter's dotted name.
    pub parameter: &'static str,
    /// What is wrong and why.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.parameter, self.reason)
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("  {problem}")).collect::<Vec<_>>().join("\n")
}

fn suggestion(similar: &Option<&str>) -> String {
    similar.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Collects what is wrong.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, parameter: &'static str, reason: impl Into<String>) {
        self.0.push(Problem { parameter, reason: reason.into() });
    }

    pub(crate) fn range<T: PartialOrd + fmt::Display>(
        &mut self,
        parameter: &'static str,
        value: T,
        least: T,
        most: T,
    ) {
        if value < least || value > most {
            self.add(parameter, format!("{value} is not between {least} and {most}"));
        }
    }

    pub(crate) fn ratio(&mut self, parameter: &'static str, value: f64) {
        if !(0.0..=1.0).contains(&value) {
            self.add(parameter, format!("{value} is not a share: it must be between 0 and 1"));
        }
    }

    pub(crate) fn into_result(self) -> Result<(), ConfigError> {
        if self.0.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(self.0)) }
    }

    /// A cost: finite, not negative and below a second.
    pub(crate) fn duration_ns(&mut self, parameter: &'static str, value: f64) {
        if !(0.0..=1e9).contains(&value) {
            self.add(parameter, format!("{value} ns is not between 0 and a second"));
        }
    }

    /// A time: finite, not negative and below an hour.
    pub(crate) fn duration_us(&mut self, parameter: &'static str, value: f64) {
        if !(0.0..=3.6e9).contains(&value) {
            self.add(parameter, format!("{value} us is not between 0 and an hour"));
        }
    }
}
