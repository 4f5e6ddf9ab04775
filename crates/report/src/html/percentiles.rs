//! Times by percentile, so that the slowest of a million packets are visible next to the fast half.

use measure::NanosSummary;

use super::{
    axes::{Axis, LineChart},
    page::Page,
    scale::Scale,
};
use crate::{number, points::Series, table::Table};

/// Writes a line for each named distribution, then their table.
pub(super) fn write(table: &Table, distributions: Vec<(String, &NanosSummary)>, page: &mut Page) {
    let series: Vec<Series> =
        distributions.into_iter().map(|(name, summary)| Series::new(name, points(summary))).collect();
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(|s| &s.points).map(of).collect::<Vec<_>>();
    let chart = LineChart {
        title: "Latency by percentile",
        x: Axis::whole(
            "percentile of packets, %",
            all(|point| point.0).into_iter().fold(1.0, f64::max),
            percentile,
        ),
        y: Axis::new("latency, µs", Scale::log(all(|point| point.1)), number::tick),
        series: &series,
        diagonal: None,
        bends: &[],
        interval: "",
    };
    page.figure(chart.title, table, |page| chart.write(page));
}

/// Microseconds against the number of nines: each step to the right is a tenth of the packets of the previous step.
fn points(summary: &NanosSummary) -> Vec<(f64, f64)> {
    let samples = summary.samples.max(1) as f64;
    let mut below = 0u64;
    let mut points = Vec::new();
    for (most_ns, count) in summary.buckets() {
        let micros = most_ns.clamp(1, summary.max_ns.max(1)) as f64 / 1e3;
        points.push((nines(below as f64 / samples), micros));
        below = below.saturating_add(count);
    }
    // The slowest of n packets is at one nth.
    points.push((samples.log10(), summary.max_ns.max(1) as f64 / 1e3));
    points
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn percentile(nines: f64) -> String {
    let decimals = (nines - 2.0).max(0.0).round() as usize;
    format!("{:.decimals$}", 100.0 * (1.0 - 10f64.powf(-nines)))
}

#[cfg(test)]
mod tests {
    use measure::Distribution;

    use super::*;

    #[test]
    fn a_step_is_a_nine() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(percentile), ["0", "90", "99", "99.9", "99.999"]);
    }

    #[test]
    fn the_line_ascends_from_the_least_to_the_most() {
        let mut times = Distribution::new();
        (1..=1000u64).for_each(|at| times.record(at * 1000));
        let points = points(&times.summary().unwrap());
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{points:?}");
        assert_eq!((points[0].0, points[points.len() - 1]), (0.0, (3.0, 1000.0)));
        let median = points.iter().rfind(|point| point.0 <= 0.301).unwrap().1;
        assert!((median / 500.0 - 1.0).abs() < 0.02, "{median}");
    }
}
