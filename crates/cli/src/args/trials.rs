//! Options that every experiment in the lab has: engines, sweeps, sockets and workers, the lab itself.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use lab::LabQdisc;
use traffic::{Buffers, CardAccess, FileCache, RingOptions, RxSpec, TxSpec};
use wire::Rate;

use super::{
    HoldArgs,
    cpus::{CpuList, parse_cpus},
    engines,
};

/// Sending and receiving engines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engines")]
pub(crate) struct PathArgs {
    #[arg(long, value_name = "ENGINE", value_delimiter = ',', help = engines::senders_of_a_ladder())]
    pub(crate) tx: Vec<TxSpec>,
    #[arg(long, value_name = "ENGINE", value_delimiter = ',', help = engines::receivers_of_a_ladder())]
    pub(crate) rx: Vec<RxSpec>,
    /// Bytes per message of a tcp engine, which is one call to send
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) send_size: u32,
    /// File or block device that tcp+file, +sendfile and +splice read, from the start again after its end [default: a nameless
    /// file of 64 MiB]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Whether the page cache serves that file
    #[arg(long, hide_short_help = true, value_enum, default_value_t = FileCacheArg::Warm, value_name = "HOW")]
    pub(crate) file_cache: FileCacheArg,
    /// Frames that the engine pktgen queues before the driver notifies the card (xmit_more); they are copies of one packet
    /// [default: 1]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) burst: Option<u32>,
    /// Times that the engine pktgen sends each packet again before it builds the next (clone_skb) [default: 0]
    #[arg(long = "clone", hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) clones: Option<u32>,
    /// Sending threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: u16,
    /// Receiving threads [default: as many as sending threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) rx_threads: Option<u16>,
    /// Use IPv6 in the lab
    #[arg(long)]
    pub(crate) ipv6: bool,
}

/// Whether the page cache serves a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileCacheArg {
    /// As the kernel decides
    Warm,
    /// Its pages are dropped first, and whenever its end is reached
    Cold,
    /// Reads go around the cache (O_DIRECT)
    Direct,
}

impl From<FileCacheArg> for FileCache {
    fn from(cache: FileCacheArg) -> Self {
        match cache {
            FileCacheArg::Warm => Self::Warm,
            FileCacheArg::Cold => Self::Cold,
            FileCacheArg::Direct => Self::Direct,
        }
    }
}

/// The same measurement with several settings.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trials")]
pub(crate) struct SweepArgs {
    /// Measure at every value of another option, in random order; several sweeps make every combination
    #[arg(long, value_name = "OPTION=A,B,...")]
    pub(crate) sweep: Vec<String>,
    /// The command line that each point's is made from.
    #[arg(skip)]
    pub(crate) raw: Vec<OsString>,
}

/// Settings of sockets and workers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets and workers")]
pub(crate) struct SocketArgs {
    /// SO_SNDBUF in bytes
    #[arg(long, hide_short_help = true, value_name = "BYTES")]
    pub(crate) send_buffer: Option<usize>,
    /// SO_RCVBUF in bytes
    #[arg(long, hide_short_help = true, value_name = "BYTES")]
    pub(crate) receive_buffer: Option<usize>,
    /// CPUs of the sending workers, for example 0,2-3 [default: one core each, those near the card first; all of them if the
    /// receiver needs none]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) tx_cpus: Option<CpuList>,
    /// CPUs of the receiving workers [default: one core each of the remaining ones]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) rx_cpus: Option<CpuList>,
    /// Let the scheduler place workers
    #[arg(long, hide_short_help = true, conflicts_with_all = ["tx_cpus", "rx_cpus"])]
    pub(crate) no_pin: bool,
    /// SO_BUSY_POLL of receiving UDP sockets: how long a call polls the card itself before it waits
    #[arg(long, hide_short_help = true, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) busy_poll: Option<u32>,
    /// Receivers poll without sleeping
    #[arg(long, hide_short_help = true)]
    pub(crate) spin: bool,
    /// Keep each receiver busy for this long per packet, as an application that processes it would; the engine xdp does so
    /// in its XDP program, for at most 10us
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) work: Option<Duration>,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
}

/// Options that bring cards: their settings need one of them.
pub(crate) const CARDS: &str = "cards";

/// The embedded lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lab")]
pub(crate) struct SettingArgs {
    /// Queues of the lab's veth pair
    #[arg(long, hide_short_help = true, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) queues: u16,
    /// MTU of the lab [default: 1500, or as large as the packets need]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub(crate) mtu: Option<u32>,
    /// Offloads of the lab's interfaces
    #[arg(long, value_enum, default_value_t = OffloadArg::None, value_name = "WHAT")]
    pub(crate) offload: OffloadArg,
    /// Queueing discipline of the sending interface: pfifo_fast, fq, fq_codel, red or tbf:RATE, for example tbf:100Mbps; its
    /// drops are a line of the ledger. Engines that bypass it (packet, xsk, xdp) are not affected [default: the kernel's;
    /// none on the lab's veth pair]
    #[arg(long, value_name = "KIND", value_parser = parse_qdisc)]
    pub(crate) qdisc: Option<LabQdisc>,
    /// Process received packets in kernel threads on the receiver's CPUs (on), or within the sender's system calls (off), as
    /// veth does by default
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t = NapiArg::Auto, default_missing_value = "on", value_name = "WHEN")]
    pub(crate) threaded_napi: NapiArg,
    /// Send from this real interface, which is wired to that of --rx-interface. Both must be down; the run moves them to
    /// namespaces of its own until it ends
    #[arg(long, value_name = "IF", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// Receive on this real interface
    #[arg(long, value_name = "IF", requires = "tx_interface", group = CARDS)]
    pub(crate) rx_interface: Option<String>,
    /// Interrupt moderation of the sending interface in microseconds, restored afterwards: its rx-usecs, because on most
    /// cards that interrupt also frees sent packets
    #[arg(long, hide_short_help = true, value_name = "MICROSECONDS", requires = CARDS)]
    pub(crate) tx_usecs: Option<u32>,
    /// Transmit descriptors of the sending interface, restored afterwards
    #[arg(long, hide_short_help = true, value_name = "N", requires = CARDS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tx_ring: Option<u32>,
    /// Interrupt moderation of the receiving interface in microseconds, restored afterwards
    #[arg(long, hide_short_help = true, value_name = "MICROSECONDS", requires = CARDS)]
    pub(crate) rx_usecs: Option<u32>,
    /// Receive descriptors of the receiving interface, restored afterwards
    #[arg(long, hide_short_help = true, value_name = "N", requires = CARDS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_ring: Option<u32>,
    /// The longest frame that the receiving driver copies into a small buffer so that the card keeps the large one
    /// (copybreak of its module), restored afterwards
    #[arg(long, hide_short_help = true, value_name = "BYTES", requires = CARDS)]
    pub(crate) copybreak: Option<u32>,
    #[command(flatten)]
    pub(crate) rings: RingArgs,
}

/// Rings that the engine pci drives.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rings of the engine pci")]
pub(crate) struct RingArgs {
    /// Allow detaching the card from its kernel driver during a trial; the driver is bound again afterwards, even after a
    /// kill
    #[arg(long, hide_short_help = true, requires = CARDS)]
    pub(crate) take_device: bool,
    #[command(flatten)]
    pub(crate) card: CardArgs,
    #[command(flatten)]
    pub(crate) rx: RxRingArgs,
    /// Write head, tail and missed frames of the receiving ring to this CSV file, one line per poll that found a change, and
    /// plot them in the report; each poll then reads two more registers
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "take_device")]
    pub(crate) trace: Option<PathBuf>,
}

/// A card of the engine pci, at either end.
#[derive(Debug, Args)]
pub(crate) struct CardArgs {
    /// How to reach the card: vfio (through the IOMMU), sysfs (physical addresses), or auto: vfio if the card has an
    /// IOMMU group [default: auto]
    #[arg(long, hide_short_help = true, value_name = "HOW", requires = "take_device")]
    pub(crate) card_access: Option<CardAccess>,
    /// Descriptors per ring: a multiple of 8, 16 to 4096 [default: 256]
    #[arg(long, hide_short_help = true, value_name = "N", requires = "take_device", value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub(crate) ring_slots: Option<u32>,
    /// Descriptors passed to the card per write of its tail register [default: 16]
    #[arg(long, hide_short_help = true, value_name = "N", requires = "take_device", value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub(crate) tail_batch: Option<u32>,
}

/// A receiving card of the engine pci.
#[derive(Debug, Args)]
pub(crate) struct RxRingArgs {
    /// Sleep until the card interrupts instead of polling; needs vfio
    #[arg(long, hide_short_help = true, requires = "take_device", conflicts_with = "spin")]
    pub(crate) interrupts: bool,
    /// What happens to a received frame's buffer: freed and allocated anew (realloc), returned to the ring (recycle), or
    /// exchanged with one of a cache (pool) [default: recycle]
    #[arg(long, hide_short_help = true, value_name = "POLICY", requires = "take_device")]
    pub(crate) buffers: Option<Buffers>,
    /// Prefetch the frames of this many descriptors ahead [default: 0]
    #[arg(long, hide_short_help = true, value_name = "N", requires = "take_device", value_parser = clap::value_parser!(u32).range(0..=2048))]
    pub(crate) prefetch: Option<u32>,
}

impl CardArgs {
    /// As options of an engine's ring.
    pub(crate) fn options(&self, take_device: bool, rx: Option<&RxRingArgs>) -> RingOptions {
        RingOptions {
            take_device,
            access: self.card_access,
            interrupts: rx.is_some_and(|rx| rx.interrupts),
            ring_slots: self.ring_slots,
            tail_batch: self.tail_batch,
            buffers: rx.and_then(|rx| rx.buffers),
            prefetch: rx.and_then(|rx| rx.prefetch),
            trace: false,
        }
    }
}

/// Where packets that cross the lab's veth pair are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NapiArg {
    /// On if both sides have CPUs of their own, as between two machines; off for TCP, whose segments it would join
    Auto,
    /// In kernel threads, with the receiver's CPUs
    On,
    /// Within the sender's system calls, on its CPUs
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OffloadArg {
    /// None, not even packets in pieces (scatter-gather): the kernel copies each packet into one piece
    NoSg,
    /// None: every frame is as it would be on a wire
    None,
    /// Checksums, which a veth never computes
    Checksum,
    /// Checksums and segmentation (TSO, GSO): packets larger than the MTU stay whole
    Tso,
    /// Joining received packets (GRO)
    Gro,
    /// All of them
    All,
}

/// A queueing discipline; a token bucket needs a rate in bits.
pub(crate) fn parse_qdisc(text: &str) -> Result<LabQdisc, String> {
    let known = "expected pfifo_fast, fq, fq_codel, red or tbf:RATE";
    match text {
        "pfifo_fast" => Ok(LabQdisc::PfifoFast),
        "fq" => Ok(LabQdisc::Fq),
        "fq_codel" => Ok(LabQdisc::FqCodel),
        "red" => Ok(LabQdisc::Red),
        "tbf" => Err("tbf needs a rate, for example tbf:100Mbps".into()),
        _ => match text.strip_prefix("tbf:").map(str::parse::<Rate>) {
            Some(Ok(Rate::Bps(bits))) => Ok(LabQdisc::Tbf { bits_per_s: bits as u64 }),
            Some(Ok(_)) => Err("the rate of tbf is in bits of frames, for example tbf:100Mbps".into()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(format!("unknown queueing discipline: {known}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_bucket_needs_a_rate_in_bits() {
        assert_eq!(parse_qdisc("fq_codel"), Ok(LabQdisc::FqCodel));
        assert_eq!(parse_qdisc("tbf:100Mbps"), Ok(LabQdisc::Tbf { bits_per_s: 100_000_000 }));
        for (wrong, said) in
            [("tbf", "needs a rate"), ("tbf:1kpps", "in bits"), ("tbf:1", "unit"), ("sfq", "unknown")]
        {
            assert!(parse_qdisc(wrong).unwrap_err().contains(said), "{wrong}");
        }
    }
}
