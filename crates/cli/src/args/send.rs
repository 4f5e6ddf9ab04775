//! `linerate send`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;
use traffic::{RxSpec, TxSpec};

use super::{
    CardArgs, CpuList, FrameArgs, HoldArgs, LoadArgs, OutputArgs, PacketArgs, Target, cpus::parse_cpus,
    engines, interval::parse_period,
};

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate send 192.0.2.7                  as fast as possible, to linerate recv on that host
  linerate send 192.0.2.7 --rate 100kpps    at a rate that is held, or the exit status is 1
  linerate send 192.0.2.7 --engine xdp --threads 2
  linerate send --write-pcap sent.pcap 192.0.2.7 --count 10")]
pub(crate) struct SendArgs {
    /// Receivers as ADDRESS or ADDRESS:PORT (an IPv6 address before a port in brackets), one thread each; the default port
    /// is 4321
    #[arg(required_unless_present = "write_pcap", value_name = "TARGET")]
    pub(crate) targets: Vec<Target>,
    /// Sending threads, spread over the targets [default: one per target]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: Option<u16>,
    /// Time to send [default: 10s unless --count is given]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) duration: Option<Duration>,
    /// Packets to send, by all threads together
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    #[command(flatten)]
    pub(crate) frames: FrameArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[arg(long, default_value = "udp", value_name = "ENGINE", help = engines::sender())]
    pub(crate) engine: TxSpec,
    /// Pass the kernel up to 64 datagrams as one message (UDP GSO)
    #[arg(long)]
    pub(crate) gso: bool,
    /// SO_SNDBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) send_buffer: Option<usize>,
    /// CPUs of the workers, for example 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Interface to send from, regardless of the routes
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// With the engine pci: allow detaching the card from its kernel driver; the driver is bound again afterwards, even
    /// after a kill
    #[arg(long, hide_short_help = true, requires_all = ["interface", "dst_mac"])]
    pub(crate) take_device: bool,
    #[command(flatten)]
    pub(crate) card: CardArgs,
    /// Local address to send from
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// Send without a handshake; only to loopback, private, link-local and benchmarking addresses
    #[arg(long)]
    pub(crate) no_handshake: bool,
    /// Send without a handshake to any address: only where you are allowed to
    #[arg(long, requires = "no_handshake")]
    pub(crate) i_am_allowed_to_send_there: bool,
    /// Measure round trips of packets that the receiver (recv --reflect) returns; needs no synchronised clocks
    #[arg(long, conflicts_with_all = ["no_handshake", "write_pcap"])]
    pub(crate) reflect: bool,
    /// Request that the receiver uses this engine, for example xdp or udp+reuseport [default: the one it was started with]
    #[arg(long, value_name = "ENGINE", conflicts_with = "no_handshake")]
    pub(crate) rx: Option<RxSpec>,
    /// Number of receiving threads to request, with --rx
    #[arg(long, default_value_t = 1, value_name = "N", requires = "rx", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) rx_threads: u16,
    /// Send only to receivers with the same secret in their --key file, and encrypt the control connection
    #[arg(long, value_name = "FILE", conflicts_with = "no_handshake")]
    pub(crate) key: Option<PathBuf>,
    /// Do not attach the programs that count these packets at both hosts' drivers; losses between the hosts then stay
    /// unexplained
    #[arg(long)]
    pub(crate) no_witness: bool,
    /// Write the frames to a pcap file instead of sending them; needs --count
    #[arg(long, value_name = "FILE", requires = "count")]
    pub(crate) write_pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
