//! Student's t distribution, for confidence intervals from a few trials.

/// The two-sided quantile of |t| for the given probability, for (fractional) degrees of freedom.
///
/// By bisection of the distribution, whose tails are I_x(ν/2, 1/2) with x = ν / (ν + t²), the regularized
/// incomplete beta function (Abramowitz and Stegun 26.7.1).
pub(crate) fn two_sided_quantile(probability: f64, degrees: f64) -> f64 {
    let outside = 1.0 - probability.clamp(0.0, 1.0 - 1e-12);
    let (mut low, mut high) = (0.0, 1.0);
    while tails(high, degrees) > outside && high < 1e300 {
        high *= 2.0;
    }
    while high - low > 1e-10 * high {
        let middle = (low + high) / 2.0;
        if tails(middle, degrees) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The probability that |t| is larger.
fn tails(t: f64, degrees: f64) -> f64 {
    incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5)
}

/// I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8), evaluated by Lentz's method.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // the fraction converges fast on this side of the mean only
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let term = |n: u32| {
        let m = f64::from(n / 2);
        match (n, n % 2) {
            (0, _) => 1.0,
            (_, 0) => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        }
    };
    let away_from_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut fraction, mut upper, mut lower) = (1.0, 1.0, 0.0);
    for n in 0..500 {
        lower = 1.0 / away_from_zero(1.0 + term(n) * lower);
        upper = away_from_zero(1.0 + term(n) / upper);
        let step = upper * lower;
        fraction *= step;
        if n > 0 && (step - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * (fraction - 1.0)
}

/// ln Γ(x) for x > 0 by Stirling's series, after raising x to where the series is exact to double precision.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0f64);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let (r, half_ln_two_pi) = (1.0 / (x * x), 0.5 * (2.0 * std::f64::consts::PI).ln());
    let series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / x;
    (x - 0.5) * x.ln() - x + half_ln_two_pi + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        let table = [
            (0.95, 1.0, 12.706),
            (0.95, 2.0, 4.303),
            (0.95, 4.0, 2.776),
            (0.95, 10.0, 2.228),
            (0.95, 120.0, 1.980),
            (0.99, 4.0, 4.604),
            (0.99, 30.0, 2.750),
            (0.80, 7.0, 1.415),
            (0.999, 4.0, 8.610),
            (0.95, 1e6, 1.960),
        ];
        for (probability, degrees, quantile) in table {
            let found = two_sided_quantile(probability, degrees);
            assert!((found - quantile).abs() < 6e-4, "{probability} at {degrees}: {found}, not {quantile}");
        }
    }

    #[test]
    fn one_degree_is_cauchys_distribution() {
        for t in [0.1, 1.0, 3.0, 50.0] {
            let exact = 1.0 - 2.0 / std::f64::consts::PI * f64::atan(t);
            assert!((tails(t, 1.0) - exact).abs() < 1e-12, "{t}");
        }
    }

    #[test]
    fn the_gamma_function_is_the_factorial() {
        let mut factorial = 1.0f64;
        for n in 1..20 {
            assert!((ln_gamma(f64::from(n)) - factorial.ln()).abs() < 1e-12, "{n}");
            factorial *= f64::from(n);
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
    }
}
