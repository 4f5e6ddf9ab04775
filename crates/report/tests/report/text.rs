//! Text for a terminal.

use report::{Style, write_text};

use crate::{golden::assert_golden, samples};

fn text(run: &measure::Run, style: Style) -> String {
    let mut out = Vec::new();
    write_text(run, style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_sample_equals_its_golden() {
    for (name, run) in samples::all() {
        assert_golden(&format!("tests/golden/{name}.txt"), &text(&run, Style::default()));
    }
}

#[test]
fn no_line_exceeds_the_width() {
    for (name, run) in samples::all().into_iter().filter(|(name, _)| *name != "hostile") {
        for width in [100, 120] {
            for line in text(&run, Style { width, ..Style::default() }).lines() {
                assert!(line.chars().count() <= width, "{name} at {width}: {line}");
            }
        }
    }
}

#[test]
fn a_narrow_terminal_keeps_the_rates_and_lists_the_hidden_columns() {
    let narrow = text(&samples::ladder(), Style { width: 80, ..Style::default() });
    assert!(narrow.contains(" from \\ to"), "{narrow}");
    let rows = text(&samples::ladder(), Style { width: 80, verbose: true, ..Style::default() });
    assert!(rows.contains("delivered") && rows.contains("agree"), "{rows}");
    assert!(rows.contains("Columns hidden (terminal too narrow): CPU"), "{rows}");
}

#[test]
fn the_whole_ladder_fits_a_terminal_of_24_lines_with_the_verdict_at_its_end() {
    let terminal = Style { width: 80, lines: Some(24), verdict_last: true, ..Style::default() };
    let shown = text(&samples::whole(), terminal);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() < 24, "{} lines:\n{shown}", lines.len());
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("flooded no loss 2 threads") && words.contains(" from \\ to"), "{shown}");
    assert!(words.ends_with("nothing lost, limited by the sender."), "{shown}");
    let piped = text(&samples::whole(), Style::default());
    let verdict = piped.find("Through sockets").unwrap();
    assert!(verdict < piped.find("Capacities").unwrap(), "{piped}");
    assert!(piped.contains("; 21 pairs lost nothing)"), "{piped}");
    let all = text(&samples::whole(), Style { verbose: true, ..terminal });
    assert!(all.contains("agree") && all.matches("unexplained").count() >= 36, "{all}");
}

#[test]
fn one_trial_has_no_spread_and_no_agreement() {
    let mut run = samples::unexplained();
    run.end.trials.truncate(1);
    run.end.pairs.clear();
    let shown = text(&run, Style { verbose: true, ..Style::default() });
    assert!(!shown.contains("spread") && !shown.contains("agree"), "{shown}");
}

#[test]
fn nothing_sent_is_nothing_measured() {
    let mut run = samples::unexplained();
    for trial in &mut run.end.trials {
        trial.sent = 0;
    }
    let shown = text(&run, Style::default());
    assert!(shown.contains("Nothing was sent, so nothing was measured."), "{shown}");
    assert!(!shown.contains("maximum rate"), "{shown}");
}

#[test]
fn an_idle_cpu_is_named_with_the_option_that_uses_it() {
    let mut run = samples::unexplained();
    for trial in &mut run.end.trials {
        trial.cpus[1] = measure::CpuShare { cpu: 1, idle_ratio: 0.97, ..measure::CpuShare::default() };
    }
    let words =
        |run: &measure::Run| text(run, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = words(&run);
    assert!(
        shown.contains("CPU 1 was idle for 97.00 % of the time while udp → udp ran at its maximum rate"),
        "{shown}"
    );
    assert!(shown.contains("--scale measures with up to all CPUs"), "{shown}");
    assert!(!words(&samples::unexplained()).contains("idle"), "busy CPUs are not named");
    run.end.trials.iter_mut().for_each(|trial| trial.asked_pps = Some(1e6));
    assert!(!words(&run).contains("idle"), "a rate was requested");
}

#[test]
fn a_closed_ledger_still_shows_its_residual() {
    assert!(text(&samples::ladder(), Style::default()).contains("unexplained"));
}

#[test]
fn an_open_ledger_has_a_remark() {
    let text = text(&samples::unexplained(), Style::default());
    assert!(
        text.contains("the ledger does not close in 3 of 3 trials, 1,234 packets unexplained at worst"),
        "{text}"
    );
}

#[test]
fn a_slow_generator_is_not_receiver_loss() {
    let text = text(&samples::paced(), Style::default());
    assert!(text.contains("the generator fell short of 1.000 Mpps in 3 of 3 trials"), "{text}");
}

#[test]
fn a_sender_without_a_rate_that_sent_nothing_has_a_remark() {
    let mut run = samples::ladder();
    assert!(!text(&run, Style::default()).contains("nothing was sent"));
    run.end.trials[0].sent = 0;
    let text = text(&run, Style::default());
    assert!(text.contains("nothing was sent in 1 of 3 trials"), "{text}");
}

#[test]
fn no_colour_unless_requested() {
    for (name, run) in samples::all() {
        assert!(!text(&run, Style::default()).contains('\x1b'), "{name}");
    }
    assert!(
        text(&samples::ladder(), Style { colour: true, verbose: true, ..Style::default() })
            .contains("\x1b[32myes")
    );
}

#[test]
fn a_swept_rate_is_in_a_pair_s_name_once() {
    let mut run = samples::ladder();
    for (pair, rate) in run.end.pairs.iter_mut().zip([1e5, 2e5]) {
        (pair.asked_pps, pair.parameters) = (Some(rate), [("rate".into(), rate.into())].into());
    }
    run.end.pairs.truncate(2);
    run.end.trials.retain(|trial| trial.tx.label == "udp");
    let words = text(&run, Style { verbose: true, ..Style::default() });
    assert!(words.contains("udp → udp+gro, rate=") && !words.contains(", at "), "{words}");
}

#[test]
fn a_closed_pipe_is_an_error_for_the_caller() {
    let mut full: &mut [u8] = &mut [0; 16];
    assert!(write_text(&samples::ladder(), Style::default(), &mut full).is_err());
}

#[test]
fn many_pairs_whose_trials_disagree_are_one_remark() {
    let mut run = samples::ladder();
    run.end.pairs.iter_mut().for_each(|pair| pair.agrees = false);
    let words = text(&run, Style { verbose: true, ..Style::default() })
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(words.contains("The trials of 5 of 5 combinations disagree: quote their ranges"), "{words}");
    assert!(!words.contains("the trials disagree ("), "{words}");
}
