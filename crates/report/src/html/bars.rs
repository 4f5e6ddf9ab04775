//! Bars: one row each, text in HTML so that it wraps, geometry in SVG so that it stretches.

use measure::Summary;

use super::{
    page::{Page, value},
    scale::{Lengths, per_cent},
};
use crate::{
    escape::html,
    ladder::Rung,
    number::{RateUnit, rate},
};

/// A part of a stacked bar.
pub(super) struct Part {
    pub(super) class: String,
    pub(super) name: String,
    /// Share of the whole bar, 0..=1.
    pub(super) share: f64,
    /// The part in words.
    pub(super) words: String,
}

/// The ladder: delivered as a bar with the interval of its trials, in front of sent as a track.
pub(super) fn write_ladder(rungs: &[Rung], unit: RateUnit, page: &mut Page) {
    let most = rungs.iter().flat_map(|r| [r.pair.sent_pps.max, r.pair.delivered_pps.max]).fold(1.0, f64::max);
    page.legend([
        ("delivered", "delivered, median"),
        ("track", "sent, median"),
        ("whisker", "smallest to largest trial"),
    ]);
    let lengths = Lengths::of(rates(rungs), most);
    if let Some(from) = lengths.log_from() {
        page.element("p", "note", &log_note(from));
    }
    page.raw("<div class=\"bars\">\n");
    for rung in rungs {
        let (sent, delivered) = (&rung.pair.sent_pps, &rung.pair.delivered_pps);
        let shown = |pps: f64| format!("{} {}", unit.figure(pps), unit.name());
        let range = format!("{} to {}", shown(delivered.min), shown(delivered.max));
        page.raw(format!(
            "<p class=\"row\"><span>{}</span><span class=\"of\"><b>{}</b> <small>of {}</small></span></p>",
            html(&rung.name),
            value(Some(delivered.median), &shown(delivered.median)),
            value(Some(sent.median), &unit.figure(sent.median))
        ));
        let words = format!("delivered {}, {range}; sent {}", shown(delivered.median), shown(sent.median));
        page.open_svg("bar", &rung.name, &words);
        page.raw(rect("track", 0.0, lengths.length(sent.median)));
        page.raw(rect("delivered", 0.0, lengths.length(delivered.median)));
        page.raw(whisker(delivered, lengths));
        page.raw("</svg>\n");
    }
    page.raw("</div>\n");
}

/// Sent and delivered of all pairs, which determine the axis.
pub(super) fn rates(rungs: &[Rung]) -> impl Iterator<Item = f64> {
    rungs.iter().flat_map(|rung| [rung.pair.sent_pps.median, rung.pair.delivered_pps.median])
}

/// The note on a logarithmic axis.
pub(super) fn log_note(from_pps: f64) -> String {
    format!("Logarithmic axis from {}: equal lengths are equal factors.", rate(from_pps))
}

/// Two bars one above the other, each with its class and length, 0..=1.
pub(super) fn write_pair(label: &str, words: &str, bars: [(&str, f64); 2], page: &mut Page) {
    page.raw(format!(
        "<p class=\"row\"><span>{}</span><span class=\"of\">{}</span></p>",
        html(label),
        html(words)
    ));
    for (class, length) in bars {
        page.open_svg("bar", label, words);
        page.raw(rect(class, 0.0, length));
        page.raw("</svg>\n");
    }
}

fn rect(class: &str, from: f64, to: f64) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{}\" width=\"{}\" height=\"100%\"/>",
        per_cent(from),
        per_cent(to - from)
    )
}

fn whisker(summary: &Summary, lengths: Lengths) -> String {
    let (from, to) = (per_cent(lengths.length(summary.min)), per_cent(lengths.length(summary.max)));
    let line = |x1: &str, x2: &str, y1: &str, y2: &str| {
        format!("<line class=\"whisker\" x1=\"{x1}\" x2=\"{x2}\" y1=\"{y1}\" y2=\"{y2}\"/>")
    };
    line(&from, &to, "50%", "50%") + &line(&from, &from, "25%", "75%") + &line(&to, &to, "25%", "75%")
}

/// One bar cut into its parts, with its most important figure in words.
pub(super) fn write_stack(label: &str, figure: &str, parts: &[Part], page: &mut Page) {
    let there = || parts.iter().filter(|part| part.share > 0.0);
    let words: Vec<String> = there().map(|part| format!("{} {}", part.name, part.words)).collect();
    page.raw(format!(
        "<p class=\"row\"><span>{}</span><span class=\"of\"><b>{}</b></span></p>",
        html(label),
        html(figure)
    ));
    page.open_svg("bar", label, &words.join(", "));
    let mut from = 0.0;
    for part in there() {
        let (x, width) = (per_cent(from), per_cent(part.share.min(1.0 - from)));
        let title = html(&format!("{}: {}", part.name, part.words));
        page.raw(format!(
            "<rect class=\"{}\" x=\"{x}\" width=\"{width}\" height=\"100%\"><title>{title}</title></rect>",
            part.class
        ));
        from += part.share;
    }
    page.raw("</svg>\n");
}
