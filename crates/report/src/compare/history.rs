//! A series of runs of the same pairs: finds changes of level.

use measure::{ChangePoint, Conclusion, PairSummary, Summary, change_points};
use serde::Serialize;

use super::comparison::{CompareOptions, Metric, NamedRun, whole_pairs};
use crate::ladder::Varying;

/// The name and version of a history's JSON.
const HISTORY_SCHEMA: &str = "linerate.history/1";
/// Arbitrary: permutations must only be the same every time.
const SEED: u64 = 1;

/// Every pair's results over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// Always `linerate.history/1`.
    pub schema: &'static str,
    /// A series without a change shows one with probability `1 − confidence` at most, all series together.
    pub confidence: f64,
    /// The smallest change of level that the gate considers, as a share.
    pub matters_ratio: f64,
    /// Whether some pair's newest level is worse than the previous one by a relevant amount: a regression gate fails.
    pub regressed: bool,
    /// One per pair, of the delivered rate.
    pub series: Vec<HistorySeries>,
}

/// The delivered rate of one pair over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistorySeries {
    /// The pair.
    pub pair: String,
    /// The metric.
    pub metric: Metric,
    /// Medians, one per run, the oldest first.
    pub points: Vec<HistoryPoint>,
    /// Where the level changed; `at` is an index into `points`.
    pub changes: Vec<ChangePoint>,
}

/// One run's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryPoint {
    /// The run.
    pub run: String,
    /// When it started.
    pub started_at: String,
    /// Its trials.
    pub summary: Summary,
}

/// Groups the runs by pair, the oldest first, and finds changes of level.
pub fn history(runs: &[NamedRun], options: CompareOptions) -> History {
    let mut runs = runs.to_vec();
    // RFC 3339 in UTC sorts by time
    runs.sort_by(|a, b| a.run.start.started_at.cmp(&b.run.start.started_at));
    let metric = Metric::DeliveredPps;
    let mut gathered: Vec<(PairSummary, Vec<HistoryPoint>)> = Vec::new();
    for named in &runs {
        for (pair, trials) in whole_pairs(named.run) {
            let values: Vec<f64> = trials.iter().filter_map(|trial| metric.of(trial)).collect();
            let Some(summary) = Summary::of(&values) else { continue };
            let (run, started_at) = (named.name.to_string(), named.run.start.started_at.clone());
            let point = HistoryPoint { run, started_at, summary };
            match gathered.iter_mut().find(|(known, _)| known.matches(&pair)) {
                Some((_, points)) => points.push(point),
                None => gathered.push((pair, vec![point])),
            }
        }
    }
    let varying = Varying::among(gathered.iter().map(|(pair, _)| pair));
    let alpha = (1.0 - options.confidence) / gathered.len().max(1) as f64;
    let series = gathered.into_iter().map(|(pair, points)| {
        let medians: Vec<f64> = points.iter().map(|point| point.summary.median).collect();
        let changes = change_points(&medians, alpha, SEED);
        HistorySeries { pair: varying.name(&pair), metric, points, changes }
    });
    let series: Vec<HistorySeries> = series.collect();
    let CompareOptions { confidence, matters_ratio } = options;
    let regressed = series.iter().any(|series| series.has_regressed(matters_ratio));
    History { schema: HISTORY_SCHEMA, confidence, matters_ratio, regressed, series }
}

impl HistorySeries {
    /// Whether the last change was for the better or the worse; no difference without a change.
    pub fn trend(&self) -> Conclusion {
        match self.changes.last() {
            None => Conclusion::NoDifference,
            Some(change) if change.after > change.before => Conclusion::Better,
            Some(_) => Conclusion::Worse,
        }
    }

    /// Whether the newest level is lower than the one before, by this share or more.
    pub fn has_regressed(&self, matters_ratio: f64) -> bool {
        let last = self.changes.last();
        last.is_some_and(|change| {
            change.after < change.before && change.after <= (1.0 - matters_ratio) * change.before
        })
    }
}
