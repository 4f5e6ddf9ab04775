//! Sizes of the packets of a run: all the same, varying, or a mix by weights such as IMIX.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    probe::PROBE_TAGGED_LEN,
    size::{FrameSize, Layers},
    text::{Text, text_form},
    values::{Values, ValuesError},
};

/// The sizes of a run's packets, as frame or payload sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// From the Ethernet header to the FCS (RFC 2544).
    Frame(SizeMix),
    /// UDP payload.
    Payload(SizeMix),
}

impl Sizes {
    /// The requested sizes, or the smallest frame that carries a stream tag. The small frames of `imix` grow to that size where
    /// 64 bytes are too few for the headers (IPv6, VLAN tags).
    pub fn asked(frame_size: Option<&SizeMix>, payload: Option<&SizeMix>, layers: Layers) -> Self {
        let smallest = FrameSize::from_payload(PROBE_TAGGED_LEN as u32, layers);
        let smallest = smallest.map_or(FrameSize::MIN.bytes(), FrameSize::bytes);
        match (frame_size, payload) {
            (Some(mix), _) if *mix == SizeMix::imix() => Self::Frame(mix.clone().at_least(smallest)),
            (Some(mix), _) => Self::Frame(mix.clone()),
            (None, Some(mix)) => Self::Payload(mix.clone()),
            (None, None) => Self::Frame(SizeMix::Values(Values::Fixed(smallest))),
        }
    }
}

/// Sizes in bytes: any [`Values`], `imix`, or `64:28,594:16,1518:4` (28 of 48 frames are of 64
/// bytes).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum SizeMix {
    /// Fixed, incrementing, random or listed.
    Values(Values<u32>),
    /// Each size as often as its weight says.
    Weighted(Weights),
}

/// Sizes and how often each occurs in a cycle, spread evenly over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weights(Vec<WeightedSize>);

/// A size and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightedSize {
    /// The size.
    pub bytes: u32,
    /// Its share of all packets, in parts of the sum of all weights.
    pub weight: u32,
}

/// Why a mix of sizes cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MixError {
    /// Neither weights nor values.
    #[error(transparent)]
    Values(#[from] ValuesError),
    /// A word that is not the name of a mix.
    #[error(
        "unknown mix of sizes '{text}': expected imix, or sizes: 64, 64-1518, 64:28,594:16,1518:4, inc:64-1518"
    )]
    UnknownMix {
        /// What was written.
        text: String,
    },
    /// A part that is not `size:weight`.
    #[error("'{text}' is not a size and its weight: write 64:28,594:16,1518:4 or imix")]
    NotAWeight {
        /// What was written.
        text: String,
    },
    /// A cycle without packets, or one too long to keep.
    #[error(
        "each weight must be at least 1, and their sum (after dividing by their common divisor) at most {most}, not {sum}"
    )]
    Sum {
        /// The sum of the weights, reduced.
        sum: u64,
        /// The largest sum.
        most: u64,
    },
}

const IMIX: [WeightedSize; 3] = [
    WeightedSize { bytes: 64, weight: 28 },
    WeightedSize { bytes: 594, weight: 16 },
    WeightedSize { bytes: 1518, weight: 4 },
];

impl SizeMix {
    /// The common mix of internet frame sizes: 64, 594 and 1518 bytes as 28:16:4.
    pub fn imix() -> Self {
        Self::Weighted(Weights(IMIX.to_vec()))
    }

    /// The same mix with weighted sizes below `bytes` raised to it.
    #[must_use]
    pub fn at_least(mut self, bytes: u32) -> Self {
        if let Self::Weighted(weights) = &mut self {
            for size in &mut weights.0 {
                size.bytes = size.bytes.max(bytes);
            }
        }
        self
    }
}

impl Weights {
    /// The longest cycle.
    pub const MOST: u64 = 4096;

    /// These sizes with these weights.
    ///
    /// # Errors
    /// [`MixError::Sum`] without sizes, with a weight of 0, or when the cycle is longer than [`Weights::MOST`].
    pub fn new(sizes: Vec<WeightedSize>) -> Result<Self, MixError> {
        let weights = Self(sizes);
        let has_zero = weights.0.iter().any(|size| size.weight == 0);
        let sum = if has_zero { 0 } else { weights.cycle_len() };
        if (1..=Self::MOST).contains(&sum) {
            Ok(weights)
        } else {
            Err(MixError::Sum { sum, most: Self::MOST })
        }
    }

    /// Sizes and weights as given.
    pub fn sizes(&self) -> &[WeightedSize] {
        &self.0
    }

    /// The sizes in the order they are sent, repeated. Each step adds every size's weight to its credit and sends the
    /// size with the most credit, which then pays for the whole cycle: large frames do not come in bursts.
    pub fn cycle(&self) -> Vec<u32> {
        let len = self.cycle_len();
        let divisor = self.divisor();
        let mut credit = vec![0i64; self.0.len()];
        let mut next = || {
            for (credit, size) in credit.iter_mut().zip(&self.0) {
                *credit += i64::from(size.weight / divisor);
            }
            let most = *credit.iter().max()?;
            let at = credit.iter().position(|credit| *credit == most)?;
            credit[at] -= len as i64;
            Some(self.0[at].bytes)
        };
        (0..len).map_while(|_| next()).collect()
    }

    fn cycle_len(&self) -> u64 {
        let divisor = u64::from(self.divisor());
        self.0.iter().map(|size| u64::from(size.weight) / divisor).sum()
    }

    fn divisor(&self) -> u32 {
        fn common(a: u32, b: u32) -> u32 {
            if b == 0 { a } else { common(b, a % b) }
        }
        self.0.iter().map(|size| size.weight).fold(0, common).max(1)
    }
}

impl FromStr for SizeMix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        if text.eq_ignore_ascii_case("imix") {
            return Ok(Self::imix());
        }
        if !text.is_empty() && text.chars().all(char::is_alphabetic) {
            return Err(MixError::UnknownMix { text: text.into() });
        }
        let is_weighted = text.contains(':') && text.starts_with(|c: char| c.is_ascii_digit());
        if !is_weighted {
            return Ok(Self::Values(text.parse()?));
        }
        let one = |part: &str| {
            let (bytes, weight) = part.split_once(':')?;
            Some(WeightedSize { bytes: bytes.parse().ok()?, weight: weight.parse().ok()? })
        };
        let sizes =
            text.split(',').map(|part| one(part).ok_or_else(|| MixError::NotAWeight { text: part.into() }));
        Ok(Self::Weighted(Weights::new(sizes.collect::<Result<_, _>>()?)?))
    }
}

impl fmt::Display for SizeMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(values) => values.fmt(f),
            Self::Weighted(weights) if weights.0 == IMIX => f.write_str("imix"),
            Self::Weighted(weights) => {
                for (at, size) in weights.0.iter().enumerate() {
                    write!(f, "{}{}:{}", if at == 0 { "" } else { "," }, size.bytes, size.weight)?;
                }
                Ok(())
            }
        }
    }
}

text_form!(SizeMix);

impl Sizes {
    /// The same payloads in frames with that many more header bytes, for example tags.
    #[must_use]
    pub fn behind(&self, header_bytes: u32) -> Self {
        match self {
            Self::Frame(SizeMix::Values(values)) => {
                Self::Frame(SizeMix::Values(values.each_plus(header_bytes)))
            }
            Self::Frame(SizeMix::Weighted(weights)) => {
                let larger = |size: &WeightedSize| WeightedSize {
                    bytes: size.bytes.saturating_add(header_bytes),
                    weight: size.weight,
                };
                Self::Frame(SizeMix::Weighted(Weights(weights.0.iter().map(larger).collect())))
            }
            Self::Payload(mix) => Self::Payload(mix.clone()),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(mix) => write!(f, "frames of {mix} bytes with FCS"),
            Self::Payload(mix) => write!(f, "payloads of {mix} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_of_a_mix_grow() {
        assert_eq!(SizeMix::imix().at_least(84).to_string(), "84:28,594:16,1518:4");
        assert_eq!(SizeMix::imix().at_least(64), SizeMix::imix());
    }

    #[test]
    fn payloads_stay_when_headers_grow() {
        for (before, after) in [
            ("64", "68"),
            ("inc:64-1518", "inc:68-1522"),
            ("random:64-1518,seed=3", "random:68-1522,seed=3"),
            ("list:64,128", "list:68,132"),
            ("100:3,200:1", "104:3,204:1"),
        ] {
            let sizes = Sizes::Frame(before.parse().unwrap());
            assert_eq!(sizes.behind(4), Sizes::Frame(after.parse().unwrap()));
            let payloads = Sizes::Payload(before.parse().unwrap());
            assert_eq!(payloads.behind(4), payloads);
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in
            ["64", "imix", "inc:64-1518", "random:64-1518,seed=3", "list:64,128", "64:1", "100:3,200:1"]
        {
            assert_eq!(text.parse::<SizeMix>().unwrap().to_string(), text);
        }
        assert_eq!("64:28,594:16,1518:4".parse::<SizeMix>(), "IMIX".parse());
    }

    #[test]
    fn a_cycle_holds_each_size_by_its_weight_and_spreads_it() {
        let SizeMix::Weighted(imix) = SizeMix::imix() else { panic!("imix has weights") };
        let cycle = imix.cycle();
        assert_eq!(cycle, [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64]);
    }

    #[test]
    fn the_longest_cycle_is_bounded() {
        let weights = |weights: &[u32]| {
            Weights::new(weights.iter().map(|&weight| WeightedSize { bytes: 64, weight }).collect())
        };
        assert_eq!(weights(&[4095, 1]).unwrap().cycle().len(), 4096);
        assert_eq!(weights(&[4_000_000_000, 2_000_000_000]).unwrap().cycle().len(), 3);
        for wrong in [&[][..], &[0], &[1, 0], &[4096, 1]] {
            assert!(matches!(weights(wrong), Err(MixError::Sum { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn refusals_say_what_to_write_instead() {
        let message = |text: &str| text.parse::<SizeMix>().unwrap_err().to_string();
        assert_eq!(
            message("64:28,594"),
            "'594' is not a size and its weight: write 64:28,594:16,1518:4 or imix"
        );
        assert_eq!(
            message("64:5000,65:1"),
            "each weight must be at least 1, and their sum (after dividing by their common divisor) at most 4096, not 5001"
        );
        assert!(
            message("big").starts_with("unknown mix of sizes 'big': expected imix, or sizes: 64, 64-1518")
        );
        assert!(message("64x").starts_with("'64x' is not a size in bytes: write 64, 64-1518"));
    }
}
