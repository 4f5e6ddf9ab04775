//! Where throughput against a size changes, a datagram that no longer fits a frame for example, in a run that is about
//! throughput.

use measure::{Bend, Point, Start};

use crate::{
    number::{percent, plain},
    points::{self, Series},
};

/// The result whose bends are reported.
pub(crate) const RESULT: &str = "delivered_bps";

/// Whether bits per second matter more than messages per second: for streams, and for the document that measures them.
pub(crate) fn is_about_throughput(scenario: Option<&str>, points: &[Point]) -> bool {
    let is_stream = |point: &Point| point.values.contains_key("send_size");
    scenario == Some("10gbe") || points.iter().all(is_stream)
}

/// Whether a run's combinations are compared by bits per second.
pub(crate) fn compares_bits(scenario: Option<&str>, points: &[Point]) -> bool {
    !points.is_empty() && is_about_throughput(scenario, points)
}

/// The built-in scenario that a run repeats.
pub(crate) fn scenario(start: &Start) -> Option<&str> {
    start.asked.get("scenario").and_then(|name| name.as_str())
}

/// The bend of each line that has one.
pub(crate) fn of(series: &[Series]) -> Vec<(&Series, Bend)> {
    series.iter().filter_map(|series| Some((series, Bend::of(&series.points)?))).collect()
}

/// The bends of a scenario's points, step by step, a sentence each.
pub(crate) fn sentences(scenario: Option<&str>, points: &[Point]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (step, points) in points::by_step(points) {
        if !is_about_throughput(scenario, &points) {
            continue;
        }
        let axes = points::axes(&points);
        let Some(x) = &axes.x else { continue };
        let series = points::lines(&points, &axes, RESULT);
        for (series, bend) in of(&series) {
            let names = [step.as_deref().unwrap_or_default(), &series.name];
            let whose = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
            let whose =
                if whose.is_empty() { "The throughput".to_owned() } else { format!("{whose}: throughput") };
            let way = if bend.ratio < 1.0 { "falls" } else { "rises" };
            sentences.push(format!(
                "{whose} {way} by {} % beyond {} {} (95 %: between {} and {}).",
                percent((bend.ratio - 1.0).abs()),
                points::in_words(x),
                plain(bend.at),
                plain(bend.low),
                plain(bend.high)
            ));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_datagram_beyond_the_mtu_is_told_with_its_interval() {
        let point = |payload: u32| {
            let bps = f64::from(payload) * if payload > 1472 { 5e6 } else { 9e6 };
            let values =
                [("payload", json!(payload)), ("delivered_bps", json!(bps)), ("step", json!("bend"))];
            Point { values: values.map(|(name, value)| (name.to_owned(), value)).into() }
        };
        let points: Vec<Point> = (1400..1600).step_by(8).map(point).collect();
        let told = sentences(Some("10gbe"), &points);
        assert_eq!(
            told,
            ["bend: throughput falls by 44.43 % beyond payload 1,476 (95 %: between 1,472 and 1,480)."]
        );
        // Of a sweep of messages, the rate of messages is the result.
        assert!(sentences(None, &points).is_empty());
    }
}
