//! Finds the plot for the points of a sweep or model from their names and values alone.

use std::collections::{BTreeMap, BTreeSet};

use measure::Point;
use serde_json::Value;

/// The roles of the names in a run's points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Axes {
    /// Words and parameters other than x: each combination of them is a separate series.
    pub(crate) series: Vec<String>,
    /// The stepped parameter.
    pub(crate) x: Option<String>,
    /// Every other number.
    pub(crate) results: Vec<String>,
}

/// One line of a plot.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Ascending in x.
    pub(crate) points: Vec<(f64, f64)>,
    /// x, least and most of an interval.
    pub(crate) ranges: Vec<(f64, f64, f64)>,
}

/// The suffixes of the ends of a result's confidence interval.
const ENDS: [&str; 2] = ["_low", "_high"];

impl Axes {
    /// A result and the ends of its confidence interval, if the points have them.
    pub(crate) fn with_ends<'n>(points: &[Point], result: &'n str) -> impl Iterator<Item = String> + 'n {
        let ends = ENDS.map(|end| format!("{result}{end}"));
        let known: Vec<String> = ends
            .into_iter()
            .filter(|end| points.iter().any(|point| point.values.contains_key(end)))
            .collect();
        std::iter::once(result.to_owned()).chain(known)
    }
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ranges: Vec::new() }
    }
}

/// Names that are usually parameters, the likeliest first.
const PARAMETERS: [&str; 10] =
    ["payload", "frame_size", "datagram", "size", "offered", "asked", "threads", "batch", "ring", "time"];

/// The most informative results, in order; any others follow.
const RESULTS: [&str; 12] = [
    "delivered_pps",
    "delivered_bps",
    "received_pps",
    "lost_pps",
    "sent_pps",
    "loss_ratio",
    "tx_ns_per_packet",
    "rx_ns_per_packet",
    "flood_pps",
    "filtered_of_flood_ratio",
    "valid_delivered_ratio",
    "transfer_bps",
];

/// Finds the roles. The stepped parameter is the number that takes the same values in every series and
/// differs within each; among several, one with a typical name, then the one with the most values.
/// While an x occurs more than once in a series, the next such number splits it into more series.
pub(crate) fn axes(points: &[Point]) -> Axes {
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.values.keys()).collect();
    let is_word = |name: &String| {
        let known = points.iter().filter_map(|point| point.values.get(name));
        unit_of(points, name).is_none()
            && known.into_iter().any(|value| matches!(value, Value::String(_) | Value::Bool(_)))
    };
    let (mut series, mut numbers): (Vec<String>, Vec<String>) = names.into_iter().cloned().partition(is_word);
    let x = take_stepped(&mut numbers, points, &series);
    while let Some(x) = &x
        && groups(points, &series).values().any(|group| repeats(group, x))
        && let Some(parameter) = take_stepped(&mut numbers, points, &series)
    {
        series.push(parameter);
    }
    let is_end = |name: &String| {
        ENDS.iter().filter_map(|end| name.strip_suffix(end)).any(|of| numbers.iter().any(|known| known == of))
    };
    let mut results: Vec<String> = numbers.iter().filter(|name| !is_end(name)).cloned().collect();
    // Lists and tables in a value are wide, and have no place in a plot.
    let is_composite = |name: &String| {
        let is_one = |value: &Value| value.is_array() || value.is_object();
        points.iter().any(|point| point.values.get(name).is_some_and(is_one))
    };
    results.sort_by_key(|name| {
        let rank = RESULTS.iter().position(|known| known == name).unwrap_or(RESULTS.len());
        (is_composite(name), rank)
    });
    Axes { series, x, results }
}

/// The points of each step of a scenario separately, without the step's name in their values; all together if there
/// are no steps.
pub(crate) fn by_step(points: &[Point]) -> Vec<(Option<String>, Vec<Point>)> {
    let mut steps: Vec<(Option<String>, Vec<Point>)> = Vec::new();
    for point in points {
        let mut point = point.clone();
        let step = point.values.remove("step").as_ref().map(crate::value::plain);
        match steps.iter_mut().find(|(known, _)| *known == step) {
            Some((_, of_it)) => of_it.push(point),
            None => steps.push((step, vec![point])),
        }
    }
    steps
}

/// Removes and returns the likeliest stepped parameter.
fn take_stepped(numbers: &mut Vec<String>, points: &[Point], series: &[String]) -> Option<String> {
    let groups = groups(points, series);
    let (_, _, at) = numbers
        .iter()
        .enumerate()
        .filter(|(_, name)| !was_observed(name) && (rank(name) < PARAMETERS.len() || !is_result(name)))
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

/// Whether a name is that of a measurement, which is never a parameter.
fn is_result(name: &str) -> bool {
    const ENDINGS: [&str; 4] = ["_ratio", "_pps", "_bps", "_per_packet"];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether it cannot be requested, despite its name: `ring_mean_frames` is not a ring size.
fn was_observed(name: &str) -> bool {
    const ENDINGS: [&str; 4] = ["_per_s", "_mean_frames", "_low", "_high"];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The number of values, if all groups step through the same ones.
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
        let line = match lines.iter().position(|line| line.name == name) {
            Some(known) => known,
            None => {
                lines.push(Series::new(name, Vec::new()));
                lines.len() - 1
            }
        };
        lines[line].points.push(at);
        if let [Some(low), Some(high)] = ENDS.map(|end| number(point, &format!("{result}{end}"))) {
            lines[line].ranges.push((at.0, low, high));
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

fn series_name(point: &Point, series: &[String]) -> String {
    let part = |name: &String| match point.values.get(name)? {
        Value::Number(number) => Some(format!("{name} {number}")),
        other => Some(crate::value::plain(other)),
    };
    series.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

pub(crate) fn number(point: &Point, name: &str) -> Option<f64> {
    let value = match point.values.get(name)? {
        Value::String(text) => quantity(text).map(|(value, _)| value),
        value => value.as_f64(),
    };
    value.filter(|value| value.is_finite())
}

/// A parameter as it was typed, with its unit: 100kpps, 20ms.
fn quantity(text: &str) -> Option<(f64, &'static str)> {
    const UNITS: [(&str, &str, f64); 6] = [
        ("bpsl1", "bit/s on the wire", 1.0),
        ("pps", "pps", 1.0),
        ("bps", "bit/s", 1.0),
        ("ms", "s", 1e-3),
        ("us", "s", 1e-6),
        ("s", "s", 1.0),
    ];
    let (rest, unit, factor) =
        UNITS.iter().find_map(|(ending, unit, factor)| Some((text.strip_suffix(ending)?, *unit, *factor)))?;
    let prefixes = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let prefix = prefixes.iter().find_map(|(prefix, by)| Some((rest.strip_suffix(*prefix)?, *by)));
    let (digits, by) = prefix.filter(|_| unit != "s").unwrap_or((rest, 1.0));
    Some((digits.parse::<f64>().ok()? * by * factor, unit))
}

/// The unit of a parameter whose values are all such quantities.
fn unit_of(points: &[Point], name: &str) -> Option<&'static str> {
    let mut values = points.iter().filter_map(|point| point.values.get(name)).peekable();
    let of = |value: &Value| quantity(value.as_str()?).map(|(_, unit)| unit);
    let first = of(values.peek()?)?;
    values.all(|value| of(value) == Some(first)).then_some(first)
}

/// A parameter's name with its unit, if its values have one.
pub(crate) fn parameter_in_words(points: &[Point], name: &str) -> String {
    let words = in_words(name);
    unit_of(points, name).map_or_else(|| words.clone(), |unit| format!("{words} ({unit})"))
}

/// A parameter's or result's name as a person reads it, with its unit: `delivered_pps` is "delivered (pps)".
pub(crate) fn in_words(name: &str) -> String {
    const UNITS: [(&str, &str); 11] = [
        ("_ns_per_packet", "ns per packet"),
        ("_pps", "pps"),
        ("_bps", "bit/s"),
        ("_mbps", "Mb/s"),
        ("_bytes", "bytes"),
        ("_ratio", "share of 1"),
        ("_ns", "ns"),
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_s", "s"),
        ("_percent", "%"),
    ];
    let unit = UNITS.iter().find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)));
    match unit {
        Some((rest, unit)) => format!("{} ({unit})", rest.replace('_', " ")),
        None => name.replace(['_', '-'], " "),
    }
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
    fn words_are_series_and_a_number_with_the_same_steps_in_all_is_x() {
        let axes = axes(&sweep());
        assert_eq!(axes.series, ["policy"]);
        assert_eq!(axes.x.as_deref(), Some("payload_bytes"));
        assert_eq!(axes.results, ["aggregate_gbps"]);
    }

    #[test]
    fn lines_ascend_in_x() {
        let points = sweep();
        let lines = lines(&points, &axes(&points), "aggregate_gbps");
        assert_eq!(lines[0], Series::new("keep", vec![(64.0, 128.0), (512.0, 1024.0), (1500.0, 3000.0)]));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn names_decide_when_several_numbers_are_stepped() {
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
    fn a_model_s_swept_rate_is_x_and_its_queue_lengths_are_not() {
        let point = |rate: f64, held: f64| Point {
            values: BTreeMap::from([
                ("rate".to_string(), json!(rate)),
                ("ring_mean_frames".into(), json!(held)),
                ("interrupts_per_s".into(), json!(held * 1e5)),
                ("received_pps".into(), json!(rate)),
            ]),
        };
        let axes = axes(&[point(1e5, 0.1), point(2e5, 0.2), point(3e5, 0.3), point(4e5, 0.3)]);
        assert_eq!(axes.x.as_deref(), Some("rate"));
    }

    #[test]
    fn a_rate_as_it_was_typed_is_a_number_in_its_unit() {
        let point = |rate: &str, received: f64| Point {
            values: BTreeMap::from([
                ("rate".to_string(), json!(rate)),
                ("received_pps".into(), json!(received)),
            ]),
        };
        let points = [point("1Mpps", 2.0), point("100kpps", 1.0)];
        let axes = axes(&points);
        assert_eq!((axes.x.as_deref(), axes.series.len()), (Some("rate"), 0));
        assert_eq!(lines(&points, &axes, "received_pps")[0].points, [(1e5, 1.0), (1e6, 2.0)]);
        assert_eq!(parameter_in_words(&points, "rate"), "rate (pps)");
        let mixed = [point("max", 2.0), point("100kpps", 1.0)];
        assert_eq!(super::axes(&mixed).series, ["rate"], "a word among them makes all words");
        let units = ["20ms", "3us", "2s", "10Gbps", "1Mbpsl1", "5"].map(quantity);
        let known = [(0.02, "s"), (3e-6, "s"), (2.0, "s"), (1e10, "bit/s"), (1e6, "bit/s on the wire")];
        assert_eq!(units[..5], known.map(Some));
        assert_eq!(units[5], None);
    }

    #[test]
    fn a_measurement_is_never_a_parameter() {
        let point = |bytes: u32, mtu: u32, ratio: f64| Point {
            values: BTreeMap::from([
                ("send_size".to_string(), json!(bytes)),
                ("mtu".into(), json!(mtu)),
                ("cpu_softirq_ratio".into(), json!(ratio)),
            ]),
        };
        let points =
            [point(64, 1500, 0.1), point(64, 9000, 0.2), point(512, 1500, 0.3), point(512, 9000, 0.4)];
        let axes = axes(&points);
        assert_eq!(
            (axes.x.as_deref(), axes.series.as_slice()),
            (Some("send_size"), &["mtu".to_string()][..])
        );
    }

    #[test]
    fn each_step_has_its_own_axes() {
        let point = |step: &str, name: &str| Point {
            values: BTreeMap::from([("step".to_string(), json!(step)), (name.into(), json!(1))]),
        };
        let steps = by_step(&[point("z", "mtu"), point("a", "threads"), point("z", "mtu")]);
        let names: Vec<(&str, usize)> =
            steps.iter().map(|(step, points)| (step.as_deref().unwrap(), points.len())).collect();
        assert_eq!(names, [("z", 2), ("a", 1)]);
        assert!(!steps[0].1[0].values.contains_key("step"));
        assert_eq!(by_step(&sweep()).len(), 1);
    }

    #[test]
    fn the_ends_of_an_interval_belong_to_their_result() {
        let point = |bytes: u32| Point {
            values: BTreeMap::from([
                ("frame_size_bytes".to_string(), json!(bytes)),
                ("a_pps".into(), json!(10.0)),
                ("a_pps_low".into(), json!(9.0)),
                ("a_pps_high".into(), json!(11.5)),
                ("b_low".into(), json!(bytes * 7)),
            ]),
        };
        let points = [point(64), point(128)];
        let axes = axes(&points);
        assert_eq!(axes.results, ["a_pps", "b_low"], "an end of nothing is a result");
        assert_eq!(lines(&points, &axes, "a_pps")[0].ranges, [(64.0, 9.0, 11.5), (128.0, 9.0, 11.5)]);
    }

    #[test]
    fn points_without_a_stepped_number_have_no_x() {
        assert_eq!(axes(&sweep()[..1]).x, None);
        assert_eq!(axes(&[]), Axes::default());
    }
}
