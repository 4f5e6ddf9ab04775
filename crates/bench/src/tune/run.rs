//! The search run on a bed: trials into one record, and the conclusions of the record.

use std::{collections::BTreeMap, time::Instant};

use measure::{
    Effect, EffectScale, End, PairSummary, RateInterval, Run, SCHEMA, Start, Trial, TuneAttempt,
    TuneRejected, TuneSearch, TuneStep, TunedRate, confidence_interval,
};
use search::{Gain, Refused, Tuning, TuningEnd, TuningOutcome, TuningPhase, TuningStep, Why};
use trial::{Tick, TrialRun};

use super::{
    artefacts,
    bed::{Ask, Bed, Refusal},
    evidence::{self, Group},
    meter::Meter,
    plan::TunePlan,
    words::{self, PROVE},
};
use crate::{
    recorder::{Coming, Watcher},
    row::Row,
};

/// Overhead of a trial, before the first one has been timed.
const BESIDE_NS: u64 = 200_000_000;
/// Trials reserved for profiles of the steps.
const FOR_PROFILES: f64 = 6.0;
/// At most this share of the budget.
const MOST_FOR_PROFILES: f64 = 0.1;
/// Measurements that run however long they take.
const FEWEST: u32 = 8;
/// Confidence of every interval.
const CONFIDENCE: f64 = 0.95;
/// Phases in the parameters of trials.
const PROFILE: &str = "profile";

/// Runs the search. Trials before an error or an interruption remain in the record, with its
/// conclusions; trials of `earlier`, a run of the same plan, are not repeated.
///
/// # Errors
/// Why trials could not run, with the record so far.
pub fn run_tune<B: Bed>(
    plan: &TunePlan,
    bed: &mut B,
    start: Start,
    earlier: Option<Run>,
    watcher: &mut impl Watcher,
) -> Result<Run, (Box<Run>, B::Error)> {
    let first = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end: End::default() };
    let mut tuner = Tuner {
        plan,
        bed,
        watcher,
        meter: Meter::new(plan.goal, plan.trial_ns),
        search: Tuning::new(plan.search(u32::MAX)),
        run: first,
        history: Vec::new(),
        began: Instant::now(),
        spent_before_s: 0.0,
        measured: 0,
    };
    if let Some(earlier) = earlier {
        tuner.replay(earlier);
    }
    let outcome = tuner.search();
    let found = tuner.search.outcome();
    let outcome = outcome.and_then(|()| tuner.profile(&found));
    let kept = match (&outcome, plan.keep && !tuner.run.end.interrupted) {
        (Ok(()), true) => tuner.keep(&found),
        _ => Ok(false),
    };
    let mut run = tuner.finish(found);
    let (outcome, kept) = match kept {
        Ok(kept) => (outcome, kept),
        Err(error) => (Err(error), false),
    };
    if let Some(tuning) = &mut run.end.tuning {
        tuning.kept = kept;
    }
    match outcome {
        Ok(()) => Ok(run),
        Err(error) => Err((Box::new(run), error)),
    }
}

struct Tuner<'t, B, W> {
    plan: &'t TunePlan,
    bed: &'t mut B,
    watcher: &'t mut W,
    meter: Meter,
    search: Tuning,
    run: Run,
    history: Vec<TuneAttempt>,
    began: Instant,
    spent_before_s: f64,
    /// Measurements of this process.
    measured: u32,
}

impl<B: Bed, W: Watcher> Tuner<'_, B, W> {
    /// Takes over the measurements of an earlier run.
    fn replay(&mut self, earlier: Run) {
        let trials = earlier.end.trials.iter().take_while(|trial| !trial.interrupted);
        let trials: Vec<&Trial> = trials.filter(|trial| phase_of(trial) != PROFILE).collect();
        // A rate without loss takes several trials in a row.
        let is_alone = self.meter.trials() <= 1.0;
        let together = |one: &&Trial, next: &&Trial| !is_alone && one.parameters == next.parameters;
        for group in trials.chunk_by(together) {
            let Some(values) = words::values(&self.plan.knobs, &group[0].parameters) else { continue };
            let Some(figure) = self.meter.figure(group) else { continue };
            self.search.record(&values, Some(self.meter.score(figure)));
            let last = self.run.end.trials.len() + group.len() - 1;
            self.run.end.trials.extend(group.iter().map(|&trial| trial.clone()));
            self.history.push(TuneAttempt {
                trial: Some(last as u32),
                phase: phase_of(group[0]).into(),
                settings: words::changed(&self.plan.knobs, &values),
                value: Some(figure),
                failure: None,
            });
        }
        self.spent_before_s = earlier.end.duration_s;
    }

    fn left_s(&self) -> f64 {
        (self.plan.budget_ns as f64 / 1e9 - self.spent_before_s - self.began.elapsed().as_secs_f64()).max(0.0)
    }

    /// Measurements that fit into the rest of the budget.
    fn affordable(&self) -> u32 {
        let first = (self.plan.trial_ns + BESIDE_NS) as f64 / 1e9 * self.meter.trials();
        let each = match self.measured {
            0 => first,
            measured => self.began.elapsed().as_secs_f64() / f64::from(measured),
        };
        let profiles = FOR_PROFILES * (self.plan.trial_ns + BESIDE_NS) as f64 / 1e9;
        let profiles = profiles.min(MOST_FOR_PROFILES * self.plan.budget_ns as f64 / 1e9);
        let affordable = ((self.left_s() - profiles).max(0.0) / each) as u32;
        // A machine that stalls at first is still measured.
        affordable.max(FEWEST.saturating_sub(self.measured))
    }

    fn search(&mut self) -> Result<(), B::Error> {
        loop {
            self.search.limit(self.affordable());
            let TuningStep::Measure { settings, phase } = self.search.next() else { return Ok(()) };
            let phase = match phase {
                TuningPhase::Screen => "screen",
                TuningPhase::Focus => "focus",
                TuningPhase::Prove => PROVE,
            };
            let number = 1 + self.history.len() as u32;
            let attempt = self.attempt(&settings, phase, |meter, bed, at, done, tick| {
                meter.measure(bed, at, number, done, tick)
            })?;
            self.measured += 1;
            let is_over = self.run.end.interrupted;
            if !is_over {
                let figure = attempt.value.map(|figure| self.meter.score(figure));
                self.search.record(&settings, figure);
                self.history.push(attempt);
            } else {
                self.search.stop();
                return Ok(());
            }
        }
    }

    /// Runs trials of these settings and puts them into the record.
    fn attempt(
        &mut self,
        settings: &[usize],
        phase: &str,
        run: impl FnOnce(
            &mut Meter,
            &mut B,
            &super::combination::Combination,
            &mut Vec<TrialRun<B::Error>>,
            &mut dyn FnMut(Tick) -> bool,
        ) -> Result<(), Refusal<B::Error>>,
    ) -> Result<TuneAttempt, B::Error> {
        let best = self.search.incumbent().to_vec();
        let what = self.status(settings, phase, &best);
        let row = Row::Ours(&self.plan.pair);
        self.watcher
            .trial_begins(&Coming { index: self.run.end.trials.len() as u32, ..Coming::of(row, what) });
        let (mut done, mut goes_on) = (Vec::new(), true);
        let watcher = &mut *self.watcher;
        let outcome =
            run(&mut self.meter, self.bed, &self.plan.combination(settings), &mut done, &mut |tick| {
                goes_on &= watcher.tick(tick);
                goes_on
            });
        let first = self.run.end.trials.len();
        let mut failure = None;
        for mut finished in done {
            let index = self.run.end.trials.len() as u32;
            finished.trial.parameters = words::parameters(&self.plan.knobs, settings, phase);
            finished.intervals.iter_mut().for_each(|interval| interval.trial = index);
            goes_on &= self.watcher.trial_ends(&finished.trial, &finished.intervals);
            failure = finished.error.as_ref().map(ToString::to_string);
            self.run.end.interrupted |= finished.trial.interrupted && failure.is_none();
            self.run.end.trials.push(finished.trial);
        }
        self.run.end.interrupted |= !goes_on;
        match outcome {
            Ok(()) => {}
            Err(Refusal::Unusable(reason)) => failure = Some(reason),
            Err(Refusal::Broken(error)) => return Err(error),
        }
        let trials: Vec<&Trial> = self.run.end.trials[first..].iter().collect();
        let value = if failure.is_none() { self.meter.figure(&trials) } else { None };
        let failure = failure.or_else(|| {
            value
                .is_none()
                .then(|| "the goal's figure could not be measured: too many packets were lost".into())
        });
        Ok(TuneAttempt {
            trial: self
                .run
                .end
                .trials
                .len()
                .checked_sub(1)
                .filter(|last| *last >= first)
                .map(|last| last as u32),
            phase: phase.into(),
            settings: words::changed(&self.plan.knobs, settings),
            value,
            failure,
        })
    }

    /// The current values, the best so far, and the budget left.
    fn status(&self, settings: &[usize], phase: &str, best: &[usize]) -> String {
        let known = words::changed(&self.plan.knobs, best);
        let of_best = self.history.iter().filter(|attempt| attempt.settings == known);
        let values: Vec<f64> = of_best.filter_map(|attempt| attempt.value).collect();
        let left = self.left_s();
        let best = match measure::median(&values) {
            Some(value) => format!(
                "best {} with {}",
                figure(value, self.plan.goal.unit()),
                words::in_words(&self.plan.knobs, best)
            ),
            None => "no best yet".into(),
        };
        let tried = words::in_words(&self.plan.knobs, settings);
        format!("{phase}: {tried} | {best} | {}:{:02} left", left as u64 / 60, left as u64 % 60)
    }

    /// One trial with a profile of each combination on the way: evidence, not part of any rate.
    fn profile(&mut self, found: &TuningOutcome) -> Result<(), B::Error> {
        if found.steps.is_empty() || self.run.end.interrupted || trial::Diagnosis::start().is_err() {
            return Ok(());
        }
        let way = std::iter::once(&found.steps[0].from).chain(found.steps.iter().map(|step| &step.to));
        let ask = Ask {
            duration_ns: self.plan.trial_ns,
            rate_pps: self.meter.load_pps,
            statistics: None,
            profile: true,
            number: 1,
        };
        for settings in way {
            if self.run.end.interrupted {
                break;
            }
            self.attempt(settings, PROFILE, |_, bed, at, done, tick| {
                done.push(bed.trial(at, &ask, tick)?);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Leaves the best settings in effect; they are those of one more trial.
    fn keep(&mut self, found: &TuningOutcome) -> Result<bool, B::Error> {
        if found.steps.is_empty() {
            return Ok(false);
        }
        let ask = Ask {
            duration_ns: self.plan.trial_ns,
            rate_pps: self.meter.load_pps,
            statistics: None,
            profile: false,
            number: 1,
        };
        self.attempt(&found.best, "keep", |_, bed, at, done, tick| {
            done.push(bed.trial(at, &ask, tick)?);
            Ok(())
        })?;
        self.bed.keep()?;
        Ok(true)
    }

    /// The interleaved trials of these settings; all of them if none were interleaved.
    fn group<'r>(&'r self, settings: &[usize]) -> Group<'r> {
        let changed = words::changed(&self.plan.knobs, settings);
        let is_of = |trial: &&Trial| {
            let own = trial.parameters.iter().filter(|(name, _)| *name != words::PHASE);
            own.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .eq(changed.clone())
        };
        let all: Vec<&Trial> = self.run.end.trials.iter().filter(is_of).collect();
        let of =
            |phase: &str| all.iter().copied().filter(|trial| phase_of(trial) == phase).collect::<Vec<_>>();
        let profiled = of(PROFILE).first().copied();
        let mut plain = of(PROVE);
        if plain.is_empty() {
            plain = all.into_iter().filter(|trial| phase_of(trial) != PROFILE).collect();
        }
        Group { plain, profiled }
    }

    /// The goal's figures of these settings, of the interleaved measurements if there are any.
    fn figures(&self, settings: &[usize]) -> Vec<f64> {
        let changed = words::changed(&self.plan.knobs, settings);
        let of = |in_turns: bool| -> Vec<f64> {
            let own = self.history.iter().filter(|attempt| attempt.settings == changed);
            own.filter(|attempt| !in_turns || attempt.phase == PROVE)
                .filter_map(|attempt| attempt.value)
                .collect()
        };
        let in_turns = of(true);
        if in_turns.is_empty() { of(false) } else { in_turns }
    }

    fn rate(&self, settings: &[usize]) -> Option<TunedRate> {
        let group = self.group(settings);
        let delivered: Vec<f64> = group.plain.iter().map(|trial| trial.delivered_pps).collect();
        if delivered.is_empty() {
            return None;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let interval = confidence_interval(&delivered, CONFIDENCE);
        Some(TunedRate {
            settings: words::all(&self.plan.knobs, settings),
            trials: delivered.len() as u32,
            delivered_pps: mean(&delivered),
            interval: interval.map(|(low, high)| RateInterval {
                low_pps: low.max(0.0),
                high_pps: high,
                confidence: CONFIDENCE,
            }),
            sent_pps: mean(&group.plain.iter().map(|trial| trial.sent_pps).collect::<Vec<_>>()),
            value: mean(&self.figures(settings)),
        })
    }

    fn effect(&self, gain: &Gain) -> Effect {
        let [estimate, low, high] = [gain.ratio, gain.low, gain.high].map(|ratio| self.meter.share(ratio));
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        Effect { scale: EffectScale::Ratio, estimate, low, high, confidence: CONFIDENCE }
    }

    fn step(&self, step: &search::TunedStep) -> TuneStep {
        let knobs = &self.plan.knobs;
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let of = |text: fn(&super::knob::Knob) -> &String| {
            let mut texts: Vec<String> = Vec::new();
            for (knob, _) in &step.changes {
                let text = text(&knobs[*knob]);
                if !texts.contains(text) {
                    texts.push(text.clone());
                }
            }
            texts.join("; ")
        };
        let changes = step.changes.iter();
        TuneStep {
            settings: changes
                .map(|(knob, value)| (knobs[*knob].name.clone(), knobs[*knob].values[*value].shown.clone()))
                .collect(),
            from: mean(self.figures(&step.from)),
            to: mean(self.figures(&step.to)),
            effect: self.effect(&step.gain),
            pairs: step.pairs,
            evidence: evidence::changes(&self.group(&step.from), &self.group(&step.to)),
            risk: of(|knob| &knob.risk),
            undone: of(|knob| &knob.undone),
        }
    }

    fn rejected(&self, refused: &Refused) -> TuneRejected {
        let knob = &self.plan.knobs[refused.knob];
        let value = knob.values[refused.value].shown.clone();
        let failure = || {
            let is_it = |attempt: &&TuneAttempt| attempt.settings.get(&knob.name) == Some(&value);
            self.history.iter().filter(is_it).find_map(|attempt| attempt.failure.clone())
        };
        TuneRejected {
            setting: knob.name.clone(),
            reason: match refused.why {
                Why::Worse => "it makes things worse".into(),
                Why::TooLittle => "the gain is too small to justify a setting".into(),
                Why::NotProven => "the trials do not prove a gain".into(),
                Why::Failed => failure().unwrap_or_else(|| "no trial ran with it".into()),
            },
            value,
            effect: refused.gain.as_ref().map(|gain| self.effect(gain)),
        }
    }

    /// The record with its conclusions.
    fn finish(mut self, found: TuningOutcome) -> Run {
        let nothing = vec![0; self.plan.knobs.len()];
        let end = TuneSearch {
            goal: self.plan.goal.name().into(),
            unit: self.plan.goal.unit().into(),
            budget_s: self.plan.budget_ns as f64 / 1e9,
            noise_ratio: found.noise_ratio,
            end: match found.end {
                TuningEnd::Settled => "settled",
                TuningEnd::Budget => "budget",
                TuningEnd::Stopped => "stopped",
            }
            .into(),
            combinations: self.plan.space().combinations(),
            space: self.plan.knobs.iter().map(super::knob::Knob::recorded).collect(),
            left_out: self.plan.left_out.clone(),
            history: self.history.clone(),
            limits: evidence::limits(&self.group(&found.best)),
            artefacts: artefacts::of(self.plan, &found.best),
            kept: false,
        };
        let (baseline, best) = (self.rate(&nothing), self.rate(&found.best));
        let steps: Vec<TuneStep> = found.steps.iter().map(|step| self.step(step)).collect();
        let rejected: Vec<TuneRejected> =
            found.refused.iter().map(|refused| self.rejected(refused)).collect();
        // A table of every combination tried would bury the result.
        let way: Vec<BTreeMap<String, serde_json::Value>> = std::iter::once(&nothing)
            .chain(found.steps.iter().map(|step| &step.to))
            .map(|settings| words::parameters(&self.plan.knobs, settings, PROVE))
            .collect();
        let end_of_run = &mut self.run.end;
        end_of_run.pairs = PairSummary::of(&end_of_run.trials);
        if end_of_run.pairs.iter().any(|pair| way.contains(&pair.parameters)) {
            end_of_run.pairs.retain(|pair| way.contains(&pair.parameters));
        } else {
            end_of_run.pairs.truncate(1);
        }
        end_of_run.duration_s = self.spent_before_s + self.began.elapsed().as_secs_f64();
        (end_of_run.baseline, end_of_run.best) = (baseline, best);
        (end_of_run.steps, end_of_run.rejected, end_of_run.tuning) = (steps, rejected, Some(end));
        self.run
    }
}

fn phase_of(trial: &Trial) -> &str {
    trial.parameters.get(words::PHASE).and_then(|phase| phase.as_str()).unwrap_or(PROVE)
}

/// A goal's figure as people read it.
fn figure(value: f64, unit: &str) -> String {
    match unit {
        "ns" => format!("{:.1} us", value / 1e3),
        _ if value >= 1e6 => format!("{:.2} Mpps", value / 1e6),
        _ => format!("{:.0} kpps", value / 1e3),
    }
}
