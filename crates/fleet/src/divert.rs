//! Rules for many hosts: a coordinator writes each agent's rules to a key of its own, the agent validates and applies them with
//! `linerate divert`, and reports the outcome under another key.

pub(crate) mod agent;
mod keeper;
mod notices;
mod roll_out;
mod store;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::names::is_name;

pub use roll_out::{
    DivertAgent, DivertRevision, RollOut, RollOutError, apply_rules, divert_history, divert_status,
    undo_rules,
};

/// A file of rules for a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FleetRules {
    /// Packets to divert, a filter expression.
    #[serde(rename = "match")]
    pub matching: String,
    /// What happens to them, as in `linerate divert --rule`.
    pub rules: Vec<String>,
    /// Sets of networks that the rules name: the text of each, with one network or address per line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sets: BTreeMap<String, String>,
    /// `xdp` or `user`.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Decide and count, but drop nothing.
    #[serde(default)]
    pub shadow: bool,
    /// Agents undo the rules after this time, for example `1h`.
    #[serde(default = "default_lease")]
    pub lease: String,
    /// An agent undoes new rules when its host answers less: packets sent per second over `settle` with the
    /// rules, over those before them. 0 never undoes.
    #[serde(default = "default_keep_answers")]
    pub keep_answers: f64,
    /// The time over which answers are compared, and for which canaries must be well.
    #[serde(default = "default_settle")]
    pub settle: String,
}

/// A server takes a megabyte with one message, and JSON escapes some characters.
const MOST_SET_BYTES: usize = 900_000;

fn default_lease() -> String {
    "1h".into()
}

fn default_keep_answers() -> f64 {
    0.5
}

fn default_settle() -> String {
    "5s".into()
}

/// Why a file of rules cannot be used.
#[derive(Debug, Error)]
pub enum FleetRulesError {
    /// Its syntax.
    #[error("{0}")]
    Syntax(String),
    /// A value.
    #[error("{key} = {value}: {reason}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is written.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl FleetRules {
    /// Parses a file. The rules themselves are checked by each agent, with the version of linerate that will apply them.
    ///
    /// # Errors
    /// [`FleetRulesError`].
    pub fn parse(text: &str) -> Result<Self, FleetRulesError> {
        let rules: Self = toml::from_str(text).map_err(|error| FleetRulesError::Syntax(error.to_string()))?;
        rules.check()?;
        Ok(rules)
    }

    /// The same rules with sets of networks.
    ///
    /// # Errors
    /// [`FleetRulesError`].
    pub fn with_sets(mut self, sets: BTreeMap<String, String>) -> Result<Self, FleetRulesError> {
        self.sets.extend(sets);
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), FleetRulesError> {
        let wrong = |key, value: &str, reason: &str| {
            Err(FleetRulesError::Value { key, value: format!("'{value}'"), reason: reason.into() })
        };
        if self.rules.is_empty() {
            return wrong("rules", "[]", "must have at least one rule");
        }
        if let Some(name) = self.sets.keys().find(|name| !is_name(name)) {
            return wrong("sets", name, "a name has letters, digits, - and _");
        }
        let bytes: usize = self.sets.values().map(String::len).sum();
        if bytes > MOST_SET_BYTES {
            let reason = format!("the server takes at most {MOST_SET_BYTES} bytes with one message");
            return wrong("sets", &format!("{bytes} bytes"), &reason);
        }
        if self.place.as_deref().is_some_and(|place| !["xdp", "user"].contains(&place)) {
            return wrong("where", self.place.as_deref().unwrap_or_default(), "expected xdp or user");
        }
        if !(0.0..=1.0).contains(&self.keep_answers) {
            return wrong("keep-answers", &self.keep_answers.to_string(), "must be between 0 and 1");
        }
        for (key, text) in [("lease", &self.lease), ("settle", &self.settle)] {
            match wire::parse_duration(text) {
                Ok(time) if time >= Duration::from_secs(1) => {}
                Ok(_) => return wrong(key, text, "must be at least 1s"),
                Err(error) => return wrong(key, text, &error.to_string()),
            }
        }
        Ok(())
    }

    pub(crate) fn lease(&self) -> Duration {
        wire::parse_duration(&self.lease).unwrap_or_default()
    }

    /// The time over which answers are compared.
    pub(crate) fn settle(&self) -> Duration {
        wire::parse_duration(&self.settle).unwrap_or_default()
    }

    /// The file that `linerate divert --config` reads, and the files of its sets in a folder.
    fn files(&self, folder: &Path) -> (String, Vec<(PathBuf, &str)>) {
        #[derive(Serialize)]
        struct Config<'r> {
            #[serde(rename = "match")]
            matching: &'r str,
            rules: &'r [String],
            #[serde(skip_serializing_if = "Vec::is_empty")]
            set: Vec<String>,
            #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
            place: Option<&'r str>,
            shadow: bool,
        }
        let file = |name: &String| folder.join(format!("set-{name}.txt"));
        let config = Config {
            matching: &self.matching,
            rules: &self.rules,
            set: self.sets.keys().map(|name| format!("{name}={}", file(name).display())).collect(),
            place: self.place.as_deref(),
            shadow: self.shadow,
        };
        let sets = self.sets.iter().map(|(name, text)| (file(name), text.as_str())).collect();
        (toml::to_string(&config).expect("text, lists and switches are TOML"), sets)
    }
}

/// What an agent's key holds: rules, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Desired {
    /// `None`: divert nothing.
    pub(crate) rules: Option<FleetRules>,
    /// The user who wrote it.
    pub(crate) by: String,
    /// The revision that an undo returned to (0: to no rules); the next undo goes behind that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) returned_to: Option<u64>,
}

/// What an agent reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DivertState {
    /// The revision of the agent's key that this is about; 0 before any.
    pub revision: u64,
    /// What happened to it.
    pub outcome: DivertOutcome,
    /// In words; empty when there is nothing to say.
    pub reason: String,
    /// The interface.
    pub interface: String,
    /// Packets per second that the host sent before and with the rules, where both were measured.
    pub answers_pps: Option<(f64, f64)>,
}

/// What happened to an agent's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DivertOutcome {
    /// Nothing is diverted.
    Off,
    /// The rules are in force; answers are still being compared.
    Applied,
    /// The rules are in force, and the host answers as before.
    Well,
    /// The rules were refused; the rules before them stay.
    Refused,
    /// The agent undid the rules.
    Undone,
}

impl DivertOutcome {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Applied => "applied",
            Self::Well => "well",
            Self::Refused => "refused",
            Self::Undone => "undone",
        }
    }
}

/// What an agent needs to apply rules: its owner's consent is the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DivertPlan {
    /// The interface that a coordinator may divert on, and no other.
    pub interface: String,
    /// The program: `linerate`.
    pub program: PathBuf,
    /// A folder for the file of rules; made when it is missing.
    pub folder: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_rules_is_checked() {
        let rules = FleetRules::parse("match = \"udp\"\nrules = [\"drop all\"]").unwrap();
        assert_eq!((rules.lease(), rules.settle()), (Duration::from_secs(3600), Duration::from_secs(5)));
        let folder = Path::new("/run/x");
        assert_eq!(rules.files(folder).0, "match = \"udp\"\nrules = [\"drop all\"]\nshadow = false\n");
        let sets = BTreeMap::from([("bad".to_owned(), "192.0.2.0/24\n".to_owned())]);
        let with = rules.clone().with_sets(sets).unwrap();
        let (config, files) = with.files(folder);
        assert!(config.contains("set = [\"bad=/run/x/set-bad.txt\"]"), "{config}");
        assert_eq!(files, [(PathBuf::from("/run/x/set-bad.txt"), "192.0.2.0/24\n")]);
        let outside = BTreeMap::from([("../bad".to_owned(), String::new())]);
        assert!(rules.clone().with_sets(outside).unwrap_err().to_string().contains("letters, digits"));
        let large = BTreeMap::from([("bad".to_owned(), " ".repeat(MOST_SET_BYTES + 1))]);
        assert!(rules.clone().with_sets(large).is_err());
        for (text, words) in [
            ("match = \"udp\"\nrules = []", "at least one rule"),
            (
                "match = \"udp\"\nrules = [\"drop all\"]\nwhere = \"card\"",
                "where = 'card': expected xdp or user",
            ),
            ("match = \"udp\"\nrules = [\"drop all\"]\nkeep-answers = 2.0", "between 0 and 1"),
            ("match = \"udp\"\nrules = [\"drop all\"]\nlease = \"0s\"", "lease = '0s': must be at least 1s"),
            ("match = \"udp\"\nrules = [\"drop all\"]\nsample-to = \"/etc/passwd\"", "unknown field"),
            ("rules = [\"drop all\"]", "missing field `match`"),
        ] {
            let error = FleetRules::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
