//! A knob: something that can be set, with its values, its risk, and how it is undone.

use measure::TuneKnob;
use nic::{Page, Setting};
use serde::{Deserialize, Serialize};
use trial::Pair;

use super::combination::Assignment;

/// What a search is for.
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

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunePlace {
    /// A veth pair of the run's own.
    Lab,
    /// Two interfaces of this machine.
    Interfaces,
    /// A receiver on another host.
    Peer,
}

/// What the space depends on.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// What is searched for.
    pub goal: TuneGoal,
    /// Where.
    pub place: TunePlace,
    /// The engines, with the switches that were given.
    pub pair: &'a Pair,
    /// Names of options on the command line: those stay as they were given.
    pub given: &'a [String],
    /// Sending and receiving threads.
    pub threads: (usize, usize),
    /// Flows in all.
    pub flows: usize,
    /// CPUs in the order in which workers take them.
    pub cpus: &'a [u32],
    /// CPUs of receiving workers.
    pub rx_cpus: &'a [u32],
    /// The receiving interface; `None` where it is another host's.
    pub interface: Option<&'a Page>,
    /// The machine's settings; `None` where this process may not change them.
    pub machine: Option<&'a Page>,
}

/// One value of a knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobValue {
    /// As it is shown.
    pub shown: String,
    /// What it sets; nothing where things stay as they are.
    pub sets: Vec<Assignment>,
}

/// Something that can be set here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Its name: of an engine's switch `tx+gso`, of a setting as `linerate nic` has it.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Its values within the safe range, the present one first.
    pub values: Vec<KnobValue>,
    /// What may go wrong.
    pub risk: String,
    /// How it is undone.
    pub undone: String,
    /// What an application does for it, `{}` being the value; nothing where it is no application's.
    pub application: String,
}

/// A row of the registry: one knob, wherever it exists.
pub(super) struct Row {
    /// Its name.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// What may go wrong.
    pub(super) risk: &'static str,
    /// How it is undone.
    pub(super) undone: &'static str,
    /// What an application does for it, `{}` being the value; nothing where it is no application's.
    pub(super) application: &'static str,
    /// Its values here, the present one first; or why it does not belong here.
    pub(super) values: fn(&Surroundings<'_>) -> Result<Vec<KnobValue>, &'static str>,
}

/// What belongs to a process ends with it.
pub(super) const ENDS_WITH_THE_RUN: &str =
    "it belongs to the run's own sockets, threads or lab, and ends with them";
/// What is journaled is put back.
pub(super) const JOURNALED: &str = "put back at the end; after a kill by linerate nic restore";

/// Why a receiver's knob is none.
pub(super) const SENDING: &str = "the goal is sending";
/// Why a knob that was given is none.
pub(super) const GIVEN: &str = "given on the command line";

impl KnobValue {
    /// Things stay as they are.
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
    /// Whether the command line decides about an option.
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

    /// Whether a word of `--only` or `--never` means it: its name, the part before a dot or behind a plus sign.
    pub fn is_meant_by(&self, word: &str) -> bool {
        let kind = self.name.split(['.', '+']).next();
        let switch = self.name.split_once('+').map(|(_, switch)| switch);
        self.name == word || kind == Some(word) || switch == Some(word)
    }

    /// As the record has it.
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
