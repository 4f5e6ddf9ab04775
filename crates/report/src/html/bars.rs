//! Bars: one row each, text in HTML so that it wraps, geometry in SVG so that it stretches.

use measure::Summary;

use super::{
    bar_chart::{BarChart, BarRow, rates},
    page::{Page, value},
    scale::{Lengths, per_cent},
    standalone,
};
use crate::{
    escape::html,
    ladder::Rung,
    number::{RateUnit, rate},
};

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

/// The note on a logarithmic axis.
pub(super) fn log_note(from_pps: f64) -> String {
    format!("Logarithmic axis from {}: equal lengths are equal factors.", rate(from_pps))
}

impl BarRow {
    fn write(&self, page: &mut Page) {
        let figure =
            if self.figure.is_empty() { String::new() } else { format!("<b>{}</b> ", html(&self.figure)) };
        page.raw(format!(
            "<p class=\"row\"><span>{}</span><span class=\"of\">{}</span></p>",
            html(&self.label),
            (figure + &html(&self.more)).trim_end()
        ));
        for bar in &self.bars {
            let there = || bar.iter().filter(|part| part.share > 0.0);
            let words: Vec<String> = there().map(|part| format!("{} {}", part.name, part.words)).collect();
            let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
            page.open_svg("bar", &self.label, &words);
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
    }
}

impl BarChart<'_> {
    /// Writes legend and rows, and keeps the separate image.
    pub(super) fn write(&self, page: &mut Page) {
        self.open(page);
        page.raw("<div class=\"bars\">\n");
        self.rows.iter().for_each(|row| row.write(page));
        page.raw("</div>\n");
    }

    /// The same with the groups side by side where there is room.
    pub(super) fn write_groups(&self, page: &mut Page) {
        self.open(page);
        page.raw("<div class=\"side\">\n");
        for rows in self.rows.chunk_by(|a, b| a.group == b.group) {
            page.raw("<div>\n");
            page.element("h3", "", &rows[0].group);
            rows.iter().for_each(|row| row.write(page));
            page.raw("</div>\n");
        }
        page.raw("</div>\n");
    }

    fn open(&self, page: &mut Page) {
        page.keep(self.title, || standalone::bars(self));
        if !self.legend.is_empty() {
            page.legend(self.legend.iter().map(|(class, words)| (class.as_str(), words.as_str())));
        }
        if !self.note.is_empty() {
            page.element("p", "note", &self.note);
        }
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
