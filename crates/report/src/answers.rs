//! The answer of a published experiment to its document's question, in a sentence made of this run's points alone.

use measure::{Point, PublishedFigure, Run};
use serde_json::{Value, json};

use crate::number;

/// The answer of a scenario that has one, as far as its points were measured.
pub(crate) fn answer(run: &Run) -> Option<String> {
    let scenario = run.start.asked.get("scenario")?.as_str()?;
    let points = &run.end.points[..];
    let parts = match scenario {
        "10gbe" => ten_gigabit(points),
        "pktgen-rx" => receivers(points),
        "xmit-more" => doorbells(points),
        _ => return None,
    };
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// Conditions of a point, by parameter.
type When<'w> = &'w [(&'w str, Value)];

/// The best of the points under these conditions.
fn best(points: &[Point], metric: &str, when: When<'_>) -> Option<f64> {
    let meant =
        points.iter().filter(|point| when.iter().all(|(name, value)| point.values.get(*name) == Some(value)));
    meant.filter_map(|point| point.values.get(metric)?.as_f64()).reduce(f64::max)
}

/// One over the other, both measured in this run.
fn ratio(points: &[Point], metric: &str, when: When<'_>, over: When<'_>) -> Option<f64> {
    let under = best(points, metric, over).filter(|under| *under > 0.0)?;
    Some(best(points, metric, when)? / under)
}

/// Whether something helps, judged by the ratio with and without it.
fn effect(what: &str, ratio: f64) -> String {
    /// Below this, trials of one setting differ as much on most machines.
    const SHOWN: f64 = 0.1;
    match ratio {
        more if more > 1.0 + SHOWN => format!("{what} helps"),
        less if less < 1.0 - SHOWN => format!("{what} costs"),
        _ => format!("{what} makes little difference"),
    }
}

/// The same of two ratios that must agree.
fn of_both(what: &str, one: f64, other: f64) -> String {
    let words = effect(what, one);
    if words == effect(what, other) { words } else { format!("{what} has no clear effect") }
}

fn published(id: &str) -> String {
    PublishedFigure::shipped(id).value.to_string()
}

fn ten_gigabit(points: &[Point]) -> Vec<String> {
    let bps = "delivered_bps";
    let large = [("step", json!("tcp")), ("send_size", json!(65_536)), ("mtu", json!(9000))];
    let usual = [("step", json!("tcp")), ("send_size", json!(65_536)), ("mtu", json!(1500))];
    let mtu = ratio(points, bps, &large, &usual).map(|ratio| {
        let words = effect("a larger MTU", ratio);
        format!("{words}: 9000 carries {ratio:.2} times 1500 (published {})", published("10gbe.mtu-ratio"))
    });
    let offload = |what: &str| [("step", json!("offload")), ("offload", json!(what))];
    let offloads = ratio(points, bps, &offload("all"), &offload("none"))
        .map(|ratio| format!("{}: all of them carry {ratio:.2} times none", effect("using offloads", ratio)));
    let copied = |tx: &str| {
        let step = ("step", json!("copies"));
        [step, ("tx", json!(tx)), ("rx", json!("tcp")), ("offload", json!("all")), ("mtu", json!(1500))]
    };
    let sendfile = ratio(points, bps, &copied("tcp+sendfile"), &copied("tcp")).map(|ratio| {
        let words = effect("sendfile", ratio);
        format!("{words}: {ratio:.2} times a copy (published {})", published("10gbe.sendfile-ratio"))
    });
    [mtu, offloads, sendfile].into_iter().flatten().collect()
}

fn receivers(points: &[Point]) -> Vec<String> {
    let pps = "delivered_pps";
    let of_table = |point: &&Point| point.values.get("step") == Some(&json!("table"));
    let rate = |point: &Point| point.values.get(pps).and_then(Value::as_f64).unwrap_or(0.0);
    let word = |point: &Point, name: &str| {
        point.values.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let table: Vec<&Point> = points.iter().filter(of_table).collect();
    let Some(fastest) = table.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) else { return Vec::new() };
    let mut parts = vec![format!(
        "of 64-byte packets, {} → {} delivers the most, {}",
        word(fastest, "tx"),
        word(fastest, "rx"),
        number::rate(rate(fastest))
    )];
    if let Some(iperf3) = best(points, pps, &[("step", json!("table")), ("tx", json!("iperf3"))])
        && iperf3 > 0.0
    {
        parts.push(format!("{:.1} times iperf3's {}", rate(fastest) / iperf3, number::rate(iperf3)));
    }
    parts
}

fn doorbells(points: &[Point]) -> Vec<String> {
    let pps = "sent_pps";
    let burst = |n: u32| [("step", json!("burst")), ("burst", json!(n))];
    let mut parts = Vec::new();
    if let Some(two) = ratio(points, pps, &burst(2), &burst(1)) {
        let many = ratio(points, pps, &burst(32), &burst(1));
        parts.push(format!(
            "{}: two packets per doorbell send {two:.2} times one (published {}){}",
            of_both("ringing less often", two, many.unwrap_or(two)),
            published("pktgen-rx.burst-2-ratio"),
            many.map_or_else(String::new, |many| format!(", 32 send {many:.2} times"))
        ));
    }
    for tx in ["packet", "xsk"] {
        let batch = |n: u32| [("step", json!("batch")), ("tx", json!(tx)), ("batch_size", json!(n))];
        let found = ratio(points, pps, &batch(32), &batch(1));
        parts.extend(found.map(|ratio| format!("{tx}: batches of 32 send {ratio:.2} times single packets")));
    }
    let at = |usecs: u32| [("step", json!("burst-usecs")), ("burst", json!(32)), ("tx_usecs", json!(usecs))];
    let usecs = ratio(points, pps, &at(30), &at(0));
    parts.extend(
        usecs.map(|ratio| format!("moderation of 30 µs sends {ratio:.2} times none at bursts of 32")),
    );
    parts
}

#[cfg(test)]
mod tests {
    use measure::{End, Origin, SCHEMA, Start};

    use super::*;

    fn run(scenario: &str, points: &[Value]) -> Run {
        let points = points.iter().map(|point| serde_json::from_value(point.clone()).unwrap()).collect();
        Run {
            schema: SCHEMA.into(),
            start: Start {
                command: "bench".into(),
                version: "0".into(),
                started_at: String::new(),
                origin: Origin::Lab,
                machine: measure::Machine::default(),
                asked: [("scenario".to_owned(), json!(scenario))].into(),
            },
            intervals: Vec::new(),
            end: End { points, ..End::default() },
        }
    }

    #[test]
    fn each_document_s_question_is_answered_by_what_was_measured() {
        let tcp = |mtu: u32, bps: f64| json!({"step": "tcp", "send_size": 65_536, "mtu": mtu, "delivered_bps": bps});
        let offload =
            |what: &str, bps: f64| json!({"step": "offload", "offload": what, "delivered_bps": bps});
        let points = [tcp(1500, 5e9), tcp(9000, 10e9), offload("none", 5e9), offload("all", 5.1e9)];
        assert_eq!(
            answer(&run("10gbe", &points)).unwrap(),
            "a larger MTU helps: 9000 carries 2.00 times 1500 (published 1.27); using offloads makes little difference: all \
             of them carry 1.02 times none."
        );
        let burst = |n: u32, pps: f64| json!({"step": "burst", "burst": n, "sent_pps": pps});
        let batch =
            |n: u32, pps: f64| json!({"step": "batch", "tx": "xsk", "batch_size": n, "sent_pps": pps});
        let points = [burst(1, 100.0), burst(2, 120.0), burst(32, 400.0), batch(1, 10.0), batch(32, 5.0)];
        assert_eq!(
            answer(&run("xmit-more", &points)).unwrap(),
            "ringing less often helps: two packets per doorbell send 1.20 times one (published 1.467), 32 send 4.00 times; \
             xsk: batches of 32 send 0.50 times single packets."
        );
        let table =
            |tx: &str, rx: &str, pps: f64| json!({"step": "table", "tx": tx, "rx": rx, "delivered_pps": pps});
        let points = [table("xdp", "xdp", 6e6), table("iperf3", "iperf3", 3e5)];
        let said = answer(&run("pktgen-rx", &points)).unwrap();
        assert!(said.starts_with("of 64-byte packets, xdp → xdp delivers the most"), "{said}");
        assert!(said.contains("20.0 times iperf3's"), "{said}");
    }

    #[test]
    fn nothing_measured_is_no_answer() {
        assert_eq!(answer(&run("10gbe", &[])), None);
        assert_eq!(answer(&run("pacing", &[])), None);
    }
}
