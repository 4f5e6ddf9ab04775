//! Ethernet headers with up to two VLAN tags.

use std::ops::Range;

use crate::{
    header::{HeaderError, Layer, be16, fixed_part},
    mac::MacAddr,
    vlan::{VlanProtocol, VlanTag},
};

const DST: Range<usize> = 0..6;
const SRC: Range<usize> = 6..12;
/// The EtherType, or the first tag's.
const TYPE_AT: usize = 12;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// The most VLAN tags that this crate reads and writes.
pub const MAX_VLAN_TAGS: usize = 2;

/// An Ethernet header in a frame.
#[derive(Debug, Clone, Copy)]
pub struct EthView<'f> {
    frame: &'f [u8],
    tag_count: usize,
}

/// An Ethernet header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthHeader<'t> {
    /// Destination MAC address.
    pub dst: MacAddr,
    /// Source MAC address.
    pub src: MacAddr,
    /// VLAN tags, outermost first.
    pub tags: &'t [VlanTag],
    /// What follows the header.
    pub ethertype: u16,
}

impl<'f> EthView<'f> {
    /// The header at the start of a frame. With more tags than [`MAX_VLAN_TAGS`] the rest is not read: the EtherType is
    /// then that of a tag.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`] when the header or one of its tags does not fit.
    #[inline]
    pub fn new(frame: &'f [u8]) -> Result<Self, HeaderError> {
        let header: &[u8; EthHeader::LEN] = fixed_part(frame, Layer::Ethernet)?;
        let mut ethertype = be16(&header[TYPE_AT..]);
        let mut tag_count = 0;
        while tag_count < MAX_VLAN_TAGS && VlanProtocol::from_ethertype(ethertype).is_some() {
            tag_count += 1;
            let needs = EthHeader::LEN + tag_count * VlanTag::LEN;
            let has = frame.len();
            let inner = frame.get(needs - 2..needs);
            ethertype = be16(inner.ok_or(HeaderError::TooShort { layer: Layer::Ethernet, needs, has })?);
        }
        Ok(Self { frame, tag_count })
    }

    /// Destination MAC address.
    pub fn dst(&self) -> MacAddr {
        MacAddr(self.frame[DST].try_into().expect("six bytes"))
    }

    /// Source MAC address.
    pub fn src(&self) -> MacAddr {
        MacAddr(self.frame[SRC].try_into().expect("six bytes"))
    }

    /// VLAN tags, outermost first.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = VlanTag> + use<'f> {
        let frame = self.frame;
        (0..self.tag_count).map(move |tag| {
            let at = TYPE_AT + tag * VlanTag::LEN;
            let protocol = VlanProtocol::from_ethertype(be16(&frame[at..])).expect("`new` read a tag here");
            VlanTag::from_wire(protocol, be16(&frame[at + 2..]))
        })
    }

    /// What follows the header and its tags.
    #[inline]
    pub fn ethertype(&self) -> u16 {
        be16(&self.frame[self.header_len() - 2..])
    }

    /// Bytes of the header, tags included.
    #[inline]
    pub fn header_len(&self) -> usize {
        EthHeader::LEN + self.tag_count * VlanTag::LEN
    }

    /// Everything behind the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'f [u8] {
        &self.frame[self.header_len()..]
    }
}

impl EthHeader<'_> {
    /// Bytes of a header without tags.
    pub const LEN: usize = 14;

    /// Bytes of this header, tags included.
    pub fn header_len(&self) -> usize {
        Self::LEN + self.tags.len() * VlanTag::LEN
    }

    /// Writes the header at the start of a frame.
    ///
    /// # Panics
    /// When the frame is shorter than [`EthHeader::header_len`].
    pub fn write(&self, frame: &mut [u8]) {
        frame[DST].copy_from_slice(&self.dst.0);
        frame[SRC].copy_from_slice(&self.src.0);
        let mut at = TYPE_AT;
        for tag in self.tags {
            frame[at..at + 2].copy_from_slice(&tag.protocol().ethertype().to_be_bytes());
            frame[at + 2..at + 4].copy_from_slice(&tag.tci().to_be_bytes());
            at += VlanTag::LEN;
        }
        frame[at..at + 2].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_the_standards() {
        let header = EthHeader {
            dst: MacAddr([1, 2, 3, 4, 5, 6]),
            src: MacAddr([7, 8, 9, 10, 11, 12]),
            tags: &["802.1ad:3".parse().unwrap(), "100/1".parse().unwrap()],
            ethertype: ETHERTYPE_IPV6,
        };
        let mut frame = [0; 22];
        assert_eq!(header.header_len(), frame.len());
        header.write(&mut frame);
        let expected =
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xa8, 0, 3, 0x81, 0, 0x20, 100, 0x86, 0xdd];
        assert_eq!(frame, expected);

        let view = EthView::new(&frame).unwrap();
        assert_eq!((view.dst(), view.src()), (header.dst, header.src));
        assert!(view.tags().eq(header.tags.iter().copied()));
        assert_eq!((view.ethertype(), view.header_len()), (ETHERTYPE_IPV6, 22));
        assert!(view.payload().is_empty());
    }

    #[test]
    fn a_third_tag_stays_unread() {
        let tag = VlanTag::new(1).unwrap();
        let header = EthHeader {
            dst: MacAddr::BROADCAST,
            src: MacAddr::default(),
            tags: &[tag; 3],
            ethertype: ETHERTYPE_IPV4,
        };
        let mut frame = [0; 26];
        header.write(&mut frame);
        let view = EthView::new(&frame).unwrap();
        assert_eq!((view.tags().len(), view.ethertype()), (2, 0x8100));
    }

    #[test]
    fn a_cut_header_or_tag_is_too_short() {
        let short = |needs, has| HeaderError::TooShort { layer: Layer::Ethernet, needs, has };
        assert_eq!(EthView::new(&[0; 13]).unwrap_err(), short(14, 13));
        let mut frame = [0; 17];
        frame[12] = 0x81;
        assert_eq!(EthView::new(&frame).unwrap_err(), short(18, 17));
    }
}
