//! Intervals between samples, and periods.

use std::time::Duration;

/// More frequent updates would occupy a CPU.
const LEAST: Duration = Duration::from_millis(1);

/// An interval between two samples.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = wire::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < LEAST { Err(format!("'{text}' is too short: must be at least 1ms")) } else { Ok(interval) }
}

/// A period to watch or to measure.
pub(super) fn parse_period(text: &str) -> Result<Duration, String> {
    let period = wire::parse_duration(text).map_err(|error| error.to_string())?;
    if period.is_zero() {
        Err(format!("'{text}' is not a period: must be above zero, for example 10s"))
    } else {
        Ok(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_is_too_short_is_refused_with_the_least() {
        assert_eq!(parse_interval("1ms"), Ok(LEAST));
        for short in ["0s", "0ms", "999us"] {
            assert_eq!(
                parse_interval(short).unwrap_err(),
                format!("'{short}' is too short: must be at least 1ms")
            );
        }
        assert!(parse_interval("1").unwrap_err().contains("1"), "a number without a unit is refused");
        assert_eq!(parse_period("1us"), Ok(Duration::from_micros(1)));
        assert_eq!(
            parse_period("0s").unwrap_err(),
            "'0s' is not a period: must be above zero, for example 10s"
        );
    }
}
