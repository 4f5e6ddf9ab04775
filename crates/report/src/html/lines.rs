//! A line chart that keeps its text readable at any width: geometry stretches, text and strokes do not.

use super::{
    page::{Page, per_cent},
    scale::Scale,
    standalone,
};
use crate::{escape::html, points::Series};

/// One axis: what it shows, and its round values in words.
pub(super) struct Axis {
    pub(super) title: String,
    scale: Scale,
    pub(super) ticks: Vec<(f64, String)>,
}

/// Lines over two axes.
pub(super) struct LineChart<'c> {
    /// What a screen reader says first.
    pub(super) title: &'c str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: &'c [Series],
    /// Draws y = x for comparison.
    pub(super) diagonal: Option<&'c str>,
    /// What the intervals are.
    pub(super) interval: &'c str,
}

/// Lines that a chart can tell apart.
pub(super) const MOST_SERIES: usize = 8;
/// Lines with more points than this have no marks.
const MOST_MARKS: usize = 40;

impl Axis {
    /// Round values of the scale, each in words.
    pub(super) fn new(title: &str, scale: Scale, shown: impl Fn(f64) -> String) -> Self {
        let ticks =
            scale.ticks().into_iter().filter_map(|tick| Some((scale.position(tick)?, shown(tick)))).collect();
        Self { title: title.into(), scale, ticks }
    }

    /// From 0 to a whole number, with words at whole ones.
    pub(super) fn whole(title: &str, most: f64, shown: impl Fn(f64) -> String) -> Self {
        let last = most.ceil().clamp(1.0, 12.0);
        let scale = Scale::Linear { min: 0.0, max: last };
        // On a phone there is room for five words.
        let every = if last > 4.0 { 2 } else { 1 };
        let ticks =
            (0..=last as u32).step_by(every).map(|at| (f64::from(at) / last, shown(at.into()))).collect();
        Self { title: title.into(), scale, ticks }
    }

    /// Names at 0, 1, 2 ...
    pub(super) fn names(title: &str, names: &[&str]) -> Self {
        let last = names.len().max(2) - 1;
        let scale = Scale::Linear { min: 0.0, max: last as f64 };
        let ticks =
            names.iter().enumerate().map(|(at, name)| (at as f64 / last as f64, name.to_string())).collect();
        Self { title: title.into(), scale, ticks }
    }
}

impl LineChart<'_> {
    /// Writes legend and image.
    pub(super) fn write(&self, page: &mut Page) {
        page.keep(self.title, || standalone::lines(self));
        let drawn = self.drawn();
        let classes: Vec<String> = (0..drawn.len()).map(|at| format!("line s{at}")).collect();
        let has_ranges = drawn.iter().any(|series| !series.ranges.is_empty());
        let reference = self.diagonal.map(|name| ("line reference", name));
        let reference = reference.into_iter().chain(has_ranges.then_some(("whisker", self.interval)));
        let entries = classes.iter().zip(drawn).map(|(class, series)| (class.as_str(), series.name.as_str()));
        if drawn.iter().any(|series| !series.name.is_empty()) || self.diagonal.is_some() || has_ranges {
            page.legend(entries.filter(|(_, name)| !name.is_empty()).chain(reference));
        }
        page.raw("<div class=\"plot\">");
        page.element("p", "axis", &self.y.title);
        page.open_svg("lines", self.title, &self.description(drawn));
        self.write_grid(page);
        page.raw(
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" width=\"100%\" height=\"100%\">",
        );
        if self.diagonal.is_some() {
            page.raw(self.path(&self.diagonal_points(), "reference"));
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

    /// The lines that can be told apart.
    pub(super) fn drawn(&self) -> &[Series] {
        &self.series[..self.series.len().min(MOST_SERIES)]
    }

    /// Whether each point is marked.
    pub(super) fn has_marks(&self, series: &Series) -> bool {
        series.points.len() <= MOST_MARKS
    }

    pub(super) fn description(&self, drawn: &[Series]) -> String {
        let mut text = format!("{} against {}.", self.y.title, self.x.title);
        for series in drawn {
            if let (Some(first), Some(last)) = (series.points.first(), series.points.last()) {
                let [x0, y0, x1, y1] = [first.0, first.1, last.0, last.1].map(crate::number::plain);
                text += &format!(" {}: from {y0} at {x0} to {y1} at {x1}.", series.name);
            }
        }
        text
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

    /// Where a point stands, both from 0 to 1.
    pub(super) fn position(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.x.scale.position(x)?, self.y.scale.position(y)?))
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

    /// y = x; both axes have the same scale where it is drawn.
    pub(super) fn diagonal_points(&self) -> [(f64, f64); 2] {
        let (Scale::Linear { min, max } | Scale::Log { min, max }) = self.x.scale;
        [(min, min), (max, max)]
    }
}
