//! Finds where a series of results, one per run, changed its level.

use serde::{Deserialize, Serialize};

use crate::{median, random::Random};

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Median of the level before.
    pub before: f64,
    /// Median of the level after.
    pub after: f64,
    /// The probability that a series without a change looks as changed as this one (p-value).
    pub p: f64,
}

/// Values that make a level; a single outlier is not a level.
const SHORTEST: usize = 3;
const PERMUTATIONS: usize = 4999;

/// Finds changes of level; a series without any yields one with probability `alpha` at most.
///
/// The change is placed where the rank sum (Mann and Whitney) of the values before differs most from that of the values
/// after, in standard deviations. Permutations of the series give the probability of chance, so that nothing
/// is assumed about the distribution. After a change, both parts are searched again, each with half of
/// the alarms.
pub fn change_points(series: &[f64], alpha: f64, seed: u64) -> Vec<ChangePoint> {
    let mut found = Vec::new();
    search(series, 0, alpha, &mut Random::new(seed), &mut found);
    found.sort_by_key(|(at, _)| *at);
    // levels lie between adjacent changes, which are known only now
    let starts: Vec<usize> = std::iter::once(0).chain(found.iter().map(|(at, _)| *at)).collect();
    let ends = starts[1..].iter().copied().chain([series.len()]);
    let levels: Vec<f64> =
        starts.iter().zip(ends).filter_map(|(from, to)| median(&series[*from..to])).collect();
    found
        .into_iter()
        .zip(levels.windows(2))
        .map(|((at, p), level)| ChangePoint { at, before: level[0], after: level[1], p })
        .collect()
}

fn search(series: &[f64], offset: usize, alpha: f64, random: &mut Random, found: &mut Vec<(usize, f64)>) {
    if series.len() < 2 * SHORTEST {
        return;
    }
    let mut ranks = ranks(series);
    let (at, strength) = strongest(&ranks);
    let as_strong = (0..PERMUTATIONS).filter(|_| {
        random.shuffle(&mut ranks);
        // ties with the series count, despite rounding from the order of additions
        strongest(&ranks).1 >= strength - 1e-9
    });
    // stop once there are too many for a change
    let too_many = (alpha * PERMUTATIONS as f64) as usize + 1;
    let p = (as_strong.take(too_many).count() + 1) as f64 / (PERMUTATIONS + 1) as f64;
    if strength > 0.0 && p <= alpha {
        found.push((offset + at, p));
        search(&series[..at], offset, alpha / 2.0, random, found);
        search(&series[at..], offset + at, alpha / 2.0, random, found);
    }
}

/// The split with the largest rank difference, and that difference in its standard deviations.
fn strongest(ranks: &[f64]) -> (usize, f64) {
    let n = ranks.len() as f64;
    let (mut best, mut sum) = ((0, 0.0), 0.0);
    for (at, rank) in ranks.iter().enumerate() {
        let before = at as f64;
        if at >= SHORTEST && ranks.len() - at >= SHORTEST {
            let expected = before * (n + 1.0) / 2.0;
            let deviation = (before * (n - before) * (n + 1.0) / 12.0).sqrt();
            let strength = (sum - expected).abs() / deviation;
            if strength > best.1 {
                best = (at, strength);
            }
        }
        sum += rank;
    }
    best
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(series: &[f64]) -> Vec<f64> {
    let rank = |value: f64| {
        let less = series.iter().filter(|other| **other < value).count() as f64;
        let equal = series.iter().filter(|other| **other == value).count() as f64;
        less + (equal + 1.0) / 2.0
    };
    series.iter().map(|value| rank(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    fn noise(random: &mut Random, n: usize, level: f64, scatter: f64) -> Vec<f64> {
        (0..n).map(|_| level * (1.0 + scatter * random.normal())).collect()
    }

    #[test]
    fn a_series_without_change_raises_an_alarm_no_more_often_than_stated() {
        let mut random = Random::new(SEED);
        let alarms = (0..400)
            .filter(|round| !change_points(&noise(&mut random, 20, 3e5, 0.05), 0.05, *round).is_empty())
            .count();
        // 20 expected, deviation 4.4
        assert!(alarms < 34, "{alarms} of 400");
    }

    #[test]
    fn outliers_are_no_change() {
        let mut random = Random::new(SEED);
        let alarms = (0..100).filter(|round| {
            let mut series = noise(&mut random, 20, 3e5, 0.02);
            series[10] = 1e5;
            !change_points(&series, 0.05, *round).is_empty()
        });
        assert!(alarms.count() < 13);
    }

    #[test]
    fn a_true_change_is_found_where_it_is() {
        let mut random = Random::new(SEED);
        // with fewer runs, more changes are missed
        for (before, after, at_least) in [(10, 10, 48), (12, 5, 45), (4, 8, 38)] {
            let (mut there, mut alone) = (0, 0);
            for round in 0..50 {
                let mut series = noise(&mut random, before, 3e5, 0.02);
                series.extend(noise(&mut random, after, 2.7e5, 0.02));
                let found = change_points(&series, 0.05, round);
                there += u32::from(found.iter().any(|change| change.at.abs_diff(before) <= 1));
                alone += u32::from(found.len() == 1);
            }
            assert!(
                there >= at_least && alone >= at_least,
                "{there} and {alone} of 50, {before} and {after}"
            );
        }
    }

    #[test]
    fn two_changes_are_two_with_their_levels() {
        let mut random = Random::new(SEED);
        let mut series = noise(&mut random, 12, 100.0, 0.005);
        series.extend(noise(&mut random, 12, 80.0, 0.005));
        series.extend(noise(&mut random, 12, 120.0, 0.005));
        let found = change_points(&series, 0.01, SEED);
        assert_eq!(found.iter().map(|change| change.at).collect::<Vec<_>>(), [12, 24]);
        assert!((found[0].before - 100.0).abs() < 1.0 && (found[0].after - 80.0).abs() < 1.0, "{found:?}");
        assert!((found[1].before - 80.0).abs() < 1.0 && (found[1].after - 120.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn a_short_or_constant_series_has_no_change() {
        assert!(change_points(&[], 0.05, 1).is_empty());
        assert!(change_points(&[1.0, 1.0, 9.0, 9.0], 0.05, 1).is_empty());
        assert!(change_points(&[5.0; 30], 0.05, 1).is_empty());
    }
}
