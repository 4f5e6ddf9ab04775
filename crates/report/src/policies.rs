//! A receive path's buffer policies: what each receives of the smallest frames at line rate.

use std::collections::BTreeMap;

use measure::Point;

use crate::{
    number::{percent, plain, rate},
    points::number,
};

/// One policy of a model's curve.
struct Row<'p> {
    policy: &'p str,
    payload_bytes: f64,
    sent_pps: f64,
    received_pps: f64,
}

impl<'p> Row<'p> {
    /// A point of one port that also has the value derived from the paper.
    fn of(point: &'p Point) -> Option<Self> {
        number(point, "derived_received_bps")?;
        number(point, "ports").filter(|ports| *ports == 1.0)?;
        Some(Self {
            policy: point.values.get("policy")?.as_str()?,
            payload_bytes: number(point, "payload_bytes")?,
            sent_pps: number(point, "sent_pps").filter(|pps| *pps > 0.0)?,
            received_pps: number(point, "received_pps")?,
        })
    }
}

/// The policies compared at the smallest payload, the best first; `None` for other points.
pub(crate) fn verdict(points: &[Point]) -> Option<String> {
    let mut smallest: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    for row in points.iter().filter_map(Row::of) {
        match smallest.get(row.policy) {
            Some(known) if known.payload_bytes <= row.payload_bytes => {}
            _ => drop(smallest.insert(row.policy, row)),
        }
    }
    let mut rows: Vec<Row<'_>> = smallest.into_values().collect();
    rows.sort_by(|a, b| b.received_pps.total_cmp(&a.received_pps));
    let (best, others) = rows.split_first().filter(|(_, others)| !others.is_empty())?;
    let of = |row: &Row<'_>| {
        let lost = percent((1.0 - row.received_pps / row.sent_pps).max(0.0));
        format!("{} ({lost} % lost)", rate(row.received_pps))
    };
    let others: Vec<String> = others.iter().map(|row| format!("'{}' {}", row.policy, of(row))).collect();
    Some(format!(
        "Of {} with {} bytes of payload, the buffer policy '{}' receives {}, {}.",
        rate(best.sent_pps),
        plain(best.payload_bytes),
        best.policy,
        of(best),
        others.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn point(policy: &str, payload: u32, received_pps: f64) -> Point {
        let values = [
            ("policy", json!(policy)),
            ("ports", json!(1)),
            ("payload_bytes", json!(payload)),
            ("sent_pps", json!(1e6)),
            ("received_pps", json!(received_pps)),
            ("derived_received_bps", json!(1e8)),
        ];
        Point { values: values.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    #[test]
    fn the_policies_are_compared_at_the_smallest_payload() {
        let points = [
            point("realloc", 46, 0.5e6),
            point("realloc", 100, 1e6),
            point("recycle", 100, 1e6),
            point("recycle", 46, 0.75e6),
        ];
        assert_eq!(
            verdict(&points).as_deref(),
            Some(
                "Of 1.000 Mpps with 46 bytes of payload, the buffer policy 'recycle' receives 0.750 Mpps (25.00 % \
                 lost), 'realloc' 0.500 Mpps (50.00 % lost)."
            )
        );
        assert_eq!(verdict(&points[..1]), None);
        assert_eq!(verdict(&[Point::default()]), None);
    }
}
