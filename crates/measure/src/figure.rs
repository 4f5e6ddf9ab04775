//! A published figure beside the one measured here.

use serde::{Deserialize, Serialize};

/// A figure of a published work, and what this run found for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// What it is a figure of.
    pub figure: String,
    /// Unit of both values.
    pub unit: String,
    /// The published value.
    pub published: f64,
    /// This run's value; `None` when it has none.
    pub measured: Option<f64>,
    /// The place in the published work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The point of this run that it comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub measured_at: String,
}
