//! `linerate compare`: runs against a baseline, or a series of them.

use std::{io, path::PathBuf};

use measure::Run;
use report::{CompareOptions, Gate, NamedRun};

use crate::{
    args::{CompareArgs, CompareForm, CompareMetric},
    commands::report::{newest_first, read_run},
    failure::{Failure, Status},
    output::{printed, style},
};

/// The smallest relative changes that matter.
const RATES_MATTER: f64 = 0.02;
const INSTRUCTIONS_MATTER: f64 = 0.005;

pub(crate) fn run(args: &CompareArgs) -> Result<bool, Failure> {
    if !(0.5..=0.9999).contains(&args.confidence) {
        return Err(Failure::new(
            Status::Usage,
            format!("--confidence must be from 0.5 to 0.9999, not {}", args.confidence),
        )
        .hint("the usual choice is 0.95"));
    }
    let options =
        CompareOptions { confidence: args.confidence, matters_ratio: args.matters.unwrap_or(RATES_MATTER) };
    match &args.history {
        Some(folder) => {
            let mut paths = newest_first(folder);
            paths.reverse();
            if paths.is_empty() {
                return Err(Failure::new(Status::Refused, format!("no run in {}", folder.display()))
                    .hint("name the directory of the saved runs"));
            }
            history(&paths, options, args.format)
        }
        None if args.runs.len() < 2 => Err(Failure::new(Status::Usage, "cannot compare a single run")
            .hint("name a baseline and another run")),
        None if args.metric == CompareMetric::InstructionsPerPacket => {
            compare_instructions(&args.runs, args.matters.unwrap_or(INSTRUCTIONS_MATTER), args.format)
        }
        None => compare(&args.runs, options, args.format),
    }
}

fn compare_instructions(paths: &[PathBuf], matters_ratio: f64, form: CompareForm) -> Result<bool, Failure> {
    let runs = read_all(paths)?;
    let named = name_all(&runs);
    let comparison = report::compare_instructions(named[0], &named[1..], matters_ratio);
    let mut out = io::stdout().lock();
    printed(match form {
        CompareForm::Text => report::write_instruction_comparison_text(&comparison, style(), &mut out),
        CompareForm::Json => report::write_instruction_comparison_json(&comparison, &mut out),
        CompareForm::Markdown => report::write_instruction_comparison_markdown(&comparison, &mut out),
    })?;
    Ok(matches!(comparison.gate, Gate::Passed))
}

fn compare(paths: &[PathBuf], options: CompareOptions, form: CompareForm) -> Result<bool, Failure> {
    let runs = read_all(paths)?;
    let named = name_all(&runs);
    let comparison = report::compare(named[0], &named[1..], options);
    let mut out = io::stdout().lock();
    printed(match form {
        CompareForm::Text => report::write_comparison_text(&comparison, style(), &mut out),
        CompareForm::Json => report::write_comparison_json(&comparison, &mut out),
        CompareForm::Markdown => report::write_comparison_markdown(&comparison, &mut out),
    })?;
    Ok(matches!(comparison.gate, Gate::Passed))
}

fn history(paths: &[PathBuf], options: CompareOptions, form: CompareForm) -> Result<bool, Failure> {
    let runs = read_all(paths)?;
    let history = report::history(&name_all(&runs), options);
    let mut out = io::stdout().lock();
    printed(match form {
        CompareForm::Text => report::write_history_text(&history, style(), &mut out),
        CompareForm::Json => report::write_history_json(&history, &mut out),
        CompareForm::Markdown => report::write_history_markdown(&history, &mut out),
    })?;
    Ok(!history.regressed)
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, Run)>, Failure> {
    paths.iter().map(|path| Ok((path.display().to_string(), read_run(path)?))).collect()
}

fn name_all(runs: &[(String, Run)]) -> Vec<NamedRun<'_>> {
    runs.iter().map(|(name, run)| NamedRun { name, run }).collect()
}
