//! `linerate compare` as a gate, and over a history; `--json=iperf3`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use measure::{End, Machine, Origin, Run, Start, Trial};

use crate::support::{in_folder, json, json_of, linerate, own_folder, run, words};

/// A saved run of three trials with these delivered rates.
fn saved(folder: &Path, name: &str, measured: &Run, delivered_pps: &[f64]) -> String {
    let mut run = measured.clone();
    run.end.trials.truncate(delivered_pps.len());
    for (trial, pps) in run.end.trials.iter_mut().zip(delivered_pps) {
        (trial.sent_pps, trial.delivered_pps, trial.loss_ratio) = (*pps, *pps, 0.0);
    }
    run.end.pairs = measure::PairSummary::of(&run.end.trials);
    let (file, mut text) = (folder.join(name), Vec::new());
    report::write_json(&run, &mut text).unwrap();
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn measured() -> Run {
    let args =
        ["bench", "--tx=udp", "--rx=udp", "--trials=3", "--duration=40ms", "--no-save", "--json", "--no-pin"];
    serde_json::from_value(json(&args).1).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = own_folder().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_exit_status_shows_whether_anything_got_worse_and_the_text_what_is_missing() {
    let (folder, measured) = (folder("compared"), measured());
    let of = |name: &str, pps: &[f64]| saved(&folder, name, &measured, pps);
    let before = of("before.json", &[1000.0, 1002.0, 1001.0]);
    let same = of("same.json", &[1001.0, 1000.0, 1002.0]);
    let (status, out, _) = run(&["compare", &before, &same]);
    assert_eq!(status, 0, "{out}");
    let (status, out, _) = run(&["compare", &before, &of("slower.json", &[800.0, 801.0, 802.0])]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("WORSE"), "{out}");
    let (status, out, _) = run(&["compare", &before, &of("faster.json", &[1200.0, 1201.0, 1202.0])]);
    assert_eq!(status, 0, "{out}");
    assert!(out.contains("better"), "{out}");
    let (status, out, _) = run(&["compare", &before, &of("one.json", &[1000.0])]);
    assert_eq!(status, 1, "an undecided comparison fails the gate: {out}");
    assert!(out.contains("needs 2 more trials"), "{out}");
    let (status, comparison) = json(&["compare", &before, &same, "--format=json"]);
    assert_eq!((status, &comparison["gate"]), (0, &"passed".into()));
}

/// A saved run of counted instructions: pairs with one trial each.
fn counted(folder: &Path, name: &str, kernel: &str, sender: &[f64]) -> String {
    let trial = |instructions: &f64| {
        let mut trial =
            Trial { sent: 1000, delivered: 1000, kernel: Some(kernel.into()), ..Trial::default() };
        for (engine, label) in [(&mut trial.tx, "udp"), (&mut trial.rx, "xdp")] {
            (engine.engine, engine.label) = (label.into(), label.into());
        }
        trial.tx_cost.instructions_per_packet = Some(*instructions);
        trial.rx_cost.instructions_per_packet = Some(400.0);
        trial
    };
    let mut end = End { trials: sender.iter().map(trial).collect(), ..End::default() };
    end.pairs = measure::PairSummary::of(&end.trials);
    let start = Start {
        command: "bench".into(),
        version: "0.0.0".into(),
        started_at: "2026-05-10T03:00:00Z".into(),
        origin: Origin::Exact,
        machine: Machine { kernel: kernel.into(), ..Machine::default() },
        asked: Default::default(),
    };
    let run = Run { schema: measure::SCHEMA.into(), start, intervals: Vec::new(), end };
    let (file, mut text) = (folder.join(name), Vec::new());
    report::write_json(&run, &mut text).unwrap();
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn counted_runs_fail_at_half_a_percent_more_instructions() {
    let folder = folder("instructions");
    let of = |name: &str, sender: &[f64]| counted(&folder, name, "7.3.4", sender);
    let before = of("before.json", &[6800.0, 6790.0, 6810.0]);
    let compare = |after: &str, more: &[&str]| {
        let words = ["compare", &before, after, "--metric", "instructions-per-packet"];
        run(&[&words[..], more].concat())
    };
    for (name, sender, status) in [
        ("same.json", 6800.0, 0),
        ("less.json", 6000.0, 0),
        ("slightly-more.json", 6833.0, 0),
        ("more.json", 6834.0, 1),
    ] {
        let (found, out, err) = compare(&of(name, &[sender]), &[]);
        assert_eq!(found, status, "{name}: {out}{err}");
        assert!(out.contains("6800.0") && out.contains(&format!("{sender:.1}")), "{out}");
        let (words, other) = ("At least one thread takes more", "No thread takes more");
        assert!(out.contains(if status == 1 { words } else { other }), "{out}");
    }
    let more = of("more.json", &[6834.0]);
    assert_eq!(compare(&more, &["--matters", "0.01"]).0, 0, "the user may choose another bound");
    let words = ["compare", &before, &more, "--metric=instructions-per-packet", "--format=json"];
    let (status, comparison) = json(&words);
    assert_eq!((status, &comparison["gate"]), (1, &"regressed".into()));
    assert_eq!(
        (&comparison["pairs"][0]["thread"], &comparison["pairs"][0]["is_worse"]),
        (&"sender".into(), &true.into())
    );
    let (status, out, _) = compare(&saved(&folder, "rates.json", &measured(), &[1000.0]), &[]);
    assert_eq!(status, 1, "no comparison is not a pass: {out}");
    assert!(out.contains("Nothing could be compared"), "{out}");
}

#[test]
fn a_chart_is_an_image_and_an_unknown_one_is_refused_with_the_known_ones() {
    let (folder, measured) = (folder("charts"), measured());
    let file = saved(&folder, "run.json", &measured, &[1000.0, 1002.0, 1001.0]);
    let (status, svg, _) = run(&["report", &file, "--format=svg", "--chart=ladder"]);
    assert_eq!(status, 0);
    assert!(svg.starts_with("<svg xmlns=") && svg.contains("udp → udp"));
    let (status, _, err) = run(&["report", &file, "--format=svg", "--chart=pie"]);
    assert_eq!(status, 2);
    assert!(err.contains("this run has no chart 'pie'") && err.contains("hint:  it has ladder"), "{err}");
}

#[test]
fn a_history_names_the_run_at_which_the_level_changed() {
    let (folder, mut measured) = (folder("history"), measured());
    for day in 10..26 {
        measured.start.started_at = format!("2026-05-{day}T03:00:00Z");
        let level = if day < 18 { 1000.0 } else { 850.0 };
        let pps = level * (1.0 + 0.001 * f64::from(day * 7 % 5));
        saved(&folder, &format!("202605{day}.json"), &measured, &[pps, pps, pps]);
    }
    let history = ["compare", "--history", folder.to_str().unwrap()];
    let (status, out, _) = run(&history);
    assert_eq!(status, 1, "a gate fails at a newest level that is worse: {out}");
    assert!(out.starts_with("One change of level"), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("One pair's newest level is worse than the one before."), "{out}");
    assert!(out.contains("20260518.json"), "{out}");
    let (status, out, _) = run(&[&history[..], &["--matters", "20%"]].concat());
    assert_eq!(status, 0, "{out}");
    for day in 26..32 {
        measured.start.started_at = format!("2026-05-{day}T03:00:00Z");
        saved(&folder, &format!("202605{day}.json"), &measured, &[1000.0 + f64::from(day); 3]);
    }
    let (status, out, _) = run(&history);
    assert_eq!(status, 0, "an improvement after a regression passes: {out}");
    assert!(out.starts_with("2 changes of level"), "{out}");
}

#[test]
fn a_run_is_printed_in_the_format_of_iperf3() {
    let args = ["bench", "--tx=udp", "--rx=udp", "--trials=1", "--duration=40ms", "--no-save", "--no-pin"];
    let (_, test) = json(&[&args[..], &["--json=iperf3"]].concat());
    assert_eq!(test["start"]["test_start"]["protocol"], "UDP");
    assert!(test["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() > 0.0, "{test:#}");
}

#[test]
fn the_result_of_probe_quiet_is_in_later_records() {
    let folder = folder("quiet");
    let command = |args: &[&str]| {
        let mut command = linerate(args);
        in_folder(&mut command, folder.clone());
        command
    };
    let (status, reading) = json_of(command(&["probe", "--quiet", "--duration=200ms", "--json"]));
    assert!(matches!(status, 0 | 1), "fit or not: {status}");
    let quiet = &reading["quiet"];
    assert_eq!(quiet["loop_blocks"], 40);
    assert!(quiet["duration_s"].as_f64().unwrap() > 0.0 && quiet["cpus"].as_u64().unwrap() > 0);
    let bench = ["bench", "--tx=udp", "--rx=udp", "--trials=1", "--duration=40ms", "--no-save", "--json"];
    let (_, run) = json_of(command(&[&bench[..], &["--no-lossless", "--no-scale"]].concat()));
    assert_eq!(run["start"]["machine"]["quiet"], reading);
    let (status, words, _) = words(command(&["probe", "--quiet", "--duration=200ms"]).output().unwrap());
    assert!(matches!(status, 0 | 1));
    for part in [
        "quiet enough for measurements",
        "steal",
        "spread of equal work",
        "smallest detectable difference",
        "trials per side",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}
