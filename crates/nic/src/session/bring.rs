//! Brings a card to known settings, in as many rounds as it takes: a change may make others possible or impossible, or undo
//! them.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use crate::{
    Card, NicError, Settings,
    setting::Change,
    settings::{interrupts_the_link, kind_of, position, read_settings},
};

/// A setting that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// The interface's name.
    pub interface: String,
    /// The setting.
    pub name: String,
    /// What it should be.
    pub wanted: String,
    /// Its current value; `None` when it no longer exists.
    pub now: Option<String>,
    /// What the kernel said.
    pub why: Option<String>,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, name, wanted, now, why } = self;
        write!(f, "{name} is {}", now.as_deref().unwrap_or("gone"))?;
        if let Some(why) = why {
            write!(f, " ({why})")?;
        }
        write!(f, ", try: linerate nic apply {interface} --set '{name}={wanted}'")
    }
}

/// Whether a reset of the card may change settings of this kind as a side effect.
pub(super) fn follows_a_reset(name: &str) -> bool {
    const KINDS: [&str; 12] = [
        "channels",
        "ring",
        "coalesce",
        "rss",
        "context",
        "rule",
        "irq",
        "rps",
        "rfs",
        "xps",
        "xps-queues",
        "napi",
    ];
    name.split('.').next().is_some_and(|kind| KINDS.contains(&kind))
}

/// Whether the kernel sets `name` whenever `general` is set: a single queue's polling with that of all queues.
pub(super) fn is_set_with(name: &str, general: &str) -> bool {
    let own = name.strip_prefix("napi.").and_then(|key| key.split_once('.'));
    own.is_some_and(|(_, field)| general.strip_prefix("napi.") == Some(field))
}

/// The most rounds until nothing changes any more.
const ROUNDS: usize = 5;

/// Sets settings to their values in `target`: those in `asked` and, when one of these resets cards, all that a reset may
/// have changed. Returns the changes, and the settings that could not be changed.
///
/// `log` is the history of changes, in order. It is undone change by change when nothing
/// else helps: a setting may need another one at its value from the time of the change.
pub(super) fn bring(
    card: &mut Card,
    target: &Settings,
    asked: &[String],
    log: &[Change],
) -> Result<(Vec<Change>, Vec<Left>), NicError> {
    let reset = asked.iter().any(|name| interrupts_the_link(name));
    let concerns = |name: &str| {
        asked.iter().any(|asked| asked == name || is_set_with(name, asked))
            || is_listed(name, asked)
            || reset && follows_a_reset(name)
    };
    let aim = Aim { target, concerns: &concerns };
    let first = read_settings(card)?.settings;
    let mut written = Vec::new();
    let mut refusals = aim.rounds(card, &mut written)?;
    if !aim.differences(&read_settings(card)?.settings).is_empty() {
        go_back(card, log, &mut written)?;
        refusals = aim.rounds(card, &mut written)?;
    }
    let now = read_settings(card)?.settings;
    let left = aim.differences(&now).into_iter().map(|change| Left {
        interface: card.name().into(),
        why: refusals.iter().find(|(name, _)| *name == change.name).map(|(_, why)| why.clone()),
        name: change.name,
        wanted: change.to,
        now: change.from,
    });
    Ok((moved(&first, &now, &written), left.collect()))
}

/// The wanted values, and the settings to change.
struct Aim<'a> {
    target: &'a Settings,
    concerns: &'a dyn Fn(&str) -> bool,
}

impl Aim<'_> {
    fn differences(&self, now: &Settings) -> Vec<Change> {
        differences(now, self.target, self.concerns)
    }

    /// Writes the differences until nothing changes any more. Returns the settings refused in the last round.
    fn rounds(&self, card: &mut Card, written: &mut Vec<String>) -> Result<Vec<(String, String)>, NicError> {
        let mut refusals = Vec::new();
        for round in 0..=ROUNDS {
            let now = read_settings(card)?.settings;
            let differences = self.differences(&now);
            if differences.is_empty() {
                return Ok(Vec::new());
            }
            let mut moved = false;
            refusals.clear();
            // Settings after the channels may not exist before the channels do.
            let channels = differences.iter().any(|change| change.name.starts_with("channels."));
            let limit = if channels { position("channels.") } else { usize::MAX };
            let groups = differences.chunk_by(|one, next| position(&one.name) == position(&next.name));
            // Newest changes first: a setting may become unreachable once the settings that it depends on are undone.
            let groups: Vec<&[Change]> = if round == 0 {
                groups.filter(|group| !interrupts_the_link(&group[0].name)).rev().collect()
            } else {
                groups.filter(|group| position(&group[0].name) <= limit).collect()
            };
            for group in groups {
                if write_group(card, group).is_ok() {
                    moved = true;
                    written.extend(group.iter().map(|change| change.name.clone()));
                    continue;
                }
                for change in group {
                    match write_group(card, std::slice::from_ref(change)) {
                        Ok(()) => {
                            moved = true;
                            written.push(change.name.clone());
                        }
                        Err(error) => refusals.push((change.name.clone(), words(&error))),
                    }
                }
            }
            if !moved && round > 0 {
                break;
            }
        }
        Ok(refusals)
    }
}

/// Undoes changes one by one, the newest first. Refused ones are left to later rounds.
fn go_back(card: &mut Card, log: &[Change], written: &mut Vec<String>) -> Result<(), NicError> {
    for change in log.iter().rev() {
        let Some(from) = &change.from else { continue };
        let now = read_settings(card)?.settings.remove(&change.name);
        if now.as_ref() == Some(from) {
            continue;
        }
        let back = Change { name: change.name.clone(), from: now, to: from.clone() };
        if write_group(card, &[back]).is_ok() {
            written.push(change.name.clone());
        }
    }
    Ok(())
}

/// The outcome of the written settings, each once.
fn moved(first: &Settings, now: &Settings, written: &[String]) -> Vec<Change> {
    let mut seen = BTreeSet::new();
    let mut changes = Vec::new();
    for name in written.iter().filter(|name| seen.insert(name.as_str())) {
        let (from, to) = (first.get(name), now.get(name));
        if from != to {
            let to = to.map_or("none", String::as_str);
            changes.push(Change { name: name.clone(), from: from.cloned(), to: to.into() });
        }
    }
    changes
}

/// `rule.any` stands for rules whose names were not known beforehand.
fn is_listed(name: &str, asked: &[String]) -> bool {
    let asked_for = |any: &str| asked.iter().any(|asked| asked == any);
    name.starts_with("rule.") && asked_for("rule.any")
        || name.starts_with("context.") && asked_for("context.new")
}

/// The differences, in the order of changing; new rules and contexts are deleted, other settings that appeared or vanished
/// with their queue are ignored.
fn differences(now: &Settings, target: &Settings, concerns: &dyn Fn(&str) -> bool) -> Vec<Change> {
    let ended_by_none = |name: &str| name.starts_with("rule.") || name.starts_with("context.");
    let differs = target.iter().filter(|(name, value)| {
        let is = now.get(*name);
        concerns(name) && is != Some(value) && (is.is_some() || ended_by_none(name))
    });
    let came = now.keys().filter(|name| concerns(name) && ended_by_none(name) && !target.contains_key(*name));
    let mut changes: Vec<Change> = came
        .map(|name| Change { name: name.clone(), from: now.get(name).cloned(), to: "none".into() })
        .chain(differs.map(|(name, value)| Change {
            name: name.clone(),
            from: now.get(name).cloned(),
            to: value.clone(),
        }))
        .collect();
    changes.sort_by_key(|change| position(&change.name));
    changes
}

fn words(error: &NicError) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Writes changes of one kind.
pub(super) fn write_group(card: &mut Card, group: &[Change]) -> Result<(), NicError> {
    let Some(first) = group.first() else { return Ok(()) };
    let (kind, _) = kind_of(&first.name)?;
    let pairs: Vec<(&str, &str)> = group
        .iter()
        .filter_map(|change| Some((change.name.split_once('.')?.1, change.to.as_str())))
        .collect();
    kind.write(card, &pairs).map_err(|source| {
        let join = |part: fn(&Change) -> &str| group.iter().map(part).collect::<Vec<_>>().join(" and ");
        NicError::Refused {
            name: join(|change| &change.name),
            interface: card.name().into(),
            value: join(|change| &change.to),
            source: Box::new(source),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn rules_that_came_end_and_queues_that_went_are_not_missed() {
        let target = settings(&[("ring.rx", "256"), ("irq.eth0-rx-7", "0"), ("rule.1", "udp4 drop")]);
        let now = settings(&[("ring.rx", "512"), ("rule.5", "udp4 queue 1")]);
        let changes = differences(&now, &target, &|_| true);
        let texts: Vec<String> = changes.iter().map(Change::to_string).collect();
        assert_eq!(
            texts,
            ["ring.rx: 512 -> 256", "rule.5: udp4 queue 1 -> none", "rule.1: nothing -> udp4 drop"]
        );
        assert_eq!(differences(&now, &target, &|name| name == "ring.tx"), []);
    }

    #[test]
    fn a_queues_polling_is_set_with_that_of_all() {
        assert!(is_set_with("napi.rx-0.defer-hard-irqs", "napi.defer-hard-irqs"));
        assert!(!is_set_with("napi.rx-0.defer-hard-irqs", "napi.threaded"));
        assert!(!is_set_with("napi.defer-hard-irqs", "napi.defer-hard-irqs"));
        assert!(!is_set_with("rps.rx-0.threaded", "napi.threaded"));
    }

    #[test]
    fn what_is_left_names_the_command() {
        let left = Left {
            interface: "eth0".into(),
            name: "ring.rx".into(),
            wanted: "256".into(),
            now: Some("512".into()),
            why: Some("Device or resource busy (os error 16)".into()),
        };
        assert_eq!(
            left.to_string(),
            "ring.rx is 512 (Device or resource busy (os error 16)), try: linerate nic apply eth0 --set \
             'ring.rx=256'"
        );
    }
}
