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

/// The packets of a run. Fields that vary all take their next value with every packet, in step.
///
/// The default is one flow between the two benchmarking networks' first hosts (RFC 2544 appendix C.2.2), to
/// the discard port, of smallest frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrameSpec {
    /// The station they are from.
    pub src_mac: MacAddr,
    /// The station they are for.
    pub dst_mac: MacAddr,
    /// VLAN tags, outermost first, at most two.
    pub vlan: Vec<VlanTag>,
    /// The hosts they are from.
    pub src_addr: Values<IpAddr>,
    /// The hosts they are for.
    pub dst_addr: Values<IpAddr>,
    /// The ports they are from.
    pub src_port: Values<u16>,
    /// The ports they are for.
    pub dst_port: Values<u16>,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Differentiated services code point, 0..=63.
    pub dscp: u8,
    /// How the probe header tells the time.
    pub clock: ProbeClock,
    /// By which a receiver tells senders apart. Two streams draw different random values from one seed.
    pub stream: u16,
    /// Their sizes.
    pub sizes: Sizes,
}

/// Why frames cannot be made so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// More tags than a frame can have here.
    #[error("{count} VLAN tags: at most two are possible")]
    VlanTags {
        /// Tags asked for.
        count: usize,
    },
    /// IPv4 to IPv6 or the other way.
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
        /// The code point asked for.
        dscp: u8,
    },
    /// A group as source.
    #[error("source MAC {mac} is a group address: its first byte must be even")]
    SourceMac {
        /// The address asked for.
        mac: MacAddr,
    },
    /// A size that the headers do not allow.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The common mix is of frames.
    #[error("imix is a mix of frame sizes: give it as frame size, not as payload")]
    ImixPayload,
    /// The tag stands behind the probe header.
    #[error(
        "a payload of {payload} bytes has no room for the stream tag {stream}: from 18 bytes of payload on, or stream 0"
    )]
    NoRoomForStream {
        /// The smallest payload of the run.
        payload: u32,
        /// The tag asked for.
        stream: u16,
    },
}

impl FrameSpec {
    /// The headers around the payload.
    pub fn layers(&self) -> Layers {
        Layers { ipv6: self.src_addr.first().is_ipv6(), vlan_tags: self.vlan.len() as u32 }
    }

    /// Everything that keeps these frames from being made; none when [`Template::new`](crate::Template::new)
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
        // What the headers take is only known when they are right.
        if problems.is_empty()
            && let Err(problem) = self.check_sizes()
        {
            problems.push(problem);
        }
        problems
    }

    /// The UDP payload that a size of [`FrameSpec::sizes`] comes to.
    pub(crate) fn payload_of(&self, bytes: u32) -> Result<u32, SizeError> {
        match self.sizes {
            Sizes::Frame(_) => FrameSize::new(bytes)?.payload(self.layers()),
            Sizes::Payload(_) => FrameSize::from_payload(bytes, self.layers()).map(|_| bytes),
        }
    }

    fn check_sizes(&self) -> Result<(), SpecError> {
        let (Sizes::Frame(mix) | Sizes::Payload(mix)) = &self.sizes;
        // A range is right when its ends are.
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
