//! Engines as users name them: `udp`, `udp+gso`, `udp+reuseport+gro`.

use std::{fmt, str::FromStr};

use engine::{RxEngine, TxEngine, UdpRxPlan, UdpTxPlan};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A sending engine with its switches; its text form is the ladder's label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TxSpec(pub TxEngine);

/// A receiving engine with its switches; its text form is the ladder's label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RxSpec(pub RxEngine);

/// An engine or switch that nobody defined.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// No such engine.
    #[error("there is no {side} engine '{name}': there is {known}")]
    UnknownEngine {
        /// `sending` or `receiving`.
        side: &'static str,
        /// What was written.
        name: String,
        /// The engines there are.
        known: &'static str,
    },
    /// No such switch.
    #[error("the {side} engine '{engine}' has no switch '{switch}': it has {known}")]
    UnknownSwitch {
        /// `sending` or `receiving`.
        side: &'static str,
        /// The engine.
        engine: &'static str,
        /// What was written.
        switch: String,
        /// The switches there are.
        known: &'static str,
    },
}

impl TxSpec {
    /// The engine's name without switches.
    pub fn engine(&self) -> &'static str {
        match self.0 {
            TxEngine::Udp(_) => "udp",
        }
    }
}

impl RxSpec {
    /// The engine's name without switches.
    pub fn engine(&self) -> &'static str {
        match self.0 {
            RxEngine::Udp(_) => "udp",
        }
    }
}

impl FromStr for TxSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let side = "sending";
        let mut parts = text.split('+');
        match parts.next() {
            Some("udp") => {
                let mut udp = UdpTxPlan::default();
                for switch in parts {
                    match switch {
                        "gso" => udp.gso = true,
                        _ => {
                            let switch = switch.into();
                            return Err(SpecError::UnknownSwitch {
                                side,
                                engine: "udp",
                                switch,
                                known: "gso",
                            });
                        }
                    }
                }
                Ok(Self(TxEngine::Udp(udp)))
            }
            name => {
                Err(SpecError::UnknownEngine { side, name: name.unwrap_or_default().into(), known: "udp" })
            }
        }
    }
}

impl FromStr for RxSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let side = "receiving";
        let mut parts = text.split('+');
        match parts.next() {
            Some("udp") => {
                let mut udp = UdpRxPlan::default();
                for switch in parts {
                    match switch {
                        "gro" => udp.gro = true,
                        "reuseport" => udp.reuse_port = true,
                        _ => {
                            let (switch, known) = (switch.into(), "gro, reuseport");
                            return Err(SpecError::UnknownSwitch { side, engine: "udp", switch, known });
                        }
                    }
                }
                Ok(Self(RxEngine::Udp(udp)))
            }
            name => {
                Err(SpecError::UnknownEngine { side, name: name.unwrap_or_default().into(), known: "udp" })
            }
        }
    }
}

impl fmt::Display for TxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine())?;
        match &self.0 {
            TxEngine::Udp(udp) => write_switches(f, &[("gso", udp.gso)]),
        }
    }
}

impl fmt::Display for RxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine())?;
        match &self.0 {
            RxEngine::Udp(udp) => write_switches(f, &[("gro", udp.gro), ("reuseport", udp.reuse_port)]),
        }
    }
}

fn write_switches(f: &mut fmt::Formatter<'_>, switches: &[(&str, bool)]) -> fmt::Result {
    switches.iter().filter(|(_, on)| *on).try_for_each(|(name, _)| write!(f, "+{name}"))
}

impl TryFrom<String> for TxSpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<TxSpec> for String {
    fn from(spec: TxSpec) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for RxSpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<RxSpec> for String {
    fn from(spec: RxSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_read_back() {
        for text in ["udp", "udp+gso"] {
            assert_eq!(text.parse::<TxSpec>().unwrap().to_string(), text);
        }
        for text in ["udp", "udp+gro", "udp+reuseport", "udp+gro+reuseport"] {
            assert_eq!(text.parse::<RxSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refusals_name_what_there_is() {
        let message = "dpdk".parse::<TxSpec>().unwrap_err().to_string();
        assert_eq!(message, "there is no sending engine 'dpdk': there is udp");
        let message = "udp+gso".parse::<RxSpec>().unwrap_err().to_string();
        assert_eq!(message, "the receiving engine 'udp' has no switch 'gso': it has gro, reuseport");
        assert!("".parse::<RxSpec>().is_err());
        assert!("udp+".parse::<TxSpec>().is_err());
    }
}
