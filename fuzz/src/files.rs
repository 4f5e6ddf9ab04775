//! Bodies for files that people and other programs write: scenarios, saved runs, tables of drivers' counters, rules and NIC plans.

/// A scenario file and the arguments it stands for.
pub fn scenario(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(scenario) = bench::Scenario::read(text, &programs()) {
        for step in &scenario.steps {
            assert!(step.arguments(|_| false).len() >= step.arguments(|name| name == "rate").len());
        }
    }
}

/// Programs like those of the command line: options with a value, switches, and both.
fn programs() -> Vec<bench::Program> {
    let options = [
        ("tx", true, false),
        ("rate", true, false),
        ("sweep", true, false),
        ("spin", false, false),
        ("gro", true, true),
    ];
    let option = |(name, takes_value, has_on_and_off): (&str, bool, bool)| bench::ProgramOption {
        name: name.into(),
        help: String::new(),
        takes_value,
        has_on_and_off,
    };
    let of = |name: &str| bench::Program { name: name.into(), options: options.map(option).into() };
    ["bench", "ndr", "rdr", "apu4d4", "single-rx-queue"].map(of).into()
}

/// A saved run is refused, or every report of it can be written, and it reads back from its own JSON.
pub fn record(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(run) = report::read_json(text) else { return };
    let mut out = Vec::new();
    report::write_text(&run, report::Style::default(), &mut out).expect("a vector takes everything");
    report::write_markdown(&run, &mut out).expect("a vector takes everything");
    report::write_csv(&run, &mut out).expect("a vector takes everything");
    report::write_html(&run, &mut out).expect("a vector takes everything");
    let mut json = Vec::new();
    report::write_json(&run, &mut json).expect("a vector takes everything");
    let json = String::from_utf8(json).expect("JSON is UTF-8");
    let again = report::read_json(&json).expect("what was written reads back");
    assert_eq!(again.end.trials.len(), run.end.trials.len());
}

/// Drivers' counters of `--drivers`.
pub fn drivers(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let mut drivers = ledger::Drivers::built_in();
    if let Err(error) = drivers.extend(text) {
        let _ = error.to_string();
    }
}

/// Rules of `linerate divert --config`.
pub fn rules(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let _ = divert::parse_rules(text);
}

/// Settings of `linerate nic apply --file`.
pub fn settings(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let _ = nic::Setting::from_toml(text);
}
