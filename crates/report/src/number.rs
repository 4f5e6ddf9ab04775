//! Formats numbers: every figure of every text, page and table is written here.

/// The unit of a packet rate; a table has one unit per column, so that its figures compare at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateUnit {
    Pps,
    Kpps,
    Mpps,
}

impl RateUnit {
    /// The unit that suits the largest value without turning the smallest into 0.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for value in values.into_iter().filter(|value| *value > 0.0) {
            least = least.min(value);
            most = most.max(value);
        }
        match (least, most) {
            (10_000.0.., 100_000.0..) => Self::Mpps,
            (_, 1_000.0..) => Self::Kpps,
            _ => Self::Pps,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pps => "pps",
            Self::Kpps => "kpps",
            Self::Mpps => "Mpps",
        }
    }

    /// The figure in this unit, without the unit's name.
    pub(crate) fn figure(self, pps: f64) -> String {
        match self {
            Self::Pps => format!("{pps:.0}"),
            Self::Kpps => format!("{:.1}", pps / 1e3),
            Self::Mpps => format!("{:.3}", pps / 1e6),
        }
    }
}

/// A packet rate with its unit: `0.298 Mpps`, `12.3 kpps`, `7 pps`.
pub fn rate(pps: f64) -> String {
    let unit = RateUnit::of([pps]);
    format!("{} {}", unit.figure(pps), unit.name())
}

/// A requested rate; `None` is the maximum.
pub(crate) fn asked(asked_pps: Option<f64>) -> String {
    asked_pps.map_or_else(|| "max".to_string(), rate)
}

/// A whole number in groups of three: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A whole number with its sign when negative.
pub(crate) fn signed_count(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", count(number.unsigned_abs()))
}

/// A share of 1 as per cent without the sign; a share near 0 or 100 is never rounded to it.
pub fn percent(ratio: f64) -> String {
    match ratio {
        0.0 => "0".into(),
        1.0 => "100".into(),
        r if r > 0.0 && r < 0.000_05 => "<0.01".into(),
        r if r > 0.999_95 && r < 1.0 => ">99.99".into(),
        r => format!("{:.2}", r * 100.0),
    }
}

/// A change relative to 1 as per cent with its sign: `+3.20 %`.
pub(crate) fn change(ratio: f64) -> String {
    format!("{:+.2} %", ratio * 100.0)
}

/// Nanoseconds in the unit that fits: `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub fn nanos(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{} µs", significant(n / 1e3)),
        n if n < 1e9 => format!("{} ms", significant(n / 1e6)),
        n => format!("{} s", significant(n / 1e9)),
    }
}

/// Seconds: `250.0 ms`, `12.34 s`, `1,234 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    nanos(seconds * 1e9)
}

/// The remaining time, if it is long enough to mention: `about 50 s left`, `about 7 min left`.
pub fn left(seconds: f64) -> Option<String> {
    match seconds as u64 {
        0..20 => None,
        seconds @ 20..100 => Some(format!("about {} s left", seconds.next_multiple_of(10))),
        seconds => Some(format!("about {} min left", seconds.div_ceil(60))),
    }
}

/// Bits per second in the unit that fits: `152.6 Mb/s`.
pub(crate) fn bits_per_second(bps: f64) -> String {
    match bps {
        b if b >= 1e9 => format!("{} Gb/s", significant(b / 1e9)),
        b if b >= 1e6 => format!("{} Mb/s", significant(b / 1e6)),
        b if b >= 1e3 => format!("{} kb/s", significant(b / 1e3)),
        b => format!("{b:.0} b/s"),
    }
}

/// Bytes of memory: `3.8 GiB`.
pub(crate) fn memory(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1024.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.0} MiB") }
}

/// A value of unknown unit to about four significant figures, integers without decimals.
pub(crate) fn plain(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 { signed_count(value as i64) } else { significant(value) }
}

/// A round value at an axis: as many decimals as needed.
pub(crate) fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 1e-4 => format!("{value:.0e}"),
        v if v >= 1e15 => format!("{value:.1e}"),
        v if v >= 1e6 => {
            let (factor, prefix) = match v {
                v if v >= 1e12 => (1e12, "T"),
                v if v >= 1e9 => (1e9, "G"),
                _ => (1e6, "M"),
            };
            format!("{} {prefix}", tick(value / factor))
        }
        v if v >= 1e3 => signed_count(value.round() as i64),
        _ => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

/// Three significant figures or more: never fewer digits than the whole part has.
pub(crate) fn significant(value: f64) -> String {
    match value.abs() {
        v if v >= 1e15 => format!("{value:.3e}"),
        v if v >= 1000.0 => signed_count(value.round() as i64),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_carry_the_unit_that_fits() {
        assert_eq!(rate(298_123.0), "0.298 Mpps");
        assert_eq!(rate(12_345.0), "12.3 kpps");
        assert_eq!(rate(7.0), "7 pps");
        assert_eq!(rate(0.0), "0 pps");
        assert_eq!(rate(11_900_000.0), "11.900 Mpps");
        assert_eq!(asked(None), "max");
    }

    #[test]
    fn a_column_has_one_unit_and_its_smallest_figure_survives() {
        assert_eq!(RateUnit::of([298_000.0, 1_040_000.0]), RateUnit::Mpps);
        assert_eq!(RateUnit::of([9_000.0, 1_040_000.0]), RateUnit::Kpps);
        assert_eq!(RateUnit::of([0.0, 300_000.0]), RateUnit::Mpps);
        assert_eq!(RateUnit::of([]), RateUnit::Pps);
    }

    #[test]
    fn counts_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(signed_count(i64::MIN), "-9,223,372,036,854,775,808");
    }

    #[test]
    fn a_little_loss_never_reads_as_none() {
        assert_eq!(percent(0.0), "0");
        assert_eq!(percent(1e-9), "<0.01");
        assert_eq!(percent(0.026_8), "2.68");
        assert_eq!(percent(0.999_999), ">99.99");
        assert_eq!(percent(1.0), "100");
    }

    #[test]
    fn times_carry_the_unit_that_fits() {
        for (ns, text) in
            [(850.0, "850 ns"), (12_340.0, "12.34 µs"), (4_560_000.0, "4.560 ms"), (1.2e9, "1.200 s")]
        {
            assert_eq!(nanos(ns), text);
        }
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(change(0.032), "+3.20 %");
        assert_eq!(change(-0.5), "-50.00 %");
    }

    #[test]
    fn marks_beside_an_axis_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.2, "0.2"),
            (2.5, "2.5"),
            (1500.0, "1,500"),
            (2e6, "2 M"),
            (1.5e9, "1.5 G"),
            (-4.0, "-4"),
        ] {
            assert_eq!(tick(value), text);
        }
    }

    #[test]
    fn values_of_unknown_unit_keep_their_whole_part() {
        for (value, text) in
            [(64.0, "64"), (1500.0, "1,500"), (0.25, "0.250"), (1234.5, "1,235"), (0.004, "4.000e-3")]
        {
            assert_eq!(plain(value), text);
        }
    }
}
