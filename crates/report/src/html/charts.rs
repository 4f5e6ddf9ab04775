//! The page's charts: the numbers of a run in each picture.

use measure::{Interval, Lateness, Ledger, Point, Run};

use super::{
    axes::{Axis, LineChart},
    bar_chart::{self, BarChart, BarRow, Part},
    bars, flame, flow,
    page::{IN_SIGHT, Page},
    percentiles,
    scale::Scale,
    standalone,
};
use crate::{
    bends, instructions,
    ladder::Rung,
    number::{self, RateUnit},
    points::{self, Series},
    table::{Cell, Column, Table},
    tables::{self, UNEXPLAINED},
};

/// Pairs whose instructions are drawn by stack; the record has all.
const MOST_FLAMES: usize = 12;
/// Plots of results; the table has all.
const MOST_PLOTS: usize = 12;
/// Folded blocks of one kind in a row; more are folded together.
const MOST_FOLDS: usize = 4;
/// Points of a line over time; ticks are added up until no more remain.
const MOST_TICKS: usize = 600;

pub(super) fn write_ladder(rungs: &[Rung], page: &mut Page) {
    let unit = RateUnit::of(rungs.iter().flat_map(|r| [r.pair.sent_pps.median, r.pair.delivered_pps.median]));
    let table = tables::ladder(rungs);
    page.section("ladder", "Sent and delivered", |page| {
        page.keep("ladder", || standalone::ladder(&table.title, rungs, unit));
        page.figure(&table.title, &table, |page| bars::write_ladder(rungs, unit, page));
    });
}

/// Counted instructions, by pair and by purpose.
pub(super) fn write_instructions(rungs: &[Rung], page: &mut Page) {
    let tables = instructions::tables(rungs);
    let counts = rungs.iter().filter_map(|rung| {
        let counts = rung.trials.iter().find_map(|trial| trial.instructions.as_ref());
        Some((rung.name.as_str(), counts?))
    });
    let counts: Vec<_> = counts.collect();
    page.keep("instructions", || standalone::instructions("Instructions per packet", &counts));
    page.section("instructions", "Instructions per packet", |page| {
        tables.iter().for_each(|table| page.table(table));
        for (name, counts) in counts.iter().take(MOST_FLAMES) {
            page.element("h3", "", &format!("Instructions by stack: {name}"));
            flame::write_instructions(name, counts, page);
        }
    });
}

/// Published figures, and results of throughput searches.
pub(super) fn write_throughput(run: &Run, page: &mut Page) {
    let tables = crate::text::found(run);
    if tables.is_empty() {
        return;
    }
    let title = if run.end.throughput.is_empty() { "Published and measured" } else { "Throughput found" };
    page.section("found", title, |page| {
        for table in tables {
            let (short, conditions) = crate::throughput::without_conditions(table);
            page.table(&short);
            if let Some(conditions) = conditions {
                page.details("Conditions of the published figures", |page| page.table(&conditions));
            }
        }
    });
    let series: Vec<Series> = run
        .end
        .throughput
        .iter()
        .filter(|found| !found.frame_loss.is_empty())
        .map(|found| {
            let mut points: Vec<(f64, f64)> =
                found.frame_loss.iter().map(|point| (point.offered_pps, point.loss_ratio * 100.0)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series::new(crate::throughput::name(found), points)
        })
        .collect();
    if run.end.throughput.iter().any(|found| !found.latency.is_empty()) {
        let table = crate::throughput::latency(&run.end.throughput);
        let lines = run.end.throughput.iter().flat_map(|found| {
            let of = |at: &measure::LatencyAt| {
                format!("{}, {} %", crate::throughput::name(found), number::percent(at.share_ratio))
            };
            found.latency.iter().filter_map(move |at| Some((of(at), at.latency.as_ref()?)))
        });
        page.section("latency", "Latency below the throughput", |page| {
            percentiles::write(&table, lines.collect(), page);
        });
    }
    if series.is_empty() {
        return;
    }
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(|s| &s.points).map(of).collect::<Vec<_>>();
    let chart = LineChart {
        title: "Frame loss rate against offered load",
        x: rate_axis("offered", Scale::linear(all(|point| point.0))),
        y: Axis::new("lost, %", Scale::linear(all(|point| point.1)), number::tick),
        series: &series,
        diagonal: None,
        bends: &[],
        interval: "",
    };
    let table = crate::throughput::frame_loss(&run.end.throughput);
    page.section("frame-loss", "Frame loss rate", |page| {
        page.figure(chart.title, &table, |page| chart.write(page))
    });
}

/// Delivered against offered, where the same pair ran at several loads.
pub(super) fn write_loads(rungs: &[Rung], page: &mut Page) {
    let mut series: Vec<Series> = Vec::new();
    for rung in rungs {
        let Some(asked) = rung.pair.asked_pps else { continue };
        let point = (asked, rung.pair.delivered_pps.median);
        match series.iter_mut().find(|series| series.name == rung.name_without_load) {
            Some(series) => series.points.push(point),
            None => series.push(Series::new(&rung.name_without_load, vec![point])),
        }
    }
    series.retain(|series| series.points.len() > 1);
    if series.is_empty() {
        return;
    }
    series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let corners: Vec<f64> = series.iter().flat_map(|s| &s.points).flat_map(|(x, y)| [*x, *y]).collect();
    // one scale for both axes, so that loss is the distance from the diagonal
    let scale = Scale::fitting(&corners);
    let chart = LineChart {
        title: "Rate delivered against rate offered",
        x: rate_axis("offered", scale),
        y: rate_axis("delivered", scale),
        series: &series,
        diagonal: Some("no loss"),
        bends: &[],
        interval: "",
    };
    page.section("loads", "Rate against offered load", |page| {
        page.figure("Delivered against offered, medians", &tables::ladder(rungs), |page| chart.write(page));
    });
}

fn rate_axis(name: &str, scale: Scale) -> Axis {
    let unit = RateUnit::of(scale.ticks());
    let shown = |pps: f64| match unit {
        RateUnit::Pps => number::plain(pps),
        RateUnit::Kpps => number::tick(pps / 1e3),
        RateUnit::Mpps => number::tick(pps / 1e6),
    };
    Axis::new(&format!("{name}, {}", unit.name()), scale, shown)
}

pub(super) fn write_ledgers(rungs: &[Rung], page: &mut Page) {
    let ledgers: Vec<_> = rungs.iter().map(Rung::ledger).collect();
    let mut places: Vec<&str> = Vec::new();
    for line in ledgers.iter().flat_map(|ledger| &ledger.lines) {
        if !places.contains(&line.place.as_str()) {
            places.push(line.place.as_str());
        }
    }
    // s0 is the colour of delivered packets
    let class_of =
        |place: &str| format!("s{}", 1 + places.iter().position(|known| *known == place).unwrap_or(0) % 7);
    let leaking = |ledger: &Ledger| !ledger.lines.is_empty() || !ledger.is_closed();
    let leaks: Vec<_> = rungs.iter().zip(&ledgers).filter(|(_, ledger)| leaking(ledger)).collect();
    let classes: Vec<String> = places.iter().map(|place| class_of(place)).collect();
    let lost = classes.iter().map(String::as_str).zip(places.iter().copied());
    let legend = [("delivered", "delivered")].into_iter().chain(lost).chain([(UNEXPLAINED, UNEXPLAINED)]);
    // Of several pairs, those that lost nothing are only counted.
    let drawn: Vec<_> = match rungs.len() {
        1 => rungs.iter().zip(&ledgers).collect(),
        _ => leaks.clone(),
    };
    let chart = BarChart {
        title: "All packets sent, by where they ended",
        legend: bar_chart::legend(legend),
        note: match rungs.len() - drawn.len() {
            0 => String::new(),
            1 => "1 pair lost nothing.".to_owned(),
            count => format!("{} pairs lost nothing.", number::count(count as u64)),
        },
        rows: drawn.iter().map(|(rung, ledger)| fates(&rung.name, ledger, &class_of)).collect(),
    };
    page.section("ledger", "Where the packets went", |page| {
        page.figure(chart.title, &tables::ledgers(rungs), |page| chart.write(page));
        let draw = |page: &mut Page, (rung, ledger): &(&Rung, &Ledger)| {
            flow::write(&rung.name, ledger, class_of, page);
        };
        let title = |rung: &Rung| format!("From sent to delivered: {}", rung.name);
        let most_lost = (0..leaks.len()).max_by_key(|at| leaks[*at].1.lost());
        if let Some(most) = most_lost {
            page.open_details(&title(leaks[most].0), |page| draw(page, &leaks[most]));
        }
        let others = || leaks.iter().enumerate().filter(|(at, _)| Some(*at) != most_lost);
        let each = |page: &mut Page| {
            others().for_each(|(_, leak)| page.details(&title(leak.0), |page| draw(page, leak)));
        };
        match others().count() {
            0..=MOST_FOLDS => each(page),
            count => page.details(&format!("From sent to delivered: {count} more pairs"), each),
        }
        let remedies = tables::remedies(rungs);
        if !remedies.is_empty() {
            page.element("h3", "", "How to reduce loss");
            page.raw("<ul>\n");
            remedies.iter().for_each(|remedy| page.element("li", "", remedy));
            page.raw("</ul>\n");
        }
    });
}

/// A pair's packets as one bar: delivered, lost at each place, unexplained.
fn fates(name: &str, ledger: &Ledger, class_of: &impl Fn(&str) -> String) -> BarRow {
    let share = |packets: u64| packets as f64 / ledger.sent.max(1) as f64;
    let part = |class: String, name: &str, packets: u64| Part {
        class,
        name: name.into(),
        share: share(packets),
        words: format!("{} packets, {} %", number::count(packets), number::percent(share(packets))),
    };
    let mut parts = vec![part("delivered".into(), "delivered", ledger.delivered)];
    let lines = ledger.lines.iter();
    parts.extend(lines.map(|line| part(class_of(line.place.as_str()), line.place.as_str(), line.packets)));
    let unexplained = u64::try_from(ledger.unexplained).unwrap_or(0);
    parts.push(part(UNEXPLAINED.into(), UNEXPLAINED, unexplained));
    let lost = 1.0 - share(ledger.delivered);
    let lost =
        if lost <= 0.0 { "nothing lost".to_owned() } else { format!("{} % lost", number::percent(lost)) };
    BarRow::new(name, lost, parts)
}

/// Lateness by percentile, for the pairs with a requested rate.
pub(super) fn write_receipts(rungs: &[Rung], page: &mut Page) {
    type Percentile = fn(&Lateness) -> u64;
    const PERCENTILES: [(&str, Percentile); 5] = [
        ("p50", |l| l.p50_ns),
        ("p90", |l| l.p90_ns),
        ("p99", |l| l.p99_ns),
        ("p99.9", |l| l.p999_ns),
        ("max", |l| l.max_ns),
    ];
    let table = tables::receipts(rungs);
    if table.rows() == 0 {
        return;
    }
    let micros = |rung: &Rung, percentile: Percentile| {
        rung.median(|trial| trial.receipt.lateness.as_ref().map(|late| percentile(late) as f64 / 1e3))
    };
    let series: Vec<Series> = rungs
        .iter()
        .map(|rung| {
            let late = PERCENTILES.iter().enumerate();
            let points = late.filter_map(|(at, (_, of))| Some((at as f64, micros(rung, *of)?))).collect();
            Series::new(&rung.name, points)
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let scale = Scale::log(series.iter().flat_map(|s| &s.points).map(|(_, y)| *y));
    let chart = LineChart {
        title: "Lateness of packets against the schedule",
        x: Axis::names("percentile of packets", &PERCENTILES.map(|(name, _)| name)),
        y: Axis::new("lateness, µs", scale, number::tick),
        series: &series,
        diagonal: None,
        bends: &[],
        interval: "",
    };
    page.section("receipt", "Rate receipt", |page| {
        // Simulated packets leave exactly on time: a logarithmic axis would be empty.
        if series.iter().flat_map(|s| &s.points).all(|(_, late)| *late <= 0.0) {
            page.table(&table);
            return;
        }
        page.figure("How late packets left, medians over the trials", &table, |page| chart.write(page));
    });
}

/// A plot for each result of a sweep or model, separately for each step of a scenario.
pub(super) fn write_points(run: &Run, page: &mut Page) {
    let points = &run.end.points;
    if points.is_empty() {
        return;
    }
    page.section("points", "Points", |page| {
        for (step, points) in points::by_step(points) {
            page.enter_step(step);
            write_step(&points, bends::is_about_throughput(bends::scenario(&run.start), &points), page);
        }
        page.enter_step(None);
    });
}

fn write_step(points: &[Point], is_about_throughput: bool, page: &mut Page) {
    // Of throughput, the other results are folded.
    let in_sight = if is_about_throughput { 1 } else { IN_SIGHT };
    let mut axes = points::axes(points);
    if is_about_throughput {
        axes.results.sort_by_key(|result| result != bends::RESULT);
    }
    let table = tables::points(points, usize::MAX);
    let Some(x) = &axes.x else {
        page.table(&table);
        return;
    };
    let x_in_words = points::parameter_in_words(points, x);
    let lines = axes.results.iter().map(|result| (result, points::lines(points, &axes, result)));
    // A result that is always 0 has no shape.
    let is_told = |series: &[Series]| series.iter().flat_map(|s| &s.points).any(|point| point.1 != 0.0);
    let told = lines.filter(|(result, series)| *result != "trials" && is_told(series));
    let mut shown = 0;
    let draw = |(result, series): (&String, Vec<Series>), page: &mut Page| {
        let all =
            |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(|s| &s.points).map(of).collect::<Vec<_>>();
        let ends = series.iter().flat_map(|s| &s.ranges).flat_map(|(_, low, high)| [*low, *high]);
        let heights: Vec<f64> = all(|p| p.1).into_iter().chain(ends).collect();
        let of_it = (is_about_throughput && result == bends::RESULT).then(|| bends::of(&series));
        let bends: Vec<f64> = of_it.into_iter().flatten().map(|(_, bend)| bend.at).collect();
        let chart = LineChart {
            title: &format!("{} against {x_in_words}", points::in_words(result)),
            x: Axis::new(&x_in_words, Scale::of_parameter(&all(|p| p.0)), number::tick),
            y: Axis::new(&points::in_words(result), Scale::fitting(&heights), number::tick),
            series: &series,
            diagonal: None,
            bends: &bends,
            interval: "95 % confidence interval of the mean",
        };
        page.figure(chart.title, &tables::points_of(points, &axes, result), |page| chart.write(page));
    };
    let (mut folded, told) = (Vec::new(), told.take(MOST_PLOTS));
    for plot in told {
        shown += 1;
        if shown > in_sight {
            folded.push(plot);
        } else {
            draw(plot, page);
        }
    }
    if !folded.is_empty() {
        let count = folded.len();
        let plots = if count == 1 { "more plot" } else { "more plots" };
        page.details(&format!("{count} {plots}"), |page| {
            folded.into_iter().for_each(|plot| draw(plot, page))
        });
    }
    if axes.results.len() > MOST_PLOTS {
        page.details("All results", |page| page.table(&table));
    }
}

/// One line of a chart over time.
struct OverTime {
    trial: String,
    delivered: Vec<(f64, f64)>,
    sent: Vec<(f64, f64)>,
}

/// Rates tick by tick, one chart per pair.
pub(super) fn write_times(run: &Run, rungs: &[Rung], page: &mut Page) {
    let ticks =
        |at: usize| run.intervals.iter().filter(move |tick| tick.trial as usize == at).collect::<Vec<_>>();
    let mut charts: Vec<(&str, Vec<OverTime>)> = Vec::new();
    for rung in rungs {
        let trials = rung.indexes.iter().zip(&rung.trials);
        let lines = trials.map(|(at, trial)| OverTime::of(format!("trial {}", trial.trial), &ticks(*at)));
        charts.push((&rung.name, lines.collect()));
    }
    let unfinished = run.intervals.iter().filter(|tick| tick.trial as usize >= run.end.trials.len());
    charts.push(("unfinished", vec![OverTime::of("trial".into(), &unfinished.collect::<Vec<_>>())]));
    charts.retain(|(_, lines)| lines.iter().any(|line| line.delivered.len() + line.sent.len() > 0));
    if charts.is_empty() {
        return;
    }
    page.section("time", "Over time", |page| {
        let draw = |page: &mut Page| {
            page.raw("<div class=\"side\">\n");
            charts.iter().for_each(|(name, lines)| write_time(name, lines, page));
            page.raw("</div>\n");
        };
        match charts.len() {
            0..=MOST_FOLDS => draw(page),
            count => page.details(&format!("{count} pairs"), draw),
        }
    });
}

/// With several trials only the delivered rate is drawn; the table has both.
fn write_time(name: &str, lines: &[OverTime], page: &mut Page) {
    let series = |line: &OverTime, what: &str, points: &[(f64, f64)]| {
        Series::new(format!("{} {what}", line.trial), points.to_vec())
    };
    let delivered = lines.iter().map(|line| series(line, "delivered", &line.delivered));
    let sent = lines.iter().map(|line| series(line, "sent", &line.sent));
    let all: Vec<Series> = delivered.chain(sent).filter(|series| !series.points.is_empty()).collect();
    let drawn = if lines.len() > 1 { &all[..lines.len().min(all.len())] } else { &all[..] };

    let points = || drawn.iter().flat_map(|series| &series.points);
    let chart = LineChart {
        title: &format!("{name} over time"),
        x: Axis::new("seconds from the trial's start", Scale::linear(points().map(|p| p.0)), number::tick),
        y: rate_axis("rate", Scale::linear(points().map(|p| p.1))),
        series: drawn,
        diagonal: None,
        bends: &[],
        interval: "",
    };
    let unit = RateUnit::of([points().map(|p| p.1).fold(0.0, f64::max)]);
    let rows = || all.iter().flat_map(|series| series.points.iter().map(move |point| (&series.name, point)));
    let mut table = Table::titled(chart.title);
    table.push(Column::words("line", rows().map(|(name, _)| Cell::words(name))));
    table.push(Column::figures(
        "until",
        "s",
        rows().map(|(_, (x, _))| Cell::figure(*x, |s| format!("{s:.3}"))),
    ));
    table.push(Column::figures(
        "rate",
        unit.name(),
        rows().map(|(_, (_, y))| Cell::figure(*y, |v| unit.figure(v))),
    ));
    page.figure(name, &table, |page| chart.write(page));
}

impl OverTime {
    /// Rates of each tick, or of several together when there are very many.
    fn of(trial: String, ticks: &[&Interval]) -> Self {
        let together = ticks.len().div_ceil(MOST_TICKS).max(1);
        let rates = |count: fn(&Interval) -> Option<u64>| {
            let rate = |group: &[&Interval]| {
                let packets = group.iter().map(|tick| count(tick)).sum::<Option<u64>>()?;
                let seconds: f64 = group.iter().map(|tick| tick.length_s).sum();
                (seconds > 0.0).then(|| (group[group.len() - 1].end_s, packets as f64 / seconds))
            };
            ticks.chunks(together).filter_map(rate).collect()
        };
        Self { trial, delivered: rates(|tick| tick.delivered), sent: rates(|tick| tick.sent) }
    }
}
