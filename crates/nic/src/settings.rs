//! Every kind of setting: one file each, all of the same shape. The order here is the order of changing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Card, NicError, Setting, Settings};

mod channels;
mod coalescing;
mod contexts;
mod driver;
mod features;
mod group;
mod interrupts;
mod kind;
mod link;
mod napi;
mod pause;
mod rings;
mod rss;
mod rules;
mod steering;
mod sysctl;

use kind::{Kind, Wrong};
pub(crate) use rss::{function_name, scaling, table_text};
pub use rules::{parse_rule, rule_text};
pub use sysctl::{SYSCTLS, Sysctl};

/// All kinds, in the order in which they can be changed: channels before the table that names them, rules last of
/// what a reset loses, and settings of interrupts and queues after those exist again.
const KINDS: [&dyn Kind; 17] = [
    &link::Link,
    &features::Features,
    &channels::CHANNELS,
    &rings::RINGS,
    &coalescing::COALESCING,
    &pause::PAUSE,
    &rss::Rss,
    &contexts::Contexts,
    &rules::Rules,
    &interrupts::Interrupts,
    &steering::RPS,
    &steering::RFS,
    &steering::XPS,
    &steering::XPS_QUEUES,
    &napi::Napi,
    &driver::Driver,
    &sysctl::Sysctls,
];

/// The settings of an interface that can be changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Settings and their values.
    pub settings: Settings,
    /// Kinds of settings that cannot be read here, and why.
    pub absent: BTreeMap<String, String>,
}

/// Reads every setting of a card. Changes nothing.
///
/// # Errors
/// When the interface is gone.
pub fn read_settings(card: &mut Card) -> Result<Reading, NicError> {
    card.refresh_name()?;
    let mut reading = Reading::default();
    for kind in KINDS {
        match kind.read(card) {
            Ok(values) => reading
                .settings
                .extend(values.into_iter().map(|(key, value)| (format!("{}.{key}", kind.prefix()), value))),
            Err(error) => {
                reading.absent.insert(kind.prefix().to_owned(), why_absent(&error));
            }
        }
    }
    card.refresh_name()?;
    Ok(reading)
}

fn why_absent(error: &NicError) -> String {
    if error.is_unsupported() {
        return "not supported by this driver".into();
    }
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.ends_with(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = error.source();
    }
    words
}

/// Gives each setting the value that would be read back.
///
/// # Errors
/// The first name that does not exist here, or the first value that cannot be used.
pub fn resolve(card: &mut Card, setting: &Setting) -> Result<Setting, NicError> {
    let (kind, key) = kind_of(&setting.name)?;
    match kind.resolve(card, key, &setting.value) {
        Ok(value) => Ok(Setting { name: setting.name.clone(), value }),
        Err(Wrong::Unreadable(error)) if !error.is_unsupported() => Err(error),
        Err(Wrong::NoSuchKey | Wrong::Unreadable(_)) => {
            Err(NicError::Absent { name: setting.name.clone(), interface: card.name().into() })
        }
        Err(Wrong::Expected(expected)) => {
            Err(NicError::BadValue { name: setting.name.clone(), value: setting.value.clone(), expected })
        }
    }
}

/// The names before the first dot, in the order of changing.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    KINDS
        .iter()
        .map(|kind| kind.prefix())
        .filter(move |prefix| std::mem::replace(&mut last, prefix) != *prefix)
}

/// Whether changing settings of this kind takes the link of many cards down.
pub fn interrupts_the_link(name: &str) -> bool {
    kind_of(name).is_ok_and(|(kind, _)| kind.interrupts_the_link())
}

/// The position of a kind in the order of changing.
pub(crate) fn position(name: &str) -> usize {
    let prefix = name.split('.').next().unwrap_or_default();
    KINDS.iter().position(|kind| kind.prefix() == prefix).unwrap_or(KINDS.len())
}

/// The kind of a setting, and the rest of its name.
pub(crate) fn kind_of(name: &str) -> Result<(&'static dyn Kind, &str), NicError> {
    let no_such = || NicError::NoSuchSetting { name: name.into() };
    let (prefix, key) = name.split_once('.').ok_or_else(no_such)?;
    let kind = KINDS.into_iter().find(|kind| kind.prefix() == prefix).ok_or_else(no_such)?;
    Ok((kind, key))
}
