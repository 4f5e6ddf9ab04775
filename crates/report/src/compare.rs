//! Compares runs with a baseline: conditions that differ, effects, and whether they are proven.

mod comparison;
mod conditions;
mod history;
mod instructions;
mod write;

use measure::{Conclusion, Effect, EffectScale, PairSummary, Question, Run, Summary, Trial};

use comparison::whole_pairs;

pub(crate) use conditions::flat;

pub use comparison::{
    COMPARISON_SCHEMA, CompareOptions, Comparison, ConditionDifference, Gate, Metric, MetricComparison,
    NamedRun,
};
pub use history::{History, HistoryPoint, HistorySeries, history};
pub use instructions::{
    INSTRUCTION_COMPARISON_SCHEMA, InstructionChange, InstructionComparison, compare_instructions,
    write_instruction_comparison_json, write_instruction_comparison_markdown,
    write_instruction_comparison_text,
};
pub use write::{
    write_comparison_json, write_comparison_markdown, write_comparison_text, write_history_json,
    write_history_markdown, write_history_text,
};

/// Compares every other run with the first; trials that ended early are left out.
pub fn compare(baseline: NamedRun, others: &[NamedRun], options: CompareOptions) -> Comparison {
    let runs: Vec<NamedRun> = std::iter::once(baseline).chain(others.iter().copied()).collect();
    let mut notes: Vec<String> = runs.iter().filter_map(early).collect();
    notes.extend(others.iter().filter(|other| is_same(baseline.run, other.run)).map(|other| {
        format!("{} is the same run as {}: no effect can be found.", other.name, baseline.name)
    }));
    notes.extend(runs.iter().filter_map(loud));
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

/// The first reason why the machine was too busy before the run (`linerate probe --quiet`).
fn loud(named: &NamedRun) -> Option<String> {
    let reading = named.run.start.machine.quiet.as_ref()?;
    let complaints = reading.quiet.complaints();
    let (first, _) = complaints.split_first()?;
    let shows = reading.quiet.shows_ratio(10).unwrap_or(0.0) * 100.0;
    Some(format!(
        "The machine of {} was not quiet at {}: {first}. There, 10 trials per side show effects from {shows:.1} % at best.",
        named.name, reading.read_at
    ))
}

/// Whether two records are the same run: two runs never share start, end and trials.
fn is_same(a: &Run, b: &Run) -> bool {
    a.start == b.start && a.end == b.end
}

/// A pair that is in both runs.
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

fn early(named: &NamedRun) -> Option<String> {
    let early = named.run.end.trials.iter().filter(|trial| trial.interrupted).count();
    match early {
        0 => None,
        1 => Some(format!("1 trial of {} ended early and is left out.", named.name)),
        _ => Some(format!("{early} trials of {} ended early and are left out.", named.name)),
    }
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
            let scale = effect.map_or(question.scale, |effect| effect.scale);
            let centre = |values: &[f64], summary: &Summary| scale.centre(values).unwrap_or(summary.median);
            let (baseline_centre, other_centre) = (centre(&a, &baseline), centre(&b, &other));
            MetricComparison {
                run,
                pair,
                metric,
                baseline,
                other,
                baseline_centre,
                other_centre,
                effect,
                verdict,
            }
        })
        .collect()
}

/// A ratio has no meaning where a value is 0: a path that delivers nothing is judged by its difference.
fn judged(question: Question, a: &[f64], b: &[f64]) -> (Option<Effect>, Conclusion) {
    let positive = a.iter().chain(b).all(|value| *value > 0.0);
    if question.scale == EffectScale::Difference || positive {
        return question.judge(a, b);
    }
    let most = a.iter().chain(b).copied().fold(0.0, f64::max);
    // when nothing arrives in either run, any difference would matter
    let matters = (question.matters * most).max(f64::MIN_POSITIVE);
    Question { scale: EffectScale::Difference, matters, ..question }.judge(a, b)
}
