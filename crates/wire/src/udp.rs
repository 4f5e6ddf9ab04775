//! UDP headers (RFC 768) and their checksum over the pseudo header (RFC 768, RFC 8200 section 8.1).

use std::ops::Range;

use crate::{
    checksum::Checksum,
    flow::{Addresses, PROTOCOL_UDP},
    header::{HeaderError, Layer, be16, fixed_part, length_within},
};

pub(crate) const SRC_PORT: Range<usize> = 0..2;
pub(crate) const DST_PORT: Range<usize> = 2..4;
pub(crate) const LEN: Range<usize> = 4..6;
pub(crate) const CHECKSUM: Range<usize> = 6..8;

/// A UDP header in a packet.
#[derive(Debug, Clone, Copy)]
pub struct UdpView<'f> {
    /// The datagram, cut to the length its header gives.
    datagram: &'f [u8],
}

/// A UDP header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl<'f> UdpView<'f> {
    /// The header at the start of an IP payload.
    ///
    /// # Errors
    /// [`HeaderError`] when it is truncated or holds an impossible length.
    #[inline]
    pub fn new(bytes: &'f [u8]) -> Result<Self, HeaderError> {
        let header: &[u8; UdpHeader::LEN] = fixed_part(bytes, Layer::Udp)?;
        let len = length_within(be16(&header[LEN]).into(), UdpHeader::LEN, bytes.len(), Layer::Udp)?;
        Ok(Self { datagram: &bytes[..len] })
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(&self.datagram[SRC_PORT])
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(&self.datagram[DST_PORT])
    }

    /// The checksum in the header; 0 means none.
    pub fn checksum(&self) -> u16 {
        be16(&self.datagram[CHECKSUM])
    }

    /// The checksum that the datagram should have between these hosts.
    pub fn right_checksum(&self, between: Addresses) -> u16 {
        let (front, back) = self.datagram.split_at(CHECKSUM.start);
        pseudo_header(between, self.datagram.len() as u16).add_bytes(front).add_bytes(&back[2..]).finish_udp()
    }

    /// What the datagram carries.
    #[inline]
    pub fn payload(&self) -> &'f [u8] {
        &self.datagram[UdpHeader::LEN..]
    }
}

impl UdpHeader {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Writes the header at the start of a datagram whose payload is already there, checksum included.
    ///
    /// # Panics
    /// When the datagram is shorter than the header and its payload, or longer than UDP allows.
    pub fn write(&self, datagram: &mut [u8], between: Addresses) {
        let len = self.payload_len.checked_add(Self::LEN as u16).expect("a datagram of at most 65535 bytes");
        let datagram = &mut datagram[..len.into()];
        datagram[SRC_PORT].copy_from_slice(&self.src_port.to_be_bytes());
        datagram[DST_PORT].copy_from_slice(&self.dst_port.to_be_bytes());
        datagram[LEN].copy_from_slice(&len.to_be_bytes());
        let checksum = UdpView { datagram }.right_checksum(between);
        datagram[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The part of the checksum that is not in the datagram: addresses, protocol, length.
pub(crate) fn pseudo_header(between: Addresses, udp_len: u16) -> Checksum {
    let sum = match between {
        Addresses::V4 { src, dst } => Checksum::ZERO.add_ipv4(src).add_ipv4(dst),
        Addresses::V6 { src, dst } => Checksum::ZERO.add_ipv6(src).add_ipv6(dst),
    };
    sum.add_word(PROTOCOL_UDP.into()).add_word(udp_len.into())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const HEADER: UdpHeader = UdpHeader { src_port: 0x1234, dst_port: 53, payload_len: 3 };

    #[test]
    fn the_bytes_and_the_checksum_are_the_known_ones() {
        let between = Addresses::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst: Ipv4Addr::new(10, 0, 0, 2) };
        let mut datagram = [0xff; 11];
        datagram[8..].copy_from_slice(&[1, 2, 3]);
        HEADER.write(&mut datagram, between);
        // 0a00 + 0001 + 0a00 + 0002 + 0011 + 000b + 1234 + 0035 + 000b + 0102 + 0300 = 2a95; ~2a95 = d56a.
        assert_eq!(datagram, [0x12, 0x34, 0, 53, 0, 11, 0xd5, 0x6a, 1, 2, 3]);
        let view = UdpView::new(&datagram).unwrap();
        assert_eq!((view.src_port(), view.dst_port(), view.payload()), (0x1234, 53, &[1, 2, 3][..]));
        assert_eq!(view.checksum(), view.right_checksum(between));
    }

    #[test]
    fn ipv6_counts_all_of_both_addresses() {
        let between = Addresses::V6 {
            src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        };
        let mut datagram = [0; 11];
        HEADER.write(&mut datagram, between);
        // 2 * (2001 + 0db8) + 1 + 2 + 0011 + 000b + 1234 + 0035 + 000b = 6e05; ~6e05 = 91fa.
        assert_eq!(UdpView::new(&datagram).unwrap().checksum(), 0x91fa);
    }

    #[test]
    fn a_zero_sum_is_sent_as_ones() {
        let between = Addresses::V4 { src: Ipv4Addr::UNSPECIFIED, dst: Ipv4Addr::UNSPECIFIED };
        // 0011 + 0008 + 0008 + ffde = ffff, whose complement is 0.
        let header = UdpHeader { src_port: 0xffde, dst_port: 0, payload_len: 0 };
        let mut datagram = [0; 8];
        header.write(&mut datagram, between);
        assert_eq!(UdpView::new(&datagram).unwrap().checksum(), 0xffff);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for (len, message) in [
            (7, "UDP header length is 7 bytes, must be 8 to 12"),
            (13, "UDP header length is 13 bytes, must be 8 to 12"),
        ] {
            let mut datagram = [0; 12];
            datagram[5] = len;
            assert_eq!(UdpView::new(&datagram).unwrap_err().to_string(), message);
        }
        assert!(UdpView::new(&[0; 7]).is_err());
    }
}
