//! The comparison as data: runs, metrics, effects, the gate.

use measure::{Better, Conclusion, Effect, EffectScale, PairSummary, Question, Run, Summary, Trial};
use serde::Serialize;

/// The name and version of a comparison's JSON.
pub const COMPARISON_SCHEMA: &str = "linerate.comparison/1";

/// A run under the user's name for it.
#[derive(Debug, Clone, Copy)]
pub struct NamedRun<'r> {
    /// A file name, for example.
    pub name: &'r str,
    /// The run.
    pub run: &'r Run,
}

/// The options of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CompareOptions {
    /// Confidence of all intervals of one metric together: equal machines are called different with
    /// probability `1 − confidence` at most, however many pairs they ran.
    pub confidence: f64,
    /// The smallest relative effect that matters; loss matters from half a percentage point, lateness from
    /// five times this.
    pub matters_ratio: f64,
}

/// Other runs against the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Always [`COMPARISON_SCHEMA`].
    pub schema: &'static str,
    /// The first run.
    pub baseline: String,
    /// The others, each compared with the baseline.
    pub others: Vec<String>,
    /// The options used.
    pub options: CompareOptions,
    /// Different conditions of machine and settings, which may cause effects.
    pub conditions: Vec<ConditionDifference>,
    /// Every metric of every pair that both runs have.
    pub metrics: Vec<MetricComparison>,
    /// Parts that are not compared, and why.
    pub notes: Vec<String>,
    /// The conclusion, for a regression gate.
    pub gate: Gate,
}

/// The verdict on a whole comparison, from the rates delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// No pair delivers less; every pair is decided.
    Passed,
    /// At least one pair delivers less.
    Regressed,
    /// No pair is shown to deliver less, and at least one could not be decided.
    Undecided,
    /// No pair is in both runs.
    NothingCompared,
}

/// One metric of one pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The run compared with the baseline.
    pub run: String,
    /// The pair.
    pub pair: String,
    /// The metric.
    pub metric: Metric,
    /// The baseline's trials.
    pub baseline: Summary,
    /// The other run's trials.
    pub other: Summary,
    /// The centre of the baseline's trials for this comparison: the geometric mean of rates and times, the mean of shares.
    pub baseline_centre: f64,
    /// The same for the other run's trials.
    pub other_centre: f64,
    /// The difference between the runs; `None` with too few trials.
    pub effect: Option<Effect>,
    /// The conclusion.
    #[serde(flatten)]
    pub verdict: Conclusion,
}

/// A compared figure; the unit is in the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Delivered packets per second: the one that decides.
    DeliveredPps,
    /// Sent packets per second.
    SentPps,
    /// Lost share of the packets sent.
    LossRatio,
    /// CPU time of the senders per packet.
    TxNsPerPacket,
    /// CPU time of the receivers per packet.
    RxNsPerPacket,
    /// Lateness that 99 % of the packets stay below.
    LatenessP99Ns,
}

impl Default for CompareOptions {
    /// 95 %, and effects from 2 %.
    fn default() -> Self {
        Self { confidence: 0.95, matters_ratio: 0.02 }
    }
}

impl Metric {
    /// All, the deciding one first.
    pub const ALL: [Self; 6] = [
        Self::DeliveredPps,
        Self::SentPps,
        Self::LossRatio,
        Self::TxNsPerPacket,
        Self::RxNsPerPacket,
        Self::LatenessP99Ns,
    ];

    pub(super) fn of(self, trial: &Trial) -> Option<f64> {
        let known = || trial.ledger.unknown_because().is_none();
        match self {
            Self::DeliveredPps => known().then_some(trial.delivered_pps),
            Self::SentPps => Some(trial.sent_pps),
            Self::LossRatio => known().then_some(trial.loss_ratio),
            Self::TxNsPerPacket => trial.tx_cost.ns_per_packet,
            Self::RxNsPerPacket => trial.rx_cost.ns_per_packet,
            Self::LatenessP99Ns => trial.receipt.lateness.as_ref().map(|late| late.p99_ns as f64),
        }
    }

    pub(super) fn better(self) -> Better {
        match self {
            Self::DeliveredPps | Self::SentPps => Better::Higher,
            Self::LossRatio | Self::TxNsPerPacket | Self::RxNsPerPacket | Self::LatenessP99Ns => {
                Better::Lower
            }
        }
    }

    /// `comparisons` share the alarms that the confidence allows (Bonferroni).
    pub(super) fn question(self, options: &CompareOptions, comparisons: usize) -> Question {
        let (scale, matters) = match self {
            Self::LossRatio => (EffectScale::Difference, 0.005),
            Self::LatenessP99Ns => (EffectScale::Ratio, 5.0 * options.matters_ratio),
            _ => (EffectScale::Ratio, options.matters_ratio),
        };
        let confidence = 1.0 - (1.0 - options.confidence) / comparisons.max(1) as f64;
        Question { better: self.better(), scale, matters, confidence }
    }
}

/// One condition that is not the same in all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConditionDifference {
    /// Its path in the record, for example `machine.kernel`.
    pub condition: String,
    /// Its value in each run, the baseline's first; `None` where a run does not have it.
    pub values: Vec<Option<String>>,
}

impl Gate {
    pub(super) fn of(metrics: &[MetricComparison]) -> Self {
        let mut gate = Self::NothingCompared;
        for comparison in metrics.iter().filter(|m| m.metric == Metric::DeliveredPps) {
            gate = match (gate, comparison.verdict) {
                (_, Conclusion::Worse) | (Self::Regressed, _) => Self::Regressed,
                (_, Conclusion::TooNoisy | Conclusion::NeedsTrials { .. }) | (Self::Undecided, _) => {
                    Self::Undecided
                }
                _ => Self::Passed,
            };
        }
        gate
    }
}

/// Pairs with their trials that ran to their end.
pub(super) fn whole_pairs(run: &Run) -> Vec<(PairSummary, Vec<&Trial>)> {
    let with_trials = |pair: PairSummary| {
        let trials: Vec<&Trial> =
            run.end.trials.iter().filter(|t| !t.interrupted && pair.covers(t)).collect();
        (pair, trials)
    };
    let pairs = PairSummary::of(&run.end.trials).into_iter().map(with_trials);
    pairs.filter(|(_, trials)| !trials.is_empty()).collect()
}
