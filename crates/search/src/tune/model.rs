//! What the trials so far imply for every combination: effects of single knobs and of pairs, with their uncertainty.
//!
//! A trial's logarithm is a sum: a level, an effect of each knob's value, an effect of each pair of values, the
//! machine's drift in its block, and noise. Effects are coded as contrasts of each knob's values, and have priors
//! whose variances are learnt knob by knob and pair by pair (empirical Bayes by expectation maximisation; MacKay,
//! Neural Computation 4, 1992): a knob without effect costs no certainty about the others. A trial far from others of the
//! same settings is clipped, because a stumble of the machine is not an effect.

use std::collections::BTreeMap;

use super::{
    matrix::{InverseFactor, dot},
    space::{Settings, Survivors},
};

/// A trial as seen by the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observation {
    pub(super) settings: Settings,
    /// Logarithm of what was measured.
    pub(super) log: f64,
    /// Trials of a block ran close together in time.
    pub(super) block: usize,
}

/// The coding of a knob's values: one row of contrasts per value.
#[derive(Debug, Clone)]
struct Coding(Vec<Vec<f64>>);

/// The effect that each column belongs to.
#[derive(Debug, Clone, Copy)]
struct Group {
    first: usize,
    columns: usize,
    /// The standard deviation that effects of this kind are expected to have.
    usual: f64,
}

/// The fitted model.
#[derive(Debug, Clone)]
pub(super) struct Model {
    codings: Vec<Coding>,
    groups: Vec<Group>,
    columns: usize,
    coefficients: Vec<f64>,
    factor: InverseFactor,
    /// Standard deviation of a trial's logarithm.
    pub(super) noise: f64,
}

/// The prior, before the first trial.
const USUAL_MAIN: f64 = 0.05;
const USUAL_PAIR: f64 = 0.004;
const FIRST_MAIN: f64 = 0.2;
const FIRST_PAIR: f64 = 0.08;
/// Weight, in trials, of the prior for an effect's size and for the noise.
const PRIOR_TRIALS: f64 = 1.0;
const NOISE_TRIALS: f64 = 6.0;
/// Upper limit of the noise, as a multiple of the scatter of repeated trials.
const MOST_NOISE: f64 = 1.5;
/// A machine's drift from block to block.
const DRIFT: f64 = 0.02;
/// The level is anything.
const LEVEL: f64 = 100.0;
const ROUNDS: usize = 8;
/// Distance in knobs, beyond the first, that halves a trial's weight.
const REACH: f64 = 2.0;
/// A trial further than this from the others of the same settings is a stumble, in deviations.
const STUMBLE: f64 = 5.0;

/// The weight of a trial for nearby settings: full up to one knob away, half at three.
fn weight(settings: &[usize], near: Option<&[usize]>) -> f64 {
    let Some(near) = near else { return 1.0 };
    let away = settings.iter().zip(near).filter(|(one, other)| one != other).count();
    1.0 / (1.0 + (away.saturating_sub(1) as f64 / REACH).powi(2))
}

/// The noise of a trial: the prior, and the scatter of trials of the same settings, from the median of their differences,
/// which a stumble does not move.
fn repeated_noise(trials: &[Observation], believed: f64) -> f64 {
    let mut last: BTreeMap<&[usize], f64> = BTreeMap::new();
    let mut differences: Vec<f64> = Vec::new();
    for trial in trials {
        if let Some(before) = last.insert(&trial.settings, trial.log) {
            differences.push((trial.log - before).abs());
        }
    }
    differences.sort_by(f64::total_cmp);
    let Some(middle) = differences.get(differences.len() / 2) else { return believed };
    // A difference has twice the variance; the median of a normal's size is 0.6745 deviations.
    let seen = middle / 0.6745 / 2f64.sqrt();
    let count = differences.len() as f64;
    ((NOISE_TRIALS * believed * believed + count * seen * seen) / (NOISE_TRIALS + count)).sqrt()
}

/// The trials' blocks and logarithms; one that is far from the others of the same settings is clipped to the limit.
fn without_stumbles(trials: &[Observation], noise: f64) -> Vec<(usize, f64)> {
    let mut alike: BTreeMap<&[usize], Vec<f64>> = BTreeMap::new();
    for trial in trials {
        alike.entry(&trial.settings).or_default().push(trial.log);
    }
    let middle = |logs: &mut Vec<f64>| {
        logs.sort_by(f64::total_cmp);
        (logs.len() >= 3).then(|| logs[logs.len() / 2])
    };
    let middles: BTreeMap<&[usize], Option<f64>> =
        alike.into_iter().map(|(settings, mut logs)| (settings, middle(&mut logs))).collect();
    let bound = STUMBLE * noise;
    let clipped = |trial: &Observation| match middles.get(&trial.settings[..]).copied().flatten() {
        Some(middle) => trial.log.clamp(middle - bound, middle + bound),
        None => trial.log,
    };
    trials.iter().map(|trial| (trial.block, clipped(trial))).collect()
}

impl Coding {
    /// Helmert contrasts for `values` values, each with mean square 1.
    fn of(values: usize) -> Self {
        let contrast = |value: usize, contrast: usize| {
            let scale = (values as f64 / (contrast * (contrast + 1)) as f64).sqrt();
            match value {
                value if value < contrast => -scale,
                value if value == contrast => scale * contrast as f64,
                _ => 0.0,
            }
        };
        Self((0..values).map(|value| (1..values).map(|at| contrast(value, at)).collect()).collect())
    }
}

impl Model {
    /// Fits all trials; `noise` is the assumed noise of a trial. Trials of settings far from `near` weigh less: effects
    /// may differ there.
    pub(super) fn fit(
        values: &[usize],
        trials: &[Observation],
        noise: f64,
        near: Option<&[usize]>,
    ) -> Option<Self> {
        let codings: Vec<Coding> = values.iter().map(|count| Coding::of((*count).max(1))).collect();
        let mut groups = vec![Group { first: 0, columns: 1, usual: LEVEL }];
        let mut columns = 1;
        let mut add = |count: usize, usual: f64| {
            groups.push(Group { first: columns, columns: count, usual });
            columns += count;
        };
        let width = |knob: usize| values[knob].max(1) - 1;
        (0..values.len()).for_each(|knob| add(width(knob), USUAL_MAIN));
        for one in 0..values.len() {
            (one + 1..values.len()).for_each(|other| add(width(one) * width(other), USUAL_PAIR));
        }
        let empty = InverseFactor::of(Vec::new(), 0)?;
        let mut model =
            Self { codings, groups, columns, coefficients: vec![0.0; columns], factor: empty, noise };
        model.learn(trials, noise, near)?;
        Some(model)
    }

    fn learn(&mut self, trials: &[Observation], believed_noise: f64, near: Option<&[usize]>) -> Option<()> {
        let weights: Vec<f64> = trials.iter().map(|trial| weight(&trial.settings, near)).collect();
        let total: f64 = weights.iter().sum();
        let believed_noise = repeated_noise(trials, believed_noise);
        self.noise = believed_noise;
        let logs = without_stumbles(trials, believed_noise);
        let rows: Vec<Vec<f64>> = trials.iter().map(|trial| self.code(&trial.settings)).collect();
        let blocks = trials.iter().map(|trial| trial.block + 1).max().unwrap_or(0);
        let mut drift = vec![0.0; blocks];
        let mut deviations: Vec<f64> = (0..self.groups.len())
            .map(|group| match self.groups[group].usual {
                usual if usual == USUAL_MAIN => FIRST_MAIN,
                usual if usual == USUAL_PAIR => FIRST_PAIR,
                usual => usual,
            })
            .collect();
        let size = self.columns;
        let mut information = vec![0.0; size * size];
        for (row, weight) in rows.iter().zip(&weights) {
            for (at, of_row) in row.iter().enumerate() {
                let scaled = weight * of_row;
                for (cell, other) in information[at * size..][..=at].iter_mut().zip(row) {
                    *cell += scaled * other;
                }
            }
        }
        for _ in 0..ROUNDS {
            let variance = self.noise * self.noise;
            let mut precision: Vec<f64> = information.iter().map(|cell| cell / variance).collect();
            let mut right = vec![0.0; size];
            for ((row, (block, log)), weight) in rows.iter().zip(&logs).zip(&weights) {
                let value = (log - drift[*block]) * weight / variance;
                right.iter_mut().zip(row).for_each(|(sum, of_row)| *sum += value * of_row);
            }
            for (group, deviation) in self.groups.iter().zip(&deviations) {
                for at in group.first..group.first + group.columns {
                    precision[at * size + at] += 1.0 / (deviation * deviation);
                }
            }
            self.factor = InverseFactor::of(precision, size)?;
            self.coefficients = self.factor.solve(&right);
            let uncertain = self.factor.inverse_diagonal();
            // How much of each column the data decides rather than its prior.
            let mut decided = 0.0;
            for (group, deviation) in self.groups.iter().zip(&mut deviations).skip(1) {
                let columns = group.first..group.first + group.columns;
                let own: f64 = columns.clone().map(|at| self.coefficients[at].powi(2) + uncertain[at]).sum();
                decided += columns.map(|at| 1.0 - uncertain[at] / (*deviation * *deviation)).sum::<f64>();
                let usual = PRIOR_TRIALS * group.usual * group.usual;
                *deviation = ((own + usual) / (group.columns as f64 + PRIOR_TRIALS)).sqrt();
            }
            let residuals: Vec<f64> =
                rows.iter().zip(&logs).map(|(row, (_, log))| log - dot(row, &self.coefficients)).collect();
            for (block, drift) in drift.iter_mut().enumerate() {
                let of_block =
                    residuals.iter().zip(&weights).zip(&logs).filter(|(_, (own, _))| *own == block);
                let (count, sum) = of_block.fold((0.0, 0.0), |(n, sum), ((residual, weight), _)| {
                    (n + weight, sum + weight * residual)
                });
                *drift = sum / (count + variance / (DRIFT * DRIFT));
            }
            let off = residuals.iter().zip(&logs).map(|(residual, (block, _))| residual - drift[*block]);
            let squares: f64 = off.zip(&weights).map(|(off, weight)| weight * off * off).sum();
            let believed = NOISE_TRIALS * believed_noise * believed_noise;
            self.noise = ((squares + variance * (decided + 1.0) + believed) / (total + NOISE_TRIALS))
                .sqrt()
                // Variation beyond the scatter of repeated trials is an effect, possibly one that the model lacks.
                .min(MOST_NOISE * believed_noise);
        }
        Some(())
    }

    /// A combination as the model's columns.
    fn code(&self, settings: &[usize]) -> Vec<f64> {
        let of = |knob: usize| &self.codings[knob].0[settings[knob]];
        let mut row = Vec::with_capacity(self.columns);
        row.push(1.0);
        (0..settings.len()).for_each(|knob| row.extend_from_slice(of(knob)));
        for one in 0..settings.len() {
            for other in one + 1..settings.len() {
                row.extend(of(one).iter().flat_map(|a| of(other).iter().map(move |b| a * b)));
            }
        }
        row
    }

    /// The prediction for a combination, as a logarithm.
    pub(super) fn predict(&self, settings: &[usize]) -> f64 {
        dot(&self.code(settings), &self.coefficients)
    }

    /// How much more `to` gives than `from`, as a difference of logarithms, and its standard error.
    pub(super) fn gain(&self, from: &[usize], to: &[usize]) -> (f64, f64) {
        let difference: Vec<f64> =
            self.code(to).iter().zip(self.code(from)).map(|(to, from)| to - from).collect();
        (dot(&difference, &self.coefficients), self.factor.variance(&difference).sqrt())
    }

    /// The settings without the values that the model does not support, the least supported first.
    pub(super) fn simplified(&self, settings: &[usize], worth: f64) -> Settings {
        let mut kept = settings.to_vec();
        loop {
            let reason = |knob: usize| {
                let mut without = kept.clone();
                without[knob] = 0;
                let (gain, error) = self.gain(&without, &kept);
                (knob, gain, gain / error.max(1e-9))
            };
            let changed = (0..kept.len()).filter(|knob| kept[*knob] != 0);
            let least = changed.map(reason).min_by(|a, b| a.2.total_cmp(&b.2));
            match least.filter(|(_, gain, reason)| *reason < 0.5 || *gain < worth / 4.0) {
                Some((knob, ..)) => kept[knob] = 0,
                None => return kept,
            }
        }
    }

    /// The best of the survivors, and the best with each value of each knob.
    pub(super) fn best(&self, left: &Survivors, near: &[usize]) -> Ranking {
        let table = Table::of(self);
        let start: Settings = (0..near.len())
            .map(|knob| if left.of(knob).contains(&near[knob]) { near[knob] } else { left.of(knob)[0] })
            .collect();
        let mut ranking = Ranking { best: start.clone(), with: Vec::new() };
        let mut highest: Vec<Vec<(f64, Settings)>> =
            self.codings.iter().map(|coding| vec![(f64::NEG_INFINITY, Vec::new()); coding.0.len()]).collect();
        let mut note = |settings: &Settings| {
            let value = table.value(settings);
            for (knob, setting) in settings.iter().enumerate() {
                let known = &mut highest[knob][*setting];
                if value > known.0 {
                    *known = (value, settings.clone());
                }
            }
        };
        if left.combinations(MOST_ENUMERATED).is_some() {
            let mut places = vec![0; near.len()];
            loop {
                note(&left.at(&places));
                if !left.advance(&mut places) {
                    break;
                }
            }
        } else {
            let best = table.climb(start, left, None);
            for knob in 0..near.len() {
                for value in left.of(knob) {
                    let mut from = best.clone();
                    from[knob] = *value;
                    note(&table.climb(from, left, Some(knob)));
                }
            }
            note(&best);
        }
        let all = highest.iter().flatten();
        if let Some((_, best)) = all.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|best| !best.1.is_empty()) {
            ranking.best.clone_from(best);
        }
        ranking.with =
            highest.into_iter().map(|of| of.into_iter().map(|(_, settings)| settings).collect()).collect();
        ranking
    }
}

/// Above this number of combinations, hill climbing replaces enumeration.
const MOST_ENUMERATED: usize = 20_000;

/// The best combinations by the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ranking {
    /// Of all.
    pub(super) best: Settings,
    /// With each value of each knob; empty when the value is eliminated.
    pub(super) with: Vec<Vec<Settings>>,
}

/// The model's effects by knob and value, which are faster to add up than its columns.
struct Table {
    level: f64,
    main: Vec<Vec<f64>>,
    /// By knob, value, other knob after it, its value.
    pairs: Vec<Vec<Vec<Vec<f64>>>>,
}

impl Table {
    fn of(model: &Model) -> Self {
        let knobs = model.codings.len();
        let mut groups = model.groups.iter().skip(1);
        let mut next =
            || groups.next().map_or(&[][..], |group| &model.coefficients[group.first..][..group.columns]);
        let main = (0..knobs)
            .map(|knob| {
                let own = next();
                model.codings[knob].0.iter().map(|row| dot(row, own)).collect()
            })
            .collect();
        let mut pairs = Vec::new();
        for one in 0..knobs {
            let coded = &model.codings[one].0;
            let mut of_one: Vec<Vec<Vec<f64>>> = vec![Vec::new(); coded.len()];
            for other in one + 1..knobs {
                let own = next();
                let width = model.codings[other].0.len() - 1;
                for (value, row) in coded.iter().enumerate() {
                    let of_other = model.codings[other].0.iter().map(|theirs| {
                        let each = row.iter().enumerate();
                        each.map(|(at, a)| a * dot(theirs, &own[at * width..][..width])).sum()
                    });
                    of_one[value].push(of_other.collect());
                }
            }
            pairs.push(of_one);
        }
        Self { level: model.coefficients[0], main, pairs }
    }

    fn value(&self, settings: &[usize]) -> f64 {
        let mut sum = self.level;
        for (knob, value) in settings.iter().enumerate() {
            sum += self.main[knob][*value];
            let pairs = self.pairs[knob][*value].iter().zip(&settings[knob + 1..]);
            sum += pairs.map(|(of, other)| of[*other]).sum::<f64>();
        }
        sum
    }

    /// Hill climbing from a combination, one or two knobs at a time, with one knob held.
    fn climb(&self, mut at: Settings, left: &Survivors, held: Option<usize>) -> Settings {
        let mut value = self.value(&at);
        let free: Vec<usize> = (0..at.len()).filter(|knob| Some(*knob) != held).collect();
        loop {
            let mut better: Option<(f64, Settings)> = None;
            let consider = |tried: &Settings, value: f64, found: &mut Option<(f64, Settings)>| {
                let tried_value = self.value(tried);
                if tried_value > value + 1e-12 && found.as_ref().is_none_or(|best| tried_value > best.0) {
                    *found = Some((tried_value, tried.clone()));
                }
            };
            let mut tried = at.clone();
            for (place, &one) in free.iter().enumerate() {
                for &of_one in left.of(one) {
                    tried[one] = of_one;
                    consider(&tried, value, &mut better);
                    for &other in &free[place + 1..] {
                        for &of_other in left.of(other) {
                            tried[other] = of_other;
                            consider(&tried, value, &mut better);
                        }
                        tried[other] = at[other];
                    }
                }
                tried[one] = at[one];
            }
            match better {
                Some((higher, there)) => (value, at) = (higher, there),
                None => return at,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrasts_are_balanced_and_of_mean_square_one() {
        for values in 2..6 {
            let Coding(rows) = Coding::of(values);
            for at in 0..values - 1 {
                let sum: f64 = rows.iter().map(|row| row[at]).sum();
                let squares: f64 = rows.iter().map(|row| row[at] * row[at]).sum();
                assert!(sum.abs() < 1e-12 && (squares - values as f64).abs() < 1e-9, "{values} values");
            }
        }
    }

    /// Every combination of 2 × 3 × 2 values, `rounds` times, of `log`.
    fn trials(rounds: usize, log: impl Fn(&[usize], usize) -> f64) -> Vec<Observation> {
        let mut all = Vec::new();
        for block in 0..rounds {
            for at in 0..12 {
                let settings = vec![at % 2, at / 2 % 3, at / 6];
                all.push(Observation { log: log(&settings, block), settings, block });
            }
        }
        all
    }

    #[test]
    fn effects_of_knobs_and_of_pairs_are_told_apart_from_drift() {
        // the first knob helps only together with the third; the second's value 2 costs a tenth
        let truth = |at: &[usize]| {
            10.0 + if at[0] == 1 && at[2] == 1 { 0.7 } else { 0.0 } - if at[1] == 2 { 0.1 } else { 0.0 }
        };
        let wobble =
            |at: &[usize], block: usize| 0.01 * ((at[0] * 7 + at[1] * 5 + at[2] * 3 + block * 11) % 5) as f64;
        let drift = |block: usize| 0.02 * block as f64;
        let model = Model::fit(
            &[2, 3, 2],
            &trials(4, |at, block| truth(at) + wobble(at, block) + drift(block)),
            0.05,
            None,
        )
        .unwrap();
        let gain = |from: &[usize], to: &[usize]| model.gain(from, to).0;
        assert!(gain(&[0, 0, 0], &[1, 0, 0]).abs() < 0.05);
        assert!((gain(&[0, 0, 0], &[1, 0, 1]) - 0.7).abs() < 0.05);
        assert!((gain(&[0, 0, 0], &[0, 2, 0]) + 0.1).abs() < 0.03);
        let ranking = model.best(&Survivors::all(&[2, 3, 2]), &[0, 0, 0]);
        assert_eq!((ranking.best[0], ranking.best[2]), (1, 1));
        assert_ne!(ranking.best[1], 2);
        assert_eq!(ranking.with[1][2], [1, 2, 1]);
        assert!((model.predict(&[0, 0, 0]) - 10.0).abs() < 0.1);
    }

    #[test]
    fn one_stumble_is_no_effect() {
        let mut all = trials(3, |at, _| at[0] as f64 * 0.2);
        all[13].log -= 2.0;
        let model = Model::fit(&[2, 3, 2], &all, 0.02, None).unwrap();
        let (gain, _) = model.gain(&[0, 0, 0], &[1, 0, 0]);
        assert!((gain - 0.2).abs() < 0.12, "{gain}");
    }

    #[test]
    fn climbing_finds_what_counting_finds() {
        let model =
            Model::fit(&[2, 3, 2], &trials(2, |at, _| if at == [1, 2, 1] { 1.0 } else { 0.0 }), 0.05, None)
                .unwrap();
        let (table, left) = (Table::of(&model), Survivors::all(&[2, 3, 2]));
        assert_eq!(table.climb(vec![0, 0, 0], &left, None), model.best(&left, &[0, 0, 0]).best);
    }
}
