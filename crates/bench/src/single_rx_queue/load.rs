//! The rows: the size of the flood, and the filter that drops it.

use std::fmt;

use serde::Serialize;

/// The flood of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloodLoad {
    /// Nothing.
    None,
    /// The sender's maximum rate.
    Full,
    /// [`FLOOD_FACTOR`] times the rate of the kernel's path to a socket.
    TenTimes,
    /// A rate of a search for the highest one of which no packet is lost.
    WithoutLoss,
}

/// The filter of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloodFilter {
    /// The service itself, after its socket has received everything.
    Service,
    /// A classic BPF program on the service's socket.
    SocketFilter,
    /// A rule of nftables where the interface hands packets to the kernel (`netdev` `ingress`).
    Nft,
    /// An XDP program that only drops.
    XdpDrop,
    /// `linerate divert --where xdp`.
    DivertXdp,
    /// `linerate divert --where user --reinject`.
    DivertUser,
}

impl FloodFilter {
    /// Whether `linerate divert` drops the flood.
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

/// The filters that are searched for the highest flood without loss.
pub(super) const WITHOUT_LOSS: [FloodFilter; 4] =
    [FloodFilter::Service, FloodFilter::XdpDrop, FloodFilter::DivertXdp, FloodFilter::DivertUser];

/// The paced flood, in multiples of the service's rate under the full one.
pub const FLOOD_FACTOR: f64 = 10.0;
/// The share of valid packets that must arrive under it.
pub const VALID_SHARE: f64 = 0.999;
/// All rows in their order: first the transfer alone, then each filter under both floods.
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
