//! Whether the best settings need each of their values, and the way to them from the current settings.
//!
//! In every round the settings on the way rotate with the best settings without each one of their values. A value stays
//! when the best settings are proven to be worse without it. The evidence is twofold: the model's estimate from earlier
//! trials, and the proof's own pairs of trials, weighted by their certainty. Both measure settings that were chosen
//! because they looked good, so a value must differ by [`PROVEN`] standard errors, and its own pairs alone must not look
//! harmful. A step that is not proven alone is merged with the next step: two settings that help only together are one
//! step.

use super::{
    model::Model,
    space::Settings,
    step::{Gain, TunedStep},
};

/// Settings in rotation, and their trials.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    best: Settings,
    /// All settings on the way, the current ones first.
    way: Vec<Settings>,
    /// The best settings without one of their values, by knob.
    without: Vec<(usize, Settings)>,
    /// All settings in rotation, and the logarithms of their trials.
    turns: Vec<(Settings, Vec<f64>)>,
    /// The model's prior estimate of each step and of each value.
    model: Model,
}

/// The verdict on a value or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Proven,
    /// It looks good, but more pairs would not prove it: it stays as part of a proven step.
    Likely,
    Refuted,
    Open,
}

/// Estimates of a difference: from its own pairs of trials and from all evidence, each with its standard error.
#[derive(Debug, Clone, Copy)]
struct Known {
    pairs: usize,
    own: (f64, f64),
    both: (f64, f64),
}

impl Known {
    /// It is significant, and its own pairs do not contradict.
    fn is_proven(&self) -> bool {
        self.both.0 >= PROVEN * self.both.1 && self.own.0 > -DOUBT * self.own.1
    }

    /// Good enough to claim when the search was cut short.
    fn is_claimed(&self) -> bool {
        self.pairs >= LEAST_PAIRS && self.is_proven()
    }
}

/// Standard errors by which a gain must exceed zero.
const PROVEN: f64 = 2.2;
/// Margin in standard errors when a value is given up.
const DOUBT: f64 = 1.64;
/// Pairs needed to claim a step when the search was cut short.
const LEAST_PAIRS: usize = 2;
/// Rounds before any decision, and pairs after which everything is decided.
const LEAST_ROUNDS: usize = 4;
const MOST_PAIRS: usize = 24;

impl Proof {
    /// The fewest trials for a proof of that many values.
    pub(super) fn trials(changed: usize) -> u32 {
        (LEAST_ROUNDS * (2 * changed + 1)) as u32
    }

    /// The way to `best`: each step sets the knob that gains most, or two knobs when one alone gains nothing.
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
            // The certain part of the estimate.
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

    /// Takes over the trials of an earlier proof.
    pub(super) fn following(mut self, before: &Self) -> Self {
        for (settings, logs) in &mut self.turns {
            logs.extend_from_slice(before.logs(settings));
        }
        self
    }

    /// A round: all settings in rotation; later only the best settings and the undecided ones.
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

    /// A difference from its own pairs and from all evidence, each with its standard error.
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
        // More pairs cannot decide when the earlier trials outweigh them.
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

    /// The knobs whose values the best settings do not need, once another round would decide nothing.
    pub(super) fn needless(&self, noise: f64, worth: f64) -> Option<Vec<usize>> {
        let verdict =
            |(knob, without): &(usize, Settings)| (*knob, self.verdict(without, &self.best, (noise, worth)));
        let verdicts: Vec<(usize, Verdict)> = self.without.iter().map(verdict).collect();
        let of = |wanted: Verdict| {
            verdicts.iter().filter(move |(_, verdict)| *verdict == wanted).map(|(knob, _)| *knob)
        };
        let refuted: Vec<usize> = of(Verdict::Refuted).collect();
        // A refuted value need not wait for undecided ones.
        (!refuted.is_empty() || of(Verdict::Open).next().is_none()).then_some(refuted)
    }

    /// The steps of the way, each proven; unproven ones are merged with the following step. Where a value is
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
        // The rest belongs to the last step.
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
