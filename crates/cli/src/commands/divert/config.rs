//! `--config`: the options of a diversion in a TOML file, for a unit file.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use bench::nearest;
use clap::{CommandFactory, Parser};
use toml::{Table, Value};

use crate::{
    args::{Cli, Command, DivertArgs, listed},
    failure::{Failure, Status},
    scenario::options_of,
    usage,
};

/// Keys that may change while the diversion runs.
const RELOADED: [&str; 7] = ["match", "rules", "set", "keep", "drop", "limit", "per"];
/// Options that cannot be in a file.
const ONLY_TYPED: [&str; 4] = ["config", "dry-run", "help", "rule"];

/// A file of options, and the command-line arguments that override it.
#[derive(Clone)]
pub(super) struct ConfigFile {
    path: PathBuf,
    table: Table,
    typed: Vec<OsString>,
    /// The options among those arguments.
    outranked: Vec<String>,
}

impl ConfigFile {
    /// Reads the file; `typed` are all arguments after `divert`.
    pub(super) fn read(path: &Path, typed: Vec<OsString>) -> Result<(Self, DivertArgs), Failure> {
        let mut outranked = Vec::new();
        let mut words = Vec::new();
        for own in options_of("divert", typed).into_iter().filter(|own| own.name() != "config") {
            outranked.push(if own.name().is_empty() { "interface" } else { own.name() }.to_owned());
            words.extend(own.into_words());
        }
        let file = Self { path: path.into(), table: table(path)?, typed: words, outranked };
        let args = file.args()?;
        Ok((file, args))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// The file has a mistake, or an option changed that cannot change while the diversion runs.
    pub(super) fn again(&self) -> Result<(Self, DivertArgs), Failure> {
        let new = Self {
            path: self.path.clone(),
            table: table(&self.path)?,
            typed: self.typed.clone(),
            outranked: self.outranked.clone(),
        };
        let keys = self.table.keys().chain(new.table.keys().filter(|key| !self.table.contains_key(*key)));
        let fixed = keys.filter(|key| !RELOADED.contains(&key.as_str()));
        let changed = fixed.filter(|key| self.table.get(*key) != new.table.get(*key));
        let changed: Vec<String> = changed.map(|key| format!("'{key}'")).collect();
        if !changed.is_empty() {
            let problem = format!(
                "{}: cannot change {} of a running diversion",
                self.path.display(),
                listed(&changed, "and")
            );
            return Err(
                Failure::new(Status::Usage, problem).hint("restart it, or change only match, rules and set")
            );
        }
        let args = new.args()?;
        Ok((new, args))
    }

    fn args(&self) -> Result<DivertArgs, Failure> {
        let here = |problem: &str| Failure::new(Status::Usage, format!("{}: {problem}", self.path.display()));
        let cli = Cli::command();
        let command = cli.find_subcommand("divert").expect("divert is a subcommand");
        let options =
            command.get_arguments().filter(|option| !ONLY_TYPED.contains(&option.get_id().as_str()));
        let known: Vec<&str> = options.filter_map(|option| option.get_long()).chain(["interface"]).collect();
        let mut words: Vec<OsString> = vec!["linerate".into(), "divert".into()];
        for (key, value) in &self.table {
            if !known.contains(&key.as_str()) {
                let failure = here(&format!("unknown key '{key}'"));
                return Err(match nearest(key, known.iter().copied()) {
                    Some(nearest) => failure.hint(format!("did you mean '{nearest}'?")),
                    None => failure.hint("keys are interface and the long options of linerate divert"),
                });
            }
            if !self.outranked.contains(key) {
                words.extend(
                    words_of(key, value).map_err(|problem| here(&problem))?.into_iter().map(OsString::from),
                );
            }
        }
        words.extend(self.typed.iter().cloned());
        match Cli::try_parse_from(&words).map_err(|error| here(&usage::failure(&error).words()))?.command {
            Command::Divert(args) if args.command.is_none() => Ok(*args),
            _ => unreachable!("a value cannot be a command"),
        }
    }
}

fn table(path: &Path) -> Result<Table, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(Status::Refused, format!("cannot read {}: {error}", path.display())))?;
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |at| 1 + text[..at.start].matches('\n').count());
        Failure::new(Status::Usage, format!("{}: line {line}: {}", path.display(), error.message()))
    })
}

/// A key and its value as command-line arguments.
fn words_of(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("the value of '{key}' must be text or a number, or a list of those")),
    };
    let option = |value: String| format!("--{key}={value}");
    match (key, value) {
        ("interface", value) => Ok(vec![text(value)?]),
        ("rules", Value::Array(rules)) => {
            rules.iter().map(|rule| Ok(format!("--rule={}", text(rule)?))).collect()
        }
        (_, Value::Table(named)) => {
            named.iter().map(|(name, value)| Ok(option(format!("{name}={}", text(value)?)))).collect()
        }
        (_, Value::Boolean(true)) => Ok(vec![format!("--{key}")]),
        (_, Value::Boolean(false)) => Ok(Vec::new()),
        (_, Value::Array(values)) => values.iter().map(|value| text(value).map(option)).collect(),
        (_, value) => Ok(vec![option(text(value)?)]),
    }
}

/// `'a', 'b' and 'c'`.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::QueueList;

    fn read(text: &str, typed: &[&str]) -> Result<(ConfigFile, DivertArgs), Failure> {
        let path = testing::own_folder().join("divert.toml");
        fs::write(&path, text).unwrap();
        ConfigFile::read(&path, typed.iter().map(OsString::from).collect())
    }

    const FILE: &str = "interface = \"eth7\"\nqueue = \"3\"\nwhere = \"user\"\nreinject = true\nspin = false\n\
                        management = [\"192.0.2.0/24\", \"198.51.100.0/24\"]\n\
                        rules = [\"drop udp and dst port 9\", \"pass all\"]\n\
                        sample = \"1/1000\"\nsample-to = \"drops.pcapng\"\n[set]\nbad = \"/etc/bad\"\n";

    #[test]
    fn keys_are_options_and_the_command_line_overrides_them() {
        let (_, args) = read(FILE, &["--config", "x", "--queue=4", "--for", "1s"]).unwrap();
        assert_eq!(args.interface.as_deref(), Some("eth7"));
        assert_eq!(args.queue, QueueList::Queues(vec![4]));
        assert!(args.reinject && !args.spin && args.duration.is_some() && args.config.is_none());
        assert_eq!((args.management.len(), args.rule.len()), (2, 2));
        assert_eq!((args.sample, &args.sets[..]), (Some(1000), &[("bad".to_owned(), "/etc/bad".into())][..]));
        let (_, args) = read(FILE, &["eth8", "--config=x"]).unwrap();
        assert_eq!(args.interface.as_deref(), Some("eth8"));
    }

    #[test]
    fn mistakes_are_reported_with_the_file() {
        let refused = |text: &str| read(text, &[]).err().expect("it is wrong").to_string();
        let unknown = refused("interface = \"eth7\"\nruels = []\n");
        assert!(
            unknown.contains("divert.toml: unknown key 'ruels'\nhint:  did you mean 'rules'?"),
            "{unknown}"
        );
        assert!(refused("rule = \"drop all\"").contains("unknown key 'rule'"));
        assert!(refused("a = \n").contains("divert.toml: line 1: "));
        assert!(refused("interface = true").contains("the value of 'interface' must be text"));
        let list = refused("interface = \"eth7\"\nrules = \"f\"\nqueue = \"x\"");
        assert!(list.contains("'x' is not a list of queues"), "{list}");
    }

    #[test]
    fn only_rules_change_while_it_runs() {
        let (file, _) = read(FILE, &[]).unwrap();
        fs::write(file.path(), FILE.replace("dst port 9", "dst port 10")).unwrap();
        let (again, args) = file.again().unwrap();
        assert_eq!(args.rule[0], "drop udp and dst port 10");
        fs::write(file.path(), FILE.replace("\"3\"", "\"2\"").replace("spin = false\n", "")).unwrap();
        let refused = again.again().err().expect("queues are fixed").to_string();
        assert!(refused.contains("cannot change 'queue' and 'spin' of a running diversion"), "{refused}");
    }
}
