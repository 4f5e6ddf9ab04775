//! Scenario files: the command line's options in a TOML file.
//!
//! ```toml
//! scenario = 1
//! description = "what it shows"
//!
//! [bench]
//! tx = ["udp", "udp+gso"]
//! rate = "100kpps"
//! threaded-napi = true
//! ```
//! Each key of `[bench]` is the long name of an option, so that a file can say what a command line can and both are
//! checked by the same rules.

use serde::Deserialize;
use thiserror::Error;
use toml::{Table, Value};

/// A scenario file, read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of the form; 1.
    scenario: u32,
    /// What it shows, in a sentence.
    #[serde(default)]
    pub description: String,
    /// Options by their long names.
    bench: Table,
}

/// Why a scenario file cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ScenarioError {
    /// Not TOML, or not of this form.
    #[error("not a scenario file")]
    Malformed(#[from] toml::de::Error),
    /// A version from another time.
    #[error("a scenario of version {found}: this linerate reads version 1")]
    OtherVersion {
        /// The version it says.
        found: u32,
    },
    /// A key that cannot be an option's name.
    #[error("'{key}' is no option's name: write it as on the command line, without --")]
    BadKey {
        /// The key.
        key: String,
    },
    /// A value that no option takes.
    #[error("{key} must be text, a number, true, or a list of texts and numbers")]
    BadValue {
        /// The key.
        key: String,
    },
}

impl Scenario {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn read(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        match scenario.scenario {
            1 => Ok(scenario),
            found => Err(ScenarioError::OtherVersion { found }),
        }
    }

    /// The options as on a command line: `--key=value`, or `--key` for `true`; `false` leaves it out.
    ///
    /// # Errors
    /// [`ScenarioError::BadKey`] and [`ScenarioError::BadValue`].
    pub fn arguments(&self) -> Result<Vec<String>, ScenarioError> {
        let mut arguments = Vec::new();
        for (key, value) in &self.bench {
            if key.is_empty()
                || !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit())
            {
                return Err(ScenarioError::BadKey { key: key.clone() });
            }
            match value {
                Value::Boolean(true) => arguments.push(format!("--{key}")),
                Value::Boolean(false) => {}
                Value::Array(values) => {
                    let words: Option<Vec<String>> = values.iter().map(word).collect();
                    let words = words.ok_or_else(|| ScenarioError::BadValue { key: key.clone() })?;
                    arguments.push(format!("--{key}={}", words.join(",")));
                }
                value => {
                    let word = word(value).ok_or_else(|| ScenarioError::BadValue { key: key.clone() })?;
                    arguments.push(format!("--{key}={word}"));
                }
            }
        }
        Ok(arguments)
    }
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn options_become_arguments() {
        let text = "scenario = 1\n[bench]\ntx = [\"udp\", \"udp+gso\"]\nframe-size = 64\nspin = true\nipv6 = false\n";
        let mut arguments = Scenario::read(text).unwrap().arguments().unwrap();
        arguments.sort();
        assert_eq!(arguments, ["--frame-size=64", "--spin", "--tx=udp,udp+gso"]);
    }

    #[test]
    fn what_is_no_scenario_is_refused_in_words() {
        let message = |text: &str| {
            let read = Scenario::read(text).and_then(|scenario| scenario.arguments());
            read.unwrap_err().to_string()
        };
        assert_eq!(
            message("scenario = 2\n[bench]\n"),
            "a scenario of version 2: this linerate reads version 1"
        );
        assert_eq!(message("nonsense"), "not a scenario file");
        assert_eq!(message("scenario = 1\nbenhc = 1\n[bench]\n"), "not a scenario file");
        assert!(
            message("scenario = 1\n[bench]\n\"--tx\" = 1\n\"a b\" = 2\n").contains("is no option's name")
        );
        assert!(message("scenario = 1\n[bench]\ntx = { a = 1 }\n").contains("tx must be text"));
    }

    #[test]
    fn the_scenarios_that_ship_can_be_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            Scenario::read(&text).unwrap().arguments().unwrap();
            count += 1;
        }
        assert!(count > 0);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", key in "[a-z-]{0,8}", value in "\\PC{0,20}") {
            let read = |text: &str| Scenario::read(text).and_then(|scenario| scenario.arguments());
            read(&text).ok();
            read(&format!("scenario = 1\n[bench]\n{key} = {value}\n")).ok();
        }
    }
}
