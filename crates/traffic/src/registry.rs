//! The rows of the table of engines; the table itself is in `engines.rs`.

use port::PortError;
use serde_json::Value;
use sys::rtnetlink::Link;

use crate::engine::{RxSpec, TxSpec};

/// An engine: a row of the table.
#[derive(Debug)]
pub struct Engine {
    /// Its name.
    pub name: &'static str,
    /// Its sending side.
    pub tx: Option<EngineSide<TxSpec>>,
    /// Its receiving side.
    pub rx: Option<EngineSide<RxSpec>>,
    /// Tries it on an interface of the calling thread's namespace, without permanent changes.
    pub probe: fn(&Link) -> Vec<Finding>,
}

/// One side of an engine.
#[derive(Debug)]
pub struct EngineSide<S> {
    /// What it is, in a few words.
    pub about: &'static str,
    /// Its switches.
    pub switches: &'static [Switch],
    /// Whether its switches exclude each other.
    pub is_exclusive: bool,
    /// Labels of its rows in the ladder.
    pub ladder: &'static [&'static str],
    /// The same for a side with several threads.
    pub ladder_of_threads: &'static [&'static str],
    /// The engine with these switches, all of which must exist.
    pub with_switches: fn(&[&str]) -> S,
    /// The engine with settings that were saved.
    pub with_settings: fn(Value) -> Result<S, serde_json::Error>,
}

impl<S> EngineSide<S> {
    /// Labels of its rows in a ladder whose side has this many threads.
    pub fn ladder_for(&self, threads: usize) -> &'static [&'static str] {
        if threads > 1 { self.ladder_of_threads } else { self.ladder }
    }
}

/// A switch of an engine, written `+name` after the engine's name.
#[derive(Debug)]
pub struct Switch {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// The result of trying an engine.
#[derive(Debug)]
pub struct Finding {
    /// What was tried: the engine's name, and which part of it.
    pub engine: &'static str,
    /// What it found, or why it is unavailable.
    pub outcome: Result<String, PortError>,
}

impl Finding {
    /// A finding, with a text for success.
    pub(crate) fn new(engine: &'static str, outcome: Result<impl Into<String>, PortError>) -> Self {
        Self { engine, outcome: outcome.map(Into::into) }
    }
}
