//! A knob: something to set, with its values, its risk, and how to undo it.

use measure::TuneKnob;
use nic::{Page, Setting};
use serde::{Deserialize, Serialize};
use trial::Pair;

use super::combination::Assignment;

/// The goal of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneGoal {
    /// Packets per second sent.
    Tx,
    /// Packets per second delivered.
    Rx,
    /// The highest rate without loss.
    Ndr,
    /// The 99th percentile of the one-way latency.
    Latency,
}

impl TuneGoal {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Rx => "rx",
            Self::Ndr => "ndr",
            Self::Latency => "latency",
        }
    }

    /// The unit of its figure.
    pub fn unit(self) -> &'static str {
        if self == Self::Latency { "ns" } else { "pps" }
    }
}

/// The path of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunePlace {
    /// A veth pair that the run makes.
    Lab,
    /// Two interfaces of this machine.
    Interfaces,
    /// A receiver on another host.
    Peer,
}

/// The surroundings that determine the space.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The goal.
    pub goal: TuneGoal,
    /// The place.
    pub place: TunePlace,
    /// The engines, with the given switches.
    pub pair: &'a Pair,
    /// Names of options on the command line: those are not changed.
    pub given: &'a [String],
    /// Sending and receiving threads.
    pub threads: (usize, usize),
    /// Total flows.
    pub flows: usize,
    /// CPUs in the order in which workers take them.
    pub cpus: &'a [u32],
    /// CPUs of receiving workers.
    pub rx_cpus: &'a [u32],
    /// The receiving interface; `None` if it is another host's.
    pub interface: Option<&'a Page>,
    /// The machine's settings; `None` if this process may not change them.
    pub machine: Option<&'a Page>,
}

/// One value of a knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobValue {
    /// Its text.
    pub shown: String,
    /// What it sets; empty for the original state.
    pub sets: Vec<Assignment>,
}

/// Something to set here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Its name: of an engine's switch `tx+gso`, of a setting that of `linerate nic`.
    pub name: String,
    /// Its effect.
    pub about: String,
    /// Its values within the safe range, the original one first.
    pub values: Vec<KnobValue>,
    /// Possible harm.
    pub risk: String,
    /// How to undo it.
    pub undone: String,
    /// What an application has to do, with `{}` for the value; empty if an application cannot.
    pub application: String,
}

/// A row of the registry: one knob, in all surroundings.
pub(super) struct Row {
    /// Its name.
    pub(super) name: &'static str,
    /// Its effect.
    pub(super) about: &'static str,
    /// Possible harm.
    pub(super) risk: &'static str,
    /// How to undo it.
    pub(super) undone: &'static str,
    /// What an application has to do, with `{}` for the value; empty if an application cannot.
    pub(super) application: &'static str,
    /// Its values here, the original one first; or why it is left out.
    pub(super) values: fn(&Surroundings<'_>) -> Result<Vec<KnobValue>, &'static str>,
}

/// For knobs of the process.
pub(super) const ENDS_WITH_THE_RUN: &str = "part of the run's own sockets, threads or lab: it ends with them";
/// For knobs with a journal.
pub(super) const JOURNALED: &str = "restored at the end; after a kill by linerate nic restore";

/// Why a receiver's knob is left out.
pub(super) const SENDING: &str = "the goal is sending";
/// Why a knob on the command line is left out.
pub(super) const GIVEN: &str = "given on the command line";

impl KnobValue {
    /// The original state.
    pub(super) fn as_is(shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), sets: Vec::new() }
    }

    /// An option with a value.
    pub(super) fn option(name: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        Self { sets: vec![Assignment::Option(name.into(), Some(value.clone()))], shown: value }
    }

    /// An option that is a switch, turned on.
    pub(super) fn switch(name: &str) -> Self {
        Self { shown: "on".into(), sets: vec![Assignment::Option(name.into(), None)] }
    }

    /// Settings of the receiving interface.
    pub(super) fn interface(shown: impl Into<String>, settings: Vec<Setting>) -> Self {
        Self { shown: shown.into(), sets: settings.into_iter().map(Assignment::Interface).collect() }
    }

    /// Settings of the machine.
    pub(super) fn machine(shown: impl Into<String>, settings: Vec<Setting>) -> Self {
        Self { shown: shown.into(), sets: settings.into_iter().map(Assignment::Machine).collect() }
    }
}

impl Surroundings<'_> {
    /// Whether the command line has an option.
    pub(super) fn is_given(&self, option: &str) -> bool {
        self.given.iter().any(|given| given == option)
    }
}

impl Knob {
    pub(super) fn of(row: &Row, values: Vec<KnobValue>) -> Self {
        Self {
            name: row.name.into(),
            about: row.about.into(),
            values,
            risk: row.risk.into(),
            undone: row.undone.into(),
            application: row.application.into(),
        }
    }

    /// Whether a word of `--only` or `--never` matches: its name, the part before a dot or behind a plus sign.
    pub fn is_meant_by(&self, word: &str) -> bool {
        let kind = self.name.split(['.', '+']).next();
        let switch = self.name.split_once('+').map(|(_, switch)| switch);
        self.name == word || kind == Some(word) || switch == Some(word)
    }

    /// In the form of the record.
    pub fn recorded(&self) -> TuneKnob {
        TuneKnob {
            name: self.name.clone(),
            about: self.about.clone(),
            values: self.values.iter().map(|value| value.shown.clone()).collect(),
            risk: self.risk.clone(),
            undone: self.undone.clone(),
        }
    }
}
