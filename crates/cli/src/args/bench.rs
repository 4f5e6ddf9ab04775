//! `linerate bench`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bench::{Peer, RxSpec, TxSpec};
use clap::{Args, Subcommand, ValueEnum};
use wire::Rate;

use super::{
    CpuList, LevelArg, LoadArgs, NdrArgs, OutputArgs, PacketArgs, RdrArgs, StampArg, Target, cpus::parse_cpus,
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// A scenario that ships (linerate bench list describes them) or a file (TOML); options on the command line
    /// take the place of its own
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    /// Also run generators that other people wrote, on the same lab: all that are installed, or those named
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "iperf3,netperf,sockperf,trafgen,testpmd"
    )]
    pub(crate) peers: Vec<Peer>,
    /// Sample what the CPUs do, and count polls of devices: where receiving takes its time, by stage; with --peer the
    /// receiver's, which linerate recv --profile looks at
    #[arg(long)]
    pub(crate) profile: bool,
    /// What receivers measure besides their counters, into each trial of the record; it costs them time
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with = "peer")]
    pub(crate) stats: Option<LevelArg>,
    /// Who says when a packet came, at receivers that can do so [default: the kernel for udp and packet, a
    /// program once a poll for xsk and xdp]
    #[arg(long, value_enum, value_name = "WHO", requires = "stats")]
    pub(crate) stamp: Option<StampArg>,
    /// Time of a trial
    #[arg(long, default_value = "400ms", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials of each pair
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) trials: u32,
    /// Send for so long before each trial without counting
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) omit: Duration,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// Go on with a run that ended before its time: a saved run, or the .partial file of one that was killed;
    /// everything else is as it was asked then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "sweep"])]
    pub(crate) resume: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) lab: SettingArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Experiments that are more than a ladder. Each has a file in `commands/bench/`, and where it repeats a
/// published one, a file in `scenarios/` that describes it.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Describe the scenarios that ship
    List(ListArgs),
    /// Search for the highest rate without loss, and with little (RFC 2544, MLRsearch)
    Ndr(Box<NdrArgs>),
    /// The RDR paper's experiment: published figures beside the model's
    Rdr(RdrArgs),
    /// The apu4d4 document's sequence on two interfaces that are wired to each other
    Apu4d4(Apu4d4Args),
    /// A flood, valid packets and a TCP transfer, with each way to throw the flood away
    SingleRxQueue(SingleRxQueueArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Apu4d4Args {
    /// The interface that receives: two queues or more; its settings are changed, and put back
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) rx_interface: String,
    /// The interface at the other end of the cable, on this host; it is moved to a namespace meanwhile
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) tx_interface: String,
    /// How long each row takes
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SingleRxQueueArgs {
    /// A real interface that sends, wired to the other one; both must be down [default: a veth pair]
    #[arg(long, value_name = "INTERFACE", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// The real interface that is flooded
    #[arg(long, value_name = "INTERFACE", requires = "tx_interface")]
    pub(crate) rx_interface: Option<String>,
    /// The engine that makes the flood: xdp, packet or xsk
    #[arg(long, value_name = "ENGINE", default_value = "xdp")]
    pub(crate) tx: TxSpec,
    /// Valid packets among the flood
    #[arg(long, value_name = "RATE", default_value = "2kpps")]
    pub(crate) valid_rate: Rate,
    /// The rate that the TCP transfer tries to hold
    #[arg(long, value_name = "RATE", default_value = "200Mbps")]
    pub(crate) transfer_rate: Rate,
    /// How long each row takes
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What sends and what receives.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// Sending engines [default: every one that works here]
    #[arg(long, value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) tx: Vec<TxSpec>,
    /// Receiving engines [default: every one that works here]
    #[arg(long, value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) rx: Vec<RxSpec>,
    /// Bytes a message of a tcp engine: of one call to send
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) send_size: u32,
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

/// The same at several settings.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Measure at every value of another option, in random order; several sweeps make every combination
    #[arg(long, value_name = "OPTION=A,B,...")]
    pub(crate) sweep: Vec<String>,
    /// The command line, from which each point's is made.
    #[arg(skip)]
    pub(crate) raw: Vec<OsString>,
}

/// Settings of sockets and workers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets and workers")]
pub(crate) struct SocketArgs {
    /// SO_SNDBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) send_buffer: Option<usize>,
    /// SO_RCVBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) receive_buffer: Option<usize>,
    /// CPUs of the sending workers, for example 0,2-3 [default: the lower half]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) tx_cpus: Option<CpuList>,
    /// CPUs of the receiving workers [default: the upper half]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) rx_cpus: Option<CpuList>,
    /// Leave workers to the scheduler
    #[arg(long, conflicts_with_all = ["tx_cpus", "rx_cpus"])]
    pub(crate) no_pin: bool,
    /// SO_BUSY_POLL of receiving UDP sockets: a call that would wait polls the card itself for so long first
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) busy_poll: Option<u32>,
    /// Receivers look again at once instead of sleeping until a packet comes
    #[arg(long)]
    pub(crate) spin: bool,
    /// Each packet keeps its receiver busy for so long, as an application would that has something to do with it; at
    /// the engine xdp that is the program in the kernel, for 10us at most
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) work: Option<Duration>,
}

/// The embedded lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lab")]
pub(crate) struct SettingArgs {
    /// Queues of the lab's veth pair
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) queues: u16,
    /// MTU of the lab [default: 1500, or as large as the packets need]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub(crate) mtu: Option<u32>,
    /// What the lab's interfaces take over from the kernel
    #[arg(long, value_enum, default_value_t = OffloadArg::None, value_name = "WHAT")]
    pub(crate) offload: OffloadArg,
    /// Receive softirq in a kernel thread on the receiver's CPU instead of the sender's
    #[arg(long)]
    pub(crate) threaded_napi: bool,
    /// Send from this real interface to the one of --rx-interface, which its card is wired to. Both have to be down,
    /// and are lent to namespaces of the run's own until its end
    #[arg(long, value_name = "IF", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// Receive on this real interface
    #[arg(long, value_name = "IF", requires = "tx_interface")]
    pub(crate) rx_interface: Option<String>,
    /// Its interrupt moderation in microseconds, put back afterwards
    #[arg(long, value_name = "MICROSECONDS", requires = "rx_interface")]
    pub(crate) rx_usecs: Option<u32>,
    /// Its receive descriptors, put back afterwards
    #[arg(long, value_name = "N", requires = "rx_interface", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_ring: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OffloadArg {
    /// Nothing, nor packets in pieces (scatter-gather): the kernel copies each into one piece
    NoSg,
    /// Nothing: every frame as it would be on a wire
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

/// Real interfaces instead of the lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Real interfaces instead of the lab")]
pub(crate) struct HostArgs {
    /// Send from this interface
    #[arg(long, value_name = "IF", requires = "peer")]
    pub(crate) interface: Option<String>,
    /// Towards this host, where `linerate recv` runs: ADDRESS or ADDRESS:PORT
    #[arg(long, value_name = "HOST", conflicts_with = "tx_interface")]
    pub(crate) peer: Option<Target>,
}
