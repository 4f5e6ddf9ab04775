//! The flow a packet belongs to.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use serde::{Deserialize, Serialize};

/// The IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// The IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;

/// The two hosts of a packet, of one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
}

/// Addresses, ports and protocol of a packet; `udp 10.0.0.1:9 > 10.0.0.2:53` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowKey {
    /// Both hosts.
    #[serde(flatten)]
    pub addresses: Addresses,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The IP protocol number.
    pub protocol: u8,
}

impl Addresses {
    /// Both hosts; `None` when they are of different IP versions.
    pub fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6 { src, dst }),
            _ => None,
        }
    }

    /// Source address.
    pub fn src(self) -> IpAddr {
        match self {
            Self::V4 { src, .. } => src.into(),
            Self::V6 { src, .. } => src.into(),
        }
    }

    /// Destination address.
    pub fn dst(self) -> IpAddr {
        match self {
            Self::V4 { dst, .. } => dst.into(),
            Self::V6 { dst, .. } => dst.into(),
        }
    }
}

impl FlowKey {
    /// A UDP flow; `None` when the ends are of different IP versions.
    pub fn udp(src: SocketAddr, dst: SocketAddr) -> Option<Self> {
        Some(Self {
            addresses: Addresses::new(src.ip(), dst.ip())?,
            src_port: src.port(),
            dst_port: dst.port(),
            protocol: PROTOCOL_UDP,
        })
    }

    /// Source address and port.
    pub fn src(&self) -> SocketAddr {
        SocketAddr::new(self.addresses.src(), self.src_port)
    }

    /// Destination address and port.
    pub fn dst(&self) -> SocketAddr {
        SocketAddr::new(self.addresses.dst(), self.dst_port)
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            PROTOCOL_UDP => f.write_str("udp")?,
            PROTOCOL_TCP => f.write_str("tcp")?,
            other => write!(f, "protocol {other}")?,
        }
        write!(f, " {} > {}", self.src(), self.dst())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_one_ip_version() {
        let v4: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:53".parse().unwrap();
        assert_eq!(FlowKey::udp(v4, v6), None);
        assert_eq!(FlowKey::udp(v4, v4).unwrap().to_string(), "udp 10.0.0.1:9 > 10.0.0.1:9");
        let tcp = FlowKey { protocol: PROTOCOL_TCP, ..FlowKey::udp(v6, v6).unwrap() };
        assert_eq!(tcp.to_string(), "tcp [2001:db8::1]:53 > [2001:db8::1]:53");
    }
}
