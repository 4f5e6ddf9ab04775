//! A machine under test, by name: receiving or sending, set and swept by parameter names, computed point by
//! point. The points are independent, so the caller may compute them in parallel.

use measure::{Interval, Point, Run, Start, Trial};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    config::{Config, parameters, set_in},
    outcome::Sample,
    parameter::{ConfigError, Parameter},
    presets::Preset,
    record::{self, Labels},
    simulate,
    transmit::{TRANSMIT_PARAMETERS, Transmit},
};

/// The preset whose machine sends.
const TRANSMIT_PRESET: (&str, &str) = (
    "pktgen",
    "kernel pktgen on ixgbe, one core: 14.8 Mpps with rx-usecs 30; bursts of 1, 2, 3: 9.2, 13.5, 14.5",
);

/// What is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The receive path.
    Receive(Box<Config>),
    /// Sending through a ring.
    Transmit(Transmit),
}

/// One parameter and the values it takes in turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sweep {
    /// The parameter's dotted or short name, as written.
    pub parameter: String,
    /// Its values, as written.
    pub values: Vec<String>,
}

/// One combination of values, valid and ready to compute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepPoint {
    /// The swept parameters and their values, in the order of the sweeps.
    pub settings: Vec<(String, Value)>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

/// A computed combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepResult {
    /// Swept parameters and results by name.
    pub point: Point,
    /// The simulation as a trial; `None` for a scenario that only sends.
    pub trial: Option<Trial>,
    /// The trial's counts over time.
    pub intervals: Vec<Interval>,
    /// The occupancies over time.
    pub series: Vec<Sample>,
}

impl Sweep {
    /// Reads `ring=64,256` or, where values hold commas themselves, `table=weights:1,1;equal:2`.
    ///
    /// # Errors
    /// [`ConfigError::WrongValue`] without a name or without values.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |reason: &str| ConfigError::WrongValue {
            name: "a sweep".into(),
            value: text.into(),
            reason: format!("{reason}: write for example ring=64,256,1024"),
        };
        let (parameter, values) = text.split_once('=').ok_or_else(|| wrong("it has no '='"))?;
        let separator = if values.contains(';') { ';' } else { ',' };
        let values: Vec<String> = values.split(separator).map(|value| value.trim().to_string()).collect();
        if parameter.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong("it needs a name and values"));
        }
        Ok(Self { parameter: parameter.trim().into(), values })
    }
}

impl Scenario {
    /// The names and descriptions of all presets.
    pub fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
        crate::PRESETS.iter().map(|preset| (preset.name, preset.about)).chain([TRANSMIT_PRESET])
    }

    /// A preset by name.
    ///
    /// # Errors
    /// [`ConfigError::UnknownPreset`] with the known names.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        if name == TRANSMIT_PRESET.0 {
            return Ok(Self::Transmit(Transmit::default()));
        }
        Preset::find(name).map(|preset| Self::Receive(Box::new(preset.config()))).map_err(|_| {
            let known = Self::presets().map(|preset| preset.0).collect::<Vec<_>>().join(", ");
            ConfigError::UnknownPreset { name: name.into(), known }
        })
    }

    /// The scenario's parameters and their values, for help and `--dry-run`.
    pub fn parameters(&self) -> Vec<(Parameter, Value)> {
        match self {
            Self::Receive(config) => parameters().map(|p| (*p, p.value(config))).collect(),
            Self::Transmit(transmit) => {
                let json = json!(transmit);
                TRANSMIT_PARAMETERS.iter().map(|p| (*p, json[p.name].clone())).collect()
            }
        }
    }

    /// Sets a parameter by name, from text.
    ///
    /// # Errors
    /// [`ConfigError::UnknownParameter`] or [`ConfigError::WrongValue`].
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        match self {
            Self::Receive(config) => config.set(name, text),
            Self::Transmit(transmit) => {
                let written = name.trim().trim_start_matches("--").replace('-', "_");
                let parameter = TRANSMIT_PARAMETERS
                    .iter()
                    .find(|p| p.name == written)
                    .ok_or_else(|| ConfigError::UnknownParameter { name: name.into(), similar: None })?;
                *transmit = set_in(transmit, &[parameter.name], &parameter.in_its_unit(text))?;
                Ok(())
            }
        }
    }

    /// Checks the whole scenario.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Receive(config) => config.validate(),
            Self::Transmit(transmit) => transmit.validate(),
        }
    }

    /// Every combination of the sweeps' values, the last sweep varying fastest; one point without sweeps. All
    /// of them are checked before the first is computed.
    ///
    /// # Errors
    /// The first [`ConfigError`] of a name, a value or a combination.
    pub fn sweep(&self, sweeps: &[Sweep]) -> Result<Vec<SweepPoint>, ConfigError> {
        let mut points = vec![SweepPoint { settings: Vec::new(), scenario: self.clone() }];
        for sweep in sweeps {
            let mut next = Vec::with_capacity(points.len() * sweep.values.len());
            for point in &points {
                for text in &sweep.values {
                    let mut point = point.clone();
                    point.scenario.set(&sweep.parameter, text)?;
                    let value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
                    point.settings.push((sweep.parameter.clone(), value));
                    next.push(point);
                }
            }
            points = next;
        }
        points.iter().try_for_each(|point| point.scenario.validate())?;
        Ok(points)
    }

    /// Makes the record of computed points.
    pub fn assemble(&self, mut start: Start, results: Vec<SweepResult>) -> Run {
        for (parameter, value) in self.parameters() {
            start.asked.insert(parameter.name.into(), value);
        }
        let (mut points, mut trials, mut intervals) = (Vec::new(), Vec::new(), Vec::new());
        for result in results {
            let trial = trials.len() as u32;
            intervals.extend(result.intervals.into_iter().map(|interval| Interval { trial, ..interval }));
            points.push(result.point);
            trials.extend(result.trial);
        }
        record::run(start, trials, intervals, points)
    }
}

impl SweepPoint {
    /// Simulates the point; `name` labels it, with its settings, among the trials.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`], which cannot happen for points of [`Scenario::sweep`].
    pub fn compute(&self, name: &str) -> Result<SweepResult, ConfigError> {
        let mut point = Point { values: self.settings.iter().cloned().collect() };
        match &self.scenario {
            Scenario::Receive(config) => {
                let outcome = simulate(config)?;
                point.values.extend(outcome.results());
                let settings: Vec<String> =
                    self.settings.iter().map(|(name, value)| setting(name, value)).collect();
                let rx = [&[name.to_string()], &settings[..]].concat().join(" ");
                let tx = if config.traffic.sender_ns > 0.0 { "sender" } else { "wire" };
                let trial = outcome.trial(config, &Labels { tx: tx.into(), rx }, 1);
                let intervals = outcome.intervals(0);
                Ok(SweepResult { point, trial: Some(trial), intervals, series: outcome.series })
            }
            Scenario::Transmit(transmit) => {
                if let Value::Object(results) = json!(transmit.simulate()?) {
                    point.values.extend(results);
                }
                Ok(SweepResult { point, trial: None, intervals: Vec::new(), series: Vec::new() })
            }
        }
    }
}

fn setting(name: &str, value: &Value) -> String {
    match value {
        Value::String(word) => format!("{name}={word}"),
        other => format!("{name}={other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweeps(texts: &[&str]) -> Vec<Sweep> {
        texts.iter().map(|text| Sweep::parse(text).unwrap()).collect()
    }

    fn start() -> Start {
        Start {
            command: "model".into(),
            version: "test".into(),
            started_at: String::new(),
            origin: measure::Origin::Model,
            machine: measure::Machine::default(),
            asked: Default::default(),
        }
    }

    #[test]
    fn sweeps_combine_and_their_points_carry_their_parameters_by_name() {
        let rdr = Scenario::preset("rdr").unwrap();
        let points = rdr.sweep(&sweeps(&["ring=64,256,1024", "policy=alloc,recycle"])).unwrap();
        let settings: Vec<_> = points.iter().map(|p| (&p.settings[0].1, &p.settings[1].1)).collect();
        assert_eq!(settings.len(), 6);
        assert_eq!(settings[0], (&json!(64), &json!("alloc")));
        assert_eq!(settings[5], (&json!(1024), &json!("recycle")));
        let results = points[..2].iter().map(|p| p.compute("rdr").unwrap()).collect();
        let run = rdr.assemble(start(), results);
        assert_eq!(run.end.points[1].values["policy"], "recycle");
        assert_eq!(run.end.trials[1].rx.label, "rdr ring=64 policy=recycle");
        assert_eq!(run.intervals.last().unwrap().trial, 1);
        assert_eq!(run.start.asked["ring.descriptors"], 256);
        assert!(run.end.trials.iter().all(|t| t.ledger.is_closed()));
    }

    #[test]
    fn points_can_be_computed_on_other_threads() {
        fn sendable<T: Send + Sync + 'static>() {}
        sendable::<SweepPoint>();
        sendable::<SweepResult>();
        sendable::<crate::RdrPoint>();
    }

    #[test]
    fn values_with_commas_are_separated_by_semicolons() {
        let sweep = Sweep::parse("table=weights:1,1;equal:2").unwrap();
        assert_eq!(sweep.values, ["weights:1,1", "equal:2"]);
        let apu = Scenario::preset("apu4d4").unwrap();
        assert_eq!(apu.sweep(&[sweep]).unwrap().len(), 2);
    }

    #[test]
    fn sweeps_that_make_no_sense_are_refused_before_anything_runs() {
        let rdr = Scenario::preset("rdr").unwrap();
        let refused = |text: &str| rdr.sweep(&sweeps(&[text])).unwrap_err().to_string();
        assert!(refused("rings=64").contains("unknown parameter 'rings'; did you mean"));
        assert!(refused("ring=64,lots").contains("cannot set ring.descriptors to 'lots'"));
        assert!(refused("ring=256,8").contains("ring.tail_batch: a batch of 16 needs a larger ring than 8"));
        assert_eq!(
            Sweep::parse("ring").unwrap_err().to_string(),
            "cannot set a sweep to 'ring': it has no '=': write for example ring=64,256,1024"
        );
        assert!(Sweep::parse("ring=64,").is_err());
    }

    #[test]
    fn a_sender_is_swept_like_a_receiver() {
        let pktgen = Scenario::preset("pktgen").unwrap();
        let points = pktgen.sweep(&sweeps(&["burst=1,3", "rx-usecs=30"])).unwrap();
        let rates: Vec<f64> = points
            .iter()
            .map(|p| p.compute("pktgen").unwrap().point.values["sent_pps"].as_f64().unwrap())
            .collect();
        assert!(rates[0] < 9.7e6 && rates[1] > 14e6, "{rates:?}");
        assert!(pktgen.sweep(&sweeps(&["colour=red"])).is_err());
        assert!(pktgen.sweep(&sweeps(&["burst=1000"])).is_err());
    }

    #[test]
    fn every_preset_lists_its_parameters() {
        for (name, about) in Scenario::presets() {
            let scenario = Scenario::preset(name).unwrap();
            assert!(!about.is_empty());
            assert!(scenario.parameters().iter().all(|(parameter, _)| !parameter.meaning.is_empty()));
            scenario.validate().unwrap();
        }
    }
}
