//! `linerate bench disk`: a disk, a network, and both.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
};

use bench::{DiskPlan, run_disk};
use clap::{Parser, ValueEnum};
use measure::Run;
use tempfile::NamedTempFile;
use traffic::FileChoice;

use super::{
    experiment::{Experiment, first_lab, origin},
    points,
};
use crate::{
    access::gain_access,
    args::{Cli, Command, DiskArgs},
    failure::{Failure, Status},
    output,
    start::opening,
};

/// The network alone, then both together by every way from a file.
const SENDERS: &str = "tcp,tcp+file,tcp+sendfile,tcp+splice";

pub(super) fn run(args: &DiskArgs) -> Result<bool, Failure> {
    let access = gain_access()?;
    let made = match (&args.file, args.output.dry_run) {
        (None, false) => Some(make(args.file_size).map_err(|error| {
            Failure::new(Status::Refused, format!("cannot make a file of {} MiB: {error}", args.file_size))
                .hint("set TMPDIR to a folder on the disk, or name a file with --file")
        })?),
        _ => None,
    };
    let path = args.file.as_deref().or(made.as_ref().map(NamedTempFile::path));
    let cli = Cli::try_parse_from(words(args, path)).map_err(|error| crate::usage::failure(&error))?;
    let Command::Bench(bench) = &cli.command else {
        return Err(Failure::new(Status::Internal, "the experiment is not a run of bench"));
    };
    let plan = DiskPlan {
        source: FileChoice { path: path.map(Into::into), cache: args.file_cache.into() },
        message_bytes: args.send_size as usize,
        duration_ns: args.duration.as_nanos() as u64,
        ladder: points::ladder(bench, access)?,
    };
    if args.output.dry_run {
        return output::print_plan(&plan);
    }
    let lab = &first_lab(&plan.ladder.points);
    let start = opening("bench disk", origin(lab), &plan);
    let experiment = Experiment { text: Some(&write), ..Experiment::new(start, lab, access) };
    experiment.run(&args.output, None, |start, _, progress| run_disk(&plan, start, progress))
}

/// The command line of `linerate bench` that measures the network alone and both together.
fn words(args: &DiskArgs, path: Option<&Path>) -> Vec<OsString> {
    let cache = args.file_cache.to_possible_value();
    let mut words: Vec<OsString> =
        ["linerate", "bench", "--tx", SENDERS, "--rx", "tcp", "--offload", "all"].map(Into::into).into();
    words.extend(cache.map(|cache| format!("--file-cache={}", cache.get_name()).into()));
    words.push(format!("--send-size={}", args.send_size).into());
    words.push(format!("--duration={}us", args.duration.as_micros()).into());
    words.push(format!("--trials={}", args.trials).into());
    words.extend(path.into_iter().flat_map(|path| ["--file".into(), path.into()]));
    for (option, interface) in
        [("--tx-interface", &args.tx_interface), ("--rx-interface", &args.rx_interface)]
    {
        words.extend(interface.iter().flat_map(|name| [option.into(), name.into()]));
    }
    words
}

/// A file on the disk of the folder for temporary files, whose bytes no file system can leave out.
fn make(mebibytes: u32) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix("linerate-disk-")?;
    let mut piece = vec![0u8; 1 << 20];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in piece.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.copy_from_slice(&state.to_ne_bytes());
    }
    (0..mebibytes).try_for_each(|_| file.write_all(&piece))?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:<14} {:<14} {:>9}", "", "by", "Gb/s")?;
    for point in &run.end.points {
        let word = |name: &str| point.values.get(name).and_then(serde_json::Value::as_str).unwrap_or("-");
        let bps = point.values.get("delivered_bps").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        writeln!(out, "{:<14} {:<14} {:>9.2}", word("part"), word("by"), bps / 1e9)?;
    }
    for skipped in &run.end.skipped {
        writeln!(out, "skipped: {}: {}", skipped.engine, skipped.reason)?;
    }
    run.end.notes.iter().try_for_each(|note| writeln!(out, "{note}"))
}
