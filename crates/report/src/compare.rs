//! Runs against a baseline: same conditions? what differs, by how much, and can that be said?

mod conditions;
mod history;
mod write;

use measure::{Better, Effect, EffectScale, PairSummary, Question, Run, Summary, Trial, Verdict};
use serde::Serialize;

pub(crate) use conditions::flat;

pub use conditions::ConditionDifference;
pub use history::{History, HistoryPoint, HistorySeries, history};
pub use write::{
    write_comparison_json, write_comparison_markdown, write_comparison_text, write_history_json,
    write_history_markdown, write_history_text,
};

/// The name and version of a comparison's JSON.
pub const COMPARISON_SCHEMA: &str = "linerate.comparison/1";

/// A run under the name that the user knows it by.
#[derive(Debug, Clone, Copy)]
pub struct NamedRun<'r> {
    /// A file name, for example.
    pub name: &'r str,
    /// The run.
    pub run: &'r Run,
}

/// How to compare.
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
    /// How it was compared.
    pub options: CompareOptions,
    /// What differs in machine and settings; effects may be of these.
    pub conditions: Vec<ConditionDifference>,
    /// Every metric of every pair that both runs have.
    pub metrics: Vec<MetricComparison>,
    /// What is not compared, and why.
    pub notes: Vec<String>,
    /// What it comes to, for a regression gate.
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
    /// How much the other differs; `None` with too few trials.
    pub effect: Option<Effect>,
    /// What can be said.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What is compared; the unit is in the name.
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

    fn of(self, trial: &Trial) -> Option<f64> {
        match self {
            Self::DeliveredPps => Some(trial.delivered_pps),
            Self::SentPps => Some(trial.sent_pps),
            Self::LossRatio => Some(trial.loss_ratio),
            Self::TxNsPerPacket => trial.tx_cost.ns_per_packet,
            Self::RxNsPerPacket => trial.rx_cost.ns_per_packet,
            Self::LatenessP99Ns => trial.receipt.lateness.as_ref().map(|late| late.p99_ns as f64),
        }
    }

    fn better(self) -> Better {
        match self {
            Self::DeliveredPps | Self::SentPps => Better::Higher,
            Self::LossRatio | Self::TxNsPerPacket | Self::RxNsPerPacket | Self::LatenessP99Ns => {
                Better::Lower
            }
        }
    }

    /// `comparisons` share the alarms that the confidence allows (Bonferroni).
    fn question(self, options: &CompareOptions, comparisons: usize) -> Question {
        let (scale, matters) = match self {
            Self::LossRatio => (EffectScale::Difference, 0.005),
            Self::LatenessP99Ns => (EffectScale::Ratio, 5.0 * options.matters_ratio),
            _ => (EffectScale::Ratio, options.matters_ratio),
        };
        let confidence = 1.0 - (1.0 - options.confidence) / comparisons.max(1) as f64;
        Question { better: self.better(), scale, matters, confidence }
    }
}

/// Compares every other run with the first; trials that ended early are left out.
pub fn compare(baseline: NamedRun, others: &[NamedRun], options: CompareOptions) -> Comparison {
    let runs: Vec<NamedRun> = std::iter::once(baseline).chain(others.iter().copied()).collect();
    let mut notes: Vec<String> = runs.iter().filter_map(early).collect();
    let mut matches = Vec::new();
    for other in others {
        matches.extend(matching(baseline, *other, &mut notes));
    }
    let metrics: Vec<MetricComparison> =
        Metric::ALL.iter().flat_map(|metric| of_metric(*metric, &matches, &options)).collect();
    Comparison {
        schema: COMPARISON_SCHEMA,
        baseline: baseline.name.into(),
        others: others.iter().map(|other| other.name.into()).collect(),
        options,
        conditions: conditions::differences(&runs),
        gate: Gate::of(&metrics),
        metrics,
        notes,
    }
}

impl Gate {
    fn of(metrics: &[MetricComparison]) -> Self {
        let mut gate = Self::NothingCompared;
        for comparison in metrics.iter().filter(|m| m.metric == Metric::DeliveredPps) {
            gate = match (gate, comparison.verdict) {
                (_, Verdict::Worse) | (Self::Regressed, _) => Self::Regressed,
                (_, Verdict::TooNoisy | Verdict::NeedsTrials { .. }) | (Self::Undecided, _) => {
                    Self::Undecided
                }
                _ => Self::Passed,
            };
        }
        gate
    }
}

/// A pair that two runs have in common.
struct Match<'r> {
    run: &'r str,
    pair: String,
    baseline: Vec<&'r Trial>,
    other: Vec<&'r Trial>,
}

fn matching<'r>(baseline: NamedRun<'r>, other: NamedRun<'r>, notes: &mut Vec<String>) -> Vec<Match<'r>> {
    let (ours, theirs) = (whole_pairs(baseline.run), whole_pairs(other.run));
    let all: Vec<&PairSummary> = ours.iter().chain(&theirs).map(|(pair, _)| pair).collect();
    let varying = crate::ladder::Varying::among(all);
    let mut matches = Vec::new();
    for (pair, trials) in &ours {
        match theirs.iter().find(|(their, _)| their.matches(pair)) {
            Some((_, their_trials)) => matches.push(Match {
                run: other.name,
                pair: varying.name(pair),
                baseline: trials.clone(),
                other: their_trials.clone(),
            }),
            None => notes.push(format!("{} is in {} only.", varying.name(pair), baseline.name)),
        }
    }
    for (pair, _) in theirs.iter().filter(|(their, _)| !ours.iter().any(|(pair, _)| pair.matches(their))) {
        notes.push(format!("{} is in {} only.", varying.name(pair), other.name));
    }
    let is_model = |named: &&NamedRun| !named.run.end.points.is_empty() && named.run.end.trials.is_empty();
    for named in [baseline, other].iter().filter(is_model) {
        notes.push(format!("The points of {} are not compared: a point has no repeats.", named.name));
    }
    matches
}

/// Pairs with their trials that ran to their end.
fn whole_pairs(run: &Run) -> Vec<(PairSummary, Vec<&Trial>)> {
    let with_trials = |pair: PairSummary| {
        let trials: Vec<&Trial> =
            run.end.trials.iter().filter(|t| !t.interrupted && pair.covers(t)).collect();
        (pair, trials)
    };
    let pairs = PairSummary::of(&run.end.trials).into_iter().map(with_trials);
    pairs.filter(|(_, trials)| !trials.is_empty()).collect()
}

fn early(named: &NamedRun) -> Option<String> {
    let early = named.run.end.trials.iter().filter(|trial| trial.interrupted).count();
    (early > 0).then(|| format!("{early} trials of {} ended early and are left out.", named.name))
}

fn of_metric(metric: Metric, matches: &[Match], options: &CompareOptions) -> Vec<MetricComparison> {
    let values = |trials: &[&Trial]| trials.iter().filter_map(|trial| metric.of(trial)).collect::<Vec<f64>>();
    let known: Vec<_> = matches
        .iter()
        .filter_map(|found| {
            let (a, b) = (values(&found.baseline), values(&found.other));
            Some((found, Summary::of(&a)?, Summary::of(&b)?, a, b))
        })
        .collect();
    let question = metric.question(options, known.len());
    known
        .into_iter()
        .map(|(found, baseline, other, a, b)| {
            let (effect, verdict) = judged(question, &a, &b);
            let (run, pair) = (found.run.to_string(), found.pair.clone());
            MetricComparison { run, pair, metric, baseline, other, effect, verdict }
        })
        .collect()
}

/// A ratio has no meaning where a value is 0: a path that delivers nothing is judged by its difference.
fn judged(question: Question, a: &[f64], b: &[f64]) -> (Option<Effect>, Verdict) {
    let positive = a.iter().chain(b).all(|value| *value > 0.0);
    if question.scale == EffectScale::Difference || positive {
        return question.judge(a, b);
    }
    let most = a.iter().chain(b).copied().fold(0.0, f64::max);
    // where nothing arrives on either side, any difference at all would matter
    let matters = (question.matters * most).max(f64::MIN_POSITIVE);
    Question { scale: EffectScale::Difference, matters, ..question }.judge(a, b)
}
