//! What a chart of bars shows; `bars` writes it into a page, `standalone` as an image.

use crate::ladder::Rung;

/// A chart of bars: for each row its name, its figures in words, and its bars.
pub(super) struct BarChart<'c> {
    pub(super) title: &'c str,
    /// The colours and their meanings.
    pub(super) legend: Vec<(String, String)>,
    /// How to read it, below the legend.
    pub(super) note: String,
    pub(super) rows: Vec<BarRow>,
}

/// One row of such a chart.
pub(super) struct BarRow {
    /// The heading that it shares with its neighbours; may be empty.
    pub(super) group: String,
    pub(super) label: String,
    /// The most important figure in words.
    pub(super) figure: String,
    /// Other figures in words.
    pub(super) more: String,
    /// Bars from top to bottom, each divided into parts.
    pub(super) bars: Vec<Vec<Part>>,
}

/// A part of a bar.
pub(super) struct Part {
    pub(super) class: String,
    pub(super) name: String,
    /// Share of the whole bar, 0..=1.
    pub(super) share: f64,
    /// The part in words.
    pub(super) words: String,
}

impl BarRow {
    /// One bar with its figure.
    pub(super) fn new(label: impl Into<String>, figure: impl Into<String>, parts: Vec<Part>) -> Self {
        Self {
            group: String::new(),
            label: label.into(),
            figure: figure.into(),
            more: String::new(),
            bars: vec![parts],
        }
    }

    /// Two bars one above the other, each with its class and length, 0..=1.
    pub(super) fn pair(label: &str, words: &str, bars: [(&str, f64); 2]) -> Self {
        let bar = |(class, share): (&str, f64)| {
            vec![Part { class: class.into(), name: label.into(), share, words: words.into() }]
        };
        Self { more: words.into(), bars: bars.map(bar).into(), ..Self::new(label, "", Vec::new()) }
    }
}

/// A legend's colours and their meanings.
pub(super) fn legend<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> Vec<(String, String)> {
    entries.into_iter().map(|(class, words)| (class.to_owned(), words.to_owned())).collect()
}

/// Sent and delivered of all pairs, which determine the axis.
pub(super) fn rates(rungs: &[Rung]) -> impl Iterator<Item = f64> {
    rungs.iter().flat_map(|rung| [rung.pair.sent_pps.median, rung.pair.delivered_pps.median])
}
