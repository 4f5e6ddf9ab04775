//! The little linear algebra that the model needs: symmetric positive definite systems by Cholesky's method.

/// The inverse of the Cholesky factor of a symmetric positive definite matrix: lower triangular, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InverseFactor {
    size: usize,
    rows: Vec<f64>,
}

impl InverseFactor {
    /// Factors a matrix of `size` rows, reading its lower triangle; `None` when it is not positive definite.
    pub(super) fn of(mut matrix: Vec<f64>, size: usize) -> Option<Self> {
        for column in 0..size {
            for row in column..size {
                let (above, below) = matrix.split_at(row * size);
                let left = if row == column { &below[..column] } else { &above[column * size..][..column] };
                let value = below[column] - dot(left, &below[..column]);
                if row == column {
                    if !(value > 0.0 && value.is_finite()) {
                        return None;
                    }
                    matrix[row * size + column] = value.sqrt();
                } else {
                    matrix[row * size + column] = value / matrix[column * size + column];
                }
            }
        }
        // The inverse of a lower triangular matrix, a row at a time: each row follows from those above it.
        let mut rows = vec![0.0; size * size];
        for row in 0..size {
            let diagonal = matrix[row * size + row];
            let (done, rest) = rows.split_at_mut(row * size);
            let own = &mut rest[..=row];
            for k in 0..row {
                let factor = matrix[row * size + k];
                if factor != 0.0 {
                    for (value, above) in own[..=k].iter_mut().zip(&done[k * size..][..=k]) {
                        *value -= factor * above;
                    }
                }
            }
            own[..row].iter_mut().for_each(|value| *value /= diagonal);
            own[row] = 1.0 / diagonal;
        }
        Some(Self { size, rows })
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.rows[row * self.size..][..=row]
    }

    /// The solution of the system with this right side.
    pub(super) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut solution = vec![0.0; self.size];
        for row in 0..self.size {
            let own = self.row(row);
            let part = dot(own, &right[..=row]);
            for (value, factor) in solution.iter_mut().zip(own) {
                *value += part * factor;
            }
        }
        solution
    }

    /// `vᵀ M⁻¹ v`: the variance of a linear combination where M is a precision.
    pub(super) fn variance(&self, vector: &[f64]) -> f64 {
        (0..self.size).map(|row| dot(self.row(row), &vector[..=row]).powi(2)).sum()
    }

    /// The diagonal of the inverse of the matrix itself.
    pub(super) fn inverse_diagonal(&self) -> Vec<f64> {
        let mut diagonal = vec![0.0; self.size];
        for row in 0..self.size {
            for (sum, value) in diagonal.iter_mut().zip(self.row(row)) {
                *sum += value * value;
            }
        }
        diagonal
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_and_its_inverse_known() {
        // 4 2 | 2 3: determinant 8, inverse 3/8 -1/4 | -1/4 1/2
        let factor = InverseFactor::of(vec![4.0, 2.0, 2.0, 3.0], 2).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        let solution = factor.solve(&[8.0, 4.0]);
        close(solution[0], 2.0);
        close(solution[1], 0.0);
        close(factor.variance(&[1.0, 0.0]), 0.375);
        close(factor.variance(&[1.0, 1.0]), 0.375 + 0.5 - 0.5);
        close(factor.inverse_diagonal()[1], 0.5);
        assert_eq!(InverseFactor::of(vec![1.0, 2.0, 2.0, 1.0], 2), None, "not positive definite");
    }
}
