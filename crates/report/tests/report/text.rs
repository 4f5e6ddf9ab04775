//! Text for a terminal.

use report::{Style, write_text};

use crate::{golden::assert_golden, samples};

fn text(run: &measure::Run, style: Style) -> String {
    let mut out = Vec::new();
    write_text(run, style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_sample_reads_as_its_golden() {
    for (name, run) in samples::all() {
        assert_golden(&format!("tests/golden/{name}.txt"), &text(&run, Style::default()));
    }
}

#[test]
fn no_line_is_wider_than_asked() {
    for (name, run) in samples::all().into_iter().filter(|(name, _)| *name != "hostile") {
        for width in [100, 120] {
            for line in text(&run, Style { width, colour: false }).lines() {
                assert!(line.chars().count() <= width, "{name} at {width}: {line}");
            }
        }
    }
}

#[test]
fn a_narrow_terminal_keeps_the_rates_and_says_what_it_left_out() {
    let narrow = text(&samples::ladder(), Style { width: 80, colour: false });
    assert!(narrow.contains("delivered") && narrow.contains("agree"), "{narrow}");
    assert!(narrow.contains("Left out for want of width: CPU"), "{narrow}");
}

#[test]
fn a_closed_ledger_still_shows_its_remainder() {
    assert!(text(&samples::ladder(), Style::default()).contains("unexplained"));
}

#[test]
fn an_open_ledger_is_remarked_upon() {
    let text = text(&samples::unexplained(), Style::default());
    assert!(
        text.contains("the ledger does not close in 3 of 3 trials, 1,234 packets unexplained at worst"),
        "{text}"
    );
}

#[test]
fn a_generator_that_fell_short_is_not_the_receivers_loss() {
    let text = text(&samples::paced(), Style::default());
    assert!(text.contains("the generator fell short of 1.000 Mpps in 3 of 3 trials"), "{text}");
}

#[test]
fn a_sender_at_its_own_pace_that_sent_nothing_is_told() {
    let mut run = samples::ladder();
    assert!(!text(&run, Style::default()).contains("nothing was sent"));
    run.end.trials[0].sent = 0;
    let text = text(&run, Style::default());
    assert!(text.contains("nothing was sent in 1 of 3 trials"), "{text}");
}

#[test]
fn no_colour_unless_asked() {
    for (name, run) in samples::all() {
        assert!(!text(&run, Style::default()).contains('\x1b'), "{name}");
    }
    assert!(text(&samples::ladder(), Style { width: 100, colour: true }).contains("\x1b[32myes"));
}

#[test]
fn a_closed_pipe_is_an_error_for_the_caller_to_judge() {
    let mut full: &mut [u8] = &mut [0; 16];
    assert!(write_text(&samples::ladder(), Style::default(), &mut full).is_err());
}

#[test]
fn many_pairs_whose_trials_disagree_are_one_remark() {
    let mut run = samples::ladder();
    run.end.pairs.iter_mut().for_each(|pair| pair.agrees = false);
    let words = text(&run, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("The trials of 5 of 5 combinations disagree: do not quote"), "{words}");
    assert!(!words.contains("the trials disagree,"), "{words}");
}
