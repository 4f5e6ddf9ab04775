//! Rows of a document's experiment next to its published figures: both as multiples of their own first row, because
//! the absolute rates of two machines cannot be compared.

use measure::Point;
use serde_json::Value;

use super::{
    bar_chart::{self, BarChart, BarRow},
    page::Page,
};
use crate::table::{Cell, Column, Table};

/// A row that has a published figure.
struct Row<'p> {
    name: &'p str,
    published_pps: f64,
    delivered_pps: f64,
}

impl<'p> Row<'p> {
    fn of(point: &'p Point) -> Option<Self> {
        let number = |name: &str| point.values.get(name).and_then(Value::as_f64).filter(|pps| *pps > 0.0);
        Some(Self {
            name: point.values.get("row")?.as_str()?,
            published_pps: (number("published_least_pps")? + number("published_most_pps")?) / 2.0,
            delivered_pps: number("delivered_pps")?,
        })
    }
}

/// The bars of these rows, if the points have any.
pub(super) fn write(points: &[Point], page: &mut Page) {
    let rows: Vec<Row<'_>> = points.iter().filter_map(Row::of).collect();
    let Some(first) = rows.first() else { return };
    let ratios =
        |row: &Row<'_>| [row.published_pps / first.published_pps, row.delivered_pps / first.delivered_pps];
    let most = rows.iter().flat_map(ratios).fold(1.0, f64::max);
    let title = "Delivered packets per second, as multiples of the first row";
    let chart = BarChart {
        title,
        legend: bar_chart::legend([("track", "published"), ("delivered", "here")]),
        note: String::new(),
        rows: rows
            .iter()
            .map(|row| {
                let [published, here] = ratios(row);
                let words = format!(
                    "published {:.1} kpps, {published:.2} of the first row; here {:.1} kpps, {here:.2}",
                    row.published_pps / 1e3,
                    row.delivered_pps / 1e3
                );
                let lengths = [("track", published / most), ("delivered", here / most)];
                BarRow::pair(row.name, &words, lengths)
            })
            .collect(),
    };
    let mut table = Table::titled(title);
    table.push(Column::words("row", rows.iter().map(|row| Cell::words(row.name))));
    let kpps = |pps: f64| format!("{:.1}", pps / 1e3);
    table.push(Column::figures(
        "published",
        "kpps",
        rows.iter().map(|row| Cell::figure(row.published_pps, kpps)),
    ));
    table.push(Column::figures("here", "kpps", rows.iter().map(|row| Cell::figure(row.delivered_pps, kpps))));
    let ratio = |at: usize| {
        rows.iter()
            .map(|row| Cell::figure(ratios(row)[at], |ratio| format!("{ratio:.2}")))
            .collect::<Vec<_>>()
    };
    table.push(Column::figures("published", "× first row", ratio(0)));
    table.push(Column::figures("here", "× first row", ratio(1)));
    page.section("published", "Compared with the published figures", |page| {
        page.figure(title, &table, |page| chart.write(page));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(row: &str, published: f64, delivered: f64) -> Point {
        let values = [
            ("row", row.into()),
            ("published_least_pps", published.into()),
            ("published_most_pps", published.into()),
            ("delivered_pps", delivered.into()),
        ];
        Point { values: values.map(|(name, value): (_, Value)| (name.to_owned(), value)).into() }
    }

    #[test]
    fn measured_and_published_are_multiples_of_their_first_rows() {
        let mut page = Page::default();
        write(&[point("one <sender>", 100e3, 7e3), point("two", 160e3, 14e3)], &mut page);
        let html = page.into_html();
        assert!(html.contains("published 160.0 kpps, 1.60 of the first row; here 14.0 kpps, 2.00"), "{html}");
        assert!(html.contains("one &lt;sender&gt;"), "{html}");
        assert_eq!(html.matches("<rect").count(), 4, "two bars per row: {html}");
        assert!(html.contains("width=\"100%\""), "the longest bar has the full width: {html}");
    }

    #[test]
    fn other_points_have_no_such_picture() {
        let mut page = Page::default();
        let mut nothing = point("one", 100e3, 7e3);
        nothing.values.remove("row");
        write(&[nothing, point("no rate", 100e3, 0.0)], &mut page);
        assert_eq!(page.into_html(), "");
    }
}
