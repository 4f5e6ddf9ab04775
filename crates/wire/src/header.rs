//! What is common to all header views: how a header can be wrong.

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

/// Bytes that are not the header they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Fewer bytes than the header takes.
    #[error("{layer} header needs {needs} bytes, and {has} are left of the frame")]
    TooShort {
        /// The header.
        layer: Layer,
        /// Bytes it takes.
        needs: usize,
        /// Bytes that are there.
        has: usize,
    },
    /// The version in the header is another one.
    #[error("{layer} header says version {version}")]
    Version {
        /// The header.
        layer: Layer,
        /// The version it says.
        version: u8,
    },
    /// A length in the header that cannot be true.
    #[error("{layer} header says a length of {says} bytes; between {least} and {most} are possible")]
    Length {
        /// The header.
        layer: Layer,
        /// The length it says.
        says: usize,
        /// The smallest length that could be true.
        least: usize,
        /// The greatest one.
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

/// A length from a header, when it lies within what is possible.
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
            "IPv4 header needs 20 bytes, and 7 are left of the frame"
        );
        assert_eq!(
            length_within(7, 8, 26, Layer::Udp).unwrap_err().to_string(),
            "UDP header says a length of 7 bytes; between 8 and 26 are possible"
        );
        assert_eq!(
            HeaderError::Version { layer: Layer::Ipv6, version: 4 }.to_string(),
            "IPv6 header says version 4"
        );
    }
}
