//! Bars of filters under a flood: the share of the flood dropped, and the share of the valid packets delivered.

use measure::Point;

use super::{bars, page::Page, standalone};
use crate::{
    filters::{Row, rows},
    number::{percent, rate},
    table::{Cell, Column, Table},
};

/// One figure per flood; none for other kinds of points.
pub(super) fn write(points: &[Point], page: &mut Page) {
    let rows = rows(points);
    if rows.is_empty() {
        return;
    }
    let mut floods: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !floods.contains(&row.flood) {
            floods.push(row.flood);
        }
    });
    page.section("filters", "Dropped and delivered by each filter", |page| {
        for flood in floods {
            let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.flood == flood).collect();
            let title = format!("Flood '{flood}': shares dropped and delivered");
            page.keep(&title, || standalone::filters(&title, &rows));
            page.figure(&title, &table(&title, &rows), |page| {
                page.legend([
                    ("s1", "flood dropped by the filter"),
                    ("delivered", "valid packets delivered"),
                ]);
                page.raw("<div class=\"bars\">\n");
                for row in &rows {
                    bars::write_pair(
                        row.filter,
                        &row.words(),
                        [("s1", row.dropped), ("delivered", row.valid)],
                        page,
                    );
                }
                page.raw("</div>\n");
            });
        }
    });
}

fn table(title: &str, rows: &[&Row<'_>]) -> Table {
    let mut table = Table::titled(title);
    table.push(Column::words("filter", rows.iter().map(|row| Cell::words(row.filter))));
    let mut figures = |name: &str, unit: &str, of: fn(&Row<'_>) -> f64, shown: fn(f64) -> String| {
        table.push(Column::figures(name, unit, rows.iter().map(|row| Cell::figure(Some(of(row)), shown))));
    };
    figures("flood", "", |row| row.flood_pps, rate);
    figures("dropped", "", |row| row.dropped_pps, rate);
    figures("of the flood", "%", |row| row.dropped, percent);
    figures("valid delivered", "%", |row| row.valid, percent);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::tests::point;

    #[test]
    fn each_flood_has_a_figure_with_two_bars_per_filter() {
        let mut page = Page::default();
        let points = [
            point(("<nft>", "full"), 2e6, 0.5, 0.9),
            point(("XDP", "full"), 2e6, 1.01, 1.0),
            point(("XDP", "ten-times"), 1e6, 0.75, 1.0),
        ];
        write(&points, &mut page);
        let html = page.into_html();
        assert_eq!(html.matches("<figure>").count(), 2, "{html}");
        assert!(
            html.contains("50.00 % of 2.000 Mpps dropped, 90.00 % of the valid packets delivered"),
            "{html}"
        );
        assert!(html.contains("&lt;nft&gt;") && !html.contains("<nft>"), "{html}");
        assert!(
            html.contains("<rect class=\"s1\" x=\"0%\" width=\"100%\""),
            "a bar ends at the whole flood: {html}"
        );
    }

    #[test]
    fn rows_without_a_flood_have_no_bars() {
        let mut page = Page::default();
        write(&[point(("XDP", "none"), 0.0, 0.0, 1.0)], &mut page);
        assert_eq!(page.into_html(), "");
    }
}
