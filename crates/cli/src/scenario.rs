//! The command line, with a scenario file's options put before its own.

use std::{ffi::OsString, fs, path::Path};

use bench::Scenario;
use clap::Parser;

use crate::{
    args::{Cli, Command},
    failure::{Failure, Status, in_words},
};

/// Parses the command line; wrong usage and help end the process here, as clap does it.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Cli, Failure> {
    let mut arguments: Vec<OsString> = arguments.collect();
    // This scenario is computed, not measured: the model runs it.
    if arguments.get(1).is_some_and(|word| word == "bench")
        && arguments.get(2).is_some_and(|word| word == "rdr")
    {
        arguments[1] = "model".into();
    }
    let cli = Cli::parse_from(&arguments);
    let Command::Bench(bench) = &cli.command else { return Ok(cli) };
    let Some(file) = &bench.scenario else { return Ok(cli) };
    let options = read(file)?;
    // Before the user's own options: of an option given twice the last one counts.
    let at = arguments.iter().position(|word| word == "bench").map_or(arguments.len(), |at| at + 1);
    let mut all = arguments;
    all.splice(at..at, options.into_iter().map(OsString::from));
    Ok(Cli::parse_from(all))
}

fn read(file: &Path) -> Result<Vec<String>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::new(Status::Refused, format!("cannot read {}: {error}", file.display()))
            .hint("a scenario is a TOML file; scenarios/ in the repository has some")
    })?;
    Scenario::read(&text).and_then(|scenario| scenario.arguments()).map_err(|error| {
        Failure::new(Status::Usage, format!("{}: {}", file.display(), in_words(&error)))
            .hint("it begins with: scenario = 1, then [bench] and options by their long names")
    })
}
