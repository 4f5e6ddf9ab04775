//! Finds the fastest combination of settings: which to try next, when to stop, and which gains are proven.
//!
//! Three phases. *Screen*: balanced random combinations, so that every trial informs about every knob and every pair of
//! knobs. *Focus*: combinations around the best one known, while values that cannot gain enough are eliminated. *Prove*:
//! the way from the current settings to the best ones, step by step, with all combinations on it in rotation; a step that
//! is not proven is left out. The trials of a block run in random order, with trials of the incumbent among them, so that
//! a drift of the machine does not look like an effect.

mod matrix;
mod model;
mod proof;
mod space;
mod step;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use model::{Model, Observation};
use proof::Proof;
pub use space::Settings;
use space::Survivors;
pub use step::{Gain, TunedStep};

/// What to search, and how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningPlan {
    /// How many values each knob has; value 0 is the current one.
    pub values: Vec<usize>,
    /// The assumed noise of a trial, as a share of its value, before any has been measured.
    pub noise_ratio: f64,
    /// A gain below this share is not worth a setting.
    pub gain_ratio: f64,
    /// The trial budget.
    pub most_trials: u32,
    /// Seed of everything random.
    pub seed: u64,
}

/// What a trial is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningPhase {
    /// Every knob at random.
    Screen,
    /// Around the best known.
    Focus,
    /// The steps to the best, in rotation.
    Prove,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum TuningStep {
    /// Measure these settings, then [`Tuning::record`] the result.
    Measure {
        /// A value for each knob.
        settings: Settings,
        /// What for.
        phase: TuningPhase,
    },
    /// Nothing is left to measure.
    Done,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningEnd {
    /// No remaining value can gain enough.
    Settled,
    /// No trials are left.
    Budget,
    /// It was stopped before.
    Stopped,
}

/// A value that was not taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The knob.
    pub knob: usize,
    /// Its value.
    pub value: usize,
    /// Its estimated effect at the best settings; `None` when no trial had it.
    pub gain: Option<Gain>,
    /// Why it was not taken.
    pub why: Why,
}

/// Why a value was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// It makes things worse.
    Worse,
    /// It cannot gain enough to be worth a setting.
    TooLittle,
    /// It may help, but the trials do not prove it.
    NotProven,
    /// No trial with it succeeded.
    Failed,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningOutcome {
    /// The best settings that are proven.
    pub best: Settings,
    /// The steps to them, from the current settings.
    pub steps: Vec<TunedStep>,
    /// The values that are not part of them, in the order of knobs.
    pub refused: Vec<Refused>,
    /// The noise of a trial, as a share of its value.
    pub noise_ratio: f64,
    /// Why it ended.
    pub end: TuningEnd,
}

/// A search in progress: plain data, fed with results.
#[derive(Debug, Clone)]
pub struct Tuning {
    plan: TuningPlan,
    random: fastrand::Rng,
    trials: Vec<Observation>,
    recorded: u32,
    /// Trials with a result, by knob and value.
    ran: Vec<Vec<u32>>,
    /// Settings of trials without one.
    failed: Vec<Settings>,
    left: Survivors,
    incumbent: Settings,
    /// Values of the incumbent that the model supports.
    changed: usize,
    /// Whether the incumbent has been chosen from trials.
    is_near: bool,
    phase: TuningPhase,
    block: usize,
    queue: VecDeque<Settings>,
    proof: Option<Proof>,
    end: Option<TuningEnd>,
}

/// The most trials in a block.
const BLOCK: usize = 16;
/// Of these, trials of the incumbent.
const AT_BEST: usize = 2;
/// Trials of the current settings in the first block: they measure the noise.
const AT_BASELINE: usize = 4;
/// Share of the trials reserved for the proof.
const FOR_PROOF: f64 = 0.23;
/// Share of a worthwhile gain that a value may still promise when it is eliminated.
const LEFT: f64 = 0.6;
/// Margin in standard errors when a value is eliminated.
const DOUBT: f64 = 2.2;
/// A wider margin with this few trials.
const EARLY: f64 = 60.0;
/// Margin in standard errors when a value is called worse, or too small.
const LIKELY: f64 = 1.64;
/// A value is given up after this many trials of which none had a result.
const FAILURES: usize = 3;
/// The value of a trial that delivered next to nothing, as a share of the baseline.
const LEAST: f64 = 0.05;

impl Tuning {
    /// A search that has measured nothing yet.
    pub fn new(plan: TuningPlan) -> Self {
        let incumbent = vec![0; plan.values.len()];
        Self {
            random: fastrand::Rng::with_seed(plan.seed),
            trials: Vec::new(),
            recorded: 0,
            ran: plan.values.iter().map(|count| vec![0; (*count).max(1)]).collect(),
            failed: Vec::new(),
            left: Survivors::all(&plan.values),
            incumbent,
            changed: 0,
            is_near: false,
            phase: TuningPhase::Screen,
            block: 0,
            queue: VecDeque::new(),
            proof: None,
            end: None,
            plan,
        }
    }

    /// The next trial. Calling it twice without recording returns the same trial.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: results are recorded between calls")]
    pub fn next(&mut self) -> TuningStep {
        while self.queue.is_empty() && self.end.is_none() {
            self.plan_block();
        }
        match self.queue.front() {
            Some(settings) if self.end.is_none() && self.recorded < self.plan.most_trials => {
                TuningStep::Measure { settings: settings.clone(), phase: self.phase }
            }
            _ => {
                self.end.get_or_insert(TuningEnd::Budget);
                TuningStep::Done
            }
        }
    }

    /// Records what a trial measured (more is better); `None` when these settings do not run.
    ///
    /// Trials of an earlier search of the same plan may be recorded before the first call of [`Tuning::next`].
    pub fn record(&mut self, settings: &[usize], value: Option<f64>) {
        self.recorded += 1;
        if self.queue.front().is_some_and(|next| next == settings) {
            self.queue.pop_front();
        } else {
            self.block = self.trials.len() / BLOCK;
        }
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        let Some(value) = value else {
            self.failed.push(settings.to_vec());
            self.drop_what_fails();
            return;
        };
        settings.iter().enumerate().for_each(|(knob, setting)| self.ran[knob][*setting] += 1);
        // Zero has no logarithm, and counts as next to nothing.
        let least = self.trials.first().map_or(f64::MIN_POSITIVE, |first| first.log.exp() * LEAST);
        let log = value.max(least).ln();
        if let Some(proof) = self.proof.as_mut().filter(|_| self.phase == TuningPhase::Prove) {
            proof.note(settings, log);
        }
        self.trials.push(Observation { settings: settings.to_vec(), log, block: self.block });
    }

    /// Limits the remaining trials, by the clock.
    pub fn limit(&mut self, trials_left: u32) {
        self.plan.most_trials = self.recorded.saturating_add(trials_left);
    }

    /// Ends the search with the result so far.
    pub fn stop(&mut self) {
        self.end.get_or_insert(TuningEnd::Stopped);
        self.queue.clear();
    }

    /// Trials recorded.
    pub fn trials(&self) -> u32 {
        self.recorded
    }

    /// The best settings as far as known, before they are proven.
    pub fn incumbent(&self) -> &[usize] {
        &self.incumbent
    }

    /// Knobs of which more than one value is still a candidate.
    pub fn open_knobs(&self) -> usize {
        self.left.open().count()
    }

    /// Eliminates values that no trial can run with: each time the one that explains the most failures that no other
    /// does.
    fn drop_what_fails(&mut self) {
        let mut open: Vec<&Settings> = self.failed.iter().collect();
        loop {
            let mut worst: Option<(usize, usize, usize)> = None;
            for (knob, ran) in self.ran.iter().enumerate() {
                for value in (1..ran.len()).filter(|value| ran[*value] == 0) {
                    let failures = open.iter().filter(|settings| settings[knob] == value).count();
                    if failures >= FAILURES && worst.is_none_or(|worst| failures > worst.2) {
                        worst = Some((knob, value, failures));
                    }
                }
            }
            let Some((knob, value, _)) = worst else { return };
            open.retain(|settings| settings[knob] != value);
            self.left.drop(knob, value);
            self.queue.retain(|settings| settings[knob] != value);
        }
    }

    fn plan_block(&mut self) {
        let screened: usize = self.plan.values.iter().map(|count| count.saturating_sub(1)).sum();
        let most = self.plan.most_trials as usize;
        let screen = (2 * screened + AT_BASELINE).max(self.block_size()).min(most / 2).max(AT_BASELINE);
        self.block = self.trials.last().map_or(0, |last| last.block + 1);
        match self.phase {
            TuningPhase::Screen if self.trials.len() < screen && self.recorded < self.plan.most_trials => {
                self.screen();
            }
            TuningPhase::Screen => self.phase = TuningPhase::Focus,
            TuningPhase::Focus => {
                self.race();
                let share = (f64::from(self.plan.most_trials) * FOR_PROOF) as u32;
                let for_proof = Proof::trials(self.changed).clamp(share, self.plan.most_trials / 2);
                let left = self.plan.most_trials.saturating_sub(self.recorded);
                if self.left.open().next().is_none()
                    || left <= for_proof.saturating_add(self.block_size() as u32)
                {
                    self.phase = TuningPhase::Prove;
                } else {
                    self.focus();
                }
            }
            TuningPhase::Prove => self.prove(),
        }
    }

    /// Whether a knob has more than one value that is a candidate.
    fn is_open(&self) -> bool {
        self.left.open().next().is_some()
    }

    /// Trials of a block: fewer when the budget is small.
    fn block_size(&self) -> usize {
        BLOCK.min((self.plan.most_trials as usize / 4).max(AT_BASELINE + 2))
    }

    /// The settings with the best trials, accounting for uncertainty.
    fn best_seen(&self, noise: f64) -> (Settings, f64) {
        let mut alike: BTreeMap<&Settings, (f64, f64)> = BTreeMap::new();
        for trial in &self.trials {
            let (sum, count) = alike.entry(&trial.settings).or_default();
            (*sum, *count) = (*sum + trial.log, *count + 1.0);
        }
        let certain = |(sum, count): (f64, f64)| sum / count - DOUBT * noise / f64::sqrt(count);
        let all = alike.into_iter().map(|(settings, found)| (settings.clone(), certain(found)));
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((self.incumbent.clone(), f64::NEG_INFINITY))
    }

    fn fit(&self) -> Option<Model> {
        let near = (self.is_near && self.phase != TuningPhase::Screen).then_some(&self.incumbent[..]);
        Model::fit(&self.plan.values, &self.trials, self.plan.noise_ratio, near)
    }

    /// Makes the model's best combination the incumbent, and eliminates values that cannot beat it by
    /// enough.
    fn race(&mut self) {
        let Some(model) = self.fit() else { return };
        let ranking = model.best(&self.left, &self.incumbent);
        self.incumbent = ranking.best;
        // Measurements outrank the model.
        let (seen, log) = self.best_seen(model.noise);
        if log > model.predict(&self.incumbent) {
            self.incumbent.clone_from(&seen);
        }
        self.is_near = true;
        let doubt = DOUBT + EARLY / self.trials.len().max(1) as f64;
        let worth = self.plan.gain_ratio.ln_1p();
        self.changed = model.simplified(&self.incumbent, worth).iter().filter(|value| **value != 0).count();
        for (knob, with) in ranking.with.iter().enumerate() {
            for (value, settings) in with.iter().enumerate().filter(|(_, settings)| !settings.is_empty()) {
                let (gain, error) = model.gain(&self.incumbent, settings);
                if value != self.incumbent[knob] && value != seen[knob] && gain + doubt * error < worth * LEFT
                {
                    self.left.drop(knob, value);
                }
            }
        }
    }

    /// Proves the steps to the incumbent: rounds of all combinations on the way, until every step is decided.
    fn prove(&mut self) {
        let Some(model) = self.fit() else {
            self.end = Some(TuningEnd::Budget);
            return;
        };
        let (worth, noise) = (self.plan.gain_ratio.ln_1p(), model.noise);
        let left = self.plan.most_trials.saturating_sub(self.recorded) as usize;
        if let Some(needless) = self.proof.as_ref().map(|proof| proof.needless(noise, worth)) {
            match needless {
                None => {}
                Some(knobs) if knobs.is_empty() => {
                    self.end = Some(TuningEnd::Settled);
                    return;
                }
                // Drops unneeded values and proves the rest again.
                Some(knobs) => {
                    knobs.iter().for_each(|knob| self.incumbent[*knob] = 0);
                    let next = Proof::of(model, &self.incumbent, worth);
                    self.proof = self.proof.take().map(|before| next.following(&before));
                }
            }
        } else {
            let simplified = model.simplified(&self.incumbent, worth);
            let is_nothing = simplified.iter().all(|value| *value == 0);
            if is_nothing && self.is_open() && left > 2 * self.block_size() {
                // Nothing to prove yet: the trials reserved for it may still find something.
                self.phase = TuningPhase::Focus;
                self.focus();
                return;
            }
            self.incumbent = simplified;
            self.proof = Some(Proof::of(model, &self.incumbent, worth));
        }
        let round = self.proof.as_ref().map_or_else(Vec::new, |proof| proof.round(noise, worth));
        if round.len() < 2 {
            self.end = Some(if self.is_open() { TuningEnd::Budget } else { TuningEnd::Settled });
        } else if left < round.len() {
            self.end = Some(TuningEnd::Budget);
        } else {
            self.enqueue(round);
        }
    }

    /// The result; for an unfinished search, the result if it ended now.
    pub fn outcome(&self) -> TuningOutcome {
        let nothing = vec![0; self.plan.values.len()];
        let mut outcome = TuningOutcome {
            best: nothing,
            steps: Vec::new(),
            refused: Vec::new(),
            noise_ratio: self.plan.noise_ratio,
            end: self.end.unwrap_or(TuningEnd::Stopped),
        };
        let Some(model) = self.fit() else { return outcome };
        outcome.noise_ratio = model.noise.exp_m1();
        let worth = self.plan.gain_ratio.ln_1p();
        outcome.steps = self.proof.iter().flat_map(|proof| proof.proven(model.noise, worth)).collect();
        if let Some(last) = outcome.steps.last() {
            outcome.best.clone_from(&last.to);
        }
        for (knob, values) in self.ran.iter().enumerate() {
            for (value, ran) in values.iter().enumerate().skip(1) {
                if value == outcome.best[knob] {
                    continue;
                }
                let mut with = outcome.best.clone();
                with[knob] = value;
                let (gain, error) = model.gain(&outcome.best, &with);
                let why = match gain + LIKELY * error {
                    _ if *ran == 0 => Why::Failed,
                    most if most < 0.0 => Why::Worse,
                    most if most < worth => Why::TooLittle,
                    _ => Why::NotProven,
                };
                let gain = (*ran > 0).then(|| Gain::of(gain, error));
                outcome.refused.push(Refused { knob, value, gain, why });
            }
        }
        outcome
    }

    /// A block in which each value of each knob occurs equally often.
    fn screen(&mut self) {
        let own = if self.block == 0 { AT_BASELINE } else { 1 };
        let mut block = vec![vec![0; self.plan.values.len()]; own];
        let rest = self.block_size() - own;
        let columns: Vec<Vec<usize>> = (0..self.plan.values.len())
            .map(|knob| {
                let mut column: Vec<usize> = self.left.of(knob).iter().copied().cycle().take(rest).collect();
                self.random.shuffle(&mut column);
                column
            })
            .collect();
        block.extend((0..rest).map(|at| columns.iter().map(|column| column[at]).collect()));
        self.enqueue(block);
    }

    /// A block around the incumbent: each open knob has another value in a part of the trials.
    fn focus(&mut self) {
        let open: Vec<usize> = self.left.open().collect();
        let share = (2.5 / open.len().max(1) as f64).clamp(0.25, 0.5);
        let mut block = vec![self.incumbent.clone(); AT_BEST];
        while block.len() < self.block_size() {
            let mut settings = self.incumbent.clone();
            for &knob in &open {
                if self.random.f64() < share {
                    let others: Vec<usize> =
                        self.left.of(knob).iter().copied().filter(|value| *value != settings[knob]).collect();
                    settings[knob] = others[self.random.usize(..others.len())];
                }
            }
            block.push(settings);
        }
        self.enqueue(block);
    }

    fn enqueue(&mut self, mut block: Vec<Settings>) {
        // The very first trial measures the current settings.
        let fixed = usize::from(self.trials.is_empty());
        self.random.shuffle(&mut block[fixed..]);
        self.queue.extend(block);
    }
}
