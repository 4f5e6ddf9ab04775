//! The search space: knobs by number, each with a number of values, of which value 0 is the current one.

/// A value for each knob, by number; 0 is its current value.
pub type Settings = Vec<usize>;

/// The remaining values of each knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Survivors(Vec<Vec<usize>>);

impl Survivors {
    /// All of them.
    pub(super) fn all(values: &[usize]) -> Self {
        Self(values.iter().map(|count| (0..(*count).max(1)).collect()).collect())
    }

    /// Those of a knob.
    pub(super) fn of(&self, knob: usize) -> &[usize] {
        &self.0[knob]
    }

    /// Removes a value; a knob keeps its last one.
    pub(super) fn drop(&mut self, knob: usize, value: usize) {
        if self.0[knob].len() > 1 {
            self.0[knob].retain(|known| *known != value);
        }
    }

    /// Knobs with more than one remaining value.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(|knob| self.0[*knob].len() > 1)
    }

    /// Remaining combinations; `None` above `most`.
    pub(super) fn combinations(&self, most: usize) -> Option<usize> {
        self.0.iter().try_fold(1usize, |product, values| {
            product.checked_mul(values.len()).filter(|product| *product <= most)
        })
    }

    /// The next combination in the order of counting, the last knob first; `false` after the last one.
    pub(super) fn advance(&self, places: &mut [usize]) -> bool {
        for (place, values) in places.iter_mut().zip(&self.0).rev() {
            *place += 1;
            if *place < values.len() {
                return true;
            }
            *place = 0;
        }
        false
    }

    /// The settings at these positions among the remaining values.
    pub(super) fn at(&self, places: &[usize]) -> Settings {
        places.iter().zip(&self.0).map(|(place, values)| values[*place]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_count_through_and_the_last_value_stays() {
        let mut left = Survivors::all(&[2, 3]);
        left.drop(1, 0);
        left.drop(0, 1);
        left.drop(0, 0);
        assert_eq!((left.of(0), left.of(1)), (&[0][..], &[1, 2][..]));
        assert_eq!((left.combinations(2), left.combinations(1)), (Some(2), None));
        assert_eq!(left.open().collect::<Vec<_>>(), [1]);
        let mut places = vec![0, 0];
        let mut seen = vec![left.at(&places)];
        while left.advance(&mut places) {
            seen.push(left.at(&places));
        }
        assert_eq!(seen, [[0, 1], [0, 2]]);
    }
}
