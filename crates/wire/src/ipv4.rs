//! IPv4 headers (RFC 791).

use std::{net::Ipv4Addr, ops::Range};

use crate::{
    checksum::Checksum,
    header::{HeaderError, Layer, be16, fixed_part, length_within},
};

const VERSION_AND_LEN_AT: usize = 0;
const DSCP_AT: usize = 1;
pub(crate) const TOTAL_LEN: Range<usize> = 2..4;
pub(crate) const FRAGMENT: Range<usize> = 6..8;
const TTL_AT: usize = 8;
pub(crate) const PROTOCOL_AT: usize = 9;
pub(crate) const CHECKSUM: Range<usize> = 10..12;
pub(crate) const SRC: Range<usize> = 12..16;
pub(crate) const DST: Range<usize> = 16..20;

const DONT_FRAGMENT: u16 = 1 << 14;
/// More fragments follow, or this fragment is not the first.
pub(crate) const IS_FRAGMENT: u16 = 0x3fff;

/// An IPv4 header in a packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4View<'f> {
    /// The packet, cut to the length its header gives.
    packet: &'f [u8],
    header_len: usize,
}

/// An IPv4 header without options as values. The packet is never fragmented, so its identification is 0
/// (RFC 6864 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// Differentiated services code point, 6 bits.
    pub dscp: u8,
    /// What follows the header.
    pub protocol: u8,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl<'f> Ipv4View<'f> {
    /// The header at the start of an Ethernet payload.
    ///
    /// # Errors
    /// [`HeaderError`] when it is truncated, of another version, or holds an impossible length.
    #[inline]
    pub fn new(bytes: &'f [u8]) -> Result<Self, HeaderError> {
        let header: &[u8; Ipv4Header::LEN] = fixed_part(bytes, Layer::Ipv4)?;
        let version = header[VERSION_AND_LEN_AT] >> 4;
        if version != 4 {
            return Err(HeaderError::Version { layer: Layer::Ipv4, version });
        }
        let header_len = usize::from(header[VERSION_AND_LEN_AT] & 0xf) * 4;
        length_within(header_len, Ipv4Header::LEN, bytes.len(), Layer::Ipv4)?;
        let total_len = be16(&header[TOTAL_LEN]).into();
        length_within(total_len, header_len, bytes.len(), Layer::Ipv4)?;
        Ok(Self { packet: &bytes[..total_len], header_len })
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.packet[SRC].try_into().expect("four bytes"))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.packet[DST].try_into().expect("four bytes"))
    }

    /// Time to live: hops left.
    pub fn ttl(&self) -> u8 {
        self.packet[TTL_AT]
    }

    /// Differentiated services code point.
    pub fn dscp(&self) -> u8 {
        self.packet[DSCP_AT] >> 2
    }

    /// What follows the header.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.packet[PROTOCOL_AT]
    }

    /// True for a piece of a larger packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(&self.packet[FRAGMENT]) & IS_FRAGMENT != 0
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// The checksum in the header.
    pub fn checksum(&self) -> u16 {
        be16(&self.packet[CHECKSUM])
    }

    /// The checksum that the header should have.
    pub fn right_checksum(&self) -> u16 {
        let (front, back) = self.packet[..self.header_len].split_at(CHECKSUM.start);
        Checksum::ZERO.add_bytes(front).add_bytes(&back[2..]).finish()
    }

    /// What the packet carries, without Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &'f [u8] {
        &self.packet[self.header_len..]
    }
}

impl Ipv4Header {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;

    /// Writes the header at the start of a packet, checksum included.
    ///
    /// # Panics
    /// When the packet is shorter than [`Ipv4Header::LEN`], or longer than IPv4 allows with its payload.
    pub fn write(&self, packet: &mut [u8]) {
        let header: &mut [u8; Self::LEN] = packet.first_chunk_mut().expect("a packet holds an IPv4 header");
        let total_len =
            self.payload_len.checked_add(Self::LEN as u16).expect("a packet of at most 65535 bytes");
        *header = [0; Self::LEN];
        header[VERSION_AND_LEN_AT] = 0x45;
        header[DSCP_AT] = self.dscp << 2;
        header[TOTAL_LEN].copy_from_slice(&total_len.to_be_bytes());
        header[FRAGMENT].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        header[TTL_AT] = self.ttl;
        header[PROTOCOL_AT] = self.protocol;
        header[SRC].copy_from_slice(&self.src.octets());
        header[DST].copy_from_slice(&self.dst.octets());
        let checksum = Checksum::ZERO.add_bytes(header).finish();
        header[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Ipv4Header = Ipv4Header {
        src: Ipv4Addr::new(192, 168, 0, 1),
        dst: Ipv4Addr::new(192, 168, 0, 199),
        ttl: 64,
        dscp: 0,
        protocol: 17,
        payload_len: 95,
    };

    #[test]
    fn the_bytes_and_the_checksum_are_the_known_ones() {
        let mut packet = [0; 115];
        HEADER.write(&mut packet);
        // 4500 + 0073 + 4000 + 4011 + c0a8 + 0001 + c0a8 + 00c7 = 2479c; 479c + 2 = 479e; ~479e = b861.
        let expected =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 192, 168, 0, 1, 192, 168, 0, 199];
        assert_eq!(packet[..20], expected);
        let view = Ipv4View::new(&packet).unwrap();
        assert_eq!(view.checksum(), view.right_checksum());
        assert_eq!((view.src(), view.dst(), view.protocol()), (HEADER.src, HEADER.dst, 17));
        assert_eq!((view.ttl(), view.dscp(), view.is_fragment()), (64, 0, false));
    }

    #[test]
    fn padding_is_no_payload_and_options_are_header() {
        let mut frame_payload = [0; 46];
        Ipv4Header { payload_len: 10, ..HEADER }.write(&mut frame_payload);
        assert_eq!(Ipv4View::new(&frame_payload).unwrap().payload().len(), 10);
        frame_payload[0] = 0x46;
        let view = Ipv4View::new(&frame_payload).unwrap();
        assert_eq!((view.header_len(), view.payload().len()), (24, 6));
    }

    #[test]
    fn impossible_headers_are_refused() {
        let mut packet = [0; 40];
        Ipv4Header { payload_len: 20, ..HEADER }.write(&mut packet);
        let with = |at: usize, value: u8| {
            let mut changed = packet;
            changed[at] = value;
            Ipv4View::new(&changed).unwrap_err().to_string()
        };
        assert_eq!(with(0, 0x65), "IPv4 header has version 6");
        assert_eq!(with(0, 0x44), "IPv4 header length is 16 bytes, must be 20 to 40");
        assert_eq!(with(3, 41), "IPv4 header length is 41 bytes, must be 20 to 40");
        assert_eq!(with(3, 19), "IPv4 header length is 19 bytes, must be 20 to 40");
        assert!(Ipv4View::new(&packet[..19]).is_err());
    }

    #[test]
    fn a_piece_is_told_by_offset_or_more_flag() {
        let mut packet = [0; 28];
        Ipv4Header { payload_len: 8, ..HEADER }.write(&mut packet);
        for (high, low) in [(0x20, 0), (0, 1), (0x1f, 0xff)] {
            (packet[6], packet[7]) = (high, low);
            assert!(Ipv4View::new(&packet).unwrap().is_fragment());
        }
    }
}
