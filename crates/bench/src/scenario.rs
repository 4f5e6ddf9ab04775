//! Scenario files: experiments as options of linerate's own commands, in TOML.
//!
//! ```toml
//! scenario = 1
//! title = "UDP against datagram size"
//! description = "what it shows"
//!
//! [bench]
//! tx = ["udp", "udp+gso"]
//! rate = "100kpps"
//! threaded-napi = true
//! ```
//! The table has the name of the program that runs it, and each of its keys is the long name of one of the program's
//! options, so that a file can hold whatever a command line can, and the same rules check both. A scenario of several
//! `[[step]]`s runs them in turn into one record; `[[published]]` figures appear next to the measured ones.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

mod schema;
mod shipped;

pub use schema::scenario_schema;
pub use shipped::{Shipped, shipped};

/// A scenario, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its subject, in a few words.
    pub title: String,
    /// Its purpose, in a sentence or two.
    pub description: String,
    /// The published work that it repeats.
    pub document: Option<String>,
    /// Its steps, in order; at least one.
    pub steps: Vec<Step>,
    /// Figures of the published work.
    pub published: Vec<Published>,
}

/// One program with its options.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The step's name in points, `None` in a scenario of one.
    pub name: Option<String>,
    /// Its subject.
    pub title: String,
    /// The program: `bench`, `ndr` …
    pub program: String,
    /// Option names and their values as on a command line; `None` is a switch.
    pub options: Vec<(String, Option<String>)>,
}

/// A published figure and its measured counterpart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Its name in `scenarios/published.toml`, which has everything about it; a private figure has figure, value
    /// and unit instead.
    #[serde(default)]
    pub id: Option<String>,
    /// The quantity.
    #[serde(default)]
    pub figure: String,
    /// The value.
    #[serde(default)]
    pub value: f64,
    /// Its unit; that of the metric.
    #[serde(default)]
    pub unit: String,
    /// The place in the published work.
    #[serde(default)]
    pub place: String,
    /// The step that measures it; `None` for every step.
    #[serde(default)]
    pub step: Option<String>,
    /// The name of the result in the points; empty for a figure without a counterpart.
    #[serde(default)]
    pub metric: String,
    /// Parameters that a point must have; the best matching point counts.
    #[serde(default)]
    pub when: std::collections::BTreeMap<String, serde_json::Value>,
    /// Parameters of a second point; the first point's value is divided by the second's.
    #[serde(default)]
    pub over: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Published {
    /// The figure without this run's value.
    pub fn figure(&self) -> measure::Figure {
        let shipped = self.id.as_deref().and_then(|id| measure::Published::shipped().find(id));
        shipped.map_or_else(
            || measure::Figure {
                figure: self.figure.clone(),
                unit: self.unit.clone(),
                published: Some(self.value),
                place: self.place.clone(),
                ..measure::Figure::default()
            },
            measure::Figure::of,
        )
    }

    /// The problem: neither a known name nor a complete figure, or nothing to compare.
    fn problem(&self) -> Option<&'static str> {
        let shipped = self.id.as_deref().map(|id| measure::Published::shipped().find(id));
        match shipped {
            Some(None) => Some("a name in scenarios/published.toml"),
            Some(Some(figure)) if figure.no_counterpart.is_empty() && self.metric.is_empty() => {
                Some("given with a metric")
            }
            None if self.figure.is_empty() || self.unit.is_empty() || self.metric.is_empty() => {
                Some("given, or figure, value, unit and metric")
            }
            _ => None,
        }
    }
}

/// A program that scenarios can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its table's name.
    pub name: String,
    /// Its options.
    pub options: Vec<ProgramOption>,
}

/// An option of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramOption {
    /// Its long name.
    pub name: String,
    /// What it does, in a line.
    pub help: String,
    /// Whether it has a value; a switch has not.
    pub takes_value: bool,
    /// Whether `on` and `off` are among its values.
    pub has_on_and_off: bool,
}

/// Why a scenario file is invalid.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ScenarioError {
    /// Not TOML, or a part that does not have this form.
    #[error("not a scenario file")]
    Malformed(#[from] toml::de::Error),
    /// No version, or not a number.
    #[error("not a scenario file: scenario = 1 is missing")]
    NoVersion,
    /// An unknown version.
    #[error("unknown scenario version {found}: this linerate reads version 1")]
    OtherVersion {
        /// The version of the file.
        found: i64,
    },
    /// An unknown key.
    #[error("{table}: unknown key '{key}'{}", did_you_mean(.nearest.as_deref()))]
    UnknownKey {
        /// The table with the key.
        table: String,
        /// The key.
        key: String,
        /// The most similar known key.
        nearest: Option<String>,
    },
    /// A value of the wrong kind.
    #[error("{table}: {key} must be {kind}")]
    BadValue {
        /// The table with the key.
        table: String,
        /// The key.
        key: String,
        /// The expected kind.
        kind: &'static str,
    },
    /// No program, or several where one is expected.
    #[error("{table} must have the table of one program: {known}")]
    NoProgram {
        /// The table in question.
        table: String,
        /// The known programs.
        known: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(": did you mean '{nearest}'?"))
}

/// The keys of a file in addition to its programs' tables, and those of a step.
const FILE_KEYS: [&str; 6] = ["scenario", "title", "description", "document", "step", "published"];
const STEP_KEYS: [&str; 2] = ["name", "title"];

impl Scenario {
    /// Reads a file's text; `programs` are those that it may run.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn read(text: &str, programs: &[Program]) -> Result<Self, ScenarioError> {
        let file: Table = text.parse()?;
        match file.get("scenario").and_then(Value::as_integer) {
            Some(1) => {}
            Some(found) => return Err(ScenarioError::OtherVersion { found }),
            None => return Err(ScenarioError::NoVersion),
        }
        let here = "the file";
        let title = text_of(&file, here, "title")?.unwrap_or_default();
        let published: Vec<Published> = match file.get("published") {
            Some(published) => published.clone().try_into()?,
            None => Vec::new(),
        };
        if let Some(problem) = published.iter().find_map(Published::problem) {
            return Err(bad("a published figure", "id", problem));
        }
        let steps = match file.get("step") {
            Some(Value::Array(steps)) if !steps.is_empty() => {
                known_only(&file, here, &FILE_KEYS, &[])?;
                steps.iter().map(|step| several(step, programs)).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(bad(here, "step", "a list of tables: write [[step]]")),
            None => vec![one_step(&file, here, &FILE_KEYS, programs)?],
        };
        Ok(Self {
            title,
            description: text_of(&file, here, "description")?.unwrap_or_default(),
            document: text_of(&file, here, "document")?,
            steps,
            published,
        })
    }
}

impl Step {
    /// The options as on a command line, without those in `given` and sweeps of them: options on the command line
    /// override the file.
    pub fn arguments(&self, given: impl Fn(&str) -> bool) -> Vec<String> {
        let is_given = |name: &str, value: Option<&String>| {
            let swept = value.filter(|_| name == "sweep").and_then(|value| value.split('=').next());
            given(name) || swept.is_some_and(&given)
        };
        let options = self.options.iter().filter(|(name, value)| !is_given(name, value.as_ref()));
        options
            .map(|(name, value)| match value {
                Some(value) => format!("--{name}={value}"),
                None => format!("--{name}"),
            })
            .collect()
    }
}

/// A step among several, which has a name.
fn several(step: &Value, programs: &[Program]) -> Result<Step, ScenarioError> {
    let table = step.as_table().ok_or_else(|| bad("the file", "step", "a list of tables: write [[step]]"))?;
    let name = text_of(table, "a step", "name")?.ok_or_else(|| bad("a step", "name", "given"))?;
    let here = format!("step '{name}'");
    Ok(Step { name: Some(name), ..one_step(table, &here, &STEP_KEYS, programs)? })
}

/// The one program that a table runs.
fn one_step(table: &Table, here: &str, keys: &[&str], programs: &[Program]) -> Result<Step, ScenarioError> {
    known_only(table, here, keys, programs)?;
    let mut found = programs.iter().filter_map(|program| Some((program, table.get(&program.name)?)));
    let (Some((program, options)), None) = (found.next(), found.next()) else {
        let known: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        return Err(ScenarioError::NoProgram { table: here.into(), known: known.join(", ") });
    };
    let options = options.as_table().ok_or_else(|| bad(here, &program.name, "a table of options"))?;
    Ok(Step {
        name: None,
        title: text_of(table, here, "title")?.unwrap_or_default(),
        program: program.name.clone(),
        options: arguments(options, program)?,
    })
}

fn arguments(options: &Table, program: &Program) -> Result<Vec<(String, Option<String>)>, ScenarioError> {
    let here = format!("[{}]", program.name);
    let mut arguments = Vec::new();
    for (key, value) in options {
        let Some(option) = program.options.iter().find(|option| option.name == *key) else {
            return Err(unknown(&here, key, program.options.iter().map(|option| option.name.as_str())));
        };
        match value {
            Value::Boolean(false) if !option.takes_value => {}
            Value::Boolean(true) if !option.takes_value => arguments.push((key.clone(), None)),
            _ if !option.takes_value => return Err(bad(&here, key, "true or false")),
            // An option that takes a list is given once per entry.
            Value::Array(values) if key == "sweep" => {
                for value in values {
                    arguments.push((key.clone(), Some(word(value, &here, key)?)));
                }
            }
            Value::Boolean(on) if option.has_on_and_off => {
                arguments.push((key.clone(), Some(if *on { "on" } else { "off" }.into())));
            }
            Value::Array(values) => {
                let words: Vec<String> =
                    values.iter().map(|value| word(value, &here, key)).collect::<Result<_, _>>()?;
                arguments.push((key.clone(), Some(words.join(","))));
            }
            value => arguments.push((key.clone(), Some(word(value, &here, key)?))),
        }
    }
    Ok(arguments)
}

fn word(value: &Value, here: &str, key: &str) -> Result<String, ScenarioError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(bad(here, key, "text, a number, or a list of texts and numbers")),
    }
}

fn text_of(table: &Table, here: &str, key: &str) -> Result<Option<String>, ScenarioError> {
    match table.get(key) {
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(bad(here, key, "text")),
        None => Ok(None),
    }
}

fn known_only(table: &Table, here: &str, keys: &[&str], programs: &[Program]) -> Result<(), ScenarioError> {
    let known = || keys.iter().copied().chain(programs.iter().map(|program| program.name.as_str()));
    match table.keys().find(|key| !known().any(|known| known == key.as_str())) {
        Some(key) => Err(unknown(here, key, known())),
        None => Ok(()),
    }
}

fn bad(table: &str, key: &str, kind: &'static str) -> ScenarioError {
    ScenarioError::BadValue { table: table.into(), key: key.into(), kind }
}

fn unknown<'k>(table: &str, key: &str, known: impl Iterator<Item = &'k str>) -> ScenarioError {
    let nearest = nearest(key, known).map(str::to_owned);
    ScenarioError::UnknownKey { table: table.into(), key: key.into(), nearest }
}

/// The most similar candidate, if any is similar.
pub fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    // Jaro finds no similarity between short words with two letters exchanged (upd).
    let is_a_slip = |candidate: &str| word.len() > 2 && strsim::damerau_levenshtein(word, candidate) == 1;
    let likeness = |candidate: &str| {
        strsim::jaro_winkler(word, candidate).max(if is_a_slip(candidate) { 0.9 } else { 0.0 })
    };
    candidates
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn programs() -> Vec<Program> {
        let option = |name: &str, takes_value| ProgramOption {
            name: name.into(),
            help: "h".into(),
            takes_value,
            has_on_and_off: name == "napi",
        };
        let options =
            |names: &[(&str, bool)]| names.iter().map(|(name, value)| option(name, *value)).collect();
        vec![
            Program {
                name: "bench".into(),
                options: options(&[
                    ("tx", true),
                    ("frame-size", true),
                    ("spin", false),
                    ("ipv6", false),
                    ("sweep", true),
                    ("napi", true),
                ]),
            },
            Program { name: "ndr".into(), options: options(&[("width", true)]) },
        ]
    }

    fn read(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::read(text, &programs())
    }

    #[test]
    fn options_become_arguments_unless_the_command_line_has_them() {
        let text = "scenario = 1\n[bench]\ntx = [\"udp\", \"udp+gso\"]\nframe-size = 64\nspin = true\nipv6 = false\n\
                    napi = false\nsweep = [\"threads=1,2\", \"batch-size=1,64\"]\n";
        let step = &read(text).unwrap().steps[0];
        let mut arguments = step.arguments(|name| name == "frame-size");
        arguments.sort();
        assert_eq!(
            arguments,
            ["--napi=off", "--spin", "--sweep=batch-size=1,64", "--sweep=threads=1,2", "--tx=udp,udp+gso"]
        );
        let arguments = step.arguments(|name| name == "threads");
        assert!(!arguments.contains(&"--sweep=threads=1,2".to_owned()), "nor is it swept: {arguments:?}");
        assert!(arguments.contains(&"--sweep=batch-size=1,64".to_owned()), "{arguments:?}");
    }

    #[test]
    fn several_steps_have_names_and_figures_name_them() {
        let text = "scenario = 1\ntitle = \"t\"\n[[step]]\nname = \"a\"\n[step.bench]\n[[step]]\nname = \"b\"\n\
                    [step.ndr]\nwidth = 0.1\n[[published]]\nfigure = \"f\"\nvalue = 5\nunit = \"pps\"\n\
                    metric = \"delivered_pps\"\nstep = \"b\"\nwhen = { mtu = 1500 }\n";
        let scenario = read(text).unwrap();
        let steps: Vec<_> = scenario
            .steps
            .iter()
            .map(|step| (step.name.as_deref().unwrap(), step.program.as_str()))
            .collect();
        assert_eq!(steps, [("a", "bench"), ("b", "ndr")]);
        assert_eq!(scenario.published[0].when["mtu"], 1500);
    }

    #[test]
    fn a_published_figure_has_a_name_or_all_its_parts() {
        let read = |figure: &str| read(&format!("scenario = 1\n[bench]\n[[published]]\n{figure}\n"));
        let named = read("id = \"pktgen-rx.burst-2\"\nmetric = \"sent_pps\"").unwrap();
        let figure = named.published[0].figure();
        assert_eq!((figure.published, figure.unit.as_str()), (Some(13.5e6), "pps"));
        assert!(figure.conditions.contains("limited by the CPU"), "{}", figure.conditions);
        let message = |figure: &str| read(figure).unwrap_err().to_string();
        assert_eq!(
            message("id = \"nothing\"\nmetric = \"m\""),
            "a published figure: id must be a name in scenarios/published.toml"
        );
        assert!(message("figure = \"f\"\nmetric = \"m\"").contains("id must be given, or figure"));
    }

    #[test]
    fn an_invalid_scenario_is_refused_with_the_reason() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        for (text, expected) in [
            ("scenario = 2\n[bench]\n", "unknown scenario version 2: this linerate reads version 1"),
            ("nonsense", "not a scenario file"),
            ("[bench]\n", "not a scenario file: scenario = 1 is missing"),
            ("scenario = 1\n", "the file must have the table of one program: bench, ndr"),
            ("scenario = 1\n[bench]\n[ndr]\n", "the file must have the table of one program: bench, ndr"),
            (
                "scenario = 1\ndescripton = \"\"\n[bench]\n",
                "the file: unknown key 'descripton': did you mean 'description'?",
            ),
            (
                "scenario = 1\n[bench]\nframe-sise = 1\n",
                "[bench]: unknown key 'frame-sise': did you mean 'frame-size'?",
            ),
            ("scenario = 1\n[bench]\nqqq = 1\n", "[bench]: unknown key 'qqq'"),
            ("scenario = 1\n[bench]\nspin = 3\n", "[bench]: spin must be true or false"),
            (
                "scenario = 1\n[bench]\ntx = { a = 1 }\n",
                "[bench]: tx must be text, a number, or a list of texts and numbers",
            ),
            ("scenario = 1\n[[step]]\n[step.bench]\n", "a step: name must be given"),
            ("scenario = 1\nstep = 3\n", "the file: step must be a list of tables: write [[step]]"),
            (
                "scenario = 1\n[[step]]\nname = \"a\"\n[step.bench]\nspim = true\n",
                "[bench]: unknown key 'spim': did you mean 'spin'?",
            ),
        ] {
            assert_eq!(message(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "\\PC*", key in "[a-z-]{0,8}", value in "\\PC{0,20}") {
            read(&text).ok();
            read(&format!("scenario = 1\n[bench]\n{key} = {value}\n")).ok();
        }
    }
}
