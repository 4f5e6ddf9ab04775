//! Whether the best settings need each of their values, and the way to them from the settings as they are.
//!
//! In every round the settings on the way take turns with the best settings without each one of their values. A value
//! stays when the best settings are proven to be worse without it. Evidence is twofold: what the model says of it from the
//! trials before, and the pairs of trials of the proof itself, weighed by their certainty. Both are of settings that were
//! chosen because they looked good, so that a value has to stand out by [`PROVEN`] standard errors, and by its own pairs
//! alone must not look harmful. A step of the way that is not proven by itself is one with the step behind it: two
//! settings that help only together are one step.

use super::{
    model::Model,
    space::Settings,
    step::{Gain, TunedStep},
};

/// Settings that take turns, and their trials.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    best: Settings,
    /// All settings on the way, those as they are first.
    way: Vec<Settings>,
    /// The best settings without one of their values, by knob.
    without: Vec<(usize, Settings)>,
    /// Everything that takes turns, and the logarithms of its trials.
    turns: Vec<(Settings, Vec<f64>)>,
    /// What the model said before: of each step of the way, and of each value.
    model: Model,
}

/// What is known of a value or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Proven,
    /// It looks good, and more pairs would not prove it: it stays as part of a step that is proven.
    Likely,
    Refuted,
    Open,
}

/// What is known of a difference: by its own pairs of trials, and by all, each with its standard error.
#[derive(Debug, Clone, Copy)]
struct Known {
    pairs: usize,
    own: (f64, f64),
    both: (f64, f64),
}

impl Known {
    /// It stands out, and its own pairs do not contradict.
    fn is_proven(&self) -> bool {
        self.both.0 >= PROVEN * self.both.1 && self.own.0 > -DOUBT * self.own.1
    }

    /// It may be claimed where the search was cut short.
    fn is_claimed(&self) -> bool {
        self.pairs >= LEAST_PAIRS && self.is_proven()
    }
}

/// Standard errors that a gain must stand out by.
const PROVEN: f64 = 2.2;
/// Standard errors that an estimate may be wrong by when a value is given up.
const DOUBT: f64 = 1.64;
/// Pairs that a step is claimed with, where the search was cut short.
const LEAST_PAIRS: usize = 2;
/// Rounds before anything is decided, and pairs after which everything is.
const LEAST_ROUNDS: usize = 4;
const MOST_PAIRS: usize = 24;

impl Proof {
    /// Trials that a proof of so many values takes at least.
    pub(super) fn trials(changed: usize) -> u32 {
        (LEAST_ROUNDS * (2 * changed + 1)) as u32
    }

    /// The way to `best`: each time the one knob that gains most, or two of them where one alone gains nothing.
    pub(super) fn of(model: Model, best: &[usize], worth: f64) -> Self {
        let changed: Vec<usize> = (0..best.len()).filter(|knob| best[*knob] != 0).collect();
        let with = |at: &Settings, knobs: &[usize]| {
            let mut to = at.clone();
            knobs.iter().for_each(|knob| to[*knob] = best[*knob]);
            to
        };
        let mut way: Vec<Settings> = vec![vec![0; best.len()]];
        let mut open = changed.clone();
        while let Some(at) = way.last().filter(|_| !open.is_empty()).cloned() {
            // As far as it is certain.
            let gain = |knobs: &[usize]| {
                let (gain, error) = model.gain(&at, &with(&at, knobs));
                gain - error
            };
            let most = |all: &mut dyn Iterator<Item = Vec<usize>>| {
                let best = all.map(|knobs| (gain(&knobs), knobs)).max_by(|a, b| a.0.total_cmp(&b.0));
                best.filter(|(gain, _)| *gain >= worth / 4.0).map(|(_, knobs)| knobs)
            };
            let single = most(&mut open.iter().map(|knob| vec![*knob]));
            let mut pairs = open
                .iter()
                .enumerate()
                .flat_map(|(place, one)| open[place + 1..].iter().map(move |other| vec![*one, *other]));
            let knobs = single.or_else(|| most(&mut pairs)).unwrap_or_else(|| open.clone());
            way.push(with(&at, &knobs));
            open.retain(|knob| !knobs.contains(knob));
        }
        let without: Vec<(usize, Settings)> = changed
            .iter()
            .map(|knob| {
                let mut settings = best.to_vec();
                settings[*knob] = 0;
                (*knob, settings)
            })
            .collect();
        let mut turns: Vec<(Settings, Vec<f64>)> = Vec::new();
        for settings in way.iter().chain(without.iter().map(|(_, settings)| settings)) {
            if !turns.iter().any(|(known, _)| known == settings) {
                turns.push((settings.clone(), Vec::new()));
            }
        }
        Self { best: best.to_vec(), way, without, turns, model }
    }

    /// Takes over the trials of a proof before it.
    pub(super) fn following(mut self, before: &Self) -> Self {
        for (settings, logs) in &mut self.turns {
            logs.extend_from_slice(before.logs(settings));
        }
        self
    }

    /// A round: everything that takes turns, and later the best settings and what is open.
    pub(super) fn round(&self, noise: f64, worth: f64) -> Vec<Settings> {
        let is_new =
            |(settings, logs): &&(Settings, Vec<f64>)| logs.len() < LEAST_ROUNDS && *settings != self.best;
        let new: Vec<Settings> =
            self.turns.iter().filter(is_new).map(|(settings, _)| settings.clone()).collect();
        if !new.is_empty() {
            return new.into_iter().chain([self.best.clone()]).collect();
        }
        let is_open = |without: &Settings| self.verdict(without, &self.best, (noise, worth)) == Verdict::Open;
        let open = self.without.iter().map(|(_, without)| without.clone()).filter(is_open);
        [self.best.clone()].into_iter().chain(open).collect()
    }

    /// Notes a trial.
    pub(super) fn note(&mut self, settings: &[usize], log: f64) {
        if let Some((_, logs)) = self.turns.iter_mut().find(|(known, _)| known == settings) {
            logs.push(log);
        }
    }

    fn logs(&self, settings: &[usize]) -> &[f64] {
        self.turns.iter().find(|(known, _)| known == settings).map_or(&[], |(_, logs)| logs)
    }

    /// A difference by its own pairs, and by all that is known, each with its standard error.
    fn known(&self, from: &[usize], to: &[usize], noise: f64) -> Known {
        let pairs = self.logs(from).iter().zip(self.logs(to));
        let (number, count) = (pairs.len(), pairs.len() as f64);
        let expected = self.model.gain(from, to);
        if number == 0 {
            return Known { pairs: 0, own: (0.0, f64::INFINITY), both: expected };
        }
        let own = pairs.map(|(before, after)| after - before).sum::<f64>() / count;
        let own_error = noise * (2.0 / count).sqrt();
        let [of_pairs, of_model] = [own_error, expected.1].map(|error| 1.0 / (error * error).max(1e-12));
        let both = (own * of_pairs + expected.0 * of_model) / (of_pairs + of_model);
        let both = (both, (of_pairs + of_model).recip().sqrt());
        Known { pairs: number, own: (own, own_error), both }
    }

    fn verdict(&self, from: &[usize], to: &[usize], (noise, worth): (f64, f64)) -> Verdict {
        let known = self.known(from, to, noise);
        let (pairs, (both, error)) = (known.pairs, known.both);
        // More pairs decide no more where the trials before say more than they can.
        let at_last = noise * (2.0 / MOST_PAIRS as f64).sqrt();
        let is_last = pairs >= MOST_PAIRS || at_last > 2.0 * self.model.gain(from, to).1;
        match pairs {
            pairs if pairs < LEAST_ROUNDS => Verdict::Open,
            _ if known.is_proven() => Verdict::Proven,
            _ if both + DOUBT * error < worth / 2.0 => Verdict::Refuted,
            _ if is_last && both < error => Verdict::Refuted,
            _ if is_last => Verdict::Likely,
            _ => Verdict::Open,
        }
    }

    /// The knobs whose values the best settings do not need, once another round decides no more.
    pub(super) fn needless(&self, noise: f64, worth: f64) -> Option<Vec<usize>> {
        let verdict =
            |(knob, without): &(usize, Settings)| (*knob, self.verdict(without, &self.best, (noise, worth)));
        let verdicts: Vec<(usize, Verdict)> = self.without.iter().map(verdict).collect();
        let of = |wanted: Verdict| {
            verdicts.iter().filter(move |(_, verdict)| *verdict == wanted).map(|(knob, _)| *knob)
        };
        let refuted: Vec<usize> = of(Verdict::Refuted).collect();
        // What is refuted need not wait for what is open.
        (!refuted.is_empty() || of(Verdict::Open).next().is_none()).then_some(refuted)
    }

    /// The steps of the way, each proven; steps that are not are joined with those behind them. Where a value is
    /// refuted, the steps up to the first that is not proven.
    pub(super) fn proven(&self, noise: f64, worth: f64) -> Vec<TunedStep> {
        let is_refuted = |(_, without): &(usize, Settings)| {
            self.verdict(without, &self.best, (noise, worth)) == Verdict::Refuted
        };
        let is_complete = !self.without.iter().any(is_refuted);
        let mut steps: Vec<TunedStep> = Vec::new();
        let mut from = &self.way[0];
        for to in &self.way[1..] {
            let found = self.known(from, to, noise);
            if found.is_claimed() {
                steps.push(self.step(from, to, found));
                from = to;
            } else if !is_complete {
                return steps;
            }
        }
        // What is left belongs to the last step.
        if let Some(last) = self.way.last().filter(|last| *last != from) {
            let from = steps.pop().map_or_else(|| self.way[0].clone(), |step| step.from);
            let found = self.known(&from, last, noise);
            if found.is_claimed() {
                steps.push(self.step(&from, last, found));
            }
        }
        steps
    }

    fn step(&self, from: &[usize], to: &[usize], found: Known) -> TunedStep {
        let changes = (0..to.len()).filter(|knob| from[*knob] != to[*knob]);
        TunedStep {
            changes: changes.map(|knob| (knob, to[knob])).collect(),
            from: from.to_vec(),
            to: to.to_vec(),
            gain: Gain::of(found.both.0, found.both.1),
            pairs: found.pairs as u32,
        }
    }
}
