//! `linerate probe --quiet`: whether this machine is quiet enough for measurements. The result is kept, and goes into each
//! record made until the machine's next boot.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use measure::{Quiet, QuietReading};
use sys::output::OutputFile;

use crate::{
    failure::{Failure, Status, in_words},
    output::{printed, state_folder},
};

/// Numbers of trials for which the smallest detectable difference is printed.
const TRIALS: [u32; 4] = [3, 5, 10, 30];
/// Differences for which the number of trials is printed.
const DIFFERENCES: [f64; 3] = [0.01, 0.02, 0.05];

/// Measures, prints and keeps the result.
pub(crate) fn run(time: Duration, json: bool) -> Result<bool, Failure> {
    let refused = |words: String| Failure::new(Status::Refused, words);
    let quiet = bench::look_quiet(time).map_err(|error| refused(in_words(&error)))?;
    let reading = QuietReading {
        read_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        boot: boot(),
        quiet,
    };
    if let Err(error) = keep(&reading) {
        eprintln!("note: cannot keep the result for later records: {error}");
    }
    let mut out = io::stdout().lock();
    printed(if json {
        serde_json::to_writer_pretty(&mut out, &reading).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        write_text(&reading.quiet, &mut out)
    })?;
    Ok(reading.quiet.complaints().is_empty())
}

/// The last reading since the machine's boot.
pub(crate) fn latest() -> Option<QuietReading> {
    let reading: QuietReading = serde_json::from_str(&fs::read_to_string(path()).ok()?).ok()?;
    (reading.boot == boot()).then_some(reading)
}

/// Prints what the last reading found wrong, before a command that compares.
pub(crate) fn warn() {
    match latest() {
        None => eprintln!("note: linerate probe --quiet shows which differences this machine can detect"),
        Some(reading) => {
            for complaint in reading.quiet.complaints() {
                eprintln!("note: not quiet at {}: {complaint}", reading.read_at);
            }
        }
    }
}

fn keep(reading: &QuietReading) -> io::Result<()> {
    fs::create_dir_all(state_folder())?;
    let mut file = OutputFile::create(&path())?;
    serde_json::to_writer_pretty(&mut file, reading)?;
    file.finish().map(drop)
}

fn path() -> PathBuf {
    state_folder().join("quiet.json")
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn write_text(quiet: &Quiet, out: &mut impl Write) -> io::Result<()> {
    let per_cent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let complaints = quiet.complaints();
    match complaints.len() {
        0 => writeln!(out, "quiet enough for measurements, over {:.1} s", quiet.duration_s)?,
        _ => writeln!(out, "not quiet enough for measurements, over {:.1} s:", quiet.duration_s)?,
    }
    for complaint in &complaints {
        writeln!(out, "  {complaint}")?;
    }
    for (name, value) in [
        ("steal", per_cent(quiet.steal_ratio)),
        ("other programs", format!("{:.2} of {} CPUs", quiet.background_cpus, quiet.cpus)),
        (
            "timers late, 50 % and 99 %",
            format!("{:.0} and {:.0} us", quiet.timer_late_p50_ns / 1e3, quiet.timer_late_p99_ns / 1e3),
        ),
        ("speed, last vs first third", format!("{:+.2} %", quiet.speed_drift_ratio * 100.0)),
        ("spread of equal work", per_cent(quiet.loop_spread_ratio)),
    ] {
        writeln!(out, "  {name:<30} {value}")?;
    }
    let shows = TRIALS
        .iter()
        .filter_map(|trials| Some(format!("{} with {trials}", per_cent(quiet.shows_ratio(*trials)?))));
    writeln!(
        out,
        "smallest detectable difference, by trials per side: {}",
        shows.collect::<Vec<_>>().join(", ")
    )?;
    let needed = DIFFERENCES.iter().map(|ratio| {
        let trials =
            quiet.trials_for(*ratio).map_or_else(|| "more than 1000".into(), |trials| trials.to_string());
        format!("{:.0} %: {trials}", ratio * 100.0)
    });
    writeln!(out, "trials per side to detect a difference of {}", needed.collect::<Vec<_>>().join(", "))?;
    writeln!(out, "(95 % confidence, 80 % power; a lower bound, because a network adds its own spread)")
}
