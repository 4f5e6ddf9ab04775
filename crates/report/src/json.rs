//! A run as JSON, whole or as a stream, and back.
//!
//! Whole: the [`Run`] as `schema/linerate.run.1.schema.json` describes it.
//! Stream, one object per line, written as things happen:
//! Stream, one object a line, written as things happen:
//!
//! | `event` | other members |
//! |---|---|
//! | `start` | `schema`, and those of `start` |
//! | `interval` | those of an element of `intervals` |
//! | `end` | those of `end`, with all trials again: only the last line has the outcome |
//! | `end` | those of `end`, all trials again: only the last line has the outcome |
//!
//! A stream that was cut off (a crash, a kill) still reads as a run, marked as interrupted.

use std::io::{self, Write};

use measure::{End, Interval, PairSummary, Run, SCHEMA, Start, Trial};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// One line of a stream.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event<'r> {
    /// The first line.
    Start(Opening<'r>),
    /// After each tick.
    Interval(&'r Interval),
    /// After each trial.
    Trial(&'r Trial),
    /// The last line.
    End(&'r End),
}

/// The schema's name with the request.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Opening<'r> {
    schema: &'static str,
    #[serde(flatten)]
    start: &'r Start,
}

/// Why text is not a run.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Not JSON, or members missing or of the wrong type.
    #[error("line {line} is not valid in a linerate run ({SCHEMA})")]
    Malformed {
        /// Line of the text, from 1, where the failing value begins.
        line: usize,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// Written by another program or version.
    #[error("unknown schema '{found}': this version reads {SCHEMA}")]
    OtherSchema {
        /// Its claimed schema.
        found: String,
    },
    /// A stream without its first line.
    #[error("the stream does not begin with a start event")]
    NoStart,
}

/// Writes the whole run, indented.
pub fn write_json(run: &Run, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, run)?;
    writeln!(out)
}

/// Writes the whole run in one line.
pub fn write_compact_json(run: &Run, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, run)?;
    writeln!(out)
}

impl<'r> Event<'r> {
    /// The first line of a stream.
    pub fn start(start: &'r Start) -> Self {
        Self::Start(Opening { schema: SCHEMA, start })
    }
}

/// Writes one line of a stream.
pub fn write_event(event: Event, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &event)?;
    writeln!(out)
}

/// Writes a finished run as a stream.
pub fn write_json_stream(run: &Run, out: &mut impl Write) -> io::Result<()> {
    write_event(Event::start(&run.start), out)?;
    for (at, trial) in run.end.trials.iter().enumerate() {
        for interval in run.intervals.iter().filter(|interval| interval.trial as usize == at) {
            write_event(Event::Interval(interval), out)?;
        }
        write_event(Event::Trial(trial), out)?;
    }
    write_event(Event::End(&run.end), out)
}

/// Reads a run back, written whole or as a stream.
pub fn read_json(text: &str) -> Result<Run, ReadError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut lines = Vec::new();
    loop {
        let line = line_of_next(text, values.byte_offset());
        match values.next() {
            None => break,
            Some(Ok(value)) => lines.push((line, value)),
            // the last line of a stream that was cut off
            Some(Err(error)) if error.is_eof() && !lines.is_empty() => break,
            Some(Err(source)) => return Err(ReadError::Malformed { line, source }),
        }
    }
    match lines.first() {
        Some((_, first)) if first.get("event").is_some() => from_stream(lines),
        Some((_, first)) => {
            check_schema(first)?;
            let (line, first) = lines.swap_remove(0);
            parsed(line, first)
        }
        None => Err(ReadError::NoStart),
    }
}

fn from_stream(lines: Vec<(usize, Value)>) -> Result<Run, ReadError> {
    let (mut start, mut intervals, mut trials, mut end) = (None, Vec::new(), Vec::new(), None);
    for (line, value) in lines {
        match value.get("event").and_then(Value::as_str) {
            Some("start") => {
                check_schema(&value)?;
                start = Some(parsed::<Start>(line, value)?);
            }
            Some("interval") => intervals.push(parsed::<Interval>(line, value)?),
            Some("trial") => trials.push(parsed::<Trial>(line, value)?),
            Some("end") => end = Some(parsed::<End>(line, value)?),
            // events of later versions
            _ => {}
        }
    }
    let end = end.unwrap_or_else(|| cut_off(&intervals, trials));
    Ok(Run { schema: SCHEMA.into(), start: start.ok_or(ReadError::NoStart)?, intervals, end })
}

/// The known part of a run whose stream has no end.
fn cut_off(intervals: &[Interval], trials: Vec<Trial>) -> End {
    End {
        duration_s: intervals.iter().map(|interval| interval.length_s).sum(),
        interrupted: true,
        pairs: PairSummary::of(&trials),
        trials,
        ..End::default()
    }
}

fn check_schema(value: &Value) -> Result<(), ReadError> {
    match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => Ok(()),
        other => Err(ReadError::OtherSchema { found: other.unwrap_or_default().into() }),
    }
}

fn parsed<T: for<'de> Deserialize<'de>>(line: usize, value: Value) -> Result<T, ReadError> {
    serde_json::from_value(value).map_err(|source| ReadError::Malformed { line, source })
}

/// The line where the next value after a byte offset begins.
fn line_of_next(text: &str, offset: usize) -> usize {
    let blanks = text[offset..].len() - text[offset..].trim_start().len();
    1 + text[..offset + blanks].matches('\n').count()
}
