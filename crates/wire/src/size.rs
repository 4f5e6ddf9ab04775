//! Sizes of frames and payloads, and durations, as users write them.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::probe::PROBE_LEN;

/// The size of a frame from the Ethernet header to the FCS, in bytes (RFC 2544).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct FrameSize(u32);

/// The mean size of a run's frames in bytes, FCS included: converts bit rates to packet rates for a mix of sizes.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MeanFrameSize(f64);

/// The headers around a UDP payload, which decide how payload and frame size relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Layers {
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Number of 802.1Q tags.
    pub vlan_tags: u32,
}

/// Why a size or a duration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Below the smallest or above the largest frame.
    #[error("frame size {bytes} is out of range: from 64 to 65553 bytes, Ethernet header and FCS included")]
    FrameOutOfRange {
        /// The requested size.
        bytes: u64,
    },
    /// A payload that no frame can carry.
    #[error("payload {bytes} is out of range: from {least} to {most} bytes of UDP payload")]
    PayloadOutOfRange {
        /// The requested payload.
        bytes: u64,
        /// The smallest payload.
        least: u32,
        /// The largest payload.
        most: u32,
    },
    /// A frame without room for the headers and the probe header.
    #[error(
        "a frame of {frame} bytes leaves {payload} bytes of UDP payload, but the probe header needs 16: use at least {smallest}"
    )]
    NoRoomForProbe {
        /// The requested frame size.
        frame: u32,
        /// The payload that would be left.
        payload: u32,
        /// The smallest frame for these headers.
        smallest: u32,
    },
    /// Not a whole number.
    #[error("'{text}' is not a whole number of bytes")]
    NotANumber {
        /// What was written.
        text: String,
    },
    /// Not a duration.
    #[error("'{text}' is not a duration: write for example 500ms, 10s, 3m or 1h")]
    NotADuration {
        /// What was written.
        text: String,
    },
    /// No share.
    #[error("'{text}' is not a share: write for example 0.001 or 0.1%")]
    NotAShare {
        /// The text.
        text: String,
    },
}

impl FrameSize {
    /// The smallest Ethernet frame.
    pub const MIN: Self = Self(64);
    /// The largest frame an IPv4 packet of 65535 bytes makes.
    pub const MAX: Self = Self(65535 + 18);

    /// A frame of that many bytes, FCS included.
    ///
    /// # Errors
    /// [`SizeError::FrameOutOfRange`] outside 64..=65553.
    pub fn new(bytes: u32) -> Result<Self, SizeError> {
        if (Self::MIN.0..=Self::MAX.0).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(SizeError::FrameOutOfRange { bytes: bytes.into() })
        }
    }

    /// The frame that carries that much UDP payload; short ones are padded to 64 bytes.
    ///
    /// # Errors
    /// [`SizeError::PayloadOutOfRange`] below the probe header's 16 bytes or above what IP can carry.
    pub fn from_payload(payload: u32, layers: Layers) -> Result<Self, SizeError> {
        let most = Self::MAX.0 - layers.overhead();
        let least = PROBE_LEN as u32;
        if !(least..=most).contains(&payload) {
            return Err(SizeError::PayloadOutOfRange { bytes: payload.into(), least, most });
        }
        Self::new((payload + layers.overhead()).max(Self::MIN.0))
    }

    /// Bytes from the Ethernet header to the FCS.
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// Bytes of link time: the frame and 20 bytes of preamble, start delimiter and gap.
    pub fn l1_bytes(self) -> u32 {
        self.0 + 20
    }

    /// Bytes as a socket or ring sees them: without the FCS.
    pub fn without_fcs(self) -> u32 {
        self.0 - 4
    }

    /// The UDP payload of a frame of this size: 46 bytes less with IPv4, 66 with IPv6, 4 per VLAN tag.
    ///
    /// # Errors
    /// [`SizeError::NoRoomForProbe`] when fewer than 16 bytes remain.
    pub fn payload(self, layers: Layers) -> Result<u32, SizeError> {
        let payload = self.0.saturating_sub(layers.overhead());
        let least = PROBE_LEN as u32;
        if payload < least {
            let smallest = (layers.overhead() + least).max(Self::MIN.0);
            return Err(SizeError::NoRoomForProbe { frame: self.0, payload, smallest });
        }
        Ok(payload)
    }
}

impl MeanFrameSize {
    /// The mean of these sizes; `None` when there are none.
    pub fn of(sizes: impl IntoIterator<Item = FrameSize>) -> Option<Self> {
        let (sum, count) =
            sizes.into_iter().fold((0u64, 0u64), |(sum, count), size| (sum + u64::from(size.0), count + 1));
        (count > 0).then(|| Self(sum as f64 / count as f64))
    }

    /// Bytes from the Ethernet header to the FCS.
    pub fn bytes(self) -> f64 {
        self.0
    }

    /// Bytes of link time: the frame and 20 bytes of preamble, start delimiter and gap.
    pub fn l1_bytes(self) -> f64 {
        self.0 + 20.0
    }
}

impl From<FrameSize> for MeanFrameSize {
    fn from(size: FrameSize) -> Self {
        Self(size.0.into())
    }
}

impl Layers {
    /// Bytes of a frame that are not UDP payload, FCS included.
    pub fn overhead(self) -> u32 {
        let ip = if self.ipv6 { 40 } else { 20 };
        14 + 4 * self.vlan_tags + ip + 8 + 4
    }
}

impl FromStr for FrameSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let bytes: u64 = text.parse().map_err(|_| SizeError::NotANumber { text: text.into() })?;
        u32::try_from(bytes).map_err(|_| SizeError::FrameOutOfRange { bytes }).and_then(Self::new)
    }
}

impl TryFrom<u32> for FrameSize {
    type Error = SizeError;
    fn try_from(bytes: u32) -> Result<Self, SizeError> {
        Self::new(bytes)
    }
}

impl From<FrameSize> for u32 {
    fn from(size: FrameSize) -> Self {
        size.0
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Reads `500ms`, `10s`, `3m`, `1h` or `0.5s`.
///
/// # Errors
/// [`SizeError::NotADuration`] without a unit, for a negative number, or for more than a year.
pub fn parse_duration(text: &str) -> Result<Duration, SizeError> {
    let wrong = || SizeError::NotADuration { text: text.into() };
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    if seconds > 366.0 * 86_400.0 {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Reads a share of at most 1: `0.001` or `0.1%`.
///
/// # Errors
/// [`SizeError::NotAShare`].
pub fn parse_ratio(text: &str) -> Result<f64, SizeError> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&(ratio * scale)) => Ok(ratio * scale),
        _ => Err(SizeError::NotAShare { text: text.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!(parse_ratio("0.1%"), Ok(0.001));
        assert_eq!(parse_ratio("1"), Ok(1.0));
        assert!(parse_ratio("2").is_err() && parse_ratio("-1%").is_err() && parse_ratio("x").is_err());
    }

    const V4: Layers = Layers { ipv6: false, vlan_tags: 0 };
    const V6: Layers = Layers { ipv6: true, vlan_tags: 0 };

    #[test]
    fn payload_and_frame_differ_by_the_headers() {
        for (frame, layers, payload) in
            [(64, V4, 18), (78, V4, 32), (1518, V4, 1472), (82, V6, 16), (1518, V6, 1452)]
        {
            let frame = FrameSize::new(frame).unwrap();
            assert_eq!(frame.payload(layers), Ok(payload));
            assert_eq!(FrameSize::from_payload(payload, layers), Ok(frame));
        }
        let tagged = Layers { vlan_tags: 1, ..V4 };
        assert_eq!(FrameSize::new(68).unwrap().payload(tagged), Ok(18));
    }

    #[test]
    fn a_short_payload_is_padded_to_the_smallest_frame() {
        assert_eq!(FrameSize::from_payload(16, V4), Ok(FrameSize::MIN));
    }

    #[test]
    fn a_mean_counts_every_frame_once() {
        let sizes = [64, 64, 1518].map(|bytes| FrameSize::new(bytes).unwrap());
        let mean = MeanFrameSize::of(sizes).unwrap();
        assert_eq!((mean.bytes() * 3.0, mean.l1_bytes() - mean.bytes()), (1646.0, 20.0));
        assert_eq!(MeanFrameSize::of([]), None);
    }

    #[test]
    fn refusals_name_the_range() {
        assert_eq!(
            "63".parse::<FrameSize>().unwrap_err().to_string(),
            "frame size 63 is out of range: from 64 to 65553 bytes, Ethernet header and FCS included"
        );
        assert_eq!(
            FrameSize::MIN.payload(V6).unwrap_err().to_string(),
            "a frame of 64 bytes leaves 0 bytes of UDP payload, but the probe header needs 16: use at least 82"
        );
        assert!("99999999999".parse::<FrameSize>().unwrap_err().to_string().contains("out of range"));
        assert!("big".parse::<FrameSize>().unwrap_err().to_string().contains("not a whole number"));
        assert!(FrameSize::from_payload(15, V4).is_err());
        assert!(FrameSize::from_payload(65508, V4).is_err());
        assert!(FrameSize::from_payload(65507, V4).is_ok());
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("3m"), Ok(Duration::from_secs(180)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("0.5s"), Ok(Duration::from_millis(500)));
        for wrong in ["10", "", "s", "-1s", "1.2.3s", "9999999h", "1d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
