//! Results of a search for the best settings: the waterfall of its steps, the rejected values, and how to use the result.

use measure::{Effect, Run, TuneSearch, TunedRate};

use crate::{
    number,
    table::{Cell, Column, Table},
};

/// A goal's figure as text.
pub(crate) fn figure(value: f64, unit: &str) -> String {
    if unit == "ns" { number::nanos(value) } else { number::rate(value) }
}

/// A change and its interval, in per cent.
fn change(effect: &Effect) -> String {
    let [low, high] = [effect.low, effect.high].map(number::change);
    format!("{} ({low} to {high})", number::change(effect.estimate))
}

fn named<'s>(settings: impl IntoIterator<Item = (&'s String, &'s String)>) -> String {
    settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn unit(run: &Run) -> &str {
    run.end.tuning.as_ref().map_or("pps", |tuning| &tuning.unit)
}

/// One row per step, from the original settings to the best.
pub(crate) fn waterfall(run: &Run) -> Table {
    let (steps, unit) = (&run.end.steps, unit(run));
    let mut table = Table::titled("Steps from the original settings to the best");
    table.push(Column::words("sets", steps.iter().map(|step| Cell::words(named(&step.settings)))));
    let value = |value: f64| Cell::figure(value, |value| figure(value, unit));
    table.push(Column::figures("before", "", steps.iter().map(|step| value(step.from))));
    table.push(Column::figures("after", "", steps.iter().map(|step| value(step.to))));
    table.push(Column::figures("effect", "95 %", steps.iter().map(|step| Cell::words(change(&step.effect)))));
    table.push(
        Column::figures("pairs", "", steps.iter().map(|step| Cell::count(step.pairs.into()))).gives_way(2),
    );
    let evidence = steps.iter().map(|step| Cell::words(step.evidence.join("; ")));
    table.push(Column::words("evidence", evidence).gives_way(1));
    table.legend =
        "before, after: means of interleaved trials. effect: from these and all other trials, with its 95 % \
        interval; the effects of steps multiply."
            .into();
    table
}

/// One row per rejected value.
pub(crate) fn rejected(run: &Run) -> Table {
    let rejected = &run.end.rejected;
    let mut table = Table::titled("What did not help");
    let names = rejected.iter().map(|one| Cell::words(format!("{}={}", one.setting, one.value)));
    table.push(Column::words("setting", names));
    let effect = |effect: &Option<Effect>| effect.as_ref().map_or_else(|| "-".to_owned(), change);
    let effects = rejected.iter().map(|one| Cell::words(effect(&one.effect)));
    table.push(Column::figures("at the best settings", "95 %", effects));
    table.push(Column::words("why", rejected.iter().map(|one| Cell::words(&one.reason))));
    table
}

/// The search in one sentence.
pub(crate) fn verdict(run: &Run) -> Option<String> {
    let tuning = run.end.tuning.as_ref()?;
    let (baseline, best) = (run.end.baseline.as_ref()?, run.end.best.as_ref()?);
    let value = |rate: &TunedRate| figure(rate.value, &tuning.unit);
    let tried = tuning.history.len();
    if run.end.steps.is_empty() {
        return Some(format!(
            "No change is proven to beat the original settings: {} ({tried} measurements of {:.0} combinations).",
            value(baseline),
            tuning.combinations
        ));
    }
    let sets: Vec<String> = run.end.steps.iter().map(|step| named(&step.settings)).collect();
    Some(format!(
        "{} → {}, {:.2} times as {}, with {} ({tried} measurements of {:.0} combinations).",
        value(baseline),
        value(best),
        if tuning.unit == "ns" {
            baseline.value / best.value.max(1.0)
        } else {
            best.value / baseline.value.max(1.0)
        },
        if tuning.unit == "ns" { "short" } else { "much" },
        sets.join(", then "),
        tuning.combinations
    ))
}

/// Remarks on the search.
pub(crate) fn remarks(tuning: &TuneSearch) -> Vec<String> {
    let mut remarks = Vec::new();
    match tuning.end.as_str() {
        "budget" => remarks
            .push("The time budget ended before the search could rule out further improvements.".to_owned()),
        "stopped" => {
            remarks.push("The search was stopped early; the results are those proven by then.".to_owned())
        }
        _ => {}
    }
    if tuning.noise_ratio > 0.08 {
        remarks.push(format!(
            "Trials vary by {} %: this machine does not show small effects.",
            number::percent(tuning.noise_ratio)
        ));
    }
    if tuning.kept {
        remarks.push("The best settings stay in effect; linerate nic restore undoes them.".to_owned());
    }
    remarks
}

/// What limits the best settings, and how to use them: headings, each with its lines.
pub(crate) fn lines(run: &Run) -> Vec<(&'static str, Vec<String>)> {
    let Some(tuning) = &run.end.tuning else { return Vec::new() };
    let text = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let mut all = vec![("What limits it now", tuning.limits.clone())];
    if !run.end.steps.is_empty() {
        all.push(("For an application", tuning.artefacts.application.clone()));
        all.push(("A plan for linerate nic apply", text(&tuning.artefacts.nic_plan)));
        all.push(("A scenario that repeats it: linerate bench FILE", text(&tuning.artefacts.scenario)));
        let risks = run.end.steps.iter().map(|step| format!("{}: {}", named(&step.settings), step.risk));
        all.push(("Risks", risks.collect()));
    }
    all.retain(|(_, lines)| !lines.is_empty());
    all
}

/// Every measurement of the goal's figure, and the best so far, by number.
pub(crate) fn history(tuning: &TuneSearch) -> [Vec<(f64, f64)>; 2] {
    let scale = if tuning.unit == "ns" { 1e-3 } else { 1e-6 };
    let mut best: Option<f64> = None;
    let mut lines = [Vec::new(), Vec::new()];
    for (at, attempt) in tuning.history.iter().enumerate() {
        let Some(value) = attempt.value.map(|value| value * scale) else { continue };
        let is_better = |best: f64| if tuning.unit == "ns" { value < best } else { value > best };
        best = Some(best.filter(|best| !is_better(*best)).unwrap_or(value));
        lines[0].push((at as f64 + 1.0, value));
        lines[1].extend(best.map(|best| (at as f64 + 1.0, best)));
    }
    lines
}
