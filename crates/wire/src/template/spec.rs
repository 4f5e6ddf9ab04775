//! What the packets of a run look like, as plain data for plans and files.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    eth::MAX_VLAN_TAGS,
    mac::MacAddr,
    mix::{SizeMix, Sizes},
    probe::{PROBE_TAGGED_LEN, ProbeClock},
    size::{FrameSize, Layers, SizeError},
    values::Values,
    vlan::VlanTag,
};

/// The packets of a run. All varying fields take their next value with every packet.
///
/// The default is one flow of minimum-size frames between the two benchmarking networks' first hosts (RFC 2544 appendix C.2.2), to
/// the discard port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrameSpec {
    /// Source MAC address.
    pub src_mac: MacAddr,
    /// Destination MAC address.
    pub dst_mac: MacAddr,
    /// VLAN tags, outermost first, at most two.
    pub vlan: Vec<VlanTag>,
    /// Source addresses.
    pub src_addr: Values<IpAddr>,
    /// Destination addresses.
    pub dst_addr: Values<IpAddr>,
    /// Source ports.
    pub src_port: Values<u16>,
    /// Destination ports.
    pub dst_port: Values<u16>,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Differentiated services code point, 0..=63.
    pub dscp: u8,
    /// How the probe header encodes the time.
    pub clock: ProbeClock,
    /// Distinguishes senders at the receiver. Two streams draw different random values from one seed.
    pub stream: u16,
    /// Their sizes.
    pub sizes: Sizes,
}

/// Why such frames cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// More tags than supported.
    #[error("{count} VLAN tags: at most two are supported")]
    VlanTags {
        /// Tags requested.
        count: usize,
    },
    /// Addresses of two IP versions.
    #[error("source {src} and destination {dst} are of different IP versions")]
    IpVersions {
        /// A source address.
        src: IpAddr,
        /// A destination address.
        dst: IpAddr,
    },
    /// 6 bits.
    #[error("DSCP {dscp} is out of range: from 0 to 63 (46 is expedited forwarding)")]
    Dscp {
        /// The requested code point.
        dscp: u8,
    },
    /// A group address as source.
    #[error("source MAC {mac} is a group address: its first byte must be even")]
    SourceMac {
        /// The requested address.
        mac: MacAddr,
    },
    /// A size that does not fit the headers.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// IMIX is a mix of frame sizes.
    #[error("imix is a mix of frame sizes: give it as frame size, not as payload")]
    ImixPayload,
    /// The tag follows the probe header.
    #[error(
        "a payload of {payload} bytes has no room for the stream tag {stream}: use at least 18 bytes of payload, or stream 0"
    )]
    NoRoomForStream {
        /// The smallest payload of the run.
        payload: u32,
        /// The requested tag.
        stream: u16,
    },
}

impl FrameSpec {
    /// The headers around the payload.
    pub fn layers(&self) -> Layers {
        Layers { ipv6: self.src_addr.first().is_ipv6(), vlan_tags: self.vlan.len() as u32 }
    }

    /// All problems of this spec; none when [`Template::new`](crate::Template::new)
    /// will succeed.
    pub fn problems(&self) -> Vec<SpecError> {
        let (src, dst) = (self.src_addr.first(), self.dst_addr.first());
        let count = self.vlan.len();
        let mut problems = Vec::new();
        if count > MAX_VLAN_TAGS {
            problems.push(SpecError::VlanTags { count });
        }
        if src.is_ipv4() != dst.is_ipv4() {
            problems.push(SpecError::IpVersions { src, dst });
        }
        if self.dscp > 63 {
            problems.push(SpecError::Dscp { dscp: self.dscp });
        }
        if self.src_mac.is_multicast() {
            problems.push(SpecError::SourceMac { mac: self.src_mac });
        }
        if matches!(&self.sizes, Sizes::Payload(mix) if *mix == SizeMix::imix()) {
            problems.push(SpecError::ImixPayload);
        }
        // The headers' length is known only when they are valid.
        if problems.is_empty()
            && let Err(problem) = self.check_sizes()
        {
            problems.push(problem);
        }
        problems
    }

    /// The UDP payload for a size of [`FrameSpec::sizes`].
    pub(crate) fn payload_of(&self, bytes: u32) -> Result<u32, SizeError> {
        match self.sizes {
            Sizes::Frame(_) => FrameSize::new(bytes)?.payload(self.layers()),
            Sizes::Payload(_) => FrameSize::from_payload(bytes, self.layers()).map(|_| bytes),
        }
    }

    fn check_sizes(&self) -> Result<(), SpecError> {
        let (Sizes::Frame(mix) | Sizes::Payload(mix)) = &self.sizes;
        // A range is valid when its ends are.
        let sizes = match mix {
            SizeMix::Values(Values::Fixed(bytes)) => vec![*bytes],
            SizeMix::Values(Values::Increment { span, .. } | Values::Random { span, .. }) => {
                vec![span.first(), span.last()]
            }
            SizeMix::Values(Values::List(list)) => list.values().to_vec(),
            SizeMix::Weighted(weights) => weights.sizes().iter().map(|size| size.bytes).collect(),
        };
        for bytes in sizes {
            let payload = self.payload_of(bytes)?;
            if self.stream != 0 && payload < PROBE_TAGGED_LEN as u32 {
                return Err(SpecError::NoRoomForStream { payload, stream: self.stream });
            }
        }
        Ok(())
    }
}

impl Default for FrameSpec {
    fn default() -> Self {
        Self {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlan: Vec::new(),
            src_addr: Values::Fixed(Ipv4Addr::new(198, 18, 0, 1).into()),
            dst_addr: Values::Fixed(Ipv4Addr::new(198, 19, 0, 1).into()),
            src_port: Values::Fixed(9),
            dst_port: Values::Fixed(9),
            ttl: 64,
            dscp: 0,
            clock: ProbeClock::default(),
            stream: 0,
            sizes: Sizes::Frame(SizeMix::Values(Values::Fixed(FrameSize::MIN.bytes()))),
        }
    }
}

impl fmt::Display for FrameSpec {
    /// One line for a plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.src_mac, self.dst_mac)?;
        for tag in &self.vlan {
            write!(f, ", vlan {tag}")?;
        }
        write!(f, ", udp from {} port {}", self.src_addr, self.src_port)?;
        write!(f, " to {} port {}", self.dst_addr, self.dst_port)?;
        write!(f, ", ttl {}, dscp {}, stream {}, {}", self.ttl, self.dscp, self.stream, self.sizes)
    }
}
