//! Disk to network: the disk alone, the network alone, both together, and which of them is the bottleneck.

use std::{
    io,
    time::{Duration, Instant},
};

use measure::{Point, Run, Skipped, Start, median};
use serde::Serialize;
use serde_json::json;
use traffic::{FileChoice, MessageFile};
use trial::TrialError;

use crate::{ladder::run_ladder, recorder::Watcher, sweep::SweepPlan};

/// The experiment: complete and printable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskPlan {
    /// The file.
    pub source: FileChoice,
    /// Bytes per read and per message.
    pub message_bytes: usize,
    /// Nanoseconds per reading of the disk alone.
    pub duration_ns: u64,
    /// The network alone and both together: senders that take messages from memory, and from the file.
    #[serde(flatten)]
    pub ladder: SweepPlan,
}

/// The sender whose messages come from memory.
const FROM_MEMORY: &str = "tcp";

/// Reads the disk, then runs the ladder; the record's points have the three parts, and its first note the answer.
///
/// # Errors
/// The trial that could not start, with the record so far.
pub fn run_disk(
    plan: &DiskPlan,
    start: Start,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, TrialError)> {
    let read = || read_alone(plan);
    let disk: io::Result<Vec<f64>> = (0..plan.ladder.trials).map(|_| read()).collect();
    let mut run = run_ladder(&plan.ladder, start, None, watcher)?;
    let disk = match disk {
        Ok(rates) => median(&rates),
        Err(error) => {
            run.end.skipped.push(Skipped { engine: "the disk alone".into(), reason: error.to_string() });
            None
        }
    };
    let of = |label: &str| {
        let trials = run.end.trials.iter().filter(|trial| trial.tx.label == label);
        median(&trials.filter_map(|trial| Some(trial.stream.as_ref()?.delivered_bps)).collect::<Vec<_>>())
    };
    let mut labels: Vec<&str> = Vec::new();
    for trial in &run.end.trials {
        if !labels.contains(&trial.tx.label.as_str()) {
            labels.push(&trial.tx.label);
        }
    }
    let together: Vec<(&str, f64)> = labels
        .iter()
        .filter(|label| **label != FROM_MEMORY)
        .filter_map(|label| Some((*label, of(label)?)))
        .collect();
    let network = of(FROM_MEMORY);
    let mut points: Vec<Point> = Vec::new();
    points.extend(disk.map(|bps| point("disk alone", "read", bps)));
    points.extend(network.map(|bps| point("network alone", FROM_MEMORY, bps)));
    points.extend(together.iter().map(|(label, bps)| point("both", label, *bps)));
    let answer = disk.zip(network).and_then(|(disk, network)| bottleneck(disk, network, &together));
    run.end.points = points;
    if let Some(answer) = answer {
        run.end.notes.insert(0, answer);
    }
    Ok(run)
}

fn point(part: &str, by: &str, bps: f64) -> Point {
    let values = [("part", json!(part)), ("by", json!(by)), ("delivered_bps", json!(bps))];
    Point { values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
}

/// Reads the file for the plan's time; returns bits per second.
fn read_alone(plan: &DiskPlan) -> io::Result<f64> {
    let mut file = MessageFile::open(&plan.source, plan.message_bytes)?;
    let (began, time) = (Instant::now(), Duration::from_nanos(plan.duration_ns));
    let mut bytes = 0u64;
    while began.elapsed() < time {
        file.read()?;
        bytes += plan.message_bytes as u64;
    }
    Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64())
}

/// Which part limits the best of the ways that use both.
fn bottleneck(disk: f64, network: f64, together: &[(&str, f64)]) -> Option<String> {
    /// Both together are as fast as the slower part alone from this share of it on.
    const AS_FAST: f64 = 0.8;
    let (way, best) = together.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (slower, limit) = if disk <= network { ("disk", disk) } else { ("network", network) };
    let share = best / limit.max(1.0);
    let gbps = |bps: f64| format!("{:.2} Gb/s", bps / 1e9);
    let verdict = if share >= AS_FAST {
        format!("the {slower} is the bottleneck")
    } else {
        "neither is the bottleneck alone: the CPU, which serves both, is".to_owned()
    };
    Some(format!(
        "The disk alone reads {}, the network alone carries {}, both together {} by {way}, {:.0} % of the slower one: \
         {verdict}.",
        gbps(disk),
        gbps(network),
        gbps(best),
        share * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_part_is_the_bottleneck_unless_both_together_are_slower_still() {
        let said = |disk, network, both| {
            bottleneck(disk, network, &[("tcp+file", 1.0), ("tcp+splice", both)]).unwrap()
        };
        let disk = said(2e9, 20e9, 1.9e9);
        assert!(
            disk.contains("1.90 Gb/s by tcp+splice, 95 % of the slower one: the disk is the bottleneck"),
            "{disk}"
        );
        assert!(said(20e9, 2e9, 1.9e9).ends_with("the network is the bottleneck."));
        assert!(said(10e9, 12e9, 5e9).contains("the CPU, which serves both, is"));
        assert_eq!(bottleneck(1.0, 1.0, &[]), None);
    }
}
