//! What the points of a sweep or model mean as a plot, told from their names and values alone.

use std::collections::{BTreeMap, BTreeSet};

use measure::Point;
use serde_json::Value;

/// The roles of the names in a run's points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Axes {
    /// Words and the parameters beside x: each combination of them is a series of its own.
    pub(crate) series: Vec<String>,
    /// The parameter that was stepped through.
    pub(crate) x: Option<String>,
    /// Every other number.
    pub(crate) results: Vec<String>,
}

/// One line of a plot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Ascending in x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Names that are parameters more often than results, the likeliest first.
const PARAMETERS: [&str; 10] =
    ["payload", "frame_size", "datagram", "size", "offered", "asked", "threads", "batch", "ring", "time"];

/// Finds the roles. The stepped parameter is the number that takes the same values in every series and
/// differs within each; among several, one that is named like a parameter, then the one with the most values.
/// While an x occurs more than once in a series, the next such number tells further series apart.
pub(crate) fn axes(points: &[Point]) -> Axes {
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.values.keys()).collect();
    let is_word = |name: &String| {
        points.iter().any(|point| matches!(point.values.get(name), Some(Value::String(_) | Value::Bool(_))))
    };
    let (mut series, mut numbers): (Vec<String>, Vec<String>) = names.into_iter().cloned().partition(is_word);
    let x = take_stepped(&mut numbers, points, &series);
    while let Some(x) = &x
        && groups(points, &series).values().any(|group| repeats(group, x))
        && let Some(parameter) = take_stepped(&mut numbers, points, &series)
    {
        series.push(parameter);
    }
    Axes { series, x, results: numbers }
}

/// Removes and returns the likeliest stepped parameter.
fn take_stepped(numbers: &mut Vec<String>, points: &[Point], series: &[String]) -> Option<String> {
    let groups = groups(points, series);
    let (_, _, at) = numbers
        .iter()
        .enumerate()
        .filter_map(|(at, name)| Some((rank(name), usize::MAX - stepped(name, groups.values())?, at)))
        .min()?;
    Some(numbers.remove(at))
}

fn groups<'p>(points: &'p [Point], series: &[String]) -> BTreeMap<String, Vec<&'p Point>> {
    let mut groups: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
    for point in points {
        groups.entry(series_name(point, series)).or_default().push(point);
    }
    groups
}

fn repeats(group: &[&Point], x: &str) -> bool {
    let values: BTreeSet<u64> = group.iter().filter_map(|point| number(point, x)).map(f64::to_bits).collect();
    values.len() < group.len()
}

fn rank(name: &str) -> usize {
    PARAMETERS.iter().position(|known| name.contains(known)).unwrap_or(PARAMETERS.len())
}

/// The number of values, when all groups step through the same ones.
fn stepped<'p>(name: &str, groups: impl Iterator<Item = &'p Vec<&'p Point>>) -> Option<usize> {
    let mut steps: Option<Vec<u64>> = None;
    for group in groups {
        let mut values: Vec<u64> =
            group.iter().map(|point| number(point, name).map(f64::to_bits)).collect::<Option<_>>()?;
        values.sort_unstable();
        values.dedup();
        if values.len() < 2 || steps.as_ref().is_some_and(|known| *known != values) {
            return None;
        }
        steps = Some(values);
    }
    steps.map(|values| values.len())
}

/// The lines of one result against x, by series.
pub(crate) fn lines(points: &[Point], axes: &Axes, result: &str) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for point in points {
        let at = axes.x.as_ref().and_then(|x| number(point, x)).zip(number(point, result));
        let Some(at) = at else { continue };
        let name = series_name(point, &axes.series);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(at),
            None => lines.push(Series { name, points: vec![at] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

fn series_name(point: &Point, series: &[String]) -> String {
    let part = |name: &String| match point.values.get(name)? {
        Value::Number(number) => Some(format!("{name} {number}")),
        other => Some(crate::tables::plain(other)),
    };
    series.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

fn number(point: &Point, name: &str) -> Option<f64> {
    point.values.get(name).and_then(Value::as_f64).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sweep() -> Vec<Point> {
        let policies = [("keep", 2.0), ("copy", 1.0)];
        policies
            .iter()
            .flat_map(|(policy, gbps)| {
                [1500, 64, 512].map(|bytes| Point {
                    values: BTreeMap::from([
                        ("policy".to_string(), json!(policy)),
                        ("payload_bytes".into(), json!(bytes)),
                        ("aggregate_gbps".into(), json!(gbps * f64::from(bytes))),
                    ]),
                })
            })
            .collect()
    }

    #[test]
    fn words_are_series_and_what_is_stepped_alike_in_all_is_x() {
        let axes = axes(&sweep());
        assert_eq!(axes.series, ["policy"]);
        assert_eq!(axes.x.as_deref(), Some("payload_bytes"));
        assert_eq!(axes.results, ["aggregate_gbps"]);
    }

    #[test]
    fn lines_ascend_in_x() {
        let points = sweep();
        let lines = lines(&points, &axes(&points), "aggregate_gbps");
        assert_eq!(
            lines[0],
            Series { name: "keep".into(), points: vec![(64.0, 128.0), (512.0, 1024.0), (1500.0, 3000.0)] }
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_parameters_name_decides_where_everything_is_stepped_alike() {
        let point = |bytes: u32, pps: f64| Point {
            values: BTreeMap::from([
                ("a_pps".to_string(), json!(pps)),
                ("frame_size_bytes".into(), json!(bytes)),
            ]),
        };
        assert_eq!(axes(&[point(64, 2.0), point(128, 1.0)]).x.as_deref(), Some("frame_size_bytes"));
    }

    #[test]
    fn a_second_parameter_makes_series() {
        let point = |bytes: u32, threads: u32| Point {
            values: BTreeMap::from([
                ("frame_size_bytes".to_string(), json!(bytes)),
                ("threads".into(), json!(threads)),
                ("a_pps".into(), json!(f64::from(threads) * 1e6 / f64::from(bytes))),
            ]),
        };
        let points = [point(64, 1), point(64, 2), point(128, 1), point(128, 2)];
        let axes = axes(&points);
        assert_eq!(
            (axes.x.as_deref(), axes.series.as_slice()),
            (Some("frame_size_bytes"), &["threads".to_string()][..])
        );
        assert_eq!(axes.results, ["a_pps"]);
        assert_eq!(lines(&points, &axes, "a_pps")[1].name, "threads 2");
    }

    #[test]
    fn points_without_anything_stepped_have_no_x() {
        assert_eq!(axes(&sweep()[..1]).x, None);
        assert_eq!(axes(&[]), Axes::default());
    }
}
