//! What the rows are: how much is flooded, and what drops the flood.

use std::fmt;

use serde::Serialize;

/// How much is flooded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloodLoad {
    /// Nothing.
    None,
    /// As fast as the sender can.
    Full,
    /// [`FLOOD_FACTOR`] times what the kernel's path to a socket takes.
    TenTimes,
}

/// What throws the flood away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloodFilter {
    /// The service itself, after its socket has taken everything.
    Service,
    /// A classic BPF program on the service's socket.
    SocketFilter,
    /// A rule of nftables where the interface hands packets to the kernel (`netdev` `ingress`).
    Nft,
    /// An XDP program that does nothing else.
    XdpDrop,
    /// `linerate divert --where xdp`.
    DivertXdp,
    /// `linerate divert --where user --reinject`.
    DivertUser,
}

impl FloodFilter {
    /// Whether `linerate divert` throws the flood away.
    pub fn is_diversion(self) -> bool {
        matches!(self, Self::DivertXdp | Self::DivertUser)
    }
}

impl fmt::Display for FloodFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "none, the service reads all",
            Self::SocketFilter => "socket filter",
            Self::Nft => "nft at ingress",
            Self::XdpDrop => "plain XDP drop",
            Self::DivertXdp => "divert --where xdp",
            Self::DivertUser => "divert --where user",
        })
    }
}

/// The paced flood, in multiples of what the service's socket took of the full one.
pub const FLOOD_FACTOR: f64 = 10.0;
/// What must be delivered of the valid packets under it.
pub const VALID_SHARE: f64 = 0.999;
/// Every row, in this order: first what the transfer does alone, then each filter under both floods.
pub const SINGLE_RX_QUEUE: [(FloodLoad, FloodFilter); 15] = {
    use FloodFilter::{DivertUser, DivertXdp, Nft, Service, SocketFilter, XdpDrop};
    use FloodLoad::{Full, None, TenTimes};
    [
        (None, Service),
        (None, DivertXdp),
        (None, DivertUser),
        (Full, Service),
        (Full, SocketFilter),
        (Full, Nft),
        (Full, XdpDrop),
        (Full, DivertXdp),
        (Full, DivertUser),
        (TenTimes, Service),
        (TenTimes, SocketFilter),
        (TenTimes, Nft),
        (TenTimes, XdpDrop),
        (TenTimes, DivertXdp),
        (TenTimes, DivertUser),
    ]
};
