//! Events on an axis: the transactions of a simulated bus, for example.

use serde::{Deserialize, Serialize};

/// Events by kind on one axis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timeline {
    /// The scene.
    pub title: String,
    /// Unit of the axis, of every start, length and mark.
    pub unit: String,
    /// One track per kind of event.
    pub lanes: Vec<Lane>,
    /// Quantities over the same axis: how full a buffer is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// Moments to compare: published ones and this run's.
    pub marks: Vec<Mark>,
    /// Parts of the axis to draw.
    pub views: Vec<View>,
}

/// All events of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lane {
    /// The kind.
    pub name: String,
    /// Start and length of each, ascending; something that takes no time has length 0.
    pub events: Vec<(f64, f64)>,
}

/// A quantity over the axis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Level {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Its largest possible value.
    pub most: f64,
    /// When and how much, ascending; the value holds until the next.
    pub points: Vec<(f64, f64)>,
}

/// A moment with a name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// When.
    pub at: f64,
}

/// A part of the axis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct View {
    /// What it shows.
    pub title: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}
