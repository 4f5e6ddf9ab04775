//! A line chart as data: its axes, its lines, and where their points are.

use super::scale::Scale;
use crate::points::Series;

/// One axis: what it shows, and its round values in words.
pub(super) struct Axis {
    pub(super) title: String,
    scale: Scale,
    pub(super) ticks: Vec<(f64, String)>,
}

/// Lines over two axes.
pub(super) struct LineChart<'c> {
    /// The text that a screen reader reads first.
    pub(super) title: &'c str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: &'c [Series],
    /// Draws y = x for comparison.
    pub(super) diagonal: Option<&'c str>,
    /// Values of x where a line changes, each marked.
    pub(super) bends: &'c [f64],
    /// The meaning of the intervals.
    pub(super) interval: &'c str,
}

/// The most lines that a chart can distinguish.
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
        // A phone has room for five words.
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
    /// The lines that can be distinguished.
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

    /// The position of a point, both coordinates from 0 to 1.
    pub(super) fn position(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.x.scale.position(x)?, self.y.scale.position(y)?))
    }

    /// Dotted lines for comparison, each from one point to another: y = x, whose axes have the same scale, and bends.
    pub(super) fn references(&self) -> Vec<[(f64, f64); 2]> {
        let (Scale::Linear { min, max } | Scale::Log { min, max }) = self.x.scale;
        let (Scale::Linear { min: bottom, max: top } | Scale::Log { min: bottom, max: top }) = self.y.scale;
        let diagonal = self.diagonal.map(|_| [(min, min), (max, max)]);
        diagonal.into_iter().chain(self.bends.iter().map(|x| [(*x, bottom), (*x, top)])).collect()
    }

    /// The meaning of the dotted lines.
    pub(super) fn reference(&self) -> Option<&str> {
        self.diagonal.or_else(|| (!self.bends.is_empty()).then_some("the line changes here"))
    }
}
