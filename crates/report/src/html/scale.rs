//! The position of a value on an axis, and the round values to mark.

/// An axis from its least to its greatest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    Linear { min: f64, max: f64 },
    Log { min: f64, max: f64 },
}

/// Spans of more than this factor use a logarithmic axis.
const LOG_FROM: f64 = 20.0;

/// Lengths of bars, 0..=1: from 0, or by logarithm from a decade below the least value where values are far apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lengths {
    most: f64,
    log_from: Option<f64>,
}

impl Lengths {
    /// For bars of these values, and marks up to `most`.
    pub(super) fn of(values: impl IntoIterator<Item = f64>, most: f64) -> Self {
        let (least, greatest) = bounds(values.into_iter().filter(|value| *value > 0.0));
        let is_far = least <= greatest && greatest / least > LOG_FROM;
        let most = most.max(if greatest.is_finite() { greatest } else { 1.0 });
        Self { most, log_from: is_far.then(|| 10f64.powf((least / 1.5).log10().floor())) }
    }

    /// The length of a bar.
    pub(super) fn length(self, value: f64) -> f64 {
        match self.log_from {
            Some(from) if value > from => (value / from).ln() / (self.most / from).ln(),
            Some(_) => 0.0,
            None => value / self.most,
        }
    }

    /// Where a logarithmic axis begins.
    pub(super) fn log_from(self) -> Option<f64> {
        self.log_from
    }
}

impl Scale {
    /// From 0 (or the least negative value) to a round value above all.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let (min, max) = bounds(values);
        let (min, max) = (min.min(0.0), max.max(0.0));
        let step = step(max - min);
        Self::Linear { min: (min / step).floor() * step, max: (max / step).ceil().max(1.0) * step }
    }

    /// Whole decades around all values.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let (min, max) = bounds(values.into_iter().filter(|value| *value > 0.0));
        if min > max {
            return Self::Log { min: 1.0, max: 10.0 };
        }
        let (min, max) = (10f64.powf(min.log10().floor()), 10f64.powf(max.log10().ceil()));
        Self::Log { min, max: if max > min { max } else { min * 10.0 } }
    }

    /// Logarithmic if the values are positive and far apart.
    pub(super) fn fitting(values: &[f64]) -> Self {
        let (min, max) = bounds(values.iter().copied());
        if min > 0.0 && max / min > LOG_FROM {
            Self::log(values.iter().copied())
        } else {
            Self::linear(values.iter().copied())
        }
    }

    /// The same for a parameter's axis, which need not begin at 0: values close together fill it.
    pub(super) fn of_parameter(values: &[f64]) -> Self {
        let (min, max) = bounds(values.iter().copied());
        if min <= 0.0 || max <= min || max > 2.0 * min {
            return Self::fitting(values);
        }
        let step = step(max - min);
        Self::Linear { min: (min / step).floor() * step, max: (max / step).ceil() * step }
    }

    /// Position from 0 to 1; `None` if it has no logarithm.
    pub(super) fn position(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear { min, max } => Some((value - min) / (max - min)),
            Self::Log { min, max } => {
                (value > 0.0).then(|| (value.log10() - min.log10()) / (max.log10() - min.log10()))
            }
        }
    }

    /// Round values to mark, at most seven.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { min, max } => {
                let step = step(max - min);
                let steps = ((max - min) / step).round() as usize;
                (0..=steps).map(|at| ((min / step).round() + at as f64) * step).collect()
            }
            Self::Log { min, max } => {
                let decades = (max.log10() - min.log10()).round() as usize;
                let every = decades.div_ceil(6).max(1);
                (0..=decades).step_by(every).map(|at| min * 10f64.powi(at as i32)).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that a span has at most six steps.
fn step(span: f64) -> f64 {
    if span <= 0.0 || !span.is_finite() {
        return 1.0;
    }
    let rough = span / 6.0 * (1.0 - 1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let factor = match rough / power {
        r if r <= 1.0 => 1.0,
        r if r <= 2.0 => 2.0,
        r if r <= 5.0 => 5.0,
        _ => 10.0,
    };
    factor * power
}

fn bounds(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(value), max.max(value)))
}

/// A position from 0 to 1 in SVG's form.
pub(super) fn per_cent(position: f64) -> String {
    let mut text = format!("{:.3}", position.clamp(0.0, 1.0) * 100.0);
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    text + "%"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_at_a_round_value() {
        assert_eq!(Scale::linear([30.0, 107.0]), Scale::Linear { min: 0.0, max: 120.0 });
        assert_eq!(Scale::linear([50.0, 1500.0]).ticks(), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(Scale::linear([-3.0, 7.0]), Scale::Linear { min: -4.0, max: 8.0 });
    }

    #[test]
    fn values_far_apart_are_shown_by_their_logarithm() {
        let scale = Scale::fitting(&[10_000.0, 1_000_000.0]);
        assert_eq!(scale.ticks().len(), 3);
        assert!((scale.position(100_000.0).unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(scale.position(0.0), None);
        assert!(matches!(Scale::fitting(&[0.0, 1e9]), Scale::Linear { .. }));
    }

    #[test]
    fn a_parameter_s_axis_begins_where_its_values_do_if_they_are_close_together() {
        let near = Scale::of_parameter(&[1400.0, 1472.0, 1600.0]);
        assert_eq!(near, Scale::Linear { min: 1400.0, max: 1600.0 });
        assert!(near.ticks().len() <= 7);
        assert_eq!(Scale::of_parameter(&[64.0, 1472.0]), Scale::fitting(&[64.0, 1472.0]));
        assert_eq!(Scale::of_parameter(&[5.0]), Scale::fitting(&[5.0]));
    }

    #[test]
    fn there_are_never_more_than_seven_marks() {
        for most in [1.0, 1.3, 2.0, 4.9, 5.1, 9.9, 1e-9, 1e9, 7e15] {
            assert!(Scale::linear([most]).ticks().len() <= 7, "{most}: {:?}", Scale::linear([most]).ticks());
            assert!(Scale::log([1.0, most]).ticks().len() <= 7, "{most}");
        }
    }

    #[test]
    fn an_axis_without_values_still_has_a_length() {
        for scale in [
            Scale::linear([]),
            Scale::log([]),
            Scale::linear([0.0]),
            Scale::log([10.0]),
            Scale::linear([f64::NAN]),
        ] {
            assert!(scale.position(0.5).is_some_and(f64::is_finite), "{scale:?}");
            assert!(!scale.ticks().is_empty());
        }
    }
}
