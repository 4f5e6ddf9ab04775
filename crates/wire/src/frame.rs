//! Received frames: whether one holds UDP, of which flow, and its payload.

use std::{net::IpAddr, ops::Range};

use thiserror::Error;

use crate::{
    eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, EthHeader, EthView},
    flow::{Addresses, FlowKey, PROTOCOL_UDP},
    header::HeaderError,
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{Ipv6Header, Ipv6View, NEXT_FRAGMENT},
    probe::ProbeHeader,
    udp::{self, UdpHeader, UdpView, pseudo_header},
};

/// A frame that holds one whole UDP datagram.
#[derive(Debug, Clone, Copy)]
pub struct UdpFrame<'f> {
    frame: &'f [u8],
    eth: EthView<'f>,
    ip: Ip<'f>,
    udp: UdpView<'f>,
    payload_start: usize,
}

#[derive(Debug, Clone, Copy)]
enum Ip<'f> {
    V4(Ipv4View<'f>),
    V6(Ipv6View<'f>),
}

/// Why a frame holds no whole UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotUdp {
    /// A header is truncated or malformed.
    #[error("the frame is malformed: {0}")]
    Malformed(#[from] HeaderError),
    /// Not IP, or more than two VLAN tags.
    #[error("the frame holds no IP: its EtherType is {ethertype:#06x}")]
    EtherType {
        /// The EtherType behind the VLAN tags.
        ethertype: u16,
    },
    /// IP, but not UDP; IPv6 extension headers are not parsed.
    #[error("the packet holds no UDP: its IP protocol is {protocol}")]
    Protocol {
        /// The IPv4 protocol or IPv6 next header.
        protocol: u8,
    },
    /// A piece of a larger packet.
    #[error("the packet is a fragment")]
    Fragment,
}

/// A checksum that does not match its bytes. Frames that a local socket sends often have one: the kernel leaves the checksum
/// to the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadChecksum {
    /// The IPv4 header's.
    #[error("the IPv4 header checksum is {found:#06x}, expected {right:#06x}")]
    Ipv4 {
        /// The value in the frame.
        found: u16,
        /// The correct value.
        right: u16,
    },
    /// The UDP datagram's. IPv6 does not allow 0, which means "no checksum".
    #[error("the UDP checksum is {found:#06x}, expected {right:#06x}")]
    Udp {
        /// The value in the frame.
        found: u16,
        /// The correct value.
        right: u16,
    },
}

/// The headers of an IPv4 datagram without tags and options, read in place: a copy that is read right after it was
/// written stalls on store forwarding, for longer than all other work on a packet whose headers are like the previous
/// one's.
#[derive(Debug, Clone, Copy)]
pub struct PlainHeaders<'f>(&'f [u8; PLAIN_UDP + UdpHeader::LEN]);

/// Offsets behind the Ethernet and IPv4 headers, when there are no tags and options.
const PLAIN_IP: usize = EthHeader::LEN;
const PLAIN_UDP: usize = PLAIN_IP + Ipv4Header::LEN;

impl PlainHeaders<'_> {
    /// Addresses, ports and protocol.
    #[inline]
    pub fn flow(&self) -> FlowKey {
        FlowKey {
            addresses: Addresses::V4 {
                src: four(self.0, PLAIN_IP + ipv4::SRC.start).into(),
                dst: four(self.0, PLAIN_IP + ipv4::DST.start).into(),
            },
            src_port: port(self.0, udp::SRC_PORT.start),
            dst_port: port(self.0, udp::DST_PORT.start),
            protocol: PROTOCOL_UDP,
        }
    }

    /// Whether the datagram belongs to this flow.
    #[inline(always)]
    pub fn is_of(&self, flow: &FlowKey) -> bool {
        let Addresses::V4 { src, dst } = flow.addresses else { return false };
        four(self.0, PLAIN_IP + ipv4::SRC.start) == src.octets()
            && four(self.0, PLAIN_IP + ipv4::DST.start) == dst.octets()
            && port(self.0, udp::SRC_PORT.start) == flow.src_port
            && port(self.0, udp::DST_PORT.start) == flow.dst_port
            && flow.protocol == PROTOCOL_UDP
    }
}

#[inline(always)]
fn four(headers: &[u8; PLAIN_UDP + UdpHeader::LEN], at: usize) -> [u8; 4] {
    [headers[at], headers[at + 1], headers[at + 2], headers[at + 3]]
}

#[inline(always)]
fn port(headers: &[u8; PLAIN_UDP + UdpHeader::LEN], at: usize) -> u16 {
    u16::from_be_bytes([headers[PLAIN_UDP + at], headers[PLAIN_UDP + at + 1]])
}

impl<'f> UdpFrame<'f> {
    /// Reads a frame from its Ethernet header on, without or with FCS.
    ///
    /// # Errors
    /// [`NotUdp`] names what the frame holds instead.
    #[inline]
    pub fn parse(frame: &'f [u8]) -> Result<Self, NotUdp> {
        let eth = EthView::new(frame)?;
        let (ip, protocol, header_len) = match eth.ethertype() {
            ETHERTYPE_IPV4 => {
                let ip = Ipv4View::new(eth.payload())?;
                if ip.is_fragment() {
                    return Err(NotUdp::Fragment);
                }
                (Ip::V4(ip), ip.protocol(), ip.header_len())
            }
            ETHERTYPE_IPV6 => {
                let ip = Ipv6View::new(eth.payload())?;
                if ip.next_header() == NEXT_FRAGMENT {
                    return Err(NotUdp::Fragment);
                }
                (Ip::V6(ip), ip.next_header(), Ipv6Header::LEN)
            }
            ethertype => return Err(NotUdp::EtherType { ethertype }),
        };
        if protocol != PROTOCOL_UDP {
            return Err(NotUdp::Protocol { protocol });
        }
        let udp = UdpView::new(match &ip {
            Ip::V4(ip) => ip.payload(),
            Ip::V6(ip) => ip.payload(),
        })?;
        let payload_start = eth.header_len() + header_len + UdpHeader::LEN;
        Ok(Self { frame, eth, ip, udp, payload_start })
    }

    /// The payload and the headers of a whole IPv4 datagram without tags and options, recognised with a few comparisons;
    /// `None` for all other frames.
    // Always inline: otherwise fields that the caller does not use are computed too. `make bench-workers` shows it.
    #[inline(always)]
    pub fn plain(frame: &'f [u8]) -> Option<(&'f [u8], PlainHeaders<'f>)> {
        const IP: usize = PLAIN_IP;
        const UDP: usize = PLAIN_UDP;
        let headers = frame.first_chunk::<{ UDP + UdpHeader::LEN }>()?;
        let half = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        let is_plain = half(IP - 2) == ETHERTYPE_IPV4
            && headers[IP] == 0x45
            && half(IP + ipv4::FRAGMENT.start) & ipv4::IS_FRAGMENT == 0
            && headers[IP + ipv4::PROTOCOL_AT] == PROTOCOL_UDP;
        let total = usize::from(half(IP + ipv4::TOTAL_LEN.start));
        let datagram = usize::from(half(UDP + udp::LEN.start));
        let fits =
            UdpHeader::LEN <= datagram && Ipv4Header::LEN + datagram <= total && IP + total <= frame.len();
        if !(is_plain && fits) {
            return None;
        }
        Some((frame.get(UDP + UdpHeader::LEN..UDP + datagram)?, PlainHeaders(headers)))
    }

    /// The payload of a frame, which is all that a receiver's hot loop needs; `None` without a whole datagram. The result
    /// equals that of [`UdpFrame::parse`].
    #[inline(always)]
    pub fn glance(frame: &'f [u8]) -> Option<&'f [u8]> {
        match Self::plain(frame) {
            Some((payload, _)) => Some(payload),
            None => Self::glance_by_parsing(frame),
        }
    }

    #[cold]
    #[inline(never)]
    fn glance_by_parsing(frame: &'f [u8]) -> Option<&'f [u8]> {
        Self::parse(frame).ok().map(|frame| frame.payload())
    }

    /// The Ethernet header and its VLAN tags.
    pub fn eth(&self) -> &EthView<'f> {
        &self.eth
    }

    /// Both hosts.
    #[inline]
    pub fn addresses(&self) -> Addresses {
        match &self.ip {
            Ip::V4(ip) => Addresses::V4 { src: ip.src(), dst: ip.dst() },
            Ip::V6(ip) => Addresses::V6 { src: ip.src(), dst: ip.dst() },
        }
    }

    /// Addresses, ports and protocol.
    #[inline]
    pub fn flow(&self) -> FlowKey {
        FlowKey {
            addresses: self.addresses(),
            src_port: self.udp.src_port(),
            dst_port: self.udp.dst_port(),
            protocol: PROTOCOL_UDP,
        }
    }

    /// Hops the packet may still take: TTL or hop limit.
    pub fn ttl(&self) -> u8 {
        match &self.ip {
            Ip::V4(ip) => ip.ttl(),
            Ip::V6(ip) => ip.hop_limit(),
        }
    }

    /// Differentiated services code point.
    pub fn dscp(&self) -> u8 {
        match &self.ip {
            Ip::V4(ip) => ip.dscp(),
            Ip::V6(ip) => ip.dscp(),
        }
    }

    /// What the datagram carries.
    #[inline]
    pub fn payload(&self) -> &'f [u8] {
        self.udp.payload()
    }

    /// Where in the frame the payload starts and ends.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.payload_start..self.payload_start + self.payload().len()
    }

    /// The probe header at the start of the payload, when there is one.
    #[inline]
    pub fn probe(&self) -> Option<ProbeHeader> {
        ProbeHeader::read(self.payload())
    }

    /// The whole frame, as passed in.
    pub fn bytes(&self) -> &'f [u8] {
        self.frame
    }

    /// Checks the IPv4 header's checksum and the datagram's; IPv4 may leave the latter out.
    ///
    /// # Errors
    /// [`BadChecksum`] names the first wrong one.
    pub fn verify_checksums(&self) -> Result<(), BadChecksum> {
        if let Ip::V4(ip) = &self.ip {
            let (found, right) = (ip.checksum(), ip.right_checksum());
            if found != right {
                return Err(BadChecksum::Ipv4 { found, right });
            }
            if self.udp.checksum() == 0 {
                return Ok(());
            }
        }
        let (found, right) = (self.udp.checksum(), self.udp.right_checksum(self.addresses()));
        if found == right { Ok(()) } else { Err(BadChecksum::Udp { found, right }) }
    }
}

/// Turns a frame with a probe into one that returns to its sender, in place: the addresses, the ports and the halves of
/// the magic number are swapped, so every checksum stays valid. A checksum that the sender left to checksum offload, as
/// on a veth, is completed. Returns the sender; `None`, with the frame unchanged, when the frame holds no probe, its
/// destination is a group address, or `may_return` returns false.
pub fn turn_frame_back(frame: &mut [u8], may_return: impl FnOnce(IpAddr) -> bool) -> Option<IpAddr> {
    const IS_GROUP: u8 = 1;
    let parsed = UdpFrame::parse(frame).ok()?;
    parsed.probe()?;
    let payload = parsed.payload_range();
    let (ip_start, sender) = (parsed.eth().header_len(), parsed.addresses().src());
    let unfinished = pseudo_header(parsed.addresses(), (UdpHeader::LEN + payload.len()) as u16).fold();
    let right = (parsed.udp.checksum() == unfinished).then(|| parsed.udp.right_checksum(parsed.addresses()));
    let is_multicast = parsed.addresses().dst().is_multicast() || frame[0] & IS_GROUP != 0;
    if is_multicast || !may_return(sender) {
        return None;
    }
    swap(frame, 0, 6);
    match sender {
        IpAddr::V4(_) => swap(frame, ip_start + 12, 4),
        IpAddr::V6(_) => swap(frame, ip_start + 8, 16),
    }
    swap(frame, payload.start - UdpHeader::LEN, 2);
    if let Some(right) = right {
        frame[payload.start - 2..payload.start].copy_from_slice(&right.to_be_bytes());
    }
    ProbeHeader::turn_back(&mut frame[payload]);
    Some(sender)
}

/// Swaps two adjacent fields of `len` bytes.
fn swap(frame: &mut [u8], at: usize, len: usize) {
    let (first, second) = frame[at..at + 2 * len].split_at_mut(len);
    first.swap_with_slice(second);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::mac::MacAddr;

    /// A 60-byte IPv4 frame with four bytes of payload and twelve of padding.
    fn ipv4_frame() -> [u8; 60] {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut frame = [0; 60];
        EthHeader { dst: MacAddr::BROADCAST, src: MacAddr::default(), tags: &[], ethertype: ETHERTYPE_IPV4 }
            .write(&mut frame);
        Ipv4Header { src, dst, ttl: 3, dscp: 10, protocol: PROTOCOL_UDP, payload_len: 12 }
            .write(&mut frame[14..]);
        frame[42..46].copy_from_slice(b"linE");
        UdpHeader { src_port: 1, dst_port: 2, payload_len: 4 }
            .write(&mut frame[34..], Addresses::V4 { src, dst });
        frame
    }

    fn with(at: usize, bytes: &[u8]) -> [u8; 60] {
        let mut frame = ipv4_frame();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    }

    #[test]
    fn a_frame_tells_its_flow_and_its_payload() {
        let bytes = ipv4_frame();
        let frame = UdpFrame::parse(&bytes).unwrap();
        assert_eq!(frame.flow().to_string(), "udp 10.0.0.1:1 > 10.0.0.2:2");
        assert_eq!((frame.ttl(), frame.dscp()), (3, 10));
        assert_eq!((frame.payload(), frame.payload_range()), (&b"linE"[..], 42..46));
        assert_eq!(frame.probe(), None);
        assert_eq!(frame.verify_checksums(), Ok(()));
    }

    /// Every byte of the headers set to values that make a difference, and every length of the frame.
    #[test]
    fn a_glance_sees_what_parsing_does() {
        let (mut seen, mut plain) = (0, 0);
        let mut same = |frame: &[u8]| {
            let parsed = UdpFrame::parse(frame).ok().map(|frame| (frame.payload(), frame.flow()));
            assert_eq!(UdpFrame::glance(frame), parsed.map(|(payload, _)| payload), "{frame:x?}");
            let other = FlowKey::udp("10.0.0.1:7".parse().unwrap(), "10.0.0.2:9".parse().unwrap()).unwrap();
            if let Some((payload, headers)) = UdpFrame::plain(frame) {
                let flow = headers.flow();
                assert_eq!(Some((payload, flow)), parsed, "{frame:x?}");
                assert_eq!(
                    (headers.is_of(&flow), headers.is_of(&other)),
                    (true, flow == other),
                    "{frame:x?}"
                );
                plain += 1;
            }
            seen += u32::from(parsed.is_some());
        };
        for at in 0..46 {
            let byte = ipv4_frame()[at];
            for other in
                [0, 1, 6, 7, 8, 11, 12, 13, 17, 31, 32, 33, 46, 47, 0x40, 0x45, 0x46, 0x60, 0x81, 0xff]
            {
                same(&with(at, &[other]));
                same(&with(at, &[byte ^ other]));
            }
        }
        (0..=60).for_each(|len| same(&ipv4_frame()[..len]));
        let tagged: Vec<u8> = [&ipv4_frame()[..12], &[0x81, 0, 0, 5], &ipv4_frame()[12..]].concat();
        (0..=64).for_each(|len| same(&tagged[..len]));
        assert!(1000 < plain && plain < seen, "{seen} of them were datagrams, {plain} plain ones");
    }

    #[test]
    fn a_probe_goes_back_with_right_checksums_and_only_once() {
        for (dst_addr, src_addr) in [("10.0.0.2", "10.0.0.1"), ("2001:db8::2", "2001:db8::1")] {
            let spec = crate::FrameSpec {
                dst_mac: "02:00:00:00:00:02".parse().unwrap(),
                src_addr: crate::Values::Fixed(src_addr.parse().unwrap()),
                dst_addr: crate::Values::Fixed(dst_addr.parse().unwrap()),
                vlan: vec!["100".parse().unwrap()],
                stream: 3,
                sizes: crate::Sizes::Payload("18".parse().unwrap()),
                ..crate::FrameSpec::default()
            };
            let template = crate::Template::new(&spec).unwrap();
            let mut frame = vec![0; template.max_frame_len()];
            template.prime_frame(&mut frame);
            let len = template.restamp_frame(&mut frame, 7, 1234);
            let frame = &mut frame[..len];
            let of_sender = frame.to_vec();
            let before = UdpFrame::parse(frame).unwrap().flow();
            assert_eq!(turn_frame_back(&mut frame.to_vec(), |_| false), None);
            let sender: IpAddr = src_addr.parse().unwrap();
            assert_eq!(turn_frame_back(frame, |asked| asked == sender), Some(sender));
            let back = UdpFrame::parse(frame).unwrap();
            assert_eq!(back.verify_checksums(), Ok(()));
            assert_eq!(
                (back.addresses().src().to_string(), back.addresses().dst()),
                (dst_addr.into(), sender)
            );
            assert_eq!((back.flow().src_port, back.flow().dst_port), (before.dst_port, before.src_port));
            assert_eq!(&frame[6..12], &[2, 0, 0, 0, 0, 2]);
            let header = ProbeHeader::read_returned(back.payload()).unwrap();
            assert_eq!((header.sequence, header.stream), (7, 3));
            assert_eq!(turn_frame_back(frame, |_| true), None, "a returned probe is left alone");
            // A veth's frame whose checksum a card was to complete.
            let mut unfinished = of_sender.clone();
            let payload = UdpFrame::parse(&of_sender).unwrap().payload_range();
            let sum = pseudo_header(before.addresses, 8 + payload.len() as u16).fold();
            unfinished[payload.start - 2..payload.start].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(turn_frame_back(&mut unfinished, |_| true), Some(sender));
            assert_eq!(&unfinished[..], &frame[..], "completed");
        }
        assert_eq!(turn_frame_back(&mut ipv4_frame(), |_| true), None, "no probe");
    }

    #[test]
    fn what_is_not_udp_is_told_by_name() {
        let why = |frame: &[u8]| UdpFrame::parse(frame).unwrap_err().to_string();
        assert_eq!(why(&with(12, &[8, 6])), "the frame holds no IP: its EtherType is 0x0806");
        assert_eq!(why(&with(23, &[6])), "the packet holds no UDP: its IP protocol is 6");
        assert_eq!(why(&with(20, &[0x20, 0])), "the packet is a fragment");
        assert_eq!(
            why(&ipv4_frame()[..40]),
            "the frame is malformed: IPv4 header length is 32 bytes, must be 20 to 26"
        );
        assert_eq!(
            why(&with(38, &[0, 13])),
            "the frame is malformed: UDP header length is 13 bytes, must be 8 to 12"
        );
    }

    #[test]
    fn an_ipv6_fragment_is_a_fragment() {
        let mut frame = with(12, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 44]);
        assert_eq!(UdpFrame::parse(&frame).unwrap_err(), NotUdp::Fragment);
        frame[20] = 0;
        assert_eq!(UdpFrame::parse(&frame).unwrap_err(), NotUdp::Protocol { protocol: 0 });
    }

    #[test]
    fn a_changed_byte_breaks_the_checksum_that_covers_it() {
        let verify = |bytes: &[u8]| UdpFrame::parse(bytes).unwrap().verify_checksums();
        assert!(matches!(verify(&with(22, &[4])), Err(BadChecksum::Ipv4 { .. })));
        assert!(matches!(verify(&with(45, b"e")), Err(BadChecksum::Udp { .. })));
        assert_eq!(verify(&with(59, &[1])), Ok(()));
    }

    #[test]
    fn only_ipv4_may_leave_the_udp_checksum_out() {
        let none = with(40, &[0, 0]);
        assert_eq!(UdpFrame::parse(&none).unwrap().verify_checksums(), Ok(()));
        let mut v6 = [0; 66];
        v6[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        v6[14] = 0x60;
        v6[19] = 8;
        v6[20] = PROTOCOL_UDP;
        v6[59] = 8;
        let message = UdpFrame::parse(&v6).unwrap().verify_checksums().unwrap_err().to_string();
        // 0011 + 0008 + 0008 = 0021; ~0021 = ffde.
        assert_eq!(message, "the UDP checksum is 0x0000, expected 0xffde");
    }
}
