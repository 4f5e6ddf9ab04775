//! A value of every knob, and the actions that set them.

use nic::Setting;
use serde::{Deserialize, Serialize};

/// One thing that a knob's value sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// A switch of the sending engine.
    TxSwitch(String),
    /// A switch of the receiving engine.
    RxSwitch(String),
    /// An option of `linerate bench`, with its value if it takes one.
    Option(String, Option<String>),
    /// A setting of the receiving interface.
    Interface(Setting),
    /// A setting of the machine.
    Machine(Setting),
}

/// Everything that a combination of values sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Combination {
    /// Switches of the sending engine.
    pub tx_switches: Vec<String>,
    /// Switches of the receiving engine.
    pub rx_switches: Vec<String>,
    /// Options of `linerate bench`.
    pub options: Vec<(String, Option<String>)>,
    /// Settings of the receiving interface; the original ones are named, too, so that each can be reached from any other.
    pub interface: Vec<Setting>,
    /// Settings of the machine, likewise.
    pub machine: Vec<Setting>,
}

impl Combination {
    /// Everything that these assignments set.
    pub fn of<'a>(assignments: impl IntoIterator<Item = &'a Assignment>) -> Self {
        let mut all = Self::default();
        let add = |list: &mut Vec<String>, name: &String| {
            if !list.contains(name) {
                list.push(name.clone());
            }
        };
        for assignment in assignments {
            match assignment {
                Assignment::TxSwitch(name) => add(&mut all.tx_switches, name),
                Assignment::RxSwitch(name) => add(&mut all.rx_switches, name),
                Assignment::Option(name, value) => all.options.push((name.clone(), value.clone())),
                Assignment::Interface(setting) => all.interface.push(setting.clone()),
                Assignment::Machine(setting) => all.machine.push(setting.clone()),
            }
        }
        all
    }
}
