//! Bars of filters under a flood: the share of the flood dropped, and the share of the valid packets delivered.

use measure::{Figure, Point};

use super::{
    bar_chart::{self, BarChart, BarRow, Part},
    page::Page,
};
use crate::{
    filters::{Row, rows},
    number::{percent, rate},
    table::{Cell, Column, Table},
};

/// The rates beside the published one, then the shares of each flood; nothing for other kinds of points.
pub(super) fn write(points: &[Point], figures: &[Figure], page: &mut Page) {
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
        let full: Vec<&Row<'_>> = rows.iter().filter(|row| row.flood == FULL).collect();
        if !full.is_empty() {
            write_rates(&full, figures, page);
        }
        for flood in floods {
            let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.flood == flood).collect();
            let title = format!("Flood '{flood}': shares dropped and delivered");
            let row = |row: &&Row<'_>| {
                BarRow::pair(row.filter, &row.words(), [("s1", row.dropped), ("delivered", row.valid)])
            };
            let chart = BarChart {
                title: &title,
                legend: bar_chart::legend([
                    ("s1", "flood dropped by the filter"),
                    ("delivered", "valid packets delivered"),
                ]),
                note: String::new(),
                rows: rows.iter().map(row).collect(),
            };
            page.figure(&title, &table(&title, &rows), |page| chart.write(page));
        }
    });
}

/// The flood at its maximum rate, under which the published rate was found.
const FULL: &str = "full";

/// Flood packets that each filter dropped per second under the full flood, beside the published rate.
fn write_rates(rows: &[&Row<'_>], figures: &[Figure], page: &mut Page) {
    let published = || figures.iter().filter_map(|figure| Some((figure, figure.published? * 1e6)));
    let published = || published().filter(|(figure, _)| figure.unit == "Mpps");
    let least = published().map(|(_, pps)| pps).reduce(f64::min);
    let greatest = published().map(|(_, pps)| pps).reduce(f64::max);
    let most = rows.iter().map(|row| row.dropped_pps).chain(greatest).fold(1.0, f64::max);
    let bar = |class: &str, name: &str, pps: f64| {
        vec![Part { class: class.into(), name: name.into(), share: pps / most, words: rate(pps) }]
    };
    let mut all: Vec<BarRow> = rows
        .iter()
        .map(|row| {
            let bar = bar("s1", "dropped", row.dropped_pps);
            let more = format!("of {}", rate(row.flood_pps));
            BarRow { more, ..BarRow::new(row.filter, rate(row.dropped_pps), bar) }
        })
        .collect();
    let mut note = String::new();
    if let (Some(least), Some(greatest), Some((figure, _))) = (least, greatest, published().next()) {
        let range =
            if least < greatest { format!("{} to {}", rate(least), rate(greatest)) } else { rate(least) };
        let bar = bar("track", "published", greatest);
        all.push(BarRow::new("published", range, bar));
        if !figure.conditions.is_empty() {
            note = format!("published: {}.", figure.conditions);
        }
    }
    let title = "Flood packets dropped per second, full flood";
    let chart = BarChart {
        title,
        legend: bar_chart::legend([("s1", "dropped by the filter here"), ("track", "published")]),
        note,
        rows: all,
    };
    page.figure(title, &table(title, rows), |page| chart.write(page));
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
        write(&points, &[], &mut page);
        let html = page.into_html();
        assert_eq!(html.matches("<figure>").count(), 3, "the rates, and the shares of two floods: {html}");
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
    fn the_published_rate_is_a_bar_among_the_filters() {
        let published = |mpps: f64| Figure {
            published: Some(mpps),
            unit: "Mpps".into(),
            conditions: "netmap, one core".into(),
            ..Figure::default()
        };
        let mut page = Page::default();
        let points = [point(("XDP", "full"), 4e6, 0.75, 1.0)];
        write(&points, &[published(6.0), published(5.84)], &mut page);
        let html = page.into_html();
        for part in [
            "<b>3.000 Mpps</b> of 4.000 Mpps",
            "<b>5.840 Mpps to 6.000 Mpps</b>",
            "published: netmap, one core.",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(html.contains("<rect class=\"s1\" x=\"0%\" width=\"50%\""), "half of the published: {html}");
        assert!(html.contains("<rect class=\"track\" x=\"0%\" width=\"100%\""), "{html}");
    }

    #[test]
    fn rows_without_a_flood_have_no_bars() {
        let mut page = Page::default();
        write(&[point(("XDP", "none"), 0.0, 0.0, 1.0)], &[], &mut page);
        assert_eq!(page.into_html(), "");
    }
}
