//! A receiver's measurements: the share of packets against time, and the figures as a table.

use std::borrow::Cow;

use measure::{NanosSummary, ReceptionStatistics, Run};

use super::{
    axes::{Axis, LineChart},
    page::Page,
    scale::Scale,
};
use crate::{
    ladder::rungs,
    number,
    points::Series,
    table::{Cell, Column, Table},
};

/// One picture for each receiver that measured times: of `recv`, and of the first trials of a bench.
pub(super) fn write(run: &Run, page: &mut Page) {
    const MOST_TRIALS: usize = 12;
    let alone = run.end.statistics.iter().map(|statistics| ("received packets".to_string(), statistics));
    let rungs = rungs(run);
    let trials = run.end.trials.iter().enumerate().filter_map(|(at, trial)| {
        let pair = rungs.iter().find(|rung| rung.indexes.contains(&at)).map(|rung| rung.name.clone());
        let pair = pair.unwrap_or_else(|| format!("{} → {}", trial.tx.label, trial.rx.label));
        Some((format!("{pair}, trial {}", trial.trial), trial.statistics.as_ref()?))
    });
    let back = run.end.trials.iter().filter_map(|trial| {
        let trips = trial.round_trips.as_ref()?;
        let named =
            [("Round trip".into(), &trips.round_trip), ("Jitter of the round trip".into(), &trips.jitter)];
        Some((format!("returned packets, trial {}", trial.trial), present(named)))
    });
    let all: Vec<(String, Distributions<'_>)> = alone
        .chain(trials)
        .map(|(name, statistics)| (name, distributions(statistics)))
        .chain(back)
        .filter(|(_, distributions)| !distributions.is_empty())
        .take(MOST_TRIALS)
        .collect();
    if all.is_empty() {
        return;
    }
    page.section("reception", "Inter-arrival times and latency", |page| {
        all.iter().for_each(|(name, distributions)| write_one(name, distributions, page));
    });
}

type Distributions<'s> = Vec<(Cow<'static, str>, &'s NanosSummary)>;

fn distributions(statistics: &ReceptionStatistics) -> Distributions<'_> {
    let total = &statistics.total;
    let bound_ns = statistics.timing.as_ref().and_then(|timing| timing.clock_bound_ns);
    let latency =
        bound_ns.map_or(Cow::from("Latency"), |ns| format!("Latency (clock error up to {ns} ns)").into());
    present([
        ("Inter-arrival".into(), &total.inter_arrival),
        ("Inter-arrival per flow".into(), &total.flow_inter_arrival),
        ("Jitter".into(), &total.jitter),
        (latency, &total.latency),
    ])
}

fn present<'s, const N: usize>(
    named: [(Cow<'static, str>, &'s Option<NanosSummary>); N],
) -> Distributions<'s> {
    named.into_iter().filter_map(|(name, summary)| Some((name, summary.as_ref()?))).collect()
}

fn write_one(name: &str, distributions: &[(Cow<'static, str>, &NanosSummary)], page: &mut Page) {
    let series: Vec<Series> =
        distributions.iter().map(|(name, summary)| Series::new(name.as_ref(), cumulative(summary))).collect();
    let xs = || series.iter().flat_map(|series| &series.points).map(|point| point.0);
    let chart = LineChart {
        title: &format!("Cumulative distribution: {name}"),
        x: Axis::new("nanoseconds", Scale::log(xs()), number::tick),
        y: Axis::new("% of samples", Scale::linear([0.0, 100.0]), number::tick),
        series: &series,
        diagonal: None,
        bends: &[],
        interval: "",
    };
    page.figure(name, &table(distributions), |page| chart.write(page));
}

/// The share of samples up to each bucket, in per cent; 0 ns has no place on a logarithmic axis and is drawn at 1.
fn cumulative(summary: &NanosSummary) -> Vec<(f64, f64)> {
    let mut seen = 0u64;
    let samples = summary.samples.max(1) as f64;
    let buckets = summary.buckets();
    buckets
        .iter()
        .map(|(most_ns, count)| {
            seen = seen.saturating_add(*count);
            ((*most_ns).max(1) as f64, seen as f64 / samples * 100.0)
        })
        .collect()
}

fn table(distributions: &[(Cow<'_, str>, &NanosSummary)]) -> Table {
    let mut table = Table::titled("Times in nanoseconds");
    table.push(Column::words("", distributions.iter().map(|(name, _)| Cell::words(name.as_ref()))));
    let mut figures = |title: &str, unit: &str, of: fn(&NanosSummary) -> f64| {
        let cells = distributions.iter().map(|(_, one)| Cell::figure(of(one), |ns| format!("{ns:.0}")));
        table.push(Column::figures(title, unit, cells));
    };
    figures("samples", "", |one| one.samples as f64);
    figures("mean", "ns", |one| one.mean_ns);
    figures("deviation", "ns", |one| one.std_dev_ns);
    figures("variance", "ns²", |one| one.variance_ns2);
    figures("least", "ns", |one| one.min_ns as f64);
    figures("50 %", "ns", |one| one.p50_ns as f64);
    figures("90 %", "ns", |one| one.p90_ns as f64);
    figures("99 %", "ns", |one| one.p99_ns as f64);
    figures("99.9 %", "ns", |one| one.p999_ns as f64);
    figures("99.99 %", "ns", |one| one.p9999_ns as f64);
    figures("most", "ns", |one| one.max_ns as f64);
    table
}
