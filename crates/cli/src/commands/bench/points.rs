//! Sweeps: each combination of values is a command line, so that every option can be swept and every value is checked as
//! if it had been typed.

use std::{collections::BTreeMap, ffi::OsString};

use bench::{BenchPlan, SweepPlan, nearest};
use clap::{CommandFactory, Parser};
use lab::Access;
use serde_json::{Value, json};

use super::{
    plan::{Asked, plan},
    stages,
};
use crate::{
    args::{BenchArgs, BenchCommand, Cli, Command, LevelArg, NdrArgs, SweepArgs},
    failure::{Failure, Status},
    usage,
};

/// Options of the whole run, which cannot be swept.
const NOT_SWEPT: [&str; 24] = [
    "sweep",
    "resume",
    "scale",
    "no-scale",
    "no-lossless",
    "trials",
    "seed",
    "peer",
    "interface",
    "max-loss",
    "json",
    "json-stream",
    "save",
    "no-save",
    "dry-run",
    "interval",
    "help",
    "tests",
    "exact",
    "kernel",
    "kernel-image",
    "modules",
    "card",
    "trace",
];

/// One combination of values, and its command line.
struct Combination {
    values: BTreeMap<String, Value>,
    words: Vec<OsString>,
}

/// The plan of `linerate bench`: one point, or those of its sweeps.
pub(super) fn ladder(args: &BenchArgs, access: Access) -> Result<SweepPlan, Failure> {
    let (trials, seed) = (args.trials(), args.packets.seed);
    let mut points = points(&args.sweep, &["bench"], |cli| match cli.map(|cli| &cli.command) {
        Some(Command::Bench(bench)) => plan(&Asked { is_swept: true, ..bench.asked() }, access),
        _ => plan(&args.asked(), access),
    })?;
    if let [only] = &mut points[..]
        && !args.is_brief()
    {
        stages::plan(args, only)?;
    }
    Ok(SweepPlan { points, trials, seed })
}

/// The settings of `linerate bench ndr`: one point, or those of its sweeps.
pub(super) fn search(args: &NdrArgs, access: Access) -> Result<Vec<BenchPlan>, Failure> {
    points(&args.sweep, &["bench", "ndr"], |cli| {
        let ndr = cli.and_then(|cli| match &cli.command {
            Command::Bench(bench) => bench.command.as_ref(),
            _ => None,
        });
        match ndr {
            Some(BenchCommand::Ndr(ndr)) => plan(&Asked { is_swept: true, ..ndr.asked() }, access),
            _ => plan(&args.asked(), access),
        }
    })
}

/// A plan for each combination of the sweeps' values; without sweeps, the plan of the command line itself.
fn points(
    sweeps: &SweepArgs,
    command: &[&str],
    plan: impl Fn(Option<&Cli>) -> Result<BenchPlan, Failure>,
) -> Result<Vec<BenchPlan>, Failure> {
    if sweeps.sweep.is_empty() {
        return Ok(vec![plan(None)?]);
    }
    let mut plans = Vec::new();
    let mut problems = Vec::new();
    for combination in combinations(sweeps, command)? {
        let Combination { values, words } = combination;
        let at =
            || values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ");
        let planned = Cli::try_parse_from(&words)
            .map_err(|error| refused(&error, &at()))
            .and_then(|cli| plan(Some(&cli)));
        match planned {
            Ok(point) => plans.push(BenchPlan { parameters: values, ..point }),
            Err(failure) => problems.push(failure),
        }
    }
    // A value that is wrong is wrong in every combination: it is reported once.
    problems.truncate(1);
    match Failure::all(problems) {
        Some(failure) => Err(failure),
        None => Ok(plans),
    }
}

fn refused(error: &clap::Error, at: &str) -> Failure {
    Failure::new(Status::Usage, format!("sweep at {at}: {}", usage::message(error)))
}

/// Every combination, with its command line.
fn combinations(sweeps: &SweepArgs, command: &[&str]) -> Result<Vec<Combination>, Failure> {
    let cli = Cli::command();
    let command = command
        .iter()
        .fold(&cli, |command, word| command.find_subcommand(word).expect("a sweep runs an existing command"));
    let options: Vec<(&str, bool)> = command
        .get_arguments()
        .filter_map(|option| Some((option.get_long()?, option.get_action().takes_values())))
        .filter(|(name, _)| !NOT_SWEPT.contains(name))
        .collect();
    let mut all = vec![Combination { values: BTreeMap::new(), words: sweeps.raw.clone() }];
    for text in &sweeps.sweep {
        let usage = |words: String| Failure::new(Status::Usage, words);
        let (name, list) = text.split_once('=').unwrap_or((text, ""));
        let Some((name, takes_value)) = options.iter().copied().find(|(known, _)| *known == name) else {
            let meant = nearest(name, options.iter().map(|(known, _)| *known));
            let hint = meant.map_or_else(
                || "linerate bench --help lists the options".into(),
                |near| format!("did you mean {near}?"),
            );
            return Err(usage(format!("--sweep: cannot sweep '{name}'")).hint(hint));
        };
        let values: Vec<&str> = list.split(',').filter(|value| !value.is_empty()).collect();
        if values.is_empty() {
            return Err(usage(format!("--sweep {text}: no values")).hint(format!("try {name}=A,B")));
        }
        if is_given(&sweeps.raw, name) || all[0].values.contains_key(&parameter(name)) {
            return Err(usage(format!("--{name} is both set and swept")).hint("omit one of them"));
        }
        if let Some(value) = values.iter().find(|value| !takes_value && !["on", "off"].contains(value)) {
            return Err(usage(format!("--sweep {text}: '{value}' must be on or off")));
        }
        all = all
            .iter()
            .flat_map(|before| values.iter().map(move |value| before.with(name, value, takes_value)))
            .collect();
    }
    Ok(all)
}

impl Combination {
    fn with(&self, name: &str, value: &str, takes_value: bool) -> Self {
        let (mut values, mut words) = (self.values.clone(), self.words.clone());
        match (takes_value, value) {
            (true, _) => words.push(format!("--{name}={value}").into()),
            (false, "on") => words.push(format!("--{name}").into()),
            (false, _) => {}
        }
        let number =
            || value.parse::<u64>().map(|n| json!(n)).or_else(|_| value.parse::<f64>().map(|n| json!(n)));
        values.insert(parameter(name), number().unwrap_or_else(|_| json!(value)));
        Self { values, words }
    }
}

/// An option's name as points have it.
fn parameter(option: &str) -> String {
    option.replace('-', "_")
}

fn is_given(words: &[OsString], option: &str) -> bool {
    words.iter().any(|word| {
        let word = word.to_string_lossy();
        word.strip_prefix("--").and_then(|word| word.split('=').next()) == Some(option)
    })
}

impl BenchArgs {
    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            paths: &self.paths,
            peers: &self.peers,
            packets: &self.packets,
            pattern: &self.load.pattern,
            sockets: &self.sockets,
            lab: &self.lab,
            rate: self.load.rate,
            duration: self.duration,
            omit: self.omit,
            trials: self.trials(),
            stats: self.stats,
            stamp: self.stamp,
            profile: self.profile,
            interval: self.output.interval,
            is_swept: !self.sweep.sweep.is_empty(),
        }
    }
}

impl NdrArgs {
    fn asked(&self) -> Asked<'_> {
        Asked {
            paths: &self.paths,
            peers: &[],
            packets: &self.packets,
            pattern: &self.pattern,
            sockets: &self.sockets,
            lab: &self.lab,
            rate: wire::Rate::Max,
            duration: self.goals.final_duration,
            omit: self.omit,
            trials: 1,
            stats: Some(LevelArg::Time),
            stamp: None,
            profile: false,
            interval: self.output.interval,
            is_swept: !self.sweep.sweep.is_empty(),
        }
    }
}
