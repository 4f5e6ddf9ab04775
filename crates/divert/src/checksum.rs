//! Checksums that a sender left to its card, on a path without a card.
//!
//! Virtual interfaces pass packets as their sender's kernel made them: the checksum of TCP or UDP then holds the
//! folded sum of the pseudo header, to which a card would add the rest (`CHECKSUM_PARTIAL`, include/linux/skbuff.h). The
//! kernel keeps that in the packet's metadata, which AF_XDP does not pass.

use std::ops::Range;

use wire::{
    Checksum, ETHERTYPE_IPV4, ETHERTYPE_IPV6, EthView, Ipv4View, Ipv6View, PROTOCOL_TCP, PROTOCOL_UDP,
};

/// Completes the checksum as the card would have. A packet whose checksum is right, or wrong otherwise, stays unchanged.
#[inline]
pub(crate) fn complete(frame: &mut [u8]) {
    let Some(Segment { range, pseudo, checksum_at, is_udp }) = segment(frame) else { return };
    let segment = &mut frame[range];
    let Some(field) = segment.get(checksum_at..checksum_at + 2) else { return };
    if field != pseudo.fold().to_be_bytes() {
        return;
    }
    let sum = Checksum::ZERO.add_bytes(segment);
    if pseudo.add_word(sum.fold().into()).fold() == u16::MAX {
        return;
    }
    // The field holds the pseudo header's sum.
    let checksum = if is_udp { sum.finish_udp() } else { sum.finish() };
    segment[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A segment or datagram within a frame.
struct Segment {
    range: Range<usize>,
    pseudo: Checksum,
    checksum_at: usize,
    is_udp: bool,
}

/// The one of a frame that is no fragment and has no extension headers: senders complete the checksums of others.
#[inline]
fn segment(frame: &[u8]) -> Option<Segment> {
    let ethernet = EthView::new(frame).ok()?;
    let (payload, protocol, addresses) = match ethernet.ethertype() {
        ETHERTYPE_IPV4 => {
            let ip = Ipv4View::new(ethernet.payload()).ok().filter(|ip| !ip.is_fragment())?;
            (ip.payload(), ip.protocol(), Checksum::ZERO.add_ipv4(ip.src()).add_ipv4(ip.dst()))
        }
        ETHERTYPE_IPV6 => {
            let ip = Ipv6View::new(ethernet.payload()).ok()?;
            (ip.payload(), ip.next_header(), Checksum::ZERO.add_ipv6(ip.src()).add_ipv6(ip.dst()))
        }
        _ => return None,
    };
    let checksum_at = match protocol {
        PROTOCOL_TCP => 16,
        PROTOCOL_UDP => 6,
        _ => return None,
    };
    let start = payload.as_ptr().addr() - frame.as_ptr().addr();
    Some(Segment {
        range: start..start + payload.len(),
        pseudo: addresses.add_word(protocol.into()).add_word(payload.len() as u32),
        checksum_at,
        is_udp: protocol == PROTOCOL_UDP,
    })
}

#[cfg(test)]
mod tests {
    use wire::{Addresses, EthHeader, Ipv4Header, Ipv6Header, UdpHeader, VlanProtocol, VlanTag};

    use super::*;

    /// A UDP datagram in a frame with padding, and the offset of its checksum.
    fn frame(v6: bool, tagged: bool, payload: &[u8]) -> (Vec<u8>, usize) {
        let tag = [VlanTag::from_wire(VlanProtocol::Customer, 7)];
        let ethertype = if v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        let tags = if tagged { &tag[..] } else { &[] };
        let ethernet = EthHeader { dst: wire::MacAddr([1; 6]), src: wire::MacAddr([2; 6]), tags, ethertype };
        let at = ethernet.header_len();
        let mut frame = vec![0; at + if v6 { 40 } else { 20 } + 8 + payload.len() + 3];
        ethernet.write(&mut frame);
        let payload_len = (8 + payload.len()) as u16;
        let (start, between) = if v6 {
            let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
            let header =
                Ipv6Header { src, dst, hop_limit: 64, dscp: 0, next_header: PROTOCOL_UDP, payload_len };
            header.write(&mut frame[at..]);
            (at + 40, Addresses::V6 { src, dst })
        } else {
            let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
            let header = Ipv4Header { src, dst, ttl: 64, dscp: 0, protocol: PROTOCOL_UDP, payload_len };
            header.write(&mut frame[at..]);
            (at + 20, Addresses::V4 { src, dst })
        };
        frame[start + 8..start + 8 + payload.len()].copy_from_slice(payload);
        let end = start + usize::from(payload_len);
        let udp = UdpHeader { src_port: 5, dst_port: 9, payload_len: payload.len() as u16 };
        udp.write(&mut frame[start..end], between);
        (frame, start + 6)
    }

    #[test]
    fn what_the_sender_left_to_its_card_is_completed() {
        for (v6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
            for payload in [&b""[..], b"odd", b"even"] {
                let (right, at) = frame(v6, tagged, payload);
                let mut frame = right.clone();
                frame[at..at + 2].fill(0);
                let pseudo = segment(&frame).unwrap().pseudo.fold();
                frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
                complete(&mut frame);
                assert_eq!(frame, right, "IPv6 {v6}, tagged {tagged}, {payload:?}");
            }
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let (right, at) = frame(false, false, b"payload");
        let unchanged = |frame: &[u8]| {
            let mut after = frame.to_vec();
            complete(&mut after);
            assert_eq!(after, frame);
        };
        unchanged(&right);
        for len in 0..right.len() {
            unchanged(&right[..len]);
        }
        // Corrupt, and without a checksum.
        for checksum in [0x1234_u16, 0] {
            let mut other = right.clone();
            other[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
            unchanged(&other);
        }
        // The right checksum may happen to be the pseudo header's sum: this payload makes it so.
        let (mut coincident, at) = frame(false, false, &[0; 8]);
        let pseudo = segment(&coincident).unwrap().pseudo;
        coincident[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        let range = segment(&coincident).unwrap().range;
        let sum = pseudo.add_word(Checksum::ZERO.add_bytes(&coincident[range]).fold().into()).fold();
        coincident[at + 2..at + 4].copy_from_slice(&(!sum).to_be_bytes());
        unchanged(&coincident);
    }
}
