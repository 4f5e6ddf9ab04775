//! Figures 3, 4 and 9 of the RDR paper: throughput against payload, in one chart: theory, sent, received, and the values
//! derived from the paper's slope and -40 %.

use std::collections::BTreeSet;

use measure::Point;
use serde_json::Value;

use super::{
    axes::{Axis, LineChart},
    page::Page,
    scale::Scale,
};
use crate::{
    number,
    points::{Series, number as value_of},
    table::{Cell, Column, Table},
};

/// The results common to all policies, and their names in the points.
const SHARED: [(&str, &str); 3] =
    [("theory", "theory_bps"), ("sent", "sent_bps"), ("limit of the bus", "bus_limit_bps")];
/// The results of a policy.
const OF_POLICY: [(&str, &str); 2] =
    [("received", "received_bps"), ("derived from the paper's slope and -40 %", "derived_received_bps")];

/// A chart for each number of ports, if the points belong to that experiment.
pub(super) fn write(points: &[Point], page: &mut Page) {
    let all = SHARED
        .iter()
        .chain(&OF_POLICY)
        .all(|(_, name)| points.iter().any(|point| value_of(point, name).is_some()));
    if !all {
        return;
    }
    let ports: BTreeSet<u64> =
        points.iter().filter_map(|point| point.values.get("ports")?.as_u64()).collect();
    page.section("curve", "Throughput against payload", |page| {
        for ports in ports {
            let of: Vec<&Point> = points
                .iter()
                .filter(|point| point.values.get("ports").and_then(Value::as_u64) == Some(ports))
                .collect();
            let title = match ports {
                1 => "Figures 3, 4 and 9: one port".to_string(),
                _ => format!("Figures 3, 4 and 9: each of {ports} ports"),
            };
            let series = lines(&of);
            let (far, drawn) = apart(&series);
            let heights = drawn.iter().flat_map(|line| &line.points).map(|point| point.1);
            let payloads: Vec<f64> = of.iter().filter_map(|point| value_of(point, "payload_bytes")).collect();
            let chart = LineChart {
                title: &title,
                x: Axis::new("payload, bytes", Scale::fitting(&payloads), number::tick),
                y: Axis::new("Mb/s of frames", Scale::linear(heights), number::tick),
                series: &drawn,
                diagonal: None,
                bends: &[],
                interval: "",
            };
            page.figure(chart.title, &table(&title, "Mb/s", &series), |page| {
                chart.write(page);
                for line in &far {
                    let [least, most] =
                        [line.points.first(), line.points.last()].map(|point| point.map_or(0.0, |p| p.1));
                    let [least, most] = [least, most].map(number::plain);
                    page.element(
                        "p",
                        "note",
                        &format!("{}: from {least} to {most} Mb/s, above this chart.", line.name),
                    );
                }
            });
            write_loss(&of, ports, page);
        }
    });
}

/// Frames lost per second by policy, beside those that follow from the derived curve.
fn write_loss(points: &[&Point], ports: u64, page: &mut Page) {
    let title = match ports {
        1 => "Lost frames per second: one port".to_string(),
        _ => format!("Lost frames per second: each of {ports} ports"),
    };
    let policies: BTreeSet<&str> =
        points.iter().filter_map(|point| point.values.get("policy")?.as_str()).collect();
    let lost = |point: &Point, received: &str| {
        let bits = 8.0 * value_of(point, "frame_bytes")?;
        let lost_bps = value_of(point, "sent_bps")? - value_of(point, received)?;
        Some((value_of(point, "payload_bytes")?, (lost_bps / bits / 1e6).max(0.0)))
    };
    let line = |policy: &str, (name, received): (&str, &str)| {
        let of = points.iter().filter(|p| p.values.get("policy").and_then(Value::as_str) == Some(policy));
        let mut at: Vec<(f64, f64)> = of.filter_map(|point| lost(point, received)).collect();
        at.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(format!("{name}, {policy}"), at)
    };
    let kinds = [("lost", OF_POLICY[0].1), ("derived from the paper", OF_POLICY[1].1)];
    let series: Vec<Series> =
        policies.iter().flat_map(|policy| kinds.map(|kind| line(policy, kind))).collect();
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(|s| &s.points).map(of).collect::<Vec<_>>();
    if all(|point| point.1).is_empty() {
        return;
    }
    let chart = LineChart {
        title: &title,
        x: Axis::new("payload, bytes", Scale::fitting(&all(|point| point.0)), number::tick),
        y: Axis::new("lost, Mpps", Scale::linear(all(|point| point.1)), number::tick),
        series: &series,
        diagonal: None,
        bends: &[],
        interval: "",
    };
    page.figure(chart.title, &table(&title, "Mpps", &series), |page| chart.write(page));
}

/// A bus limit far above the link's rate would compress the other lines: it is shown separately.
fn apart(series: &[Series]) -> (Vec<Series>, Vec<Series>) {
    let (of_bus, _) = SHARED[2];
    let highest = |line: &Series| line.points.iter().map(|point| point.1).fold(0.0, f64::max);
    let most = series.iter().filter(|line| line.name != of_bus).map(highest).fold(0.0, f64::max);
    let is_far = |line: &Series| line.name == of_bus && line.points.iter().all(|point| point.1 > 2.0 * most);
    series.iter().cloned().partition(is_far)
}

fn lines(points: &[&Point]) -> Vec<Series> {
    let policies: BTreeSet<&str> =
        points.iter().filter_map(|point| point.values.get("policy")?.as_str()).collect();
    let line = |title: String, policy: &str, name: &str| {
        let of =
            points.iter().filter(|point| point.values.get("policy").and_then(Value::as_str) == Some(policy));
        let at =
            of.filter_map(|point| Some((value_of(point, "payload_bytes")?, value_of(point, name)? / 1e6)));
        let mut at: Vec<(f64, f64)> = at.collect();
        at.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(title, at)
    };
    let first = policies.first().copied().unwrap_or_default();
    let shared = SHARED.map(|(title, name)| line(title.into(), first, name));
    let by_policy = policies
        .iter()
        .flat_map(|policy| OF_POLICY.map(|(title, name)| line(format!("{title}, {policy}"), policy, name)));
    shared.into_iter().chain(by_policy).filter(|line| !line.points.is_empty()).collect()
}

/// One row per payload, one column per line.
fn table(title: &str, unit: &str, series: &[Series]) -> Table {
    let mut payloads: Vec<f64> =
        series.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    payloads.sort_by(f64::total_cmp);
    payloads.dedup();
    let mut table = Table::titled(title);
    table.push(Column::figures(
        "payload",
        "bytes",
        payloads.iter().map(|payload| Cell::figure(*payload, number::plain)),
    ));
    for line in series {
        let value = |payload: &f64| line.points.iter().find(|point| point.0 == *payload).map(|point| point.1);
        table.push(Column::figures(
            &line.name,
            unit,
            payloads.iter().map(|payload| Cell::figure(value(payload), number::plain)),
        ));
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn point(policy: &str, payload: u32, received_bps: f64) -> Point {
        let values = [
            ("policy", json!(policy)),
            ("ports", json!(1)),
            ("payload_bytes", json!(payload)),
            ("frame_bytes", json!(payload + 18)),
            ("theory_bps", json!(9e8)),
            ("sent_bps", json!(9e8)),
            ("bus_limit_bps", json!(3e9)),
            ("received_bps", json!(received_bps)),
            ("derived_received_bps", json!(received_bps)),
        ];
        Point { values: values.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    #[test]
    fn one_chart_has_theory_and_what_each_policy_receives() {
        let points = [
            point("realloc", 100, 4.7e8),
            point("realloc", 46, 2.5e8),
            point("recycle", 46, 3.5e8),
            point("recycle", 100, 6.6e8),
        ];
        let mut page = Page::default();
        write(&points, &mut page);
        let html = page.into_html();
        assert_eq!(html.matches("<figure>").count(), 2, "throughput and loss: {html}");
        // (900 - 250 Mb/s) / (8 * 64 bytes)
        assert!(html.contains("lost, realloc: from 1.270 at 46"), "{html}");
        for name in ["theory", "received, realloc", "derived from the paper&#39;s slope and -40 %, recycle"] {
            assert!(html.contains(&format!("{name}</li>")), "{name}: {html}");
        }
        assert!(html.contains("limit of the bus: from"), "far above, in words: {html}");
        assert!(!html.contains("limit of the bus</li>"), "{html}");
        assert!(html.contains("received, realloc: from 250 at 46 to 470 at 100."), "ascending: {html}");
    }

    #[test]
    fn other_points_have_no_such_chart() {
        let mut page = Page::default();
        let mut other = point("realloc", 46, 1e6);
        other.values.remove("theory_bps");
        write(&[other], &mut page);
        assert_eq!(page.into_html(), "");
    }
}
