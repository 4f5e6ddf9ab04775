//! A search for the best settings: its waterfall, its history, the rejected values, and how to use the result.

use measure::{Run, TuneStep};

use super::{
    axes::{Axis, LineChart},
    bar_chart::{self, BarChart, BarRow, Part},
    page::Page,
    scale::Scale,
};
use crate::{number, points::Series, table::Table, tuned};

/// Writes the section, if the run is such a search.
pub(super) fn write(run: &Run, page: &mut Page) {
    let Some(tuning) = &run.end.tuning else { return };
    page.section("waterfall", "Steps to the best settings", |page| {
        if let Some(baseline) = run.end.baseline.as_ref().filter(|_| !run.end.steps.is_empty()) {
            let table = tuned::waterfall(run);
            let chart = BarChart {
                title: &table.title,
                legend: bar_chart::legend(match tuning.unit.as_str() {
                    "ns" => [("delivered", "after the step"), ("track", "saved by it")],
                    _ => [("track", "before the step"), ("delivered", "gained by it")],
                }),
                note: String::new(),
                rows: steps(run, baseline.value, &tuning.unit),
            };
            page.figure(chart.title, &table, |page| chart.write(page));
            page.table(&table);
        }
        page.table(&tuned::rejected(run));
        for (title, lines) in tuned::lines(run) {
            page.element("h3", "", title);
            page.lines(&lines);
        }
    });
    let [measured, best] = tuned::history(tuning);
    if measured.is_empty() {
        return;
    }
    let series = [Series::new("each measurement", measured.clone()), Series::new("best so far", best)];
    let unit = if tuning.unit == "ns" { "µs" } else { "Mpps" };
    let last = measured.last().map_or(1.0, |point| point.0);
    page.section("history", "History of the search", |page| {
        let chart = LineChart {
            title: "Measurements in the order of the search",
            x: Axis::new("measurement", Scale::linear([0.0, last]), number::tick),
            y: Axis::new(unit, Scale::linear(measured.iter().map(|point| point.1)), number::tick),
            series: &series,
            diagonal: None,
            bends: &[],
            interval: "",
        };
        page.figure(chart.title, &table(run), |page| chart.write(page));
    });
}

/// A waterfall: the original settings, then each step as far as the one before it, with its own part apart.
fn steps(run: &Run, baseline: f64, unit: &str) -> Vec<BarRow> {
    let most = run.end.steps.iter().flat_map(|step| [step.from, step.to]).fold(baseline, f64::max);
    let part = |class: &str, name: &str, value: f64| Part {
        class: class.into(),
        name: name.into(),
        share: value / most,
        words: tuned::figure(value, unit),
    };
    let before = if unit == "ns" { "delivered" } else { "track" };
    let first =
        BarRow::new("the original settings", tuned::figure(baseline, unit), vec![part(before, "", baseline)]);
    let step = |step: &TuneStep| {
        let sets: Vec<String> = step.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (least, change) = (step.from.min(step.to), (step.to - step.from).abs());
        let parts = match unit {
            "ns" => vec![part("delivered", "after", least), part("track", "saved", change)],
            _ => vec![part("track", "before", least), part("delivered", "gained", change)],
        };
        let row = BarRow::new(sets.join(" "), tuned::figure(step.to, unit), parts);
        BarRow { more: number::change(step.effect.estimate), ..row }
    };
    std::iter::once(first).chain(run.end.steps.iter().map(step)).collect()
}

/// Every measurement, one row each.
fn table(run: &Run) -> Table {
    use crate::table::{Cell, Column};
    let mut table = Table::titled("Measurements");
    let Some(tuning) = &run.end.tuning else { return table };
    let history = || tuning.history.iter();
    table.push(Column::words("phase", history().map(|attempt| Cell::words(&attempt.phase))));
    table.push(Column::words(
        "sets",
        history().map(|attempt| {
            let sets: Vec<String> =
                attempt.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Cell::words(sets.join(" "))
        }),
    ));
    let values =
        history().map(|attempt| Cell::figure(attempt.value, |value| tuned::figure(value, &tuning.unit)));
    table.push(Column::figures("figure", "", values));
    table.push(Column::words(
        "did not run",
        history().map(|attempt| Cell::words(attempt.failure.clone().unwrap_or_default())),
    ));
    table
}
