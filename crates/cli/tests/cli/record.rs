//! A record is saved even if its output cannot be printed.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
    process::Stdio,
};

use serde_json::Value;

use crate::support::{linerate, run, words};

const MODEL: [&str; 3] = ["model", "--sweep", "rate=100000,200000"];

fn saved(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the record is saved")).expect("a record is JSON")
}

#[test]
fn a_closed_pipe_loses_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = linerate(&MODEL);
    let output = command.arg("--save").arg(&path).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let (status, _, err) = words(output);
    assert_eq!(status, 0, "a closed pipe is a clean exit: {err}");
    assert_eq!(saved(&path)["end"]["points"].as_array().unwrap().len(), 2);
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error_but_loses_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = linerate(&MODEL);
    let output = command.arg("--save").arg(&path).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let (status, _, err) = words(output);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("cannot write to stdout: No space left on device"), "{err}");
    assert_eq!(saved(&path)["end"]["points"].as_array().unwrap().len(), 2);
}

#[test]
fn a_dry_run_prints_the_plan_and_saves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let save = ["--dry-run", "--save", path.to_str().unwrap()];
    for command in [&MODEL[..], &["model", "rdr"], &["model", "plan"], &["send", "127.0.0.1:9"]] {
        let (status, out, err) = run(&[command, &save[..]].concat());
        assert_eq!(status, 0, "{command:?}: {err}");
        assert!(serde_json::from_str::<Value>(&out).is_ok(), "{command:?}: {out}");
        assert!(!path.exists(), "{command:?}");
    }
}

#[test]
fn the_stream_of_a_model_has_its_trials_between_start_and_end() {
    let (status, out, err) = run(&[&MODEL[..], &["--json-stream", "--no-save"]].concat());
    assert_eq!(status, 0, "{err}");
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.first().unwrap()["event"], "start");
    let end = events.last().unwrap();
    assert_eq!(end["event"], "end");
    let trials = events.iter().filter(|event| event["event"] == "trial").count();
    assert_eq!(trials, end["trials"].as_array().unwrap().len());
}
