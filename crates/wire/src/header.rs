//! The error common to all header views.

use std::fmt;

use thiserror::Error;

/// The header that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet, VLAN tags included.
    Ethernet,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// UDP.
    Udp,
}

/// Why bytes are not the header they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Fewer bytes than the header needs.
    #[error("{layer} header needs {needs} bytes, but the frame has only {has} left")]
    TooShort {
        /// The header.
        layer: Layer,
        /// Bytes it needs.
        needs: usize,
        /// Bytes present.
        has: usize,
    },
    /// The header has another IP version.
    #[error("{layer} header has version {version}")]
    Version {
        /// The header.
        layer: Layer,
        /// The version it has.
        version: u8,
    },
    /// An impossible length in the header.
    #[error("{layer} header length is {says} bytes, must be {least} to {most}")]
    Length {
        /// The header.
        layer: Layer,
        /// The length in the header.
        says: usize,
        /// The smallest length allowed here.
        least: usize,
        /// The largest.
        most: usize,
    },
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Udp => "UDP",
        })
    }
}

/// The first `N` bytes, or how many are missing.
#[inline]
pub(crate) fn fixed_part<const N: usize>(bytes: &[u8], layer: Layer) -> Result<&[u8; N], HeaderError> {
    bytes.first_chunk().ok_or(HeaderError::TooShort { layer, needs: N, has: bytes.len() })
}

/// A length from a header, when it is within the given bounds.
#[inline]
pub(crate) fn length_within(
    says: usize,
    least: usize,
    most: usize,
    layer: Layer,
) -> Result<usize, HeaderError> {
    if (least..=most).contains(&says) {
        Ok(says)
    } else {
        Err(HeaderError::Length { layer, says, least, most })
    }
}

/// The 16-bit number at the start of a field.
#[inline]
pub(crate) fn be16(field: &[u8]) -> u16 {
    u16::from_be_bytes([field[0], field[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_header_and_the_numbers() {
        assert_eq!(
            fixed_part::<20>(&[0; 7], Layer::Ipv4).unwrap_err().to_string(),
            "IPv4 header needs 20 bytes, but the frame has only 7 left"
        );
        assert_eq!(
            length_within(7, 8, 26, Layer::Udp).unwrap_err().to_string(),
            "UDP header length is 7 bytes, must be 8 to 26"
        );
        assert_eq!(
            HeaderError::Version { layer: Layer::Ipv6, version: 4 }.to_string(),
            "IPv6 header has version 4"
        );
    }
}
