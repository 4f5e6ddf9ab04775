//! Comparisons and histories of runs with known truth.

use measure::{Conclusion, Run};
use report::{
    CompareOptions, Gate, Metric, NamedRun, Style, compare, history, write_comparison_json,
    write_comparison_markdown, write_comparison_text, write_history_json, write_history_markdown,
    write_history_text,
};
use serde_json::Value;

use crate::{
    golden::assert_golden,
    samples::{self, Case},
};

fn written(write: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The ladder with every rate scaled, as if the machine had become faster or slower.
fn scaled(factor: f64) -> Run {
    let mut run = samples::ladder();
    for trial in &mut run.end.trials {
        trial.sent_pps *= factor;
        trial.delivered_pps *= factor;
    }
    run.end.pairs = measure::PairSummary::of(&run.end.trials);
    run
}

fn named<'r>(name: &'r str, run: &'r Run) -> NamedRun<'r> {
    NamedRun { name, run }
}

fn against(baseline: &Run, other: &Run) -> report::Comparison {
    compare(named("before", baseline), &[named("after", other)], CompareOptions::default())
}

#[test]
fn a_run_compared_with_itself_has_no_regression_and_equal_conditions() {
    let run = samples::ladder();
    let comparison = against(&run, &run);
    assert!(comparison.conditions.is_empty());
    assert_ne!(comparison.gate, Gate::Regressed);
    assert!(comparison.metrics.iter().all(|m| !matches!(m.verdict, Conclusion::Better | Conclusion::Worse)));
    assert_eq!(comparison.notes, ["after is the same run as before: no effect can be found."]);
    assert!(against(&run, &scaled(1.01)).notes.is_empty());
}

#[test]
fn the_centres_shown_are_those_that_the_effect_compares() {
    // Medians of these would give +35 %; the geometric means agree with the effect.
    let (mut before, mut after) = (samples::ladder(), samples::ladder());
    let set = |run: &mut Run, rates: [f64; 3]| {
        run.end.trials.truncate(3);
        for (trial, rate) in run.end.trials.iter_mut().zip(rates) {
            trial.delivered_pps = rate;
        }
    };
    set(&mut before, [100.0, 100.0, 140.0]);
    set(&mut after, [100.0, 135.0, 110.0]);
    let comparison = against(&before, &after);
    let delivered = &comparison.metrics[0];
    let ratio = delivered.other_centre / delivered.baseline_centre - 1.0;
    assert!((ratio - delivered.effect.unwrap().estimate).abs() < 1e-9, "{delivered:#?}");
}

#[test]
fn a_slower_machine_is_a_regression_and_a_faster_one_is_better() {
    let run = samples::ladder();
    let slower = against(&run, &scaled(0.8));
    assert_eq!(slower.gate, Gate::Regressed);
    let delivered = |verdict| {
        let of_metric = slower.metrics.iter().filter(|m| m.metric == Metric::DeliveredPps);
        of_metric.filter(|m| m.verdict == verdict).count()
    };
    // the fifth pair's trials disagree too much to decide
    assert_eq!(delivered(Conclusion::Worse), 4, "{:#?}", slower.metrics);
    assert_eq!(against(&run, &scaled(1.2)).metrics[0].verdict, Conclusion::Better);
}

#[test]
fn a_pair_whose_trials_disagree_leaves_the_gate_undecided() {
    let run = samples::ladder();
    assert_eq!(against(&run, &run).gate, Gate::Undecided);
    let mut steady = run.clone();
    steady
        .end
        .trials
        .retain(|trial| (trial.tx.label.as_str(), trial.rx.label.as_str()) != ("udp", "udp+gro"));
    assert_eq!(against(&steady, &steady).gate, Gate::Passed);
}

#[test]
fn conditions_that_differ_are_named_with_both_values() {
    let (before, mut after) = (samples::ladder(), samples::ladder());
    after.start.machine.kernel = "6.19.0".into();
    after.start.machine.interfaces[1].settings.remove("gro");
    after.start.asked.insert("rate".into(), Value::from("1Mpps"));
    after.end.trials[0].tx.options.insert("batch_size".into(), Value::from(1));
    let comparison = against(&before, &after);
    let names: Vec<&str> = comparison.conditions.iter().map(|d| d.condition.as_str()).collect();
    assert_eq!(
        names,
        [
            "asked.rate",
            "engine.tx.udp.options.batch_size",
            "machine.interfaces.1.settings.gro",
            "machine.kernel"
        ]
    );
    assert_eq!(comparison.conditions[3].values, [Some("6.18.0".into()), Some("6.19.0".into())]);
    assert_eq!(comparison.conditions[2].values, [Some("on".into()), None]);
}

#[test]
fn a_machine_that_was_not_quiet_is_named_with_what_it_can_show() {
    let (quiet, mut loud) = (scaled(1.0), scaled(1.0));
    let reading = |steal_ratio| {
        Some(measure::QuietReading {
            read_at: "2026-01-02T03:04:05Z".into(),
            boot: "b".into(),
            quiet: measure::Quiet { steal_ratio, loop_spread_ratio: 0.02, cpus: 2, ..Default::default() },
        })
    };
    loud.start.machine.quiet = reading(0.125);
    let comparison = against(&quiet, &loud);
    let note = comparison.notes.iter().find(|note| note.contains("not quiet")).unwrap();
    assert!(note.contains("the host gives 12.5 % of the CPUs' time to others (steal)"), "{note}");
    assert!(note.contains("10 trials per side show effects from 2.7 % at best"), "{note}");
    loud.start.machine.quiet = reading(0.0);
    assert!(!against(&quiet, &loud).notes.iter().any(|note| note.contains("not quiet")));
}

#[test]
fn a_pair_that_one_run_lacks_is_named_and_not_compared() {
    let (before, mut after) = (samples::ladder(), samples::ladder());
    after.end.trials.retain(|trial| trial.tx.label != "packet");
    let comparison = against(&before, &after);
    assert!(
        comparison.notes.contains(&"packet → packet is in before only.".to_string()),
        "{:?}",
        comparison.notes
    );
    assert!(comparison.metrics.iter().all(|m| m.pair != "packet → packet"));
    let nothing = against(&samples::empty(), &after);
    assert_eq!((nothing.gate, nothing.metrics.len()), (Gate::NothingCompared, 0));
}

#[test]
fn trials_that_ended_early_are_left_out() {
    let comparison = against(&samples::interrupted(), &samples::ladder());
    assert_eq!(comparison.metrics[0].baseline.trials, 1);
    assert_eq!(comparison.metrics[0].verdict, Conclusion::NeedsTrials { more: 2 });
    assert!(
        comparison.notes[0].starts_with("1 trial of before ended early and is"),
        "{:?}",
        comparison.notes
    );
}

#[test]
fn intervals_of_trials_that_differ_widely_are_cut_off() {
    let case = Case { sent: 500_000, lost: (0, 0), ..Case::default() };
    let before = samples::run("bench", measure::Origin::Lab, samples::repeats(&[case]));
    let mut after = before.clone();
    for (trial, (pps, loss)) in after.end.trials.iter_mut().zip([(1e3, 0.0), (1e5, 0.9), (1e6, 0.1)]) {
        (trial.delivered_pps, trial.loss_ratio) = (pps, loss);
    }
    let text = written(|out| write_comparison_text(&against(&before, &after), Style::default(), out));
    assert!(text.contains(" to > +1000.00 %"), "{text}");
    assert!(text.contains(" pp to +100.00 pp"), "{text}");
}

#[test]
fn a_path_that_stops_delivering_is_a_regression() {
    let case = Case { sent: 500_000, lost: (0, 0), ..Case::default() };
    let before = samples::run("bench", measure::Origin::Lab, samples::repeats(&[case]));
    let mut after = before.clone();
    for trial in &mut after.end.trials {
        (trial.delivered, trial.delivered_pps) = (0, 0.0);
    }
    assert_eq!(against(&before, &after).gate, Gate::Regressed);
    assert_eq!(against(&after, &after).gate, Gate::Passed);
}

#[test]
fn more_loss_at_a_held_rate_is_a_regression() {
    let case = |lost| Case { asked_pps: Some(3e5), sent: 600_000, lost: (lost, 0), ..Case::default() };
    let before = samples::run("bench", measure::Origin::Lab, samples::repeats(&[case(0)]));
    let after = samples::run("bench", measure::Origin::Lab, samples::repeats(&[case(60_000)]));
    let comparison = against(&before, &after);
    assert_eq!(comparison.gate, Gate::Regressed);
    let loss = comparison.metrics.iter().find(|m| m.metric == Metric::LossRatio).unwrap();
    assert_eq!(loss.verdict, Conclusion::Worse);
}

#[test]
fn comparisons_equal_their_goldens() {
    let (before, mut after) = (samples::ladder(), scaled(0.9));
    after.start.machine.kernel = "6.19.0".into();
    let comparison = against(&before, &after);
    let style = Style::default();
    assert_golden("tests/golden/compare.txt", &written(|out| write_comparison_text(&comparison, style, out)));
    assert_golden("tests/golden/compare.md", &written(|out| write_comparison_markdown(&comparison, out)));
}

#[test]
fn a_comparison_is_plain_data_in_json() {
    let comparison = against(&samples::ladder(), &scaled(0.8));
    let json: Value = serde_json::from_str(&written(|out| write_comparison_json(&comparison, out))).unwrap();
    assert_eq!(json["schema"], "linerate.comparison/1");
    assert_eq!(json["gate"], "regressed");
    assert_eq!(json["metrics"][0]["metric"], "delivered_pps");
    assert_eq!(json["metrics"][0]["verdict"], "worse");
    assert!((json["metrics"][0]["effect"]["estimate"].as_f64().unwrap() + 0.2).abs() < 1e-9);
}

#[test]
fn a_history_names_the_run_where_the_level_changed() {
    let runs: Vec<(String, Run)> = (1..=16)
        .map(|day| {
            let drift = 1.0 + 0.001 * f64::from(day * 7 % 5);
            let mut run = scaled(if day < 9 { drift } else { 0.85 * drift });
            run.start.started_at = format!("2026-05-{day:02}T03:00:00Z");
            (format!("day-{day}"), run)
        })
        .collect();
    // in arbitrary order
    let named: Vec<NamedRun> = runs.iter().rev().map(|(name, run)| named(name, run)).collect();
    let history = history(&named, CompareOptions::default());
    assert_eq!(history.series.len(), 5);
    for series in &history.series {
        assert_eq!(series.changes.len(), 1, "{}", series.pair);
        assert_eq!(series.points[series.changes[0].at].run, "day-9");
        assert_eq!(series.trend(), Conclusion::Worse);
    }
    assert_golden(
        "tests/golden/history.txt",
        &written(|out| write_history_text(&history, Style::default(), out)),
    );
    assert_golden("tests/golden/history.md", &written(|out| write_history_markdown(&history, out)));
    let json: Value = serde_json::from_str(&written(|out| write_history_json(&history, out))).unwrap();
    assert_eq!((&json["regressed"], &json["matters_ratio"]), (&Value::from(true), &Value::from(0.02)));
    assert_eq!(json["series"][0]["changes"][0]["at"], 8);
}

#[test]
fn a_hostile_name_reaches_no_terminal() {
    let hostile = samples::hostile();
    let comparison =
        compare(named("a\x1b[2J", &hostile), &[named("b\n", &samples::ladder())], CompareOptions::default());
    let text = written(|out| write_comparison_text(&comparison, Style::default(), out));
    assert!(!text.contains('\x1b') && text.contains("\\u{1b}"), "{text}");
}
