//! A snapshot as one line of words, for terminals without a screen and for files.

use report::words;

use crate::snapshot::{Snapshot, Waterfall};

/// What is going on, the rates, and what is lost so far.
pub fn line(snapshot: &Snapshot) -> String {
    let mut parts = vec![snapshot.title.clone()];
    if let Some(left_s) = snapshot.left_s {
        parts.extend(words::left(left_s));
    }
    if let Some(traffic) = &snapshot.traffic {
        for name in ["sent", "delivered", "received"] {
            let rate = traffic.rates.iter().find(|rate| rate.name == name);
            parts.extend(rate.and_then(|rate| rate.pps).map(|pps| format!("{name} {}", words::rate(pps))));
        }
    }
    parts.extend(snapshot.waterfall.as_ref().and_then(lost));
    parts.retain(|part| !part.is_empty());
    parts.join("  ")
}

fn lost(waterfall: &Waterfall) -> Option<String> {
    let lost: u64 = waterfall.places.iter().filter(|place| place.is_loss).map(|place| place.packets).sum();
    let share = lost as f64 / waterfall.from.1.max(1) as f64;
    (lost > 0).then(|| format!("lost {} ({} %)", words::count(lost), words::percent(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Place, Rate, Traffic};

    #[test]
    fn a_line_has_labels_units_and_the_loss_so_far() {
        let rate = |name: &str, pps| Rate { name: name.into(), pps: Some(pps), note: String::new() };
        let mut snapshot = Snapshot {
            title: "trial 2/9  udp → packet".into(),
            left_s: Some(42.0),
            traffic: Some(Traffic {
                rates: vec![rate("sent", 211e3), rate("delivered", 117e3)],
                ..Traffic::default()
            }),
            ..Snapshot::default()
        };
        assert_eq!(
            line(&snapshot),
            "trial 2/9  udp → packet  about 50 s left  sent 0.211 Mpps  delivered 0.117 Mpps"
        );
        snapshot.waterfall = Some(Waterfall {
            from: ("sent".into(), 1000),
            places: vec![Place { packets: 420, is_loss: true, ..Place::default() }],
            ..Waterfall::default()
        });
        assert!(line(&snapshot).ends_with("lost 420 (42.00 %)"), "{}", line(&snapshot));
    }
}
