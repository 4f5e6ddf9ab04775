//! The guides' tables of published figures are `scenarios/published.toml`. `make bless` (LINERATE_BLESS=1) rewrites them.

use std::{env, fs, path::Path};

use measure::{Published, PublishedFigure};

const GUIDES: [(&str, &str); 4] = [
    ("10gbe", "docs/10gbe.md"),
    ("apu4d4", "docs/apu4d4.md"),
    ("pktgen-rx", "docs/pktgen-rx.md"),
    ("single-rx-queue", "docs/single-rx-queue.md"),
];

#[test]
fn the_guides_tables_are_those_of_the_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (document, guide) in GUIDES {
        let path = root.join(guide);
        let written = fs::read_to_string(&path).unwrap();
        let begin = "<!-- begin published -->\n";
        let (before, rest) =
            written.split_once(begin).unwrap_or_else(|| panic!("{guide} has no published figures"));
        let (_, after) = rest.split_once("<!-- end published -->\n").expect("the block has an end");
        let expected = format!("{before}{begin}{}<!-- end published -->\n{after}", block(document));
        if env::var_os("LINERATE_BLESS").is_some() {
            fs::write(&path, expected).unwrap();
        } else {
            assert_eq!(written, expected, "{guide}: `make bless` rewrites it");
        }
    }
}

/// Conditions in a sentence, then a row a figure.
fn block(document: &str) -> String {
    let published = Published::shipped();
    let work = published.document.iter().find(|work| work.id == document).expect("a document of the file");
    let mut text = format!("{}. {}; {}; {}; {}.\n\n", work.title, work.nic, work.link, work.cpu, work.year);
    text += "| where | figure | published | limited by | compared with |\n|---|---|---|---|---|\n";
    for figure in published.figure.iter().filter(|figure| figure.document == document) {
        let beside = match figure.no_counterpart.as_str() {
            "" => "the same, where it ran".to_owned(),
            why => format!("no counterpart here: {why}"),
        };
        let tool = if figure.tool.is_empty() { String::new() } else { format!(" ({})", figure.tool) };
        text += &format!(
            "| {} | {}{tool} | {} | {} | {beside} |\n",
            figure.place,
            figure.figure,
            value(figure),
            figure.limited_by
        );
    }
    text
}

fn value(figure: &PublishedFigure) -> String {
    let (scale, unit) = match figure.unit.as_str() {
        "pps" => (1e6, "Mpps"),
        "bps" => (1e9, "Gb/s"),
        unit => (1.0, unit),
    };
    let derived = if figure.derived_from.is_empty() {
        String::new()
    } else {
        format!(", derived from {}", figure.derived_from)
    };
    let (least, most) = figure.range();
    let short = |value: f64| (value / scale * 1000.0).round() / 1000.0;
    if least < most {
        format!("{} to {} {unit}{derived}", short(least), short(most))
    } else {
        format!("{} {unit}{derived}", short(figure.value))
    }
}
