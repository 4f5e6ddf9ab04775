//! A line chart with readable text at any width: geometry stretches, text and strokes do not.

use super::{axes::LineChart, page::Page, scale::per_cent, standalone};
use crate::{escape::html, points::Series};

impl LineChart<'_> {
    /// Writes legend and image.
    pub(super) fn write(&self, page: &mut Page) {
        page.keep(self.title, || standalone::lines(self));
        let drawn = self.drawn();
        let classes: Vec<String> = (0..drawn.len()).map(|at| format!("line s{at}")).collect();
        let has_ranges = drawn.iter().any(|series| !series.ranges.is_empty());
        let reference = self.reference().map(|name| ("line reference", name));
        let reference = reference.into_iter().chain(has_ranges.then_some(("whisker", self.interval)));
        let entries = classes.iter().zip(drawn).map(|(class, series)| (class.as_str(), series.name.as_str()));
        if drawn.iter().any(|series| !series.name.is_empty()) || self.reference().is_some() || has_ranges {
            page.legend(entries.filter(|(_, name)| !name.is_empty()).chain(reference));
        }
        page.raw("<div class=\"plot\">");
        page.element("p", "axis", &self.y.title);
        page.open_svg("lines", self.title, &self.description(drawn));
        self.write_grid(page);
        page.raw(
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" width=\"100%\" height=\"100%\">",
        );
        for line in self.references() {
            page.raw(self.path(&line, "reference"));
        }
        for (at, series) in drawn.iter().enumerate() {
            page.raw(self.path(&series.points, &format!("s{at}")));
        }
        page.raw("</svg>");
        drawn.iter().for_each(|series| self.write_ranges(series, page));
        for (at, series) in drawn.iter().enumerate().filter(|(_, series)| self.has_marks(series)) {
            self.write_marks(series, at, page);
        }
        page.raw("</svg>");
        page.element("p", "axis x", &self.x.title);
        page.raw("</div>\n");
        if drawn.len() < self.series.len() {
            let more = self.series.len() - drawn.len();
            page.element("p", "note", &format!("{more} more lines are in the table."));
        }
    }

    fn write_grid(&self, page: &mut Page) {
        for (position, label) in &self.y.ticks {
            let (y, label) = (per_cent(1.0 - position), html(label));
            page.raw(format!("<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>"));
            page.raw(format!("<text class=\"tick y\" x=\"0\" dx=\"-6\" y=\"{y}\" dy=\"4\">{label}</text>"));
        }
        for (position, label) in &self.x.ticks {
            let (x, label) = (per_cent(*position), html(label));
            page.raw(format!("<line class=\"grid\" y1=\"0\" y2=\"100%\" x1=\"{x}\" x2=\"{x}\"/>"));
            page.raw(format!("<text class=\"tick x\" y=\"100%\" dy=\"18\" x=\"{x}\">{label}</text>"));
        }
    }

    fn path(&self, points: &[(f64, f64)], class: &str) -> String {
        let placed = points.iter().filter_map(|point| self.position(*point));
        let corners: Vec<String> =
            placed.map(|(x, y)| format!("{:.1},{:.1}", x * 1000.0, (1.0 - y) * 1000.0)).collect();
        format!("<polyline class=\"{class}\" points=\"{}\"/>", corners.join(" "))
    }

    fn write_ranges(&self, series: &Series, page: &mut Page) {
        for (x, low, high) in &series.ranges {
            let (Some((x, from)), Some((_, to))) = (self.position((*x, *low)), self.position((*x, *high)))
            else {
                continue;
            };
            let [x, from, to] = [x, 1.0 - from, 1.0 - to].map(per_cent);
            page.raw(format!("<line class=\"whisker\" x1=\"{x}\" x2=\"{x}\" y1=\"{from}\" y2=\"{to}\"/>"));
        }
    }

    fn write_marks(&self, series: &Series, at: usize, page: &mut Page) {
        for point in &series.points {
            let Some((x, y)) = self.position(*point) else { continue };
            let words = format!(
                "{}: {} at {}",
                series.name,
                crate::number::plain(point.1),
                crate::number::plain(point.0)
            );
            page.raw(format!(
                "<circle class=\"mark s{at}\" r=\"3.5\" cx=\"{}\" cy=\"{}\"><title>{}</title></circle>",
                per_cent(x),
                per_cent(1.0 - y),
                html(&words)
            ));
        }
    }
}
