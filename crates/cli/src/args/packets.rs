//! What packets look like.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use wire::{SizeMix, Values};

/// A flow is a source port of one address, towards at most 255 targets.
const MOST_FLOWS: usize = 255 * 65_535;

/// What the packets look like.
#[derive(Debug, Args)]
#[command(next_help_heading = "Packets")]
pub(crate) struct PacketArgs {
    /// Frame size in bytes, Ethernet header to FCS (RFC 2544): SIZE, imix, 64:28,594:16,1518:4, inc:64-1518,
    /// random:64-1518, list:64,512 [default: 64 with IPv4, 84 with IPv6]
    #[arg(long, value_name = "BYTES", conflicts_with = "payload")]
    pub(crate) frame_size: Option<SizeMix>,
    /// UDP payload in bytes instead of the frame size, in the same format
    #[arg(long, value_name = "BYTES")]
    pub(crate) payload: Option<SizeMix>,
    /// Total number of flows (source ports), spread over the sending threads [default: one per thread]
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    pub(crate) flows: Option<usize>,
    /// Seed of all random choices
    #[arg(long, hide_short_help = true, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Format of the time in the probe header
    #[arg(long, hide_short_help = true, value_enum, default_value_t = ClockArg::Nanos, value_name = "CLOCK")]
    pub(crate) probe_clock: ClockArg,
}

/// Headers and fields that vary between frames.
#[derive(Debug, Args)]
#[command(next_help_heading = "Frames (headers and what varies)")]
pub(crate) struct FrameArgs {
    /// Source MAC address, for engines that build whole frames
    #[arg(long, hide_short_help = true, value_name = "MAC")]
    pub(crate) src_mac: Option<wire::MacAddr>,
    /// Destination MAC address, for engines that build whole frames
    #[arg(long, hide_short_help = true, value_name = "MAC")]
    pub(crate) dst_mac: Option<wire::MacAddr>,
    /// VLAN tags, outermost first, for engines that build whole frames
    #[arg(long, hide_short_help = true, value_name = "TAG", value_delimiter = ',')]
    pub(crate) vlan: Vec<wire::VlanTag>,
    /// Source address: ADDRESS, or inc: or random: of a range or CIDR, or list:a,b
    #[arg(long, hide_short_help = true, value_name = "ADDR")]
    pub(crate) src_addr: Option<Values<IpAddr>>,
    /// Destination address, in the same format [default: the first target's]
    #[arg(long, hide_short_help = true, value_name = "ADDR")]
    pub(crate) dst_addr: Option<Values<IpAddr>>,
    /// Source port: PORT, or inc:1024-2047, random:1024-2047,seed=7, list:53,123
    #[arg(long, hide_short_help = true, value_name = "PORT")]
    pub(crate) src_port: Option<Values<u16>>,
    /// Destination port, in the same format [default: the first target's]
    #[arg(long, hide_short_help = true, value_name = "PORT")]
    pub(crate) dst_port: Option<Values<u16>>,
    /// Time to live (hop limit), for engines that build whole frames
    #[arg(long, hide_short_help = true, default_value_t = 64, value_name = "N")]
    pub(crate) ttl: u8,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClockArg {
    /// Seconds and microseconds, as mainline pktgen writes them
    Micros,
    /// 64 bits of nanoseconds
    Nanos,
}

fn parse_flows(text: &str) -> Result<usize, String> {
    let flows: Option<usize> = text.parse().ok();
    flows
        .filter(|flows| (1..=MOST_FLOWS).contains(flows))
        .ok_or_else(|| format!("'{text}' is not a number of flows: must be 1 to {MOST_FLOWS}"))
}

impl From<ClockArg> for wire::ProbeClock {
    fn from(clock: ClockArg) -> Self {
        match clock {
            ClockArg::Micros => Self::Micros,
            ClockArg::Nanos => Self::Nanos,
        }
    }
}
