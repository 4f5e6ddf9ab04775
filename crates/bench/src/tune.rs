//! `linerate tune`: finds the settings with which a path is fastest, and proves them by trials.
//!
//! The settings are in `knobs/`, one row each. The crate `search` decides what to try next; a [`Bed`] runs it; `run.rs`
//! turns both into a record.

mod artefacts;
mod bed;
mod combination;
mod evidence;
mod knob;
mod knobs;
mod meter;
mod plan;
mod run;
mod words;

pub use bed::{Ask, Bed, LOOPBACK, LocalBed, Planner, Refusal};
pub use combination::{Assignment, Combination};
pub use knob::{Knob, KnobValue, Surroundings, TuneGoal, TunePlace};
pub use knobs::TuneSpace;
pub use plan::TunePlan;
pub use run::run_tune;
