//! Settings as plain data: names with values, both text, and the difference between two sets of them.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::NicError;

/// Settings by name: `ring.rx` → `256`. The part before the first dot is the kind of setting.
pub type Settings = BTreeMap<String, String>;

/// One setting with its wanted value; `ring.rx=512` as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A setting to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting's name.
    pub name: String,
    /// Its value before; `None` if it does not exist yet.
    pub from: Option<String>,
    /// Its value after.
    pub to: String,
}

impl Setting {
    /// A setting from its parts.
    pub fn new(name: impl Into<String>, value: impl fmt::Display) -> Self {
        Self { name: name.into(), value: value.to_string() }
    }

    /// Settings from a plan in TOML: `"ring.rx" = 512`, or `rx = 512` below `[ring]`.
    ///
    /// # Errors
    /// When it is not TOML, or a value is a list or a date.
    pub fn from_toml(text: &str) -> Result<Vec<Self>, NicError> {
        let table: toml::Table =
            toml::from_str(text).map_err(|source| NicError::NotAPlan { source: Box::new(source) })?;
        let mut settings = Vec::new();
        flatten("", &table, &mut settings)?;
        Ok(settings)
    }
}

fn flatten(prefix: &str, table: &toml::Table, settings: &mut Vec<Setting>) -> Result<(), NicError> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let value = match value {
            toml::Value::Table(inner) => {
                flatten(&name, inner, settings)?;
                continue;
            }
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(on) => on_off(*on).to_owned(),
            _ => return Err(NicError::NotAPlanValue { name }),
        };
        settings.push(Setting { name, value });
    }
    Ok(())
}

/// The changes that turn `now` into `wanted`; settings that `wanted` does not name stay.
pub fn changes(now: &Settings, wanted: &[Setting]) -> Vec<Change> {
    let changed = wanted.iter().filter(|setting| now.get(&setting.name) != Some(&setting.value));
    changed
        .map(|Setting { name, value }| Change {
            name: name.clone(),
            from: now.get(name).cloned(),
            to: value.clone(),
        })
        .collect()
}

/// A switch in words.
pub(crate) fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A switch from words.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "true" => Some(true),
        "off" | "0" | "false" => Some(false),
        _ => None,
    }
}

impl FromStr for Setting {
    type Err = NicError;

    fn from_str(text: &str) -> Result<Self, NicError> {
        let parts =
            text.split_once('=').filter(|(name, value)| name.contains('.') && !value.trim().is_empty());
        let (name, value) = parts.ok_or_else(|| NicError::NotASetting { text: text.into() })?;
        Ok(Self::new(name.trim(), value.trim()))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.as_deref().unwrap_or("nothing");
        write!(f, "{}: {from} -> {}", self.name, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_name_and_a_value() {
        let setting: Setting = "ring.rx=512".parse().unwrap();
        assert_eq!((setting.name.as_str(), setting.value.as_str()), ("ring.rx", "512"));
        assert_eq!(setting.to_string(), "ring.rx=512");
        for wrong in ["ring.rx", "=5", "ring=5", "ring.rx="] {
            let error = wrong.parse::<Setting>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("'{wrong}' is not a setting: write KIND.NAME=VALUE, for example ring.rx=512")
            );
        }
    }

    #[test]
    fn a_plan_may_be_flat_or_in_tables() {
        let flat = "\"ring.rx\" = 512\n\"rss.fields.udp4\" = \"sdfn\"\n\"feature.rx-gro\" = true\n";
        let tables = "[feature]\nrx-gro = true\n[ring]\nrx = 512\n[rss.fields]\nudp4 = \"sdfn\"\n";
        let mut settings = Setting::from_toml(flat).unwrap();
        settings.sort();
        assert_eq!(Setting::from_toml(tables).unwrap(), settings);
        assert_eq!(settings[0], Setting::new("feature.rx-gro", "on"));
        assert!(
            Setting::from_toml("ring = [1]").unwrap_err().to_string().starts_with("ring in the plan must be")
        );
        assert!(Setting::from_toml("=").is_err());
    }

    #[test]
    fn only_what_differs_changes() {
        let now = Settings::from([("ring.rx".into(), "256".into()), ("ring.tx".into(), "256".into())]);
        let wanted =
            [Setting::new("ring.rx", 512), Setting::new("ring.tx", 256), Setting::new("rule.1", "x")];
        let texts: Vec<String> = changes(&now, &wanted).iter().map(Change::to_string).collect();
        assert_eq!(texts, ["ring.rx: 256 -> 512", "rule.1: nothing -> x"]);
    }
}
