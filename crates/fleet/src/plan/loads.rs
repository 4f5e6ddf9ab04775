//! Which loads a plan names: one rate, several, a ramp, or a search that chooses them.

use search::Goal;
use serde::{Deserialize, Serialize};
use wire::{Rate, parse_ratio};

use crate::load::FleetLoad;

/// A search for the throughput of the whole fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetSearch {
    /// The goals.
    pub goals: Vec<Goal>,
    /// The lowest load tried; `None` is a thousandth of the highest.
    pub min_pps: Option<f64>,
    /// The highest load tried; `None` is the rate that the fleet offers without a rate limit.
    pub max_pps: Option<f64>,
}

impl FleetSearch {
    /// The trial before the search, which finds the highest load and warms caches up.
    pub fn warm_up(&self) -> FleetLoad {
        let longest_s = self.goals.iter().map(|goal| goal.final_duration_s).fold(0.0, f64::max);
        FleetLoad { rate_pps: self.max_pps, duration_ns: (longest_s * 1e9) as u64, size: 0 }
    }
}

/// Rates as written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Rates {
    One(String),
    Several(Vec<String>),
    Ramp(Ramp),
}

/// Rates at equal distances, both ends included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ramp {
    from: String,
    to: String,
    steps: u32,
}

impl Rates {
    pub(super) fn max() -> Self {
        Self::One("max".into())
    }

    /// Packets per second of each; `None` is the maximum.
    pub(super) fn each(&self, problems: &mut Vec<String>) -> Vec<Option<f64>> {
        match self {
            Self::One(text) => vec![rate("rate", text, problems)],
            Self::Several(texts) => {
                if texts.is_empty() {
                    problems.push("rate: at least one is needed".into());
                }
                texts.iter().map(|text| rate("rate", text, problems)).collect()
            }
            Self::Ramp(Ramp { from, to, steps }) => {
                let (from, to) = (rate("rate.from", from, problems), rate("rate.to", to, problems));
                let (Some((from, to)), 2..) = (from.zip(to), *steps) else {
                    problems
                        .push("rate: a ramp has two rates in packets per second and at least 2 steps".into());
                    return Vec::new();
                };
                let at = |step: u32| from + (to - from) * f64::from(step) / f64::from(steps - 1);
                (0..*steps).map(|step| Some(at(step))).collect()
            }
        }
    }
}

fn rate(name: &str, text: &str, problems: &mut Vec<String>) -> Option<f64> {
    match text.parse::<Rate>() {
        Ok(Rate::Max) => None,
        Ok(Rate::Pps(pps)) => Some(pps),
        Ok(_) => {
            problems.push(format!("{name}: '{text}' is no rate in packets per second: write 100kpps or max"));
            None
        }
        Err(error) => {
            problems.push(format!("{name}: {error}"));
            None
        }
    }
}

/// A search as written, with the defaults of `linerate bench ndr`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SearchFile {
    loss_ratio: Vec<String>,
    exceed_ratio: String,
    final_duration: String,
    duration_sum: String,
    initial_duration: String,
    width: String,
    min_load: Option<String>,
    max_load: Option<String>,
}

impl Default for SearchFile {
    fn default() -> Self {
        Self {
            loss_ratio: vec!["0".into(), "0.5%".into()],
            exceed_ratio: "0.5".into(),
            final_duration: "500ms".into(),
            duration_sum: "1500ms".into(),
            initial_duration: "100ms".into(),
            width: "2%".into(),
            min_load: None,
            max_load: None,
        }
    }
}

impl SearchFile {
    pub(super) fn search(&self, problems: &mut Vec<String>) -> FleetSearch {
        let mut ratio = |name: &str, text: &String| match parse_ratio(text) {
            Ok(ratio) => ratio,
            Err(error) => {
                problems.push(format!("search.{name}: {error}"));
                0.5
            }
        };
        let losses: Vec<f64> = self.loss_ratio.iter().map(|text| ratio("loss-ratio", text)).collect();
        let (exceed_ratio, width_ratio) =
            (ratio("exceed-ratio", &self.exceed_ratio), ratio("width", &self.width));
        let mut seconds = |name: &str, text: &String| match wire::parse_duration(text) {
            Ok(time) => time.as_secs_f64(),
            Err(error) => {
                problems.push(format!("search.{name}: {error}"));
                1.0
            }
        };
        let final_duration_s = seconds("final-duration", &self.final_duration);
        let duration_sum_s = seconds("duration-sum", &self.duration_sum);
        let initial_duration_s = seconds("initial-duration", &self.initial_duration).min(final_duration_s);
        let goal = |loss_ratio: &f64| Goal {
            name: Goal::name_of(*loss_ratio),
            loss_ratio: *loss_ratio,
            exceed_ratio,
            final_duration_s,
            duration_sum_s,
            initial_duration_s,
            width_ratio,
        };
        let goals: Vec<Goal> = losses.iter().map(goal).collect();
        if goals.is_empty() {
            problems.push("search.loss-ratio: at least one is needed".into());
        }
        problems.extend(goals.iter().flat_map(Goal::problems).map(|problem| format!("search: {problem}")));
        let mut load =
            |name: &str, text: &Option<String>| text.as_ref().and_then(|text| rate(name, text, problems));
        let min_pps = load("search.min-load", &self.min_load);
        let max_pps = load("search.max-load", &self.max_load);
        if min_pps.zip(max_pps).is_some_and(|(min, max)| min > max) {
            problems.push("search.min-load is above search.max-load".into());
        }
        FleetSearch { goals, min_pps, max_pps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_has_equal_steps_from_end_to_end() {
        let ramp =
            |from: &str, to: &str, steps| Rates::Ramp(Ramp { from: from.into(), to: to.into(), steps });
        let mut problems = Vec::new();
        let rates = ramp("10kpps", "40kpps", 4).each(&mut problems);
        assert_eq!(rates, [Some(10e3), Some(20e3), Some(30e3), Some(40e3)]);
        assert_eq!(problems, [""; 0]);
        assert!(ramp("10kpps", "max", 4).each(&mut problems).is_empty());
        assert!(ramp("10kpps", "20kpps", 1).each(&mut problems).is_empty());
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn a_search_has_the_defaults_of_bench_ndr_and_all_its_problems_are_reported() {
        let mut problems = Vec::new();
        let search = SearchFile::default().search(&mut problems);
        let names: Vec<&str> = search.goals.iter().map(|goal| goal.name.as_str()).collect();
        assert_eq!((names.as_slice(), problems.len()), (&["NDR", "PDR"][..], 0));
        assert_eq!(search.warm_up(), FleetLoad { duration_ns: 500_000_000, ..FleetLoad::default() });
        let wrong = SearchFile {
            width: "x".into(),
            min_load: Some("2kpps".into()),
            max_load: Some("1kpps".into()),
            ..SearchFile::default()
        };
        wrong.search(&mut problems);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
