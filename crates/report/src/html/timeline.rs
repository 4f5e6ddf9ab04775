//! Events by kind on a time axis: one lane per kind, quantities as lines under them, and the moments to compare across all.

use measure::{Level, Timeline, View};

use super::{
    page::Page,
    scale::{Scale, per_cent},
};
use crate::{
    escape::html,
    number,
    table::{Cell, Column, Table},
};

/// Events that take no time are drawn this wide, in pixels.
const INSTANT_PX: f64 = 2.0;

/// All timelines, one picture per view.
pub(super) fn write(timelines: &[Timeline], page: &mut Page) {
    if timelines.is_empty() {
        return;
    }
    page.section("timelines", "Timelines", |page| {
        for timeline in timelines {
            page.figure(&timeline.title, &table(timeline), |page| {
                let names = timeline.lanes.iter().map(|lane| lane.name.clone());
                let levels = timeline
                    .levels
                    .iter()
                    .map(|level| format!("{}, {} of {}", level.name, level.unit, number::plain(level.most)));
                let names: Vec<String> = names.chain(levels).collect();
                let classes: Vec<String> = (0..names.len()).map(|at| format!("s{}", at % 8)).collect();
                page.legend(classes.iter().zip(&names).map(|(class, name)| (class.as_str(), name.as_str())));
                timeline.views.iter().for_each(|view| write_view(timeline, view, page));
            });
        }
    });
}

fn write_view(timeline: &Timeline, view: &View, page: &mut Page) {
    let scale = Scale::Linear { min: view.from, max: view.to };
    let inside = |at: f64| scale.position(at).filter(|position| (0.0..=1.0).contains(position));
    page.element("h3", "", &view.title);
    page.raw("<div class=\"plot lanes\">");
    page.open_svg("lines", &view.title, &description(timeline, view));
    let round: Vec<(f64, String)> =
        scale.ticks().into_iter().filter_map(|tick| Some((inside(tick)?, number::plain(tick)))).collect();
    // a phone has room for four words
    let every = round.len().div_ceil(4).max(1);
    for (position, label) in round.iter().step_by(every) {
        let position = *position;
        let (x, label) = (per_cent(position), html(label));
        page.raw(format!("<line class=\"grid\" y1=\"0\" y2=\"100%\" x1=\"{x}\" x2=\"{x}\"/>"));
        page.raw(format!("<text class=\"tick x\" y=\"100%\" dy=\"18\" x=\"{x}\">{label}</text>"));
    }
    let rows = timeline.lanes.len() + timeline.levels.len();
    let height = 1.0 / rows.max(1) as f64;
    for (at, lane) in timeline.lanes.iter().enumerate() {
        let y = per_cent((at as f64 + 0.1) * height);
        for (start, length) in lane.events.iter().filter(|(start, length)| start + length >= view.from) {
            let Some(from) = inside(*start) else { continue };
            let to = scale.position(start + length).unwrap_or(from).min(1.0);
            let width = if *length > 0.0 { per_cent(to - from) } else { INSTANT_PX.to_string() };
            page.raw(format!(
                "<rect class=\"s{}\" x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{}\"/>",
                at % 8,
                per_cent(from),
                per_cent(0.8 * height)
            ));
        }
    }
    for (at, level) in timeline.levels.iter().enumerate() {
        let row = timeline.lanes.len() + at;
        write_level(level, view, (row as f64 + 0.1) * height, 0.8 * height, row, page);
    }
    let marks: Vec<(f64, &str)> =
        timeline.marks.iter().filter_map(|mark| Some((inside(mark.at)?, mark.name.as_str()))).collect();
    for (position, name) in &marks {
        let (x, name) = (per_cent(*position), html(name));
        page.raw(format!(
            "<line class=\"moment\" y1=\"-4\" y2=\"100%\" x1=\"{x}\" x2=\"{x}\"><title>{name}</title></line>"
        ));
    }
    page.raw("</svg>");
    page.element("p", "axis x", &timeline.unit);
    page.raw("</div>\n");
    if !marks.is_empty() {
        let names: Vec<&str> = marks.iter().map(|(_, name)| *name).collect();
        page.element("p", "note", &format!("Dashed, from left to right: {}.", names.join("; ")));
    }
}

/// Columns of a level, each as high as its highest value.
const LEVEL_COLUMNS: usize = 300;

fn write_level(level: &Level, view: &View, top: f64, height: f64, row: usize, page: &mut Page) {
    let width = (view.to - view.from) / LEVEL_COLUMNS as f64;
    if width.is_nan() || width <= 0.0 || level.most <= 0.0 {
        return;
    }
    for column in 0..LEVEL_COLUMNS {
        let (from, to) = (view.from + column as f64 * width, view.from + (column + 1) as f64 * width);
        let first = level.points.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let inside = level.points[first..].iter().take_while(|(at, _)| *at < to);
        let share = inside.map(|(_, value)| value / level.most).fold(0.0, f64::max).min(1.0);
        if share > 0.0 {
            page.raw(format!(
                "<rect class=\"s{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                row % 8,
                per_cent(column as f64 / LEVEL_COLUMNS as f64),
                per_cent(top + height * (1.0 - share)),
                per_cent(1.0 / LEVEL_COLUMNS as f64),
                per_cent(height * share)
            ));
        }
    }
}

fn description(timeline: &Timeline, view: &View) -> String {
    let counts = timeline.lanes.iter().map(|lane| {
        let there = lane.events.iter().filter(|(start, _)| (view.from..view.to).contains(start));
        format!("{} {}", there.count(), lane.name)
    });
    let levels = timeline.levels.iter().map(|level| {
        let there = level.points.iter().filter(|(at, _)| (view.from..view.to).contains(at));
        let most = there.map(|(_, value)| *value).fold(0.0, f64::max);
        format!("{} at most {} {}", level.name, number::plain(most), level.unit)
    });
    let counts: Vec<String> = counts.chain(levels).collect();
    let [from, to] = [view.from, view.to].map(number::plain);
    format!("From {from} to {to} {}: {}.", timeline.unit, counts.join(", "))
}

/// Every event, in the order of time.
fn table(timeline: &Timeline) -> Table {
    let mut rows: Vec<(f64, f64, &str)> = timeline
        .lanes
        .iter()
        .flat_map(|lane| lane.events.iter().map(|(start, length)| (*start, *length, lane.name.as_str())))
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut table = Table::titled(&timeline.title);
    table.push(Column::figures(
        "start",
        &timeline.unit,
        rows.iter().map(|row| Cell::figure(row.0, number::plain)),
    ));
    table.push(Column::figures(
        "length",
        &timeline.unit,
        rows.iter().map(|row| Cell::figure(row.1, number::plain)),
    ));
    table.push(Column::words("what", rows.iter().map(|row| Cell::words(row.2))));
    table
}

#[cfg(test)]
mod tests {
    use measure::{Lane, Mark};

    use super::*;

    #[test]
    fn a_view_draws_its_part_and_the_table_has_everything() {
        let timeline = Timeline {
            title: "a <bus>".into(),
            unit: "CLK".into(),
            lanes: vec![
                Lane { name: "frames".into(), events: vec![(0.0, 9.0), (54.0, 9.0), (900.0, 9.0)] },
                Lane { name: "tails".into(), events: vec![(80.0, 0.0)] },
            ],
            levels: vec![Level {
                name: "buffer".into(),
                unit: "bytes".into(),
                most: 100.0,
                points: vec![(0.0, 0.0), (50.0, 25.0), (60.0, 0.0)],
            }],
            marks: vec![Mark { name: "published end".into(), at: 70.0 }],
            views: vec![View { title: "smooth".into(), from: 0.0, to: 100.0 }],
        };
        let mut page = Page::default();
        write(&[timeline], &mut page);
        let html = page.into_html();
        let events = html.matches("<rect class=\"s0\"").count() + html.matches("<rect class=\"s1\"").count();
        assert_eq!(events, 3, "{html}");
        let columns = html.matches("<rect class=\"s2\"").count();
        assert!((30..=32).contains(&columns), "a level holds until the next: {columns}");
        assert!(html.contains("From 0 to 100 CLK: 2 frames, 1 tails, buffer at most 25 bytes."), "{html}");
        assert!(html.contains("buffer, bytes of 100"), "{html}");
        assert!(html.contains("a &lt;bus&gt;") && html.contains("class=\"moment\""), "{html}");
        assert!(html.contains("Dashed, from left to right: published end."), "{html}");
        assert_eq!(html.matches("<tr>").count(), 1 + 4, "a heading and every event: {html}");
    }

    #[test]
    fn a_run_without_any_has_no_such_section() {
        let mut page = Page::default();
        write(&[], &mut page);
        assert_eq!(page.into_html(), "");
    }
}
