//! What each command refuses: one file per command, one row per refusal.

use crate::support::run;

mod bench;
mod commands;
mod divert;
#[cfg(feature = "fleet")]
mod fleet;
mod lab;
mod ledger;
mod model;
mod nic;
mod probe;
mod recv;
mod report;
mod send;
mod tune;

/// Arguments, exit status, and what standard error must contain.
type Refused = (&'static [&'static str], i32, &'static [&'static str]);

const TABLES: &[&[Refused]] = &[
    bench::REFUSED,
    commands::REFUSED,
    divert::REFUSED,
    #[cfg(feature = "fleet")]
    fleet::REFUSED,
    lab::REFUSED,
    ledger::REFUSED,
    model::REFUSED,
    nic::REFUSED,
    probe::REFUSED,
    recv::REFUSED,
    report::REFUSED,
    send::REFUSED,
    tune::REFUSED,
];

#[test]
fn refusals_have_the_right_message_hint_and_status() {
    let mut wrong = String::new();
    for (args, status, texts) in TABLES.iter().copied().flatten() {
        let (got, out, err) = run(args);
        let missing: Vec<&str> = texts.iter().copied().filter(|text| !err.contains(text)).collect();
        if got != *status || !out.is_empty() || !missing.is_empty() {
            wrong.push_str(&format!(
                "{args:?}: status {got}, not {status}? missing {missing:?} in:\n{err}{out}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
