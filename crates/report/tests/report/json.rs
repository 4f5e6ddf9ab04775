//! JSON, whole and as a stream, and back.

use report::{read_json, write_compact_json, write_json, write_json_stream};
use serde_json::Value;

use crate::samples;

fn written(write: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_written_run_reads_back_the_same() {
    for (name, run) in samples::all() {
        assert_eq!(read_json(&written(|out| write_json(&run, out))).unwrap(), run, "{name}");
        assert_eq!(read_json(&written(|out| write_compact_json(&run, out))).unwrap(), run, "{name}");
        assert_eq!(read_json(&written(|out| write_json_stream(&run, out))).unwrap(), run, "{name}");
    }
}

#[test]
fn compact_is_one_line() {
    assert_eq!(written(|out| write_compact_json(&samples::ladder(), out)).lines().count(), 1);
}

#[test]
fn a_stream_is_one_object_per_line_from_start_to_end() {
    let stream = written(|out| write_json_stream(&samples::send(), out));
    let events: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "start");
    assert_eq!(events[0]["schema"], "linerate.run/1");
    assert_eq!(events[0]["command"], "send");
    assert!(kinds[1..9].iter().all(|kind| *kind == "interval"), "{kinds:?}");
    assert_eq!(kinds[9..], ["trial", "end"]);
    assert_eq!(events[10]["trials"][0], {
        let mut trial = events[9].clone();
        trial.as_object_mut().unwrap().remove("event");
        trial
    });
}

#[test]
fn a_stream_cut_off_anywhere_keeps_its_measurements() {
    let run = samples::paced();
    let stream = written(|out| write_json_stream(&run, out));
    let last_line = stream.trim_end().rfind('\n').unwrap();
    let cut = read_json(&stream[..last_line + 20]).unwrap();
    assert!(cut.end.interrupted);
    assert_eq!(cut.end.trials, run.end.trials);
    assert_eq!(cut.end.pairs, run.end.pairs);
    let first_line = stream.find('\n').unwrap();
    assert!(read_json(&stream[..first_line + 30]).unwrap().end.trials.is_empty());
}

#[test]
fn another_schema_is_named() {
    let error = read_json("{\"schema\": \"linerate.run/2\"}").unwrap_err();
    assert_eq!(error.to_string(), "unknown schema 'linerate.run/2': this version reads linerate.run/1");
    assert!(read_json("{}").is_err());
}

#[test]
fn the_bad_line_is_named_with_its_cause() {
    let mut stream = written(|out| write_json_stream(&samples::send(), out));
    stream = stream.replacen("\"length_s\"", "\"length\"", 1);
    let error = read_json(&stream).unwrap_err();
    assert_eq!(error.to_string(), "line 2 is not valid in a linerate run (linerate.run/1)");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("length_s"));
}

#[test]
fn text_that_is_not_a_run_is_refused_without_panic() {
    for text in [
        "",
        " \n",
        "nonsense",
        "[]",
        "1",
        "{\"event\":\"start\"}",
        "{\"event\":3}",
        "{\"event\":\"end\"}",
        "{",
    ] {
        assert!(read_json(text).is_err(), "{text}");
    }
}
