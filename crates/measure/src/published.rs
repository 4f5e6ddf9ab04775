//! The published figures that experiments are set beside: `scenarios/published.toml`, with document, place, value, unit
//! and conditions. Every table of published figures is made from it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// All documents and their figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The works.
    pub document: Vec<PublishedDocument>,
    /// Their figures.
    pub figure: Vec<PublishedFigure>,
}

/// A published work, and what its figures have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedDocument {
    /// Its name in this file.
    pub id: String,
    /// Author and title.
    pub title: String,
    /// When it was published, or what is known of it.
    pub year: String,
    /// The card.
    pub nic: String,
    /// The link.
    pub link: String,
    /// The processor.
    pub cpu: String,
}

/// One figure of a work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Its name in this file.
    pub id: String,
    /// The work's name in this file.
    pub document: String,
    /// Page, section or figure of the work.
    pub place: String,
    /// What it is a figure of.
    pub figure: String,
    /// The value; of a range its middle.
    pub value: f64,
    /// The least value of a range.
    #[serde(default)]
    pub least: Option<f64>,
    /// The largest value of a range.
    #[serde(default)]
    pub most: Option<f64>,
    /// Unit of all three.
    pub unit: String,
    /// From what the value was computed, when the work does not print it.
    #[serde(default)]
    pub derived_from: String,
    /// The tool, where the work compares tools.
    #[serde(default)]
    pub tool: String,
    /// The card, where it is not the work's.
    #[serde(default)]
    pub nic: String,
    /// The link, where it is not the work's.
    #[serde(default)]
    pub link: String,
    /// The processor, where it is not the work's.
    #[serde(default)]
    pub cpu: String,
    /// What limited the value.
    pub limited_by: String,
    /// Why no measurement of linerate can be compared with it.
    #[serde(default)]
    pub no_counterpart: String,
}

impl Published {
    /// The file that this program was built with.
    ///
    /// # Panics
    /// When the file is not of this form, which a test excludes.
    pub fn shipped() -> &'static Self {
        static SHIPPED: OnceLock<Published> = OnceLock::new();
        SHIPPED.get_or_init(|| {
            toml::from_str(include_str!("../../../scenarios/published.toml"))
                .expect("scenarios/published.toml is of this form")
        })
    }

    /// The figure with this name.
    pub fn find(&self, id: &str) -> Option<&PublishedFigure> {
        self.figure.iter().find(|figure| figure.id == id)
    }
}

impl PublishedFigure {
    /// A shipped figure by name.
    ///
    /// # Panics
    /// When there is none; names are written in code and in shipped scenarios, whose tests find a wrong one.
    pub fn shipped(id: &str) -> &'static Self {
        Published::shipped()
            .find(id)
            .unwrap_or_else(|| panic!("scenarios/published.toml has no figure '{id}'"))
    }

    /// The least and the largest value: the same for a single one.
    pub fn range(&self) -> (f64, f64) {
        (self.least.unwrap_or(self.value), self.most.unwrap_or(self.value))
    }

    /// Under which conditions the work found it, in a line.
    pub fn conditions(&self) -> String {
        let of_work = Published::shipped().document.iter().find(|document| document.id == self.document);
        let own_or = |own: &str, works: fn(&PublishedDocument) -> &str| match own {
            "" => of_work.map_or("", works).to_owned(),
            own => own.to_owned(),
        };
        let parts = [
            self.tool.clone(),
            own_or(&self.nic, |document| &document.nic),
            own_or(&self.link, |document| &document.link),
            own_or(&self.cpu, |document| &document.cpu),
            of_work.map_or_else(String::new, |document| document.year.clone()),
            format!("limited by {}", self.limited_by),
        ];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_figure_has_a_document_a_unit_a_place_conditions_and_a_name_of_its_own() {
        let published = Published::shipped();
        let documents: BTreeSet<&str> = published.document.iter().map(|d| d.id.as_str()).collect();
        assert_eq!(documents.len(), published.document.len());
        let names: BTreeSet<&str> = published.figure.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(names.len(), published.figure.len(), "two figures have the same name");
        for figure in &published.figure {
            assert!(documents.contains(figure.document.as_str()), "{}: no such document", figure.id);
            for (part, text) in [
                ("place", &figure.place),
                ("figure", &figure.figure),
                ("unit", &figure.unit),
                ("limited_by", &figure.limited_by),
            ] {
                assert!(!text.is_empty(), "{} has no {part}", figure.id);
            }
            let (least, most) = figure.range();
            assert!(least <= figure.value && figure.value <= most, "{}: value outside its range", figure.id);
            assert!(figure.conditions().contains("limited by"), "{}", figure.conditions());
        }
        for document in &published.document {
            let parts = [&document.title, &document.year, &document.nic, &document.link, &document.cpu];
            assert!(parts.iter().all(|part| !part.is_empty()), "{} lacks a condition", document.id);
        }
    }

    #[test]
    fn a_derived_value_is_not_called_published() {
        let derived = crate::Figure::of(PublishedFigure::shipped("rdr.received-46"));
        assert_eq!((derived.published, derived.derived), (None, Some(256.0)));
        assert!(derived.derived_from.contains("0.004"));
        let printed = crate::Figure::of(PublishedFigure::shipped("rdr.slope"));
        assert_eq!((printed.published, printed.derived), (Some(0.004), None));
    }

    #[test]
    fn a_range_has_its_ends_and_a_single_value_is_both() {
        assert_eq!(PublishedFigure::shipped("apu4d4.usecs-0").range(), (41.0, 57.0));
        assert_eq!(PublishedFigure::shipped("rdr.slope").range(), (0.004, 0.004));
    }
}
