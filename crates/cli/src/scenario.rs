//! The command line, with a scenario's options inserted before its own.

use std::{ffi::OsString, fs, path::Path};

use bench::{Program, ProgramOption, Scenario, Shipped, nearest, shipped};
use clap::{CommandFactory, Parser};

use crate::{
    args::{BenchCommand, Cli, Command},
    failure::{Failure, Status, in_words},
    usage,
};

/// What scenarios can run: a table's name, and the subcommands that start it.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("bench", &["bench"]),
    ("ndr", &["bench", "ndr"]),
    ("rdr", &["bench", "rdr"]),
    ("apu4d4", &["bench", "apu4d4"]),
    ("single-rx-queue", &["bench", "single-rx-queue"]),
];

/// What the command line runs.
pub(crate) enum Invocation {
    /// One command.
    Command(Box<Cli>),
    /// A scenario of several steps.
    Steps(Box<Steps>),
}

/// A scenario and its steps' command lines.
pub(crate) struct Steps {
    pub(crate) name: String,
    pub(crate) scenario: Scenario,
    pub(crate) commands: Vec<Cli>,
}

/// Parses the command line. Prints help and the version, and then exits.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Invocation, Failure> {
    let is_bench = arguments.get(1).is_some_and(|word| word == "bench");
    if let Some(name) = is_bench.then(|| scenario_of(&arguments[2..])).flatten() {
        return with_options(find(&name)?, arguments, &name);
    }
    let cli = parsed(arguments.clone())?;
    let name = match &cli.command {
        Command::Bench(bench) => bench.scenario.clone(),
        _ => None,
    };
    match name {
        Some(name) => with_options(find(&name)?, arguments, &name),
        None => Ok(Invocation::Command(Box::new(cli))),
    }
}

/// The scenario among the arguments after `bench`. `None` if there is none, or an option is of no step's program: the
/// command line's own parser then reports it.
fn scenario_of(words: &[OsString]) -> Option<String> {
    let cli = Cli::command();
    let programs: Vec<&clap::Command> = PROGRAMS.iter().map(|(_, words)| subcommand(&cli, words)).collect();
    let own = own_options(words.to_vec(), &programs);
    if own.iter().any(|own| own.name == "resume" || !programs.iter().any(|program| own.is_of(program))) {
        return None;
    }
    let name = own.iter().find(|own| own.name.is_empty())?.words[0].to_str()?;
    let is_command = subcommand(&cli, &["bench"]).find_subcommand(name).is_some();
    let is_scenario =
        !name.starts_with('-') && (!is_command || shipped().iter().any(|found| found.name == name));
    is_scenario.then(|| name.to_owned())
}

/// The same command line with the scenario's program and options instead of its name, one for each step.
fn with_options(scenario: Scenario, mut arguments: Vec<OsString>, name: &str) -> Result<Invocation, Failure> {
    if let Some(at) = arguments.iter().rposition(|word| word == name) {
        arguments.remove(at);
    }
    let all: Vec<OsString> = arguments.drain(1..).skip(1).collect();
    let command = Cli::command();
    let steps: Vec<&clap::Command> =
        scenario.steps.iter().map(|step| subcommand(&command, words(&step.program))).collect();
    let own = own_options(all, &steps);
    let given = |option: &str| own.iter().any(|own| own.decides(option));
    let mut commands = scenario.steps.iter().zip(&steps).map(|(step, program)| {
        let mut all = arguments.clone();
        all.extend(words(&step.program).iter().map(OsString::from));
        all.extend(step.arguments(given).into_iter().map(OsString::from));
        let meant = own.iter().filter(|own| own.is_of(program) || !steps.iter().any(|step| own.is_of(step)));
        all.extend(meant.flat_map(|own| own.words.iter().cloned()));
        parsed(all)
    });
    if scenario.steps[0].name.is_none() {
        let only = commands.next().expect("a scenario has a step")?;
        return Ok(Invocation::Command(Box::new(only)));
    }
    let commands = commands.collect::<Result<_, _>>()?;
    Ok(Invocation::Steps(Box::new(Steps { name: name.into(), scenario, commands })))
}

/// An argument besides the scenario's name: an option with its value, or another word.
pub(crate) struct Own {
    /// The option's long name; empty for other words.
    name: String,
    value: Option<String>,
    /// The option that `--sweep` sweeps.
    swept: Option<String>,
    words: Vec<OsString>,
}

impl Own {
    /// The option's long name; empty for other words.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its value, if it takes one.
    pub(crate) fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// As it was typed.
    pub(crate) fn into_words(self) -> Vec<OsString> {
        self.words
    }

    /// Whether it overrides a scenario's option.
    fn decides(&self, option: &str) -> bool {
        self.name == option || self.swept.as_deref() == Some(option)
    }

    /// Whether a program has this option. An unknown option counts as every program's, so that its parser refuses it.
    fn is_of(&self, program: &clap::Command) -> bool {
        self.name.is_empty()
            || long_option(program, &self.name).is_some()
                && self.swept.as_deref().is_none_or(|swept| long_option(program, swept).is_some())
    }
}

fn long_option<'c>(program: &'c clap::Command, name: &str) -> Option<&'c clap::Arg> {
    program.get_arguments().find(|argument| argument.get_long() == Some(name))
}

/// The options among a command's arguments.
pub(crate) fn options_of(command: &str, words: Vec<OsString>) -> Vec<Own> {
    own_options(words, &[subcommand(&Cli::command(), &[command])])
}

/// Arguments as options with their values, as defined by any of the programs.
fn own_options(words: Vec<OsString>, programs: &[&clap::Command]) -> Vec<Own> {
    let has_value_behind = |name: &str| {
        let option = programs.iter().find_map(|program| long_option(program, name));
        option.is_some_and(|option| option.get_action().takes_values() && !option.is_require_equals_set())
    };
    let mut all = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let (name, mut value) = match text.strip_prefix("--").map(|option| option.split_once('=')) {
            None => (String::new(), None),
            Some(None) => (text[2..].to_owned(), None),
            Some(Some((name, value))) => (name.to_owned(), Some(value.to_owned())),
        };
        let mut own = vec![word];
        if value.is_none()
            && has_value_behind(&name)
            && let Some(next) = words.next()
        {
            value = Some(next.to_string_lossy().into_owned());
            own.push(next);
        }
        let swept = value.clone().filter(|_| name == "sweep");
        let swept = swept.map(|value| value.split('=').next().unwrap_or_default().to_owned());
        all.push(Own { name, value, swept, words: own });
    }
    all
}

/// Parses one command line; a sweep derives others from it.
fn parsed(arguments: Vec<OsString>) -> Result<Cli, Failure> {
    let mut cli = Cli::try_parse_from(&arguments).map_err(|error| usage::failure(&error))?;
    if let Command::Bench(bench) = &mut cli.command {
        let sweep = match &mut bench.command {
            Some(BenchCommand::Ndr(ndr)) => &mut ndr.sweep,
            _ => &mut bench.sweep,
        };
        sweep.raw = arguments;
    } else if let Command::Tune(tune) = &mut cli.command {
        tune.raw = arguments;
    }
    Ok(cli)
}

fn words(program: &str) -> &'static [&'static str] {
    PROGRAMS.iter().find(|(name, _)| *name == program).map_or(&[], |(_, words)| words)
}

fn subcommand<'c>(cli: &'c clap::Command, words: &[&str]) -> &'c clap::Command {
    words
        .iter()
        .fold(cli, |command, word| command.find_subcommand(word).expect("a program is one of the commands"))
}

/// The scenario of this name, built in or from a file.
fn find(name: &str) -> Result<Scenario, Failure> {
    if let Some(found) = shipped().iter().find(|shipped| shipped.name == name) {
        return read_shipped(found);
    }
    let file = Path::new(name);
    let is_word = !name.contains(['/', '.']);
    if is_word && !file.exists() {
        let names = || shipped().iter().map(|shipped| shipped.name);
        let meant = nearest(name, names()).map_or_else(String::new, |name| format!("did you mean {name}? "));
        return Err(Failure::new(Status::Usage, format!("unknown scenario '{name}'"))
            .hint(format!("{meant}linerate bench list describes the built-in scenarios")));
    }
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::new(Status::Refused, format!("cannot read {name}: {error}"))
            .hint("a scenario is a TOML file; linerate bench list describes the built-in scenarios")
    })?;
    read(&text, name)
}

/// A built-in scenario, parsed.
pub(crate) fn read_shipped(shipped: &Shipped) -> Result<Scenario, Failure> {
    read(shipped.text, shipped.name)
}

fn read(text: &str, name: &str) -> Result<Scenario, Failure> {
    Scenario::read(text, &programs()).map_err(|error| {
        Failure::new(Status::Usage, format!("{name}: {}", in_words(&error)))
            .hint("a scenario begins with: scenario = 1, then [bench] and options by their long names")
    })
}

/// Every program with its options, as the command line has them.
fn programs() -> Vec<Program> {
    let cli = Cli::command();
    PROGRAMS
        .iter()
        .map(|(name, words)| {
            let command = subcommand(&cli, words);
            Program { name: (*name).into(), options: command.get_arguments().filter_map(option).collect() }
        })
        .collect()
}

fn option(argument: &clap::Arg) -> Option<ProgramOption> {
    Some(ProgramOption {
        name: argument.get_long().filter(|name| !["help", "version"].contains(name))?.into(),
        help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
        takes_value: argument.get_action().takes_values(),
        has_on_and_off: ["on", "off"]
            .iter()
            .all(|name| argument.get_possible_values().iter().any(|value| value.matches(name, false))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_scenarios_parse_and_describe_themselves() {
        for found in shipped() {
            let scenario = read_shipped(found).unwrap();
            assert!(!scenario.title.is_empty() && !scenario.description.is_empty(), "{}", found.name);
        }
    }

    #[test]
    fn the_published_schema_of_scenarios_matches_the_command_line() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/linerate.scenario.1.schema.json");
        let text = serde_json::to_string_pretty(&bench::scenario_schema(&programs())).unwrap() + "\n";
        if std::env::var_os("LINERATE_BLESS").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert!(fs::read_to_string(file).unwrap() == text, "make bless rewrites it");
    }

    #[test]
    fn the_schema_accepts_built_in_scenarios_and_refuses_misspellings() {
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
