//! Where a curve changes: two straight lines with a jump between them, fitted by least squares, against a single one.

use serde::{Deserialize, Serialize};

/// Different values of x on each side of a bend, at least.
const FEWEST: usize = 4;
/// The least likelihood ratio (twice its logarithm) of two lines against one, where the place is searched and the two
/// parameters of a line change: 5 % of curves without a bend exceed it. Andrews, "Tests for Parameter Instability and
/// Structural Change with Unknown Change Point", Econometrica 61 (1993), table I: p = 2, 15 % trimmed.
const SUPREMUM_5_PERCENT: f64 = 11.79;
/// The 95 % quantile of the χ² distribution with one degree of freedom: places whose fit is not worse than that belong to
/// the interval.
const CHI_SQUARED_95_PERCENT: f64 = 3.841;

/// A change of a positive curve: its logarithm follows one line up to a place and another one beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bend {
    /// The place: halfway between the last value of x before it and the first one beyond.
    pub at: f64,
    /// The last value of x that is surely before it, with 95 % confidence.
    pub low: f64,
    /// The first value of x that is surely beyond it.
    pub high: f64,
    /// The curve just beyond the place divided by the curve just before it.
    pub ratio: f64,
}

/// A straight line by least squares.
struct Line {
    slope: f64,
    middle: (f64, f64),
    /// The sum of squared distances of the points.
    squares: f64,
}

impl Line {
    fn of(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let sum = points.iter().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x, sum.1 + y));
        let middle = (sum.0 / count, sum.1 / count);
        let moments = points.iter().fold((0.0, 0.0), |sum, (x, y)| {
            let (dx, dy) = (x - middle.0, y - middle.1);
            (sum.0 + dx * dx, sum.1 + dx * dy)
        });
        let slope = if moments.0 > 0.0 { moments.1 / moments.0 } else { 0.0 };
        let mut line = Self { slope, middle, squares: 0.0 };
        line.squares = points.iter().map(|(x, y)| (y - line.at(*x)).powi(2)).sum();
        line
    }

    fn at(&self, x: f64) -> f64 {
        self.middle.1 + self.slope * (x - self.middle.0)
    }
}

impl Bend {
    /// The bend of measured points (x, y), several per x where there are repeats; `None` without evidence of one, with fewer
    /// than eight values of x, or where a value is not positive.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let mut points = points.to_vec();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, y) in &mut points {
            if !(*y > 0.0 && y.is_finite()) {
                return None;
            }
            *y = y.ln();
        }
        let count = points.len() as f64;
        let mut starts: Vec<usize> =
            (1..points.len()).filter(|at| points[*at].0 > points[at - 1].0).collect();
        // Each side keeps its values of x, and 15 % of the points.
        let trimmed = (0.15 * count) as usize;
        let last = starts.len().checked_sub(FEWEST - 1)?;
        starts = starts.get(FEWEST - 1..last)?.to_vec();
        starts.retain(|start| (trimmed..=points.len() - trimmed).contains(start));
        let fits: Vec<(usize, f64)> = starts
            .into_iter()
            .map(|start| {
                let (before, beyond) = points.split_at(start);
                (start, Line::of(before).squares + Line::of(beyond).squares)
            })
            .collect();
        // Points on two lines exactly leave rounding errors only.
        let least = |squares: f64| squares.max(f64::EPSILON);
        let (best, squares) = *fits.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let likelihood = count * (least(Line::of(&points).squares) / least(squares)).ln();
        if likelihood < SUPREMUM_5_PERCENT {
            return None;
        }
        let likely = |(_, other): &&(usize, f64)| {
            count * (least(*other) / least(squares)).ln() <= CHI_SQUARED_95_PERCENT
        };
        let places: Vec<usize> = fits.iter().filter(likely).map(|(start, _)| *start).collect();
        let at = (points[best - 1].0 + points[best].0) / 2.0;
        let (before, beyond) = points.split_at(best);
        Some(Self {
            at,
            low: points[places.first()? - 1].0,
            high: points[*places.last()?].0,
            ratio: (Line::of(beyond).at(at) - Line::of(before).at(at)).exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Rates at 1400, 1408 … 1600 bytes, three each, that fall by this share beyond 1472, with 5 % of noise.
    fn curve(seed: u64, fall: f64) -> Vec<(f64, f64)> {
        let mut random = Random::new(seed);
        let sizes = (0..78).map(|number| 1400.0 + 8.0 * f64::from(number / 3));
        sizes
            .map(|size| {
                let share = if size > 1472.0 { 1.0 - fall } else { 1.0 };
                (size, 2.0 * size * share * (0.05 * random.normal()).exp())
            })
            .collect()
    }

    #[test]
    fn the_place_of_a_jump_is_found_with_its_size() {
        let mut covered = 0;
        for seed in 0..100 {
            let bend = Bend::of(&curve(seed, 0.4)).expect("a jump of 40 % is no noise");
            assert!((bend.at - 1476.0).abs() <= 8.0, "{bend:?}");
            assert!((bend.ratio - 0.6).abs() < 0.06, "{bend:?}");
            covered += i32::from(bend.low <= 1472.0 && 1480.0 <= bend.high);
        }
        assert!(covered >= 95, "{covered} of 100 intervals have it");
    }

    #[test]
    fn a_smooth_curve_has_none() {
        let found = (0..200).filter(|seed| Bend::of(&curve(*seed, 0.0)).is_some()).count();
        assert!(found <= 20, "{found} of 200");
    }

    #[test]
    fn a_small_jump_has_a_wide_interval() {
        let bends: Vec<Bend> = (0..100).filter_map(|seed| Bend::of(&curve(seed, 0.08))).collect();
        assert!(bends.len() > 50, "{}", bends.len());
        let covered = bends.iter().filter(|bend| bend.low <= 1472.0 && 1480.0 <= bend.high).count();
        assert!(covered * 100 >= bends.len() * 85, "{covered} of {}", bends.len());
    }

    #[test]
    fn exact_points_and_too_few_are_no_trouble() {
        let exact: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), if x < 5 { 1.0 } else { 2.0 })).collect();
        let bend = Bend::of(&exact).unwrap();
        assert_eq!((bend.at, bend.low, bend.high), (4.5, 4.0, 5.0));
        assert!((bend.ratio - 2.0).abs() < 1e-9, "{bend:?}");
        assert_eq!(Bend::of(&exact[..7]), None);
        assert_eq!(Bend::of(&[]), None);
        assert_eq!(Bend::of(&[(1.0, 0.0); 20]), None);
    }
}
