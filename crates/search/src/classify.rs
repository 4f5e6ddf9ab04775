//! Whether a load is a lower or an upper bound for a goal (the draft's appendix A), and its conditional throughput
//! (appendix B).

use serde::{Deserialize, Serialize};

use crate::goal::Goal;

/// The weight of one trial at a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tried {
    /// Its intended time; decides whether it is full-length.
    pub duration_s: f64,
    /// Its actual time, which is its weight.
    pub effective_s: f64,
    /// Lost share of the packets sent.
    pub loss_ratio: f64,
}

/// A load's class for a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The goal is met; no further trial can change that.
    Lower,
    /// The goal is not met; no further trial can change that.
    Upper,
    /// More trials decide.
    Undecided,
}

/// Trial time at one load, by its role for a goal.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// Full-length trials within the goal's loss.
    pub full_low_s: f64,
    /// Full-length trials beyond it.
    pub full_high_s: f64,
    /// Short trials within.
    pub short_low_s: f64,
    /// Short trials beyond.
    pub short_high_s: f64,
}

impl Sums {
    /// Adds trials up.
    pub fn of(trials: &[Tried], goal: &Goal) -> Self {
        let mut sums = Self::default();
        for trial in trials {
            let is_full = trial.duration_s >= goal.final_duration_s;
            let sum = match (is_full, trial.loss_ratio > goal.loss_ratio) {
                (true, false) => &mut sums.full_low_s,
                (true, true) => &mut sums.full_high_s,
                (false, false) => &mut sums.short_low_s,
                (false, true) => &mut sums.short_high_s,
            };
            *sum += trial.effective_s;
        }
        sums
    }

    /// The class that these times decide.
    pub fn class(&self, goal: &Goal) -> Class {
        // Short trials with little loss cancel as much time of lossy short trials as the goal's ratio allows; the
        // remaining lossy time counts as if it had been full-length.
        let balancing_s = self.short_low_s * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
        let high_s = self.full_high_s + (self.short_high_s - balancing_s).max(0.0);
        let whole_s = (self.full_low_s + high_s).max(goal.duration_sum_s);
        let allowed_s = whole_s * goal.exceed_ratio + ROUNDING_S;
        // At worst, all time still missing is lossy; at best, none.
        let (worst, best) = (whole_s - self.full_low_s <= allowed_s, high_s <= allowed_s);
        match (worst, best) {
            (true, true) => Class::Lower,
            (false, false) => Class::Upper,
            _ => Class::Undecided,
        }
    }
}

/// Sums of durations are compared to within this: a nanosecond, a millionth of the shortest trial.
const ROUNDING_S: f64 = 1e-9;

/// The class of a load with these trials.
pub fn classify(trials: &[Tried], goal: &Goal) -> Class {
    Sums::of(trials, goal).class(goal)
}

/// The forwarding rate at a load: the rate forwarded by the trial at which the goal's exceed ratio splits the
/// full-length trials, ordered by loss. Time missing to the duration sum counts as lost. `None` without
/// full-length trials.
pub fn conditional_throughput_pps(load_pps: f64, trials: &[Tried], goal: &Goal) -> Option<f64> {
    let mut full: Vec<Tried> =
        trials.iter().copied().filter(|trial| trial.duration_s >= goal.final_duration_s).collect();
    full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let full_s: f64 = full.iter().map(|trial| trial.effective_s).sum();
    let mut remaining_s = full_s.max(goal.duration_sum_s) * (1.0 - goal.exceed_ratio);
    let mut loss_ratio = full.first()?.loss_ratio;
    for trial in &full {
        if remaining_s <= ROUNDING_S {
            break;
        }
        loss_ratio = trial.loss_ratio;
        remaining_s -= trial.effective_s;
    }
    let loss_ratio = if remaining_s > ROUNDING_S { 1.0 } else { loss_ratio };
    Some(load_pps * (1.0 - loss_ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(name: &str, final_s: f64, sum_s: f64, loss_ratio: f64, exceed_ratio: f64) -> Goal {
        Goal {
            name: name.into(),
            loss_ratio,
            exceed_ratio,
            final_duration_s: final_s,
            duration_sum_s: sum_s,
            ..Goal::ndr()
        }
    }

    /// The four goals of the draft's example, appendix C.
    fn goals() -> [Goal; 4] {
        [
            goal("RFC2544", 60.0, 60.0, 0.0, 0.0),
            goal("TST009", 60.0, 120.0, 0.0, 0.5),
            goal("1s final", 1.0, 120.0, 0.005, 0.5),
            goal("20% exceed", 60.0, 60.0, 0.005, 0.2),
        ]
    }

    fn trials(count: usize, duration_s: f64, loss_ratio: f64) -> Vec<Tried> {
        vec![Tried { duration_s, effective_s: duration_s, loss_ratio }; count]
    }

    /// The trials at each of the example's six moments.
    fn moments() -> [Vec<Tried>; 6] {
        let good = |count| trials(count, 1.0, 0.0);
        let bad = |count| trials(count, 1.0, 0.01);
        let four = [good(60), bad(60)].concat();
        let five = [four.clone(), trials(1, 60.0, 0.001)].concat();
        let six = [five.clone(), trials(1, 60.0, 0.0)].concat();
        [good(59), [good(59), bad(1)].concat(), [good(59), bad(60)].concat(), four, five, six]
    }

    #[test]
    fn the_draft_s_example_is_classified_as_its_rules_say() {
        use Class::{Lower as L, Undecided as Z, Upper as U};
        // The draft prints "Lower" for the last goal at moments 5 and 6, beside exceed ratios of 42.857 % and
        // 27.273 %, which its own rule compares with 20 %.
        let expected = [[Z, Z, Z, Z], [U, Z, Z, Z], [U, Z, Z, U], [U, Z, L, U], [U, Z, L, U], [U, L, L, U]];
        for (moment, (trials, expected)) in moments().iter().zip(expected).enumerate() {
            let classes = goals().map(|goal| classify(trials, &goal));
            assert_eq!(classes, expected, "moment {}", moment + 1);
        }
    }

    #[test]
    fn the_draft_s_sums_are_reproduced() {
        let six = &moments()[5];
        let [rfc2544, tst009, one_second, twenty] = goals().map(|goal| Sums::of(six, &goal));
        let sums = |full_low_s, full_high_s, short_low_s, short_high_s| Sums {
            full_low_s,
            full_high_s,
            short_low_s,
            short_high_s,
        };
        assert_eq!(rfc2544, sums(60.0, 60.0, 60.0, 60.0));
        assert_eq!(tst009, sums(60.0, 60.0, 60.0, 60.0));
        assert_eq!(one_second, sums(180.0, 60.0, 0.0, 0.0));
        assert_eq!(twenty, sums(120.0, 0.0, 60.0, 60.0));
    }

    #[test]
    fn the_draft_s_conditional_throughputs_are_reproduced() {
        let six = &moments()[5];
        let found = goals().map(|goal| conditional_throughput_pps(1e6, six, &goal).unwrap());
        assert_eq!(found[1..], [1e6, 1e6, 999_000.0]);
    }

    #[test]
    fn time_that_is_missing_counts_as_lost() {
        let goal = goal("x", 1.0, 10.0, 0.0, 0.0);
        assert_eq!(conditional_throughput_pps(100.0, &trials(9, 1.0, 0.0), &goal), Some(0.0));
        assert_eq!(conditional_throughput_pps(100.0, &trials(10, 1.0, 0.0), &goal), Some(100.0));
        assert_eq!(conditional_throughput_pps(100.0, &trials(10, 0.5, 0.0), &goal), None);
    }

    #[test]
    fn a_load_without_trials_is_undecided() {
        assert!(goals().iter().all(|goal| classify(&[], goal) == Class::Undecided));
    }
}
