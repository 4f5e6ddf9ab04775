//! Filters under a flood: the share of the flood that each dropped, and the share of the valid packets delivered.

use measure::Point;
use serde_json::Value;

use crate::number::{percent, rate};

/// One filter under one flood.
pub(crate) struct Row<'p> {
    pub(crate) filter: &'p str,
    pub(crate) flood: &'p str,
    pub(crate) flood_pps: f64,
    pub(crate) dropped_pps: f64,
    /// Share of the flood, 0..=1.
    pub(crate) dropped: f64,
    /// Delivered share of the valid packets sent, 0..=1.
    pub(crate) valid: f64,
}

impl<'p> Row<'p> {
    fn of(point: &'p Point) -> Option<Self> {
        let number = |name: &str| point.values.get(name).and_then(Value::as_f64);
        let word = |name: &str| point.values.get(name).and_then(Value::as_str);
        Some(Self {
            filter: word("filter")?,
            flood: word("flood")?,
            flood_pps: number("flood_pps").filter(|pps| *pps > 0.0)?,
            dropped_pps: number("filtered_pps")?,
            // Flood and count end at slightly different times: they differ by a few packets.
            dropped: number("filtered_of_flood_ratio")?.clamp(0.0, 1.0),
            valid: number("valid_delivered_ratio")?.clamp(0.0, 1.0),
        })
    }

    /// The row without its filter's name.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} % of {} dropped, {} % of the valid packets delivered",
            percent(self.dropped),
            rate(self.flood_pps),
            percent(self.valid)
        )
    }
}

/// The rows of a run that compares filters; none for other points.
pub(crate) fn rows(points: &[Point]) -> Vec<Row<'_>> {
    points.iter().filter_map(Row::of).collect()
}

/// The filter that delivered the most valid packets under the full flood, compared with no filter; `None` for other points.
pub(crate) fn verdict(points: &[Point]) -> Option<String> {
    let rows: Vec<Row<'_>> = rows(points).into_iter().filter(|row| row.flood == "full").collect();
    let (unfiltered, filters): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
        rows.iter().partition(|row| row.filter.starts_with("none"));
    let by_service = |row: &&&Row<'_>| (row.valid, row.dropped);
    let best = filters.iter().max_by(|a, b| by_service(a).partial_cmp(&by_service(b)).expect("shares"))?;
    let best = format!("Under the full flood, '{}' was the best filter: {}", best.filter, best.words());
    Some(match unfiltered.first() {
        Some(none) => format!("{best}; without a filter {} %.", percent(none.valid)),
        None => format!("{best}."),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A filter under a flood.
    pub(crate) fn point((filter, flood): (&str, &str), flood_pps: f64, dropped: f64, valid: f64) -> Point {
        let values: [(&str, Value); 6] = [
            ("filter", filter.into()),
            ("flood", flood.into()),
            ("flood_pps", flood_pps.into()),
            ("filtered_pps", (flood_pps * dropped).into()),
            ("filtered_of_flood_ratio", dropped.into()),
            ("valid_delivered_ratio", valid.into()),
        ];
        Point { values: values.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    #[test]
    fn the_verdict_compares_the_best_filter_with_none() {
        let points = [
            point(("none, the service reads all", "full"), 2e6, 0.0, 0.4),
            point(("nft", "full"), 2e6, 0.5, 0.9),
            point(("XDP", "full"), 2e6, 0.75, 1.0),
            point(("nft", "ten-times"), 2e6, 0.9, 1.0),
        ];
        assert_eq!(
            verdict(&points).as_deref(),
            Some(
                "Under the full flood, 'XDP' was the best filter: 75.00 % of 2.000 Mpps dropped, \
                 100 % of the valid packets delivered; without a filter 40.00 %."
            )
        );
        assert_eq!(verdict(&points[..1]), None);
        assert_eq!(verdict(&[Point::default()]), None);
    }
}
