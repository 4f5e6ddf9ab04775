//! `linerate bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use traffic::{Buffers, TxSpec};
use trial::Peer;
use wire::Rate;

use super::{
    ExactArgs, HoldArgs, LevelArg, LoadArgs, NdrArgs, OutputArgs, PacketArgs, RdrArgs, StampArg, Target,
    engines,
    trials::{FileCacheArg, PathArgs, SettingArgs, SocketArgs, SweepArgs},
};

/// Headings of the help page.
const MEASUREMENTS: &str = "Measurements";
const TRIALS: &str = "Trials";
/// The model name of a CPU that QEMU emulates.
const EMULATED_CPU: &str = "QEMU TCG CPU";

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate bench                                     what this machine can do
  linerate bench --tx udp,xdp --rx udp --stats time  with latency and jitter
  linerate bench --sweep frame-size=64,512,1518      at several frame sizes
  linerate bench --peer 192.0.2.7                    to another host, which runs linerate recv
  linerate bench pktgen-rx                           a built-in scenario")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// A built-in scenario (see linerate bench list) or a TOML file; options on the command line override its own
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    /// Also run third-party generators in the same lab: all that are installed, or those named
    #[arg(
        long,
        hide_short_help = true,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        help_heading = "Engines",
        default_missing_value = "iperf3,netperf,sockperf,trafgen,testpmd"
    )]
    pub(crate) peers: Vec<Peer>,
    /// Profile the CPUs and count device polls: where receiving spends its time, by stage; with --peer, the receiver's
    /// profile, which needs linerate recv --profile
    #[arg(long, help_heading = MEASUREMENTS)]
    pub(crate) profile: bool,
    /// What receivers measure besides counting packets, saved in each trial of the record; it slows them down
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with = "peer", help_heading = MEASUREMENTS)]
    pub(crate) stats: Option<LevelArg>,
    #[arg(long, hide_short_help = true, value_enum, value_name = "SOURCE", requires = "stats", help_heading = MEASUREMENTS, help = engines::stamp_of_a_ladder())]
    pub(crate) stamp: Option<StampArg>,
    /// Duration of a trial
    #[arg(long, default_value = "300ms", value_name = "TIME", help_heading = TRIALS, value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials per pair [default: 3; 1 on an emulated machine, without the stages after the ladder]
    #[arg(long, value_name = "N", help_heading = TRIALS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) trials: Option<u32>,
    /// Warm up: send for this long before each trial, without counting
    #[arg(long, hide_short_help = true, default_value = "0s", value_name = "TIME", help_heading = TRIALS, value_parser = wire::parse_duration)]
    pub(crate) omit: Duration,
    #[command(flatten)]
    pub(crate) stages: StageArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// Resume an interrupted run: a saved run, or the .partial file of a killed one; all other options come from that run
    #[arg(long, value_name = "FILE", help_heading = TRIALS, conflicts_with_all = ["scenario", "sweep"])]
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
    pub(crate) exact: ExactArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl BenchArgs {
    /// Trials per pair.
    pub(crate) fn trials(&self) -> u32 {
        const OF_A_PAIR: u32 = 3;
        self.trials.unwrap_or(if self.is_brief() { 1 } else { OF_A_PAIR })
    }

    /// Whether this is the default ladder (all engines, no options that need more trials) on an emulated machine, where a
    /// trial takes seconds: then each pair gets one.
    pub(crate) fn is_brief(&self) -> bool {
        let says_more = self.trials.is_some() || self.stages.scale || !self.sweep.sweep.is_empty();
        let says_which = !self.paths.tx.is_empty() || !self.paths.rx.is_empty() || self.hosts.peer.is_some();
        !says_more && !says_which && bench::read_machine().cpu_model.contains(EMULATED_CPU)
    }
}

/// The stages after the ladder. By default both run after a ladder of all engines with one thread per side at the maximum
/// rate.
#[derive(Debug, Args)]
#[command(next_help_heading = TRIALS)]
pub(crate) struct StageArgs {
    /// After the ladder, run the best sender towards each receiver on 1, 2, 4, ... and all CPUs, whichever engines were
    /// chosen
    #[arg(long, conflicts_with_all = ["sweep", "peer", "resume", "no_scale"])]
    pub(crate) scale: bool,
    /// Skip the runs on several CPUs
    #[arg(long)]
    pub(crate) no_scale: bool,
    /// Skip the short search for each receiver's highest rate without loss
    #[arg(long, hide_short_help = true)]
    pub(crate) no_lossless: bool,
}

/// Experiments other than the ladder. Each has a file in `commands/bench/`; one that repeats a published experiment also has
/// a file in `scenarios/`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Describe the built-in scenarios
    List(ListArgs),
    /// Search for the highest rate without loss, and with little loss (RFC 2544, MLRsearch)
    Ndr(Box<NdrArgs>),
    /// Repeat the RDR paper's experiment: published figures beside the model's, or floods on a real card (--real)
    Rdr(BenchRdrArgs),
    /// Run the sequence of docs/apu4d4.md on two interfaces that are wired to each other
    Apu4d4(Apu4d4Args),
    /// Measure a disk alone, TCP alone and a file from the disk over TCP: which one is the bottleneck
    Disk(DiskArgs),
    /// Measure valid packets and a TCP transfer during a flood, for each way to drop the flood
    SingleRxQueue(SingleRxQueueArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Apu4d4Args {
    /// The receiving interface, with two queues or more; its settings are changed and restored
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) rx_interface: String,
    /// The interface at the other end of the cable, on this host; it is in a namespace of its own during the run
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) tx_interface: String,
    /// Duration of each row
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    /// File or block device to read, larger than what a trial reads [default: a temporary file of --file-size]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Mebibytes of the temporary file, which is made in the folder of TMPDIR
    #[arg(long, value_name = "MIB", default_value_t = 1024, conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) file_size: u32,
    /// Whether the page cache serves the file
    #[arg(long, value_enum, default_value_t = FileCacheArg::Cold, value_name = "HOW")]
    pub(crate) file_cache: FileCacheArg,
    /// Bytes per read and per message
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 18, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) send_size: u32,
    /// Send from this real interface, wired to the other one; both must be down [default: a veth pair]
    #[arg(long, value_name = "INTERFACE", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// Receive on this real interface
    #[arg(long, value_name = "INTERFACE", requires = "tx_interface")]
    pub(crate) rx_interface: Option<String>,
    /// Duration of a trial
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials of each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) trials: u32,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SingleRxQueueArgs {
    /// A real sending interface, wired to the other one; both must be down [default: a veth pair]
    #[arg(long, value_name = "INTERFACE", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// The real interface to flood
    #[arg(long, value_name = "INTERFACE", requires = "tx_interface")]
    pub(crate) rx_interface: Option<String>,
    /// Flood and divert only this queue of the real interface: its rules or its table steer the flood and the valid packets
    /// there, and the transfer and one more flow to other queues, where every packet is counted
    #[arg(long, value_name = "QUEUE", requires = "rx_interface")]
    pub(crate) queue: Option<u32>,
    /// Then search for the highest flood without loss: for the kernel's path, plain XDP and both diversions
    #[arg(long)]
    pub(crate) ndr: bool,
    #[arg(long, value_name = "ENGINE", default_value = "xdp",
        help = format!("Engine that sends the flood: {}", super::frame_senders()))]
    pub(crate) tx: TxSpec,
    /// Rate of valid packets during the flood
    #[arg(long, value_name = "RATE", default_value = "2kpps")]
    pub(crate) valid_rate: Rate,
    /// Target rate of the TCP transfer
    #[arg(long, value_name = "RATE", default_value = "200Mbps")]
    pub(crate) transfer_rate: Rate,
    /// Duration of each row
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Example:
  linerate lab vm --pair e1000 -- linerate bench rdr --real --take-device --tx-interface pair1a --rx-interface pair1b")]
pub(crate) struct BenchRdrArgs {
    #[command(flatten)]
    pub(crate) model: RdrArgs,
    #[command(flatten)]
    pub(crate) real: RealRdrArgs,
}

/// The experiment on a card.
#[derive(Debug, Args)]
#[command(next_help_heading = "A card instead of the model")]
pub(crate) struct RealRdrArgs {
    /// Flood a card with the kernel's pktgen; receive with the engine pci and each buffer policy, then with the kernel's
    /// driver, each copybreak and a profile
    #[arg(long, requires_all = ["rx_interface", "take_device"], conflicts_with_all = ["ports", "policy", "calls"])]
    pub(crate) real: bool,
    /// Send from this interface, wired to the other one; both must be down
    #[arg(long, value_name = "IF", requires = "real", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// Receive on this e1000 or e1000e
    #[arg(long, value_name = "IF", requires = "real", requires = "tx_interface")]
    pub(crate) rx_interface: Option<String>,
    /// Allow detaching the receiving card from its kernel driver during a trial
    #[arg(long, requires = "real")]
    pub(crate) take_device: bool,
    /// Offered loads, each a rate or max [default: 5kpps,10kpps,max]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "real")]
    pub(crate) rate: Vec<Rate>,
    /// Buffer policies of the engine pci [default: realloc,recycle,pool]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "real")]
    pub(crate) buffers: Vec<Buffers>,
    /// Values of the kernel driver's copybreak [default: 0,256]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "real")]
    pub(crate) copybreak: Vec<u32>,
    /// Write head, tail and missed frames of the engine pci's rings to this CSV file, one line per poll that found a
    /// change, and plot them in the report
    #[arg(long, value_name = "FILE", requires = "real")]
    pub(crate) trace: Option<PathBuf>,
    /// Descriptors per ring, also with the kernel's driver
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(80..=4096))]
    pub(crate) ring_slots: u32,
    /// Duration of a trial
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials per point
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) trials: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Another host instead of the lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Another host instead of the lab")]
pub(crate) struct HostArgs {
    /// Send from this interface
    #[arg(long, value_name = "IF", requires = "peer")]
    pub(crate) interface: Option<String>,
    /// Send to this host, which runs linerate recv: ADDRESS or ADDRESS:PORT
    #[arg(long, value_name = "HOST", conflicts_with = "tx_interface")]
    pub(crate) peer: Option<Target>,
    /// Measure each pair from here to the peer, from the peer to here, and both at once
    #[arg(long, requires = "peer")]
    pub(crate) both_ways: bool,
    /// Send only to a receiver with the same secret in its --key file, and encrypt the control connection
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(crate) key: Option<PathBuf>,
    /// Do not attach the programs that count these packets at both hosts' drivers
    #[arg(long, requires = "peer")]
    pub(crate) no_witness: bool,
}
