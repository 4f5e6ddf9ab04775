//! `linerate bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use traffic::{Buffers, TxSpec};
use trial::Peer;
use wire::Rate;

use super::{
    ExactArgs, LevelArg, LoadArgs, NdrArgs, OutputArgs, PacketArgs, RdrArgs, StampArg, Target, engines,
    trials::{PathArgs, SettingArgs, SocketArgs, SweepArgs},
};

/// Headings of the help page.
const MEASUREMENTS: &str = "Measurements";
const TRIALS: &str = "Trials";
/// QEMU names the CPU so that it emulates.
const EMULATED_CPU: &str = "QEMU TCG CPU";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  linerate bench                                     what this machine can do, in a private lab
  linerate bench --tx udp,xdp --rx udp --stats time  two pairs, with latency and jitter
  linerate bench --sweep frame-size=64,512,1518      the same at several sizes
  linerate bench --peer HOST                         towards linerate recv on another host
  linerate bench pktgen-rx                           a scenario that ships")]
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
        hide_short_help = true,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        help_heading = "Engines",
        default_missing_value = "iperf3,netperf,sockperf,trafgen,testpmd"
    )]
    pub(crate) peers: Vec<Peer>,
    /// Sample what the CPUs do, and count polls of devices: where receiving takes its time, by stage; with --peer the
    /// receiver's, which linerate recv --profile looks at
    #[arg(long, help_heading = MEASUREMENTS)]
    pub(crate) profile: bool,
    /// What receivers measure besides their counters, into each trial of the record; it costs them time
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with = "peer", help_heading = MEASUREMENTS)]
    pub(crate) stats: Option<LevelArg>,
    #[arg(long, hide_short_help = true, value_enum, value_name = "WHO", requires = "stats", help_heading = MEASUREMENTS, help = engines::stamp_of_a_ladder())]
    pub(crate) stamp: Option<StampArg>,
    /// Time of a trial
    #[arg(long, default_value = "300ms", value_name = "TIME", help_heading = TRIALS, value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials of each pair [default: 3; in an emulated machine 1, and nothing follows the ladder]
    #[arg(long, value_name = "N", help_heading = TRIALS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) trials: Option<u32>,
    /// Send for so long before each trial without counting
    #[arg(long, hide_short_help = true, default_value = "0s", value_name = "TIME", help_heading = TRIALS, value_parser = wire::parse_duration)]
    pub(crate) omit: Duration,
    #[command(flatten)]
    pub(crate) stages: StageArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// Go on with a run that ended before its time: a saved run, or the .partial file of one that was killed;
    /// everything else is as it was asked then
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
    /// Trials of each pair.
    pub(crate) fn trials(&self) -> u32 {
        const OF_A_PAIR: u32 = 3;
        self.trials.unwrap_or(if self.is_brief() { 1 } else { OF_A_PAIR })
    }

    /// Whether all engines were asked for, and no more was said, in a machine whose instructions are emulated: a trial takes
    /// seconds there, so it is one a pair.
    pub(crate) fn is_brief(&self) -> bool {
        let says_more = self.trials.is_some() || self.stages.scale || !self.sweep.sweep.is_empty();
        let says_which = !self.paths.tx.is_empty() || !self.paths.rx.is_empty() || self.hosts.peer.is_some();
        !says_more && !says_which && bench::read_machine().cpu_model.contains(EMULATED_CPU)
    }
}

/// What follows the ladder. Both stages run where all engines were asked for, at one thread a side and the maximum rate.
#[derive(Debug, Args)]
#[command(next_help_heading = TRIALS)]
pub(crate) struct StageArgs {
    /// After the ladder, run the best sender towards each receiver over 1, 2, 4 and so on to all CPUs, whatever was chosen
    #[arg(long, conflicts_with_all = ["sweep", "peer", "resume", "no_scale"])]
    pub(crate) scale: bool,
    /// Leave that out
    #[arg(long)]
    pub(crate) no_scale: bool,
    /// Leave out the short search for each receiver's highest rate without loss
    #[arg(long, hide_short_help = true)]
    pub(crate) no_lossless: bool,
}

/// Experiments that are more than a ladder. Each has a file in `commands/bench/`, and where it repeats a
/// published one, a file in `scenarios/` that describes it.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Describe the scenarios that ship
    List(ListArgs),
    /// Search for the highest rate without loss, and with little (RFC 2544, MLRsearch)
    Ndr(Box<NdrArgs>),
    /// The RDR paper's experiment: published figures beside the model's, or a card under floods (--real)
    Rdr(BenchRdrArgs),
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
    #[arg(long, value_name = "ENGINE", default_value = "xdp",
        help = format!("The engine that makes the flood: {}", super::frame_senders()))]
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
#[command(after_help = "Example:
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
    /// Flood a card with the kernel's pktgen: the engine pci with each buffer policy, then the kernel's driver with each
    /// copybreak and a profile
    #[arg(long, requires_all = ["rx_interface", "take_device"], conflicts_with_all = ["ports", "policy", "calls"])]
    pub(crate) real: bool,
    /// Send from this interface, which is wired to the other one; both must be down
    #[arg(long, value_name = "IF", requires = "real", requires = "rx_interface")]
    pub(crate) tx_interface: Option<String>,
    /// Receive on this e1000 or e1000e
    #[arg(long, value_name = "IF", requires = "real", requires = "tx_interface")]
    pub(crate) rx_interface: Option<String>,
    /// Allow taking the receiving card from its kernel driver for the time of a trial
    #[arg(long, requires = "real")]
    pub(crate) take_device: bool,
    /// Loads, each a rate or max [default: 5kpps,10kpps,max]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "real")]
    pub(crate) rate: Vec<Rate>,
    /// Buffer policies of the engine pci [default: realloc,recycle,pool]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "real")]
    pub(crate) buffers: Vec<Buffers>,
    /// Values of the kernel driver's copybreak [default: 0,256]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "real")]
    pub(crate) copybreak: Vec<u32>,
    /// Write head, tail and missed frames of the engine pci's rings to this file (CSV), a line a poll that found a change, and
    /// draw them in the report
    #[arg(long, value_name = "FILE", requires = "real")]
    pub(crate) trace: Option<PathBuf>,
    /// Descriptors of the rings, the kernel driver's too
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(80..=4096))]
    pub(crate) ring_slots: u32,
    /// Time of a trial
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials of each point
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) trials: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Real interfaces instead of the lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Another host instead of the lab")]
pub(crate) struct HostArgs {
    /// Send from this interface
    #[arg(long, value_name = "IF", requires = "peer")]
    pub(crate) interface: Option<String>,
    /// Towards this host, where `linerate recv` runs: ADDRESS or ADDRESS:PORT
    #[arg(long, value_name = "HOST", conflicts_with = "tx_interface")]
    pub(crate) peer: Option<Target>,
    /// Measure each pair from here to the peer, from the peer to here, and both at once
    #[arg(long, requires = "peer")]
    pub(crate) both_ways: bool,
    /// Ask only a receiver that has the secret in this file, too (recv --key), and encrypt the control connection
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(crate) key: Option<PathBuf>,
    /// Do not count these packets alone at both hosts' drivers: no programs are attached for that
    #[arg(long, requires = "peer")]
    pub(crate) no_witness: bool,
}
