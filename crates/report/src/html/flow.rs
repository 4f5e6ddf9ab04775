//! A ledger drawn as a stream from sent to delivered that gets narrower at each place of loss.

use measure::Ledger;

use super::{
    page::{Page, value},
    scale::per_cent,
};
use crate::{escape::html, number, tables::UNEXPLAINED};

/// A loss is drawn at least this wide.
const HAIR: f64 = 0.006;

/// Writes the stream from top to bottom, one slice per place.
pub(super) fn write(name: &str, ledger: &Ledger, class_of: impl Fn(&str) -> String, page: &mut Page) {
    let share = |packets: u64| if ledger.sent == 0 { 0.0 } else { packets as f64 / ledger.sent as f64 };
    page.raw("<ol class=\"flow\">\n");
    step("sent", ledger.sent as f64, &number::count(ledger.sent), "", page);
    slice(name, "sent", [1.0, 1.0], "", page);
    let mut left = 1.0;
    for line in &ledger.lines {
        let next = (left - share(line.packets)).max(0.0);
        let remedy = line.remedy.as_ref().map_or_else(String::new, |remedy| format!("; try {remedy}"));
        let (percent, unit) = (number::percent(share(line.packets)), line.unit.name());
        let words = format!("{percent} % of sent, counted in {unit} by {}{remedy}", line.source);
        let place = line.place.as_str();
        step(place, line.packets as f64, &number::count(line.packets), &words, page);
        slice(name, place, [left, next], &class_of(place), page);
        left = next;
    }
    let unexplained = ledger.unexplained;
    let lost = share(u64::try_from(unexplained).unwrap_or(0));
    let words = match unexplained {
        0 => "the ledger closes",
        n if n > 0 => "lost, but no counter shows where",
        _ => "the counters report more losses than occurred",
    };
    step(UNEXPLAINED, unexplained as f64, &number::signed_count(unexplained), words, page);
    let next = (left - lost).max(0.0);
    slice(name, UNEXPLAINED, [left, next], UNEXPLAINED, page);
    if ledger.unknown_because().is_some() {
        page.raw("</ol>\n");
        return;
    }
    let words = format!("{} % of sent", number::percent(share(ledger.delivered)));
    step("delivered", ledger.delivered as f64, &number::count(ledger.delivered), &words, page);
    slice(name, "delivered", [share(ledger.delivered); 2], "", page);
    page.raw("</ol>\n");
}

fn step(place: &str, packets: f64, shown: &str, words: &str, page: &mut Page) {
    let (place, figure, words) = (html(place), value(Some(packets), shown), html(words));
    page.raw(format!(
        "<li><p><b>{place}</b> <span class=\"packets\">{figure}</span> <small>{words}</small></p>"
    ));
}

/// The continuing stream, and to its right the loss here, tapering off.
fn slice(name: &str, place: &str, [before, after]: [f64; 2], class: &str, page: &mut Page) {
    let lost = before - after;
    let words = format!("{} % of the packets sent continue", number::percent(after));
    page.open_svg("slice", &format!("{name}: {place}"), &words);
    page.raw(format!("<rect class=\"delivered\" width=\"{}\" height=\"100%\"/>", per_cent(after)));
    if lost > 0.0 {
        // a minimum width is taken from the stream next to it, never added to it
        let from = after.min(before - HAIR.min(before));
        let (x, width) = (per_cent(from), per_cent(before - from));
        page.raw(format!(
            "<svg x=\"{x}\" width=\"{width}\" height=\"100%\" viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\">\
             <path class=\"{class}\" d=\"M0,0 H100 V30 Q100,100 50,100 Q0,100 0,30 Z\"/></svg>"
        ));
    }
    page.raw("</svg></li>\n");
}
