//! A published figure beside the one measured here.

use serde::{Deserialize, Serialize};

use crate::published::PublishedFigure;

/// A figure of a published work, and what this run found for it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// What it is a figure of.
    pub figure: String,
    /// Unit of all values.
    pub unit: String,
    /// The value that the work prints; `None` when it prints none.
    pub published: Option<f64>,
    /// A value that the work does not print, computed from what it does print; `derived_from` says how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<f64>,
    /// From what the derived value was computed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub derived_from: String,
    /// Under which conditions the work found it: NIC, link, CPU, year, what limited it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub conditions: String,
    /// This run's; `None` when it has none.
    pub measured: Option<f64>,
    /// Whether a model has the value as a parameter, or had a parameter fixed by it: no reproduction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given: bool,
    /// Why no result of this run is comparable: another tool, direction or limit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub no_counterpart: String,
    /// The place in the published work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The point of this run that it comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub measured_at: String,
}

impl Figure {
    /// The work's side of a comparison, without this run's.
    pub fn of(published: &PublishedFigure) -> Self {
        Self {
            figure: published.figure.clone(),
            unit: published.unit.clone(),
            published: published.derived_from.is_empty().then_some(published.value),
            derived: (!published.derived_from.is_empty()).then_some(published.value),
            derived_from: published.derived_from.clone(),
            conditions: published.conditions(),
            no_counterpart: published.no_counterpart.clone(),
            place: published.place.clone(),
            ..Self::default()
        }
    }

    /// The value that this run's value is compared with: the published or the derived one.
    pub fn reference(&self) -> Option<f64> {
        self.published.or(self.derived)
    }

    /// This run's value ÷ the work's; `None` when one is missing, nothing may be compared, or the work's is zero.
    pub fn ratio(&self) -> Option<f64> {
        let reference = self.reference().filter(|value| *value != 0.0 && self.no_counterpart.is_empty())?;
        Some(self.measured? / reference)
    }
}
