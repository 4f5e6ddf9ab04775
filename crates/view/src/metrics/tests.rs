use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::snapshot::{Rate, Traffic};

/// A page as a strict reader of the format takes it: family → kind, and the series with their labels.
fn parse(text: &str, form: Form) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
    let (mut kinds, mut series) = (BTreeMap::new(), BTreeMap::new());
    let (mut helped, mut current) = (BTreeSet::new(), String::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(form == Form::OpenMetrics && lines.peek().is_none(), "# EOF ends the page");
            return (kinds, series);
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a help text");
            assert!(helped.insert(name.to_owned()), "{name} is described twice");
            assert!(!help.is_empty());
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert!(helped.contains(name), "{name} has no HELP");
            assert!(["counter", "gauge"].contains(&kind));
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} has two types");
            current = name.to_owned();
            continue;
        }
        let (name, rest) = line.split_at(line.find('{').expect("labels"));
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        let is_counter = kinds[&current] == "counter";
        let expected = match form {
            Form::OpenMetrics if is_counter => format!("{current}_total"),
            _ => current.clone(),
        };
        assert_eq!(name, expected, "series follow their family");
        assert_eq!(name.ends_with("_total"), is_counter);
        let (labels, value) = rest.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().expect("a number");
        assert!(value.is_finite() && !(is_counter && value < 0.0), "{line}");
        check_labels(labels);
        assert!(series.insert(format!("{name}{labels}"), value).is_none(), "{line} comes twice");
    }
    assert_eq!(form, Form::Text, "OpenMetrics ends with # EOF");
    (kinds, series)
}

/// `{name="value",...}` with each name once, and quotes, backslashes and line ends escaped.
fn check_labels(labels: &str) {
    let inner = labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("braces");
    let (mut rest, mut names) = (inner, BTreeSet::new());
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("name=\"value\"");
        assert!(names.insert(name.to_owned()), "{name} twice in {labels}");
        let mut escaped = false;
        let end = value.find(|c| {
            let is_end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            is_end
        });
        let end = end.expect("a closing quote");
        rest = value[end + 1..].strip_prefix(',').unwrap_or(&value[end + 1..]);
    }
    assert!(names.contains("run") && names.contains("interface"), "{labels}");
}

fn snapshot() -> Snapshot {
    Snapshot {
        command: "bench".into(),
        run: "2026-01-01T00:00:00Z".into(),
        interfaces: vec!["eth0".into(), "eth1".into()],
        traffic: Some(Traffic {
            rates: vec![
                Rate { name: "sent".into(), pps: Some(1.5e6), note: String::new() },
                Rate { name: "delivered".into(), pps: None, note: String::new() },
            ],
            ..Traffic::default()
        }),
        families: vec![
            Family::counter("lost_packets", "Packets lost, by \\ place.")
                .with(&[("place", "a \"quoted\"\nplace\\")], 3.0)
                .with(&[("place", "qdisc"), ("interface", "eth7")], 0.0),
        ],
        ..Snapshot::default()
    }
}

#[test]
fn both_forms_are_what_their_readers_ask_for() {
    for form in [Form::OpenMetrics, Form::Text] {
        let (kinds, series) = parse(&metrics(&snapshot(), form), form);
        let lost = if form == Form::Text { "linerate_lost_packets_total" } else { "linerate_lost_packets" };
        assert_eq!(kinds[lost], "counter", "{form:?}");
        assert_eq!(kinds["linerate_rate_packets_per_second"], "gauge");
        let value = |labels: &str| {
            let found = series.iter().find(|(name, _)| name.contains(labels));
            *found.unwrap_or_else(|| panic!("no {labels} in {series:?}")).1
        };
        assert_eq!(value(r#"place="a \"quoted\"\nplace\\""#), 3.0);
        assert_eq!(value(r#"place="qdisc",interface="eth7""#), 0.0, "a series of its own interface");
        assert_eq!(value(r#"interface="eth0,eth1",at="sent""#), 1.5e6);
        assert!(!series.keys().any(|name| name.contains("delivered")), "what nobody knows is no zero");
    }
}

#[test]
fn the_accept_header_chooses_the_form() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4";
    assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
    assert_eq!(Form::accepted("*/*"), Form::Text);
}

#[test]
fn a_story_has_every_place_from_the_start_and_its_counters_only_grow() {
    let mut story = crate::story::tests::story();
    let mut before = BTreeMap::new();
    let mut step = |story: &crate::Story, at_s: f64| {
        let (kinds, series) = parse(&metrics(&story.snapshot(at_s), Form::OpenMetrics), Form::OpenMetrics);
        let places = series.keys().filter(|name| name.starts_with("linerate_lost_packets_total"));
        assert!(places.count() >= measure::Place::ALL.len());
        for (name, value) in &series {
            let family = name.split('{').next().unwrap().trim_end_matches("_total");
            if kinds[family] == "counter" {
                assert!(before.get(name).is_none_or(|before| before <= value), "{name} shrank");
            }
        }
        before = series;
    };
    step(&story, 0.0);
    crate::story::tests::act(&mut story, |story, at_s| step(story, at_s));
}
