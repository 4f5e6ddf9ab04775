//! Chooses the next load and its duration, and decides when to stop (the draft's "controller").
//!
//! Every goal is approached in steps: short trials narrow the range, full-length ones decide. The next trial follows
//! from the results alone, apart from the load in focus and the steps already done.

use serde::{Deserialize, Serialize};

use crate::{
    classify::{Class, Tried, classify, conditional_throughput_pps},
    goal::{Goal, GoalError},
};

#[cfg(test)]
mod tests;

/// What to search for, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchPlan {
    /// The goals; searched for from the largest loss ratio to the smallest.
    pub goals: Vec<Goal>,
    /// The lowest load tried.
    pub min_pps: f64,
    /// The highest load tried.
    pub max_pps: f64,
    /// The first load tried, when the answer is probably near it; `None` is the highest.
    #[serde(default)]
    pub first_pps: Option<f64>,
    /// When the generator misses more than this share of the packets due, it did not offer the load: the trial is void.
    pub shortfall_ratio: f64,
    /// The search gives up after this many trials.
    pub most_trials: u32,
}

/// A search in progress: plain data, fed with results.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    plan: SearchPlan,
    /// By load, ascending.
    loads: Vec<Measurements>,
    /// The highest load that the generator can offer, as measured or assumed.
    ceiling_pps: f64,
    generator_limits: bool,
    trials: u32,
    /// Goal and target in progress: the earlier ones are done.
    at: (usize, usize),
    focus_pps: Option<f64>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Measure this load for this duration, then [`Search::record`] the result.
    Measure {
        /// The load, in whole packets per second.
        load_pps: f64,
        /// The trial's time.
        duration_s: f64,
    },
    /// Nothing is left to measure.
    Done,
}

/// What a trial measured. The generator's shortfall, `scheduled − sent`, is not part of the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The time it took.
    pub duration_s: f64,
    /// Packets that were due.
    pub scheduled: u64,
    /// Packets that were sent: the offered load.
    pub sent: u64,
    /// Packets sent and not delivered.
    pub lost: u64,
}

/// The result of one goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound; `None` when not even the lowest load met the goal.
    pub lower: Option<Bound>,
    /// The relevant upper bound: the lowest load known to be too high. `None` when none was.
    pub upper: Option<Bound>,
    /// The forwarding rate at the relevant lower bound.
    pub conditional_throughput_pps: Option<f64>,
    /// What limits the lower bound.
    pub limit: LimitedBy,
}

/// A classified load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The load.
    pub load_pps: f64,
    /// Its trials, by their numbers in the order of recording, from 0.
    pub trials: Vec<u32>,
    /// The mean of their loss ratios.
    pub loss_ratio: f64,
}

/// What keeps the result from being higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Loss beyond the goal, at the upper bound.
    Loss,
    /// The generator cannot offer more.
    Generator,
    /// The search did not include higher loads.
    MaxLoad,
    /// Not even the lowest load met the goal.
    MinLoad,
    /// The search gave up or was stopped before the bounds met.
    Unfinished,
}

#[derive(Debug, Clone, PartialEq)]
struct Measurements {
    load_pps: f64,
    trials: Vec<Tried>,
    numbers: Vec<u32>,
    /// Rates achieved by trials in which the generator fell short.
    void_pps: Vec<f64>,
}

/// The loads between which a target's answer lies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Bounds {
    lower_pps: Option<f64>,
    upper_pps: Option<f64>,
}

/// Trials that fell short at one load before the search concludes that the generator cannot offer it.
const VOIDS: usize = 3;

impl SearchPlan {
    /// NDR and PDR (0.5 %) below a load.
    pub fn up_to(max_pps: f64) -> Self {
        Self {
            goals: vec![Goal::ndr(), Goal::pdr()],
            min_pps: (max_pps / 1000.0).max(1.0),
            max_pps,
            first_pps: None,
            shortfall_ratio: 0.001,
            most_trials: 1000,
        }
    }
}

impl Search {
    /// A search that has measured nothing yet.
    ///
    /// # Errors
    /// Every problem of every goal.
    pub fn new(mut plan: SearchPlan) -> Result<Self, Vec<GoalError>> {
        let mut problems: Vec<GoalError> = plan.goals.iter().flat_map(Goal::problems).collect();
        if !(plan.min_pps >= 1.0 && plan.max_pps >= plan.min_pps && plan.max_pps.is_finite()) {
            let what = "the lowest load must be at least 1 pps, and at most the highest";
            problems.push(GoalError { goal: "of any kind".into(), what });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        plan.goals.sort_by(|a, b| b.loss_ratio.total_cmp(&a.loss_ratio));
        let ceiling_pps = plan.max_pps.floor();
        plan.min_pps = plan.min_pps.ceil().min(ceiling_pps);
        Ok(Self {
            plan,
            loads: Vec::new(),
            ceiling_pps,
            generator_limits: false,
            trials: 0,
            at: (0, 0),
            focus_pps: None,
        })
    }

    /// The next trial. Calling it twice without recording returns the same trial.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: results are recorded between calls")]
    pub fn next(&mut self) -> Step {
        if self.trials >= self.plan.most_trials {
            return Step::Done;
        }
        while let Some(goal) = self.plan.goals.get(self.at.0) {
            let targets = goal.targets();
            let Some(target) = targets.get(self.at.1) else {
                self.at = (self.at.0 + 1, 0);
                continue;
            };
            let hint = match self.at.1.checked_sub(1) {
                Some(previous) => self.bounds(&targets[previous]),
                None => Bounds::default(),
            };
            if let Some(load_pps) = self.candidate(target, hint) {
                self.focus_pps = Some(load_pps);
                return Step::Measure { load_pps, duration_s: target.final_duration_s };
            }
            self.focus_pps = None;
            self.at.1 += 1;
        }
        Step::Done
    }

    /// Notes what a trial of `duration_s` at `load_pps` measured; returns the trial's number, from 0.
    pub fn record(&mut self, load_pps: f64, duration_s: f64, measured: Measured) -> u32 {
        let number = self.trials;
        self.trials += 1;
        let at = self.loads.partition_point(|load| load.load_pps < load_pps);
        if self.loads.get(at).is_none_or(|load| load.load_pps != load_pps) {
            let new =
                Measurements { load_pps, trials: Vec::new(), numbers: Vec::new(), void_pps: Vec::new() };
            self.loads.insert(at, new);
        }
        let load = &mut self.loads[at];
        let Measured { duration_s: effective_s, scheduled, sent, lost } = measured;
        if scheduled.saturating_sub(sent) as f64 > scheduled as f64 * self.plan.shortfall_ratio {
            load.void_pps.push(if effective_s > 0.0 { sent as f64 / effective_s } else { 0.0 });
            if load.void_pps.len() >= VOIDS {
                let offered_pps = load.void_pps.iter().copied().fold(0.0, f64::max);
                let narrowest = self.plan.goals.iter().map(|goal| goal.width_ratio).fold(1.0, f64::min);
                let below = (load_pps * (1.0 - narrowest)).floor().min(load_pps - 1.0);
                load.void_pps.clear();
                self.lower_ceiling(offered_pps.floor().min(below));
            }
            return number;
        }
        load.numbers.push(number);
        let loss_ratio = if sent == 0 { 1.0 } else { lost as f64 / sent as f64 };
        load.trials.push(Tried { duration_s, effective_s, loss_ratio });
        number
    }

    fn lower_ceiling(&mut self, ceiling_pps: f64) {
        if ceiling_pps < self.ceiling_pps {
            self.generator_limits = true;
            self.ceiling_pps = ceiling_pps.max(self.plan.min_pps);
            self.focus_pps = None;
            if ceiling_pps < self.plan.min_pps {
                // Not even the lowest load can be offered: nothing can be measured.
                self.at = (self.plan.goals.len(), 0);
            }
        }
    }

    /// The outcome of every goal, in the order they are searched.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let is_done = |index: usize| index < self.at.0;
        self.plan.goals.iter().enumerate().map(|(index, goal)| self.outcome(goal, is_done(index))).collect()
    }

    /// The highest load that the generator can offer, as far as known.
    pub fn ceiling_pps(&self) -> f64 {
        self.ceiling_pps
    }

    /// Trials recorded.
    pub fn trials(&self) -> u32 {
        self.trials
    }

    fn outcome(&self, goal: &Goal, is_done: bool) -> Outcome {
        let bounds = self.bounds(goal);
        let bound = |load_pps: f64| {
            let load = self.load(load_pps)?;
            let sum: f64 = load.trials.iter().map(|trial| trial.loss_ratio).sum();
            Some(Bound {
                load_pps,
                trials: load.numbers.clone(),
                loss_ratio: sum / load.trials.len().max(1) as f64,
            })
        };
        let lower = bounds.lower_pps.and_then(bound);
        let throughput = lower.as_ref().and_then(|lower| {
            conditional_throughput_pps(lower.load_pps, &self.load(lower.load_pps)?.trials, goal)
        });
        let limit = match (bounds.lower_pps, bounds.upper_pps) {
            _ if !is_done => LimitedBy::Unfinished,
            (Some(lower), _) if lower >= self.ceiling_pps && self.generator_limits => LimitedBy::Generator,
            (Some(lower), _) if lower >= self.ceiling_pps => LimitedBy::MaxLoad,
            (_, Some(_)) if bounds.lower_pps.is_some() => LimitedBy::Loss,
            (None, Some(_)) => LimitedBy::MinLoad,
            _ if self.generator_limits => LimitedBy::Generator,
            _ => LimitedBy::Unfinished,
        };
        Outcome {
            goal: goal.clone(),
            lower,
            upper: bounds.upper_pps.and_then(bound),
            conditional_throughput_pps: throughput,
            limit,
        }
    }

    fn load(&self, load_pps: f64) -> Option<&Measurements> {
        self.loads.iter().find(|load| load.load_pps == load_pps)
    }

    fn class(&self, load_pps: f64, target: &Goal) -> Class {
        self.load(load_pps).map_or(Class::Undecided, |load| classify(&load.trials, target))
    }

    /// The relevant bounds: the lowest load that is too high, and the highest below it that is not. A device that
    /// loses less at a higher load again is not credited with it.
    fn bounds(&self, target: &Goal) -> Bounds {
        let mut bounds = Bounds::default();
        for load in &self.loads {
            match classify(&load.trials, target) {
                Class::Upper => {
                    bounds.upper_pps = Some(load.load_pps);
                    break;
                }
                Class::Lower => bounds.lower_pps = Some(load.load_pps),
                Class::Undecided => {}
            }
        }
        bounds
    }

    /// The load that brings a target's bounds closer; `None` when they are close enough.
    fn candidate(&self, target: &Goal, hint: Bounds) -> Option<f64> {
        let bounds = self.bounds(target);
        let (floor, ceiling) = (self.plan.min_pps, self.ceiling_pps);
        let width = target.width_ratio;
        let is_open = |load: f64| {
            bounds.lower_pps.is_none_or(|lower| load > lower)
                && bounds.upper_pps.is_none_or(|upper| load < upper)
                && (floor..=ceiling).contains(&load)
        };
        // Once begun, a load is measured until it is decided.
        let in_focus = self.focus_pps.filter(|load| is_open(*load));
        if let Some(load) = in_focus.filter(|load| self.class(*load, target) == Class::Undecided) {
            return Some(load);
        }
        match (bounds.lower_pps, bounds.upper_pps) {
            (Some(lower), _) if lower >= ceiling => return None,
            (_, Some(upper)) if upper <= floor => return None,
            (Some(lower), Some(upper)) if is_narrow(lower, upper, width) => return None,
            _ => {}
        }
        // The previous target's result is assumed until it is measured here.
        let hint = Bounds {
            lower_pps: hint.lower_pps.filter(|lower| is_open(*lower)),
            upper_pps: hint.upper_pps.filter(|upper| is_open(*upper)),
        };
        let believed = (hint.lower_pps.or(bounds.lower_pps), hint.upper_pps.or(bounds.upper_pps));
        let candidate = match believed {
            (Some(lower), Some(upper)) if is_narrow(lower, upper, width) => {
                hint.lower_pps.or(hint.upper_pps).unwrap_or_else(|| middle(lower, upper))
            }
            (Some(lower), Some(upper)) => {
                middle(lower, upper).min(lower * (1.0 + self.stride(lower, target)))
            }
            (Some(lower), None) => hint.lower_pps.unwrap_or(lower * (1.0 + self.stride(lower, target))),
            (None, Some(upper)) => hint
                .upper_pps
                .unwrap_or_else(|| self.forwarded_pps(upper).min(upper * (1.0 - self.dive(upper, target)))),
            (None, None) => self.plan.first_pps.unwrap_or(ceiling),
        };
        let candidate = candidate.round().clamp(floor, ceiling);
        is_open(candidate).then_some(candidate)
    }

    /// How far above a lower bound to look: twice as far as the last time.
    fn stride(&self, lower_pps: f64, target: &Goal) -> f64 {
        let below = self
            .loads
            .iter()
            .rev()
            .map(|load| load.load_pps)
            .find(|load| *load < lower_pps && self.class(*load, target) == Class::Lower);
        let last = below.map_or(0.0, |below| lower_pps / below - 1.0);
        // As a share of the lower load.
        let width = target.width_ratio / (1.0 - target.width_ratio);
        (2.0 * last).clamp(width, width.max(1.0))
    }

    /// How far below an upper bound to look: twice as far as the last time, because a loss that falls slowly with the
    /// load is a poor guide to where it ends. The jump to the rate
    /// that a load forwarded is not such a step.
    fn dive(&self, upper_pps: f64, target: &Goal) -> f64 {
        let above = self
            .loads
            .iter()
            .map(|load| load.load_pps)
            .find(|load| *load > upper_pps && self.class(*load, target) == Class::Upper);
        let last = above.map_or(0.0, |above| 1.0 - upper_pps / self.forwarded_pps(above));
        (2.0 * last).clamp(target.width_ratio, 0.5)
    }

    /// The most that a load's trials forwarded; half the load when none forwarded anything.
    fn forwarded_pps(&self, load_pps: f64) -> f64 {
        let trials = self.load(load_pps).map_or(&[][..], |load| &load.trials);
        let least = trials.iter().map(|trial| trial.loss_ratio).fold(1.0, f64::min);
        load_pps * if least < 1.0 { 1.0 - least } else { 0.5 }
    }
}

fn is_narrow(lower: f64, upper: f64, width_ratio: f64) -> bool {
    // Loads are whole: each may be half a packet per second off.
    upper - lower <= upper * width_ratio + 1.0
}

/// The geometric mean: rates are compared as ratios.
fn middle(lower: f64, upper: f64) -> f64 {
    (lower * upper).sqrt()
}
