//! IPv6 headers (RFC 8200), without extension headers.

use std::{net::Ipv6Addr, ops::Range};

use crate::header::{HeaderError, Layer, be16, fixed_part, length_within};

const VERSION: Range<usize> = 0..4;
pub(crate) const PAYLOAD_LEN: Range<usize> = 4..6;
const NEXT_HEADER_AT: usize = 6;
const HOP_LIMIT_AT: usize = 7;
pub(crate) const SRC: Range<usize> = 8..24;
pub(crate) const DST: Range<usize> = 24..40;

/// The next-header value of a fragment.
pub(crate) const NEXT_FRAGMENT: u8 = 44;

/// An IPv6 header in a packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6View<'f> {
    /// The packet, cut to the length its header gives.
    packet: &'f [u8],
}

/// An IPv6 header as values; its flow label is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Hop limit.
    pub hop_limit: u8,
    /// Differentiated services code point, 6 bits.
    pub dscp: u8,
    /// What follows the header.
    pub next_header: u8,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl<'f> Ipv6View<'f> {
    /// The header at the start of an Ethernet payload.
    ///
    /// # Errors
    /// [`HeaderError`] when it is truncated, of another version, or holds an impossible length.
    #[inline]
    pub fn new(bytes: &'f [u8]) -> Result<Self, HeaderError> {
        let header: &[u8; Ipv6Header::LEN] = fixed_part(bytes, Layer::Ipv6)?;
        let version = header[VERSION.start] >> 4;
        if version != 6 {
            return Err(HeaderError::Version { layer: Layer::Ipv6, version });
        }
        let payload_len = be16(&header[PAYLOAD_LEN]).into();
        length_within(payload_len, 0, bytes.len() - Ipv6Header::LEN, Layer::Ipv6)?;
        Ok(Self { packet: &bytes[..Ipv6Header::LEN + payload_len] })
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.packet[SRC].try_into().expect("sixteen bytes"))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.packet[DST].try_into().expect("sixteen bytes"))
    }

    /// Hop limit: hops left.
    pub fn hop_limit(&self) -> u8 {
        self.packet[HOP_LIMIT_AT]
    }

    /// Differentiated services code point.
    pub fn dscp(&self) -> u8 {
        (be16(&self.packet[VERSION]) >> 6) as u8 & 0x3f
    }

    /// What follows the header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.packet[NEXT_HEADER_AT]
    }

    /// What the packet carries, without Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &'f [u8] {
        &self.packet[Ipv6Header::LEN..]
    }
}

impl Ipv6Header {
    /// Bytes of the header.
    pub const LEN: usize = 40;

    /// Writes the header at the start of a packet.
    ///
    /// # Panics
    /// When the packet is shorter than [`Ipv6Header::LEN`].
    pub fn write(&self, packet: &mut [u8]) {
        let header: &mut [u8; Self::LEN] = packet.first_chunk_mut().expect("a packet holds an IPv6 header");
        let version_and_class = 6 << 28 | u32::from(self.dscp) << 22;
        header[VERSION].copy_from_slice(&version_and_class.to_be_bytes());
        header[PAYLOAD_LEN].copy_from_slice(&self.payload_len.to_be_bytes());
        header[NEXT_HEADER_AT] = self.next_header;
        header[HOP_LIMIT_AT] = self.hop_limit;
        header[SRC].copy_from_slice(&self.src.octets());
        header[DST].copy_from_slice(&self.dst.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Ipv6Header = Ipv6Header {
        src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        hop_limit: 64,
        dscp: 46,
        next_header: 17,
        payload_len: 24,
    };

    #[test]
    fn the_bytes_are_the_standards() {
        let mut packet = [0xff; 64];
        HEADER.write(&mut packet);
        // Expedited forwarding: 46 << 2 = 0xb8 is the traffic class, behind the version's four bits.
        assert_eq!(packet[..8], [0x6b, 0x80, 0, 0, 0, 24, 17, 64]);
        assert_eq!(packet[8..12], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!((packet[23], packet[39]), (1, 2));
        let view = Ipv6View::new(&packet).unwrap();
        assert_eq!((view.src(), view.dst(), view.next_header()), (HEADER.src, HEADER.dst, 17));
        assert_eq!((view.hop_limit(), view.dscp(), view.payload().len()), (64, 46, 24));
    }

    #[test]
    fn impossible_headers_are_refused() {
        let mut packet = [0; 64];
        HEADER.write(&mut packet);
        packet[5] = 25;
        assert_eq!(
            Ipv6View::new(&packet).unwrap_err().to_string(),
            "IPv6 header length is 25 bytes, must be 0 to 24"
        );
        packet[0] = 0x45;
        assert_eq!(Ipv6View::new(&packet).unwrap_err().to_string(), "IPv6 header has version 4");
        assert!(Ipv6View::new(&packet[..39]).is_err());
    }
}
