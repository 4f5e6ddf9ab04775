//! The table of engines, and engines by their text form and their saved settings.

mod packet;
mod pci;
mod pktgen;
mod tcp;
mod udp;
mod uring;
mod xdp;
mod xsk;

#[cfg(test)]
pub(crate) use {
    tcp::{Messages, take_streams},
    xdp::LiveFrames,
};

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    engine::{RxSpec, TxSpec},
    registry::{Engine, EngineSide},
};

/// Every engine, in the order of the ladder.
static ENGINES: [Engine; 8] = [
    udp::ENGINE,
    uring::ENGINE,
    packet::ENGINE,
    xsk::ENGINE,
    xdp::ENGINE,
    pktgen::ENGINE,
    tcp::ENGINE,
    pci::ENGINE,
];

/// Every engine, in the order of the ladder.
pub fn engines() -> &'static [Engine] {
    &ENGINES
}

/// A text or saved settings that do not name an engine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// No such engine.
    #[error("unknown {side} engine '{name}': expected {known}")]
    UnknownEngine {
        /// `sending` or `receiving`.
        side: &'static str,
        /// What was written.
        name: String,
        /// The known engines.
        known: String,
    },
    /// Switches that exclude each other.
    #[error("'{engine}' takes only one of {known}")]
    Exclusive {
        /// The engine.
        engine: &'static str,
        /// The known switches.
        known: String,
    },
    /// No such switch.
    #[error("unknown switch '+{switch}' of the {side} engine '{engine}': expected {known}")]
    UnknownSwitch {
        /// `sending` or `receiving`.
        side: &'static str,
        /// The engine.
        engine: &'static str,
        /// What was written.
        switch: String,
        /// The known switches.
        known: String,
    },
    /// Settings that the engine does not have, or with invalid values.
    #[error("cannot read the settings of the {side} engine '{engine}': {reason}")]
    Settings {
        /// `sending` or `receiving`.
        side: &'static str,
        /// The engine.
        engine: &'static str,
        /// Why.
        reason: String,
    },
}

/// One side's rows of the table.
struct Rows<S: 'static> {
    side: &'static str,
    of: fn(&'static Engine) -> Option<&'static EngineSide<S>>,
}

const SENDING: Rows<TxSpec> = Rows { side: "sending", of: |engine| engine.tx.as_ref() };
const RECEIVING: Rows<RxSpec> = Rows { side: "receiving", of: |engine| engine.rx.as_ref() };

impl<S> Rows<S> {
    fn find(&self, name: &str) -> Result<(&'static str, &'static EngineSide<S>), SpecError> {
        let all = || ENGINES.iter().filter_map(|engine| Some((engine.name, (self.of)(engine)?)));
        all().find(|(known, _)| *known == name).ok_or_else(|| SpecError::UnknownEngine {
            side: self.side,
            name: name.into(),
            known: all().map(|(known, _)| known).collect::<Vec<_>>().join(", "),
        })
    }

    /// The engine named by a text, with its switches: `udp+gso`.
    fn parse(&self, text: &str) -> Result<S, SpecError> {
        let mut parts = text.split('+');
        let (engine, row) = self.find(parts.next().unwrap_or_default())?;
        let given: Vec<&str> = parts.collect();
        let known = || {
            let names: Vec<String> = row.switches.iter().map(|switch| format!("+{}", switch.name)).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        if let Some(switch) =
            given.iter().find(|name| row.switches.iter().all(|switch| switch.name != **name))
        {
            return Err(SpecError::UnknownSwitch {
                side: self.side,
                engine,
                switch: (*switch).into(),
                known: known(),
            });
        }
        if row.is_exclusive && given.len() > 1 {
            return Err(SpecError::Exclusive { engine, known: known() });
        }
        Ok((row.with_switches)(&given))
    }

    /// The engine with all its settings, or from its text form as in older records.
    fn restore(&self, saved: Saved) -> Result<S, SpecError> {
        let (name, settings) = match saved {
            Saved::Label(label) => return self.parse(&label),
            Saved::Whole { engine, settings } => (engine, settings),
        };
        let (engine, row) = self.find(&name)?;
        (row.with_settings)(Value::Object(settings)).map_err(|error| SpecError::Settings {
            side: self.side,
            engine,
            reason: error.to_string(),
        })
    }
}

/// An engine in a record.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Saved {
    Label(String),
    Whole {
        engine: String,
        #[serde(flatten)]
        settings: Map<String, Value>,
    },
}

impl Saved {
    fn of(engine: &str, settings: Value) -> Self {
        let settings = if let Value::Object(settings) = settings { settings } else { Map::new() };
        Self::Whole { engine: engine.into(), settings }
    }
}

macro_rules! by_name {
    ($spec:ident, $rows:ident) => {
        impl FromStr for $spec {
            type Err = SpecError;

            fn from_str(text: &str) -> Result<Self, SpecError> {
                $rows.parse(text)
            }
        }

        impl $spec {
            /// The same engine with one more switch, and default options.
            ///
            /// # Errors
            /// When it has no such switch.
            pub fn with_switch(&self, switch: &str) -> Result<Self, SpecError> {
                let label = self.to_string();
                let is_on = label.split('+').skip(1).any(|on| on == switch);
                if is_on { Ok(self.clone()) } else { format!("{label}+{switch}").parse() }
            }
        }

        impl Serialize for $spec {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Saved::of(self.name(), self.settings()).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $spec {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $rows.restore(Saved::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

by_name!(TxSpec, SENDING);
by_name!(RxSpec, RECEIVING);

#[cfg(test)]
mod tests;
