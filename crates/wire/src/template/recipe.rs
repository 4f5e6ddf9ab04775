//! From a spec to bytes, offsets, sums and rules.

use std::net::IpAddr;

use crate::{
    checksum::Checksum,
    eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, EthHeader},
    flow::{Addresses, PROTOCOL_UDP},
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
    mix::{SizeMix, Sizes},
    probe::{ProbeClock, ProbeHeader},
    template::{
        draw::{Draw, Field},
        spec::FrameSpec,
    },
    udp::{self, UdpHeader},
};

/// A template as plain data, for other means of stamping frames: a BPF program, a card.
///
/// Packet n is [`Recipe::base`] with every draw that is not fixed written to its place, with sequence and
/// time in the probe header, and with checksums: the sum here plus the words written, folded and complemented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The longest frame, without FCS. Sequence, time and UDP checksum are 0 in it, and so is all that varies;
    /// the IPv4 checksum is there unless [`Recipe::ip_varies`].
    pub base: Vec<u8>,
    /// Where the IP header starts.
    pub ip_at: usize,
    /// Where the UDP header starts.
    pub udp_at: usize,
    /// Where the UDP payload, and with it the probe header, starts.
    pub payload_at: usize,
    /// The longest UDP payload.
    pub max_payload_len: usize,
    /// Addresses.
    pub addresses: AddressDraws,
    /// True when addresses or lengths vary, and with them the IPv4 checksum.
    pub ip_varies: bool,
    /// Source port.
    pub src_port: Draw<u16>,
    /// Destination port.
    pub dst_port: Draw<u16>,
    /// Bytes of UDP payload. When it varies, so do the IP and the UDP length.
    pub payload_len: Draw<u32>,
    /// How the probe header encodes the time.
    pub clock: ProbeClock,
    /// The sum over the IPv4 header in the base, without its checksum; 0 for IPv6.
    pub ipv4_sum: Checksum,
    /// The sum over the pseudo header and the datagram in the base.
    pub udp_sum: Checksum,
}

/// Addresses of one IP version, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressDraws {
    /// IPv4.
    V4 {
        /// Source.
        src: Draw<u32>,
        /// Destination.
        dst: Draw<u32>,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: Draw<u128>,
        /// Destination.
        dst: Draw<u128>,
    },
}

/// The smallest frame without FCS; shorter ones are padded.
const LEAST_FRAME: usize = 60;

impl Recipe {
    /// Compiles a spec that has no problems.
    pub(crate) fn new(spec: &FrameSpec) -> Self {
        let payload_len = payload_draw(spec);
        let addresses = AddressDraws::new(spec);
        let src_port = Draw::new(&spec.src_port, |port| port, (Field::SrcPort, spec.stream));
        let dst_port = Draw::new(&spec.dst_port, |port| port, (Field::DstPort, spec.stream));
        let max_payload_len = payload_len.every().max().expect("a draw always has a value") as usize;

        let between = addresses.fixed_or_zero();
        let (ip_len, ethertype) = match between {
            Addresses::V4 { .. } => (Ipv4Header::LEN, ETHERTYPE_IPV4),
            Addresses::V6 { .. } => (Ipv6Header::LEN, ETHERTYPE_IPV6),
        };
        let eth = EthHeader { dst: spec.dst_mac, src: spec.src_mac, tags: &spec.vlan, ethertype };
        let ip_at = eth.header_len();
        let udp_at = ip_at + ip_len;
        let payload_at = udp_at + UdpHeader::LEN;
        let mut recipe = Self {
            base: vec![0; (payload_at + max_payload_len).max(LEAST_FRAME)],
            ip_at,
            udp_at,
            payload_at,
            max_payload_len,
            clock: spec.clock,
            ip_varies: addresses.vary() || payload_len.fixed().is_none(),
            ipv4_sum: Checksum::ZERO,
            udp_sum: Checksum::ZERO,
            addresses,
            src_port,
            dst_port,
            payload_len,
        };
        eth.write(&mut recipe.base);
        recipe.write_packet(spec, between);
        recipe.sum_up(between);
        recipe
    }

    /// The length of a frame with that much payload, without FCS.
    #[inline]
    pub fn frame_len(&self, payload_len: u32) -> usize {
        (self.payload_at + payload_len as usize).max(LEAST_FRAME)
    }

    fn write_packet(&mut self, spec: &FrameSpec, between: Addresses) {
        let payload_len = self.max_payload_len as u16;
        let ip_payload_len = payload_len + UdpHeader::LEN as u16;
        let packet = &mut self.base[self.ip_at..];
        let (ttl, dscp) = (spec.ttl, spec.dscp);
        match between {
            Addresses::V4 { src, dst } => {
                let protocol = PROTOCOL_UDP;
                Ipv4Header { src, dst, ttl, dscp, protocol, payload_len: ip_payload_len }.write(packet);
            }
            Addresses::V6 { src, dst } => {
                let (hop_limit, next_header) = (ttl, PROTOCOL_UDP);
                Ipv6Header { src, dst, hop_limit, dscp, next_header, payload_len: ip_payload_len }
                    .write(packet);
            }
        }
        let payload = &mut self.base[self.payload_at..][..self.max_payload_len];
        ProbeHeader { sequence: 0, raw_time: 0, stream: spec.stream }.write(payload);
        let src_port = self.src_port.fixed().unwrap_or(0);
        let dst_port = self.dst_port.fixed().unwrap_or(0);
        UdpHeader { src_port, dst_port, payload_len }.write(&mut self.base[self.udp_at..], between);
    }

    /// Sums what is constant, and zeroes what is not.
    fn sum_up(&mut self, between: Addresses) {
        let (header, datagram) = self.base[self.ip_at..].split_at_mut(self.udp_at - self.ip_at);
        let datagram = &mut datagram[..UdpHeader::LEN + self.max_payload_len];
        datagram[udp::CHECKSUM].fill(0);
        let mut pseudo_header_len = datagram.len() as u16;
        if self.payload_len.fixed().is_none() {
            pseudo_header_len = 0;
            datagram[udp::LEN].fill(0);
            header[match between {
                Addresses::V4 { .. } => ipv4::TOTAL_LEN,
                Addresses::V6 { .. } => ipv6::PAYLOAD_LEN,
            }]
            .fill(0);
        }
        self.udp_sum = udp::pseudo_header(between, pseudo_header_len).add_bytes(datagram);
        if matches!(between, Addresses::V4 { .. }) {
            header[ipv4::CHECKSUM].fill(0);
            self.ipv4_sum = Checksum::ZERO.add_bytes(header);
            if !self.ip_varies {
                header[ipv4::CHECKSUM].copy_from_slice(&self.ipv4_sum.finish().to_be_bytes());
            }
        }
    }
}

impl AddressDraws {
    /// The rules for a spec whose addresses are of one version.
    fn new(spec: &FrameSpec) -> Self {
        fn draws<V: super::DrawValue>(spec: &FrameSpec, bits: impl Fn(IpAddr) -> V) -> (Draw<V>, Draw<V>) {
            let src = Draw::new(&spec.src_addr, &bits, (Field::SrcAddr, spec.stream));
            (src, Draw::new(&spec.dst_addr, &bits, (Field::DstAddr, spec.stream)))
        }
        if spec.layers().ipv6 {
            let (src, dst) = draws(spec, |address| match address {
                IpAddr::V6(address) => address.to_bits(),
                IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            });
            Self::V6 { src, dst }
        } else {
            let (src, dst) = draws(spec, |address| match address {
                IpAddr::V4(address) => address.to_bits(),
                IpAddr::V6(address) => address.to_bits() as u32,
            });
            Self::V4 { src, dst }
        }
    }

    /// Both hosts in packet `sequence`.
    pub fn at(&self, sequence: u32) -> Addresses {
        match self {
            Self::V4 { src, dst } => {
                Addresses::V4 { src: src.at(sequence).into(), dst: dst.at(sequence).into() }
            }
            Self::V6 { src, dst } => {
                Addresses::V6 { src: src.at(sequence).into(), dst: dst.at(sequence).into() }
            }
        }
    }

    fn fixed_or_zero(&self) -> Addresses {
        match self {
            Self::V4 { src, dst } => {
                Addresses::V4 { src: src.fixed().unwrap_or(0).into(), dst: dst.fixed().unwrap_or(0).into() }
            }
            Self::V6 { src, dst } => {
                Addresses::V6 { src: src.fixed().unwrap_or(0).into(), dst: dst.fixed().unwrap_or(0).into() }
            }
        }
    }

    fn vary(&self) -> bool {
        match self {
            Self::V4 { src, dst } => src.fixed().is_none() || dst.fixed().is_none(),
            Self::V6 { src, dst } => src.fixed().is_none() || dst.fixed().is_none(),
        }
    }
}

/// Sizes as UDP payloads.
fn payload_draw(spec: &FrameSpec) -> Draw<u32> {
    let payload = |bytes| spec.payload_of(bytes).expect("`problems` checked the sizes");
    let (Sizes::Frame(mix) | Sizes::Payload(mix)) = &spec.sizes;
    match mix {
        SizeMix::Values(values) => Draw::new(values, payload, (Field::Size, spec.stream)),
        SizeMix::Weighted(weights) => Draw::list(weights.cycle().into_iter().map(payload).collect()),
    }
}
