//! How often something is shown or looked at.

use std::time::Duration;

/// What is shown more often costs a CPU of its own.
const LEAST: Duration = Duration::from_millis(1);

/// A time between two looks.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = wire::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < LEAST {
        Err(format!("'{text}' is too short: write 1ms or more, for example 1s"))
    } else {
        Ok(interval)
    }
}

/// A time to watch or to measure for.
pub(super) fn parse_period(text: &str) -> Result<Duration, String> {
    let period = wire::parse_duration(text).map_err(|error| error.to_string())?;
    if period.is_zero() { Err(format!("'{text}' is no time: write for example 10s")) } else { Ok(period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_is_refused_with_what_to_write() {
        assert_eq!(parse_interval("1ms"), Ok(LEAST));
        for short in ["0s", "0ms", "999us"] {
            assert_eq!(
                parse_interval(short).unwrap_err(),
                format!("'{short}' is too short: write 1ms or more, for example 1s")
            );
        }
        assert!(parse_interval("1").unwrap_err().contains("1"), "a number without a unit is none");
        assert_eq!(parse_period("1us"), Ok(Duration::from_micros(1)));
        assert_eq!(parse_period("0s").unwrap_err(), "'0s' is no time: write for example 10s");
    }
}
