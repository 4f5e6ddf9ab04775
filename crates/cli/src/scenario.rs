//! The command line, with a scenario's options put before its own.

use std::{ffi::OsString, fs, path::Path};

use bench::{Program, ProgramOption, Scenario, Shipped, nearest, shipped};
use clap::{CommandFactory, Parser};

use crate::{
    args::{BenchCommand, Cli, Command},
    commands::Steps,
    failure::{Failure, Status, in_words},
};

/// What scenarios can run: a table's name, and the words that start it.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("bench", &["bench"]),
    ("ndr", &["bench", "ndr"]),
    ("rdr", &["bench", "rdr"]),
    ("apu4d4", &["bench", "apu4d4"]),
];

/// What the command line asks for.
pub(crate) enum Invocation {
    /// One command.
    Command(Box<Cli>),
    /// A scenario of several steps.
    Steps(Box<Steps>),
}

/// Parses the command line; wrong usage and help end the process here, as clap does it.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Invocation, Failure> {
    let is_bench = arguments.get(1).is_some_and(|word| word == "bench");
    if let Some(name) = arguments.get(2).filter(|_| is_bench).and_then(|word| word.to_str())
        && let Some(found) = shipped().iter().find(|shipped| shipped.name == name)
    {
        return with_options(read_shipped(found)?, arguments, found.name);
    }
    let cli = parsed(arguments.clone());
    let name = match &cli.command {
        Command::Bench(bench) => bench.scenario.clone(),
        _ => None,
    };
    match name {
        Some(name) => with_options(find(&name)?, arguments, &name),
        None => Ok(Invocation::Command(Box::new(cli))),
    }
}

/// The same command line with the scenario's program and options instead of its name; one for each step.
fn with_options(scenario: Scenario, mut arguments: Vec<OsString>, name: &str) -> Result<Invocation, Failure> {
    if let Some(at) = arguments.iter().rposition(|word| word == name) {
        arguments.remove(at);
    }
    let own: Vec<OsString> = arguments.drain(1..).skip(1).collect();
    let given = |option: &str| {
        let names = |word: &OsString| {
            let word = word.to_string_lossy();
            word.strip_prefix("--").and_then(|word| word.split('=').next()) == Some(option)
        };
        own.iter().any(names)
    };
    let mut commands = scenario.steps.iter().map(|step| {
        let mut all = arguments.clone();
        all.extend(words(&step.program).iter().map(OsString::from));
        all.extend(step.arguments(given).into_iter().map(OsString::from));
        all.extend(own.iter().cloned());
        parsed(all)
    });
    if scenario.steps[0].name.is_none() {
        let only = commands.next().expect("a scenario has a step");
        return Ok(Invocation::Command(Box::new(only)));
    }
    let commands = commands.collect();
    Ok(Invocation::Steps(Box::new(Steps { name: name.into(), scenario, commands })))
}

/// Parses; a sweep makes other command lines from this one.
fn parsed(arguments: Vec<OsString>) -> Cli {
    let mut cli = Cli::parse_from(&arguments);
    if let Command::Bench(bench) = &mut cli.command {
        let sweep = match &mut bench.command {
            Some(BenchCommand::Ndr(ndr)) => &mut ndr.sweep,
            _ => &mut bench.sweep,
        };
        sweep.raw = arguments;
    }
    cli
}

fn words(program: &str) -> &'static [&'static str] {
    PROGRAMS.iter().find(|(name, _)| *name == program).map_or(&[], |(_, words)| words)
}

/// The scenario of a name that ships, or of a file.
fn find(name: &str) -> Result<Scenario, Failure> {
    if let Some(found) = shipped().iter().find(|shipped| shipped.name == name) {
        return read_shipped(found);
    }
    let file = Path::new(name);
    let is_word = !name.contains(['/', '.']);
    if is_word && !file.exists() {
        let names = || shipped().iter().map(|shipped| shipped.name);
        let meant = nearest(name, names()).map_or_else(String::new, |name| format!("did you mean {name}? "));
        return Err(Failure::new(Status::Usage, format!("there is no scenario '{name}'"))
            .hint(format!("{meant}linerate bench list describes those that ship")));
    }
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::new(Status::Refused, format!("cannot read {name}: {error}"))
            .hint("a scenario is a TOML file; linerate bench list describes those that ship")
    })?;
    read(&text, name)
}

/// A scenario that ships, read.
pub(crate) fn read_shipped(shipped: &Shipped) -> Result<Scenario, Failure> {
    read(shipped.text, shipped.name)
}

fn read(text: &str, name: &str) -> Result<Scenario, Failure> {
    Scenario::read(text, &programs()).map_err(|error| {
        Failure::new(Status::Usage, format!("{name}: {}", in_words(&error)))
            .hint("it begins with: scenario = 1, then [bench] and options by their long names")
    })
}

/// Every program with its options, as the command line has them.
fn programs() -> Vec<Program> {
    let cli = Cli::command();
    PROGRAMS
        .iter()
        .map(|(name, words)| {
            let command = words.iter().fold(&cli, |command, word| {
                command.find_subcommand(word).expect("a program is one of the commands")
            });
            Program { name: (*name).into(), options: command.get_arguments().filter_map(option).collect() }
        })
        .collect()
}

fn option(argument: &clap::Arg) -> Option<ProgramOption> {
    Some(ProgramOption {
        name: argument.get_long().filter(|name| !["help", "version"].contains(name))?.into(),
        help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
        takes_value: argument.get_action().takes_values(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_that_ship_can_be_read_and_say_what_they_show() {
        for found in shipped() {
            let scenario = read_shipped(found).unwrap();
            assert!(!scenario.title.is_empty() && !scenario.description.is_empty(), "{}", found.name);
        }
    }

    #[test]
    fn the_published_schema_of_scenarios_is_that_of_the_command_line() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/linerate.scenario.1.schema.json");
        let text = serde_json::to_string_pretty(&bench::scenario_schema(&programs())).unwrap() + "\n";
        if std::env::var_os("LINERATE_BLESS").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert!(fs::read_to_string(file).unwrap() == text, "make bless rewrites it");
    }

    #[test]
    fn the_schema_accepts_what_ships_and_refuses_what_is_misspelt() {
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("scenario.json", bench::scenario_schema(&programs())).unwrap();
        let schema = compiler.compile("scenario.json", &mut schemas).unwrap();
        let is_valid = |text: &str| {
            let file: toml::Table = text.parse().unwrap();
            schemas.validate(&serde_json::to_value(file).unwrap(), schema).is_ok()
        };
        for found in shipped() {
            assert!(is_valid(found.text), "{}", found.name);
        }
        assert!(!is_valid("scenario = 1\n[bench]\nframe-sise = 64\n"));
        assert!(!is_valid("scenario = 2\n[bench]\n"));
        assert!(!is_valid("scenario = 1\n[bench]\nspin = 3\n"));
    }
}
