//! Rates as users write them, and what they mean for a frame size and a link.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    size::MeanFrameSize,
    text::{Text, text_form},
};

/// A packet rate as requested; [`Rate::to_pps`] converts it.
///
/// Written `<n>[k|M|G](pps|bps|bpsl1)`, `<n>%` of line rate, or `max`; k is 1000.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum Rate {
    /// As fast as the path allows.
    Max,
    /// Packets per second.
    Pps(f64),
    /// Bits per second of frames including the FCS (layer 2).
    Bps(f64),
    /// Bits per second on the wire: frames, preamble, start delimiter and gap (layer 1).
    BpsL1(f64),
    /// Per cent of the link's line rate.
    PercentOfLine(f64),
}

/// The speed of a link in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSpeed(u64);

/// Why a rate cannot be used; the message carries the hint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RateError {
    /// A number without a unit: milli, mega or minutes, packets or bits?
    #[error(
        "rate '{text}' has no unit: write {number}kpps or {number}Mpps for packets, {number}Mbps for bits of frames, {number}Mbpsl1 for bits on the wire, or 'max'"
    )]
    NoUnit {
        /// What was written.
        text: String,
        /// The number in it.
        number: String,
    },
    /// An unknown unit.
    #[error(
        "rate '{text}' has the unknown unit '{unit}': expected pps, bps, bpsl1 (each with k, M or G before it) and %"
    )]
    UnknownUnit {
        /// What was written.
        text: String,
        /// The part after the number.
        unit: String,
    },
    /// Not a number at all.
    #[error(
        "rate '{text}' does not start with a number: write for example 100kpps, 1.5Mpps, 1Gbps, 50% or max"
    )]
    NoNumber {
        /// What was written.
        text: String,
    },
    /// Zero.
    #[error("rate '{text}' must be greater than zero")]
    NotUsable {
        /// What was written.
        text: String,
    },
    /// More than any machine can send.
    #[error("rate must be at most 1e15 a second: write for example 100kpps, 1.5Mpps, 1Gbps or max")]
    TooMuch,
    /// More than the whole line rate.
    #[error("rate '{text}' is more than 100% of the line")]
    MoreThanLine {
        /// What was written.
        text: String,
    },
    /// A share of an unknown line rate.
    #[error("a rate in % needs a link speed, and this interface reports none: give the rate in pps or bps")]
    NoLinkSpeed,
}

/// The highest rate that can be written, in packets or bits a second.
const MOST: f64 = 1e15;

impl Rate {
    /// Packets per second for frames of this size, or of this mean size; `None` for [`Rate::Max`].
    ///
    /// # Errors
    /// [`RateError::NoLinkSpeed`] for a percentage without a link.
    pub fn to_pps(
        self,
        frame: impl Into<MeanFrameSize>,
        link: Option<LinkSpeed>,
    ) -> Result<Option<f64>, RateError> {
        let frame = frame.into();
        let pps = match self {
            Self::Max => return Ok(None),
            Self::Pps(pps) => pps,
            Self::Bps(bps) => bps / (frame.bytes() * 8.0),
            Self::BpsL1(bps) => bps / (frame.l1_bytes() * 8.0),
            Self::PercentOfLine(percent) => {
                link.ok_or(RateError::NoLinkSpeed)?.line_rate_pps(frame) * percent / 100.0
            }
        };
        Ok(Some(pps))
    }
}

impl LinkSpeed {
    /// From bits per second.
    pub fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// Bits per second.
    pub fn bps(self) -> u64 {
        self.0
    }

    /// Frames per second that fill the link: `bits/s ÷ ((frame + 20) × 8)` (IEEE 802.3: 7 bytes preamble,
    /// 1 start delimiter, 12 gap).
    pub fn line_rate_pps(self, frame: impl Into<MeanFrameSize>) -> f64 {
        self.0 as f64 / (frame.into().l1_bytes() * 8.0)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("max") {
            return Ok(Self::Max);
        }
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let value: f64 = number.parse().map_err(|_| RateError::NoNumber { text: text.into() })?;
        let (scale, base) = match unit.as_bytes().first() {
            Some(b'k' | b'K') => (1e3, &unit[1..]),
            Some(b'M') => (1e6, &unit[1..]),
            Some(b'G') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = value * scale;
        if value.is_nan() || value <= 0.0 {
            return Err(RateError::NotUsable { text: text.into() });
        }
        if value > MOST {
            return Err(RateError::TooMuch);
        }
        match base {
            "pps" => Ok(Self::Pps(value)),
            "bps" => Ok(Self::Bps(value)),
            "bpsl1" => Ok(Self::BpsL1(value)),
            "%" if scale == 1.0 && value > 100.0 => Err(RateError::MoreThanLine { text: text.into() }),
            "%" if scale == 1.0 => Ok(Self::PercentOfLine(value)),
            "" | "m" | "g" => Err(RateError::NoUnit { text: text.into(), number: number.into() }),
            _ => Err(RateError::UnknownUnit { text: text.into(), unit: unit.into() }),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Max => f.write_str("max"),
            Self::Pps(v) => write!(f, "{v}pps"),
            Self::Bps(v) => write!(f, "{v}bps"),
            Self::BpsL1(v) => write!(f, "{v}bpsl1"),
            Self::PercentOfLine(v) => write!(f, "{v}%"),
        }
    }
}

text_form!(Rate);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::FrameSize;

    fn pps(rate: &str, frame: u32, gigabits: u64) -> f64 {
        let rate: Rate = rate.parse().unwrap();
        let link = LinkSpeed::from_bps(gigabits * 1_000_000_000);
        rate.to_pps(FrameSize::new(frame).unwrap(), Some(link)).unwrap().unwrap()
    }

    #[test]
    fn rates_mean_what_the_field_means_by_them() {
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-6, "{a} is not {b}");
        close(pps("100%", 64, 1), 1_488_095.238);
        close(pps("100%", 64, 10), 14_880_952.38);
        close(pps("100%", 64, 100), 148_809_523.8);
        close(pps("100%", 78, 1), 1_275_510.2);
        close(pps("1Gbpsl1", 64, 10), 1_488_095.238);
        close(pps("512Mbps", 64, 10), 1_000_000.0);
        close(pps("1.5Mpps", 64, 10), 1_500_000.0);
        close(pps("10kpps", 64, 10), 10_000.0);
    }

    #[test]
    fn max_is_no_number() {
        assert_eq!("max".parse::<Rate>().unwrap().to_pps(FrameSize::MIN, None), Ok(None));
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["max", "1000pps", "1500000.5bps", "3bpsl1", "12.5%"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
    }

    #[test]
    fn refusals_say_what_to_write_instead() {
        let message = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert_eq!(
            message("10m"),
            "rate '10m' has no unit: write 10kpps or 10Mpps for packets, 10Mbps for bits of frames, 10Mbpsl1 for bits on the wire, or 'max'"
        );
        assert!(message("10").contains("has no unit"));
        assert!(message("5M").contains("has no unit"));
        assert!(message("5Mpp").contains("unknown unit 'Mpp'"));
        assert!(message("fast").contains("does not start with a number"));
        assert!(message("0pps").contains("greater than zero"));
        assert!(message(&format!("{}Gpps", "9".repeat(308))).contains("at most 1e15 a second"));
        assert!(message("1000001Gpps").contains("at most 1e15 a second"));
        assert!("1000000Gpps".parse::<Rate>().is_ok());
        assert!(message("101%").contains("more than 100%"));
        assert!(message("1k%").contains("unknown unit"));
        assert!(message("1.2.3pps").contains("does not start with a number"));
        let share = "5%".parse::<Rate>().unwrap();
        assert!(share.to_pps(FrameSize::MIN, None).unwrap_err().to_string().contains("needs a link speed"));
    }
}
