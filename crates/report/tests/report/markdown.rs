//! Markdown.

use report::write_markdown;

use crate::{golden::assert_golden, samples};

fn markdown(run: &measure::Run) -> String {
    let mut out = Vec::new();
    write_markdown(run, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn samples_equal_their_goldens() {
    for (name, run) in samples::all().into_iter().filter(|(name, _)| *name != "model") {
        assert_golden(&format!("tests/golden/{name}.md"), &markdown(&run));
    }
}

/// Cell ends of a row: pipes without a backslash before them.
fn pipes(row: &str) -> usize {
    row.replace("\\\\", "").replace("\\|", "").matches('|').count()
}

#[test]
fn every_row_of_a_table_has_as_many_cells_as_the_heading() {
    for (name, run) in samples::all() {
        let text = markdown(&run);
        let rows = text.lines().collect::<Vec<_>>();
        for pair in rows.windows(2).filter(|pair| pair.iter().all(|row| row.starts_with('|'))) {
            assert_eq!(pipes(pair[0]), pipes(pair[1]), "{name}: {pair:?}");
        }
    }
}

#[test]
fn a_hostile_name_is_not_markup() {
    assert!(!markdown(&samples::hostile()).replace("\\<", "").contains('<'));
}
