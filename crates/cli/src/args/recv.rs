//! `linerate recv`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use session::Network;
use traffic::{RxSpec, TimeSource};
use trial::ClockClaim;
use wire::{ProbeClock, Rate};

use super::{CpuList, LevelArg, Listen, OutputArgs, cpus::parse_cpus, engines, interval::parse_period};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RecvArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RecvCommand>,
    /// Where to listen, UDP for packets and TCP for senders' handshakes: ADDRESS, ADDRESS:PORT or PORT
    #[arg(default_value = "4321", value_name = "LISTEN")]
    pub(crate) listen: Listen,
    /// Receiving threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: u16,
    /// A socket a thread on the same port instead of one that all share
    #[arg(long)]
    pub(crate) reuseport: bool,
    /// Let the kernel join datagrams of a flow (UDP GRO); each is still counted
    #[arg(long)]
    pub(crate) gro: bool,
    /// SO_RCVBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) receive_buffer: Option<usize>,
    /// Messages a system call, at most
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) batch_size: u32,
    /// Look again at once instead of sleeping until a packet comes
    #[arg(long)]
    pub(crate) spin: bool,
    /// Each packet keeps its receiver busy for so long, as an application would that has something to do with it; at
    /// the engine xdp that is the program in the kernel, for 10us at most
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) work: Option<Duration>,
    /// CPUs of the workers, for example 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Stop after this time [default: when interrupted]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) duration: Option<Duration>,
    /// Stop when the first sender has finished
    #[arg(long)]
    pub(crate) once: bool,
    /// Serve senders of this network, for example 203.0.113.0/24, and of no others but this host; repeatable [default:
    /// private, link-local, loopback and benchmarking addresses]
    #[arg(long, value_name = "NET", visible_alias = "allow-from")]
    pub(crate) allow: Vec<Network>,
    /// Engines that senders may ask for, by name, beside the one of --engine [default: all]
    #[arg(long, value_name = "ENGINES", value_delimiter = ',')]
    pub(crate) allow_engines: Option<Vec<String>>,
    /// Let senders ask for engines that attach a program to the interface (XDP, AF_XDP)
    #[arg(long)]
    pub(crate) allow_attach: bool,
    /// Refuse senders that ask for more than this rate, for example 1Mpps, or for the maximum
    #[arg(long, value_name = "RATE")]
    pub(crate) max_rate: Option<Rate>,
    /// Serve only senders that have the secret in this file, too (send --key), and encrypt control connections
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Read these options from a TOML file, for a unit file for example: allow-from, allow-engines, allow-attach,
    /// max-rate and key; options on the command line outrank it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Send probe packets back to senders that ask for it (linerate send --reflect), and to nobody else
    #[arg(long)]
    pub(crate) reflect: bool,
    /// Sample what the CPUs do: where receiving takes its time, by stage
    #[arg(long)]
    pub(crate) profile: bool,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is measured, where, and how it is shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Statistics")]
pub(crate) struct MeasureArgs {
    #[arg(long, default_value = "udp", value_name = "ENGINE", help = engines::receiver())]
    pub(crate) engine: RxSpec,
    /// Only what comes in at this interface
    #[arg(long, value_name = "IF")]
    pub(crate) device: Option<String>,
    /// What to measure
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) stats: Option<LevelArg>,
    /// How statistics are printed at the end
    #[arg(long, value_enum, default_value_t = Display::Human, value_name = "FORM")]
    pub(crate) display: Display,
    /// How senders write the time
    #[arg(long, value_enum, default_value_t = ProbeClockArg::Auto, value_name = "CLOCK")]
    pub(crate) probe_clock: ProbeClockArg,
    /// How senders' clocks and this host's belong together; one-way latency is shown when what may be wrong because of them
    /// is less than a tenth of it
    #[arg(long, value_enum, default_value_t = ClocksArg::Auto, value_name = "RELATION")]
    pub(crate) clocks: ClocksArg,
    /// With --clocks synchronised: how far the two clocks are apart at most, for example 500us, where you know
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration, requires = "clocks")]
    pub(crate) clock_bound: Option<Duration>,
    /// The socket of linuxptp's ptp4l, which is asked how this host's clock is kept [default: /var/run/ptp4l where that is
    /// there]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) ptp4l: Option<PathBuf>,
    #[arg(long, value_enum, value_name = "WHO", help = engines::stamp())]
    pub(crate) stamp: Option<StampArg>,
    /// Also write one HTML page with the histograms and the rate over time
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// What a receiver that runs can be told from another terminal.
#[derive(Debug, Subcommand)]
pub(crate) enum RecvCommand {
    /// Show what a running receiver has measured so far
    Status(AskArgs),
    /// Show it, and let the receiver begin anew
    Reset(AskArgs),
    /// Let it stop, and show what it has measured
    Stop(AskArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Its process, when several run
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// How statistics are printed
    #[arg(long, value_enum, default_value_t = Display::Human, value_name = "FORM")]
    pub(crate) display: Display,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Display {
    /// For a person, laid out as the pktgen receiver did
    Human,
    /// A line a reader in fixed columns under a header
    Script,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ProbeClockArg {
    /// Told by the numbers
    Auto,
    /// Seconds and microseconds of the wall clock, as mainline pktgen writes them
    Micros,
    /// 64 bits of nanoseconds since the host's start
    Nanos,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClocksArg {
    /// The same when all senders' addresses are this host's own, else as the control connections compare them
    Auto,
    /// One host: in another namespace, say
    SameHost,
    /// Kept together by PTP or NTP; senders write the wall clock's time
    Synchronised,
    /// Not related
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StampArg {
    /// The card, when it has been told to stamp packets
    Card,
    /// The kernel, when the driver hands a packet over
    Kernel,
    /// A program in XDP, once a packet
    Program,
    /// The same, once a poll of the device: packets of a poll share a time, and the clock costs next to nothing
    Poll,
    /// The reading loop, once a batch
    Loop,
}

impl ProbeClockArg {
    pub(crate) fn clock(self) -> Option<ProbeClock> {
        match self {
            Self::Auto => None,
            Self::Micros => Some(ProbeClock::Micros),
            Self::Nanos => Some(ProbeClock::Nanos),
        }
    }
}

impl From<ClocksArg> for ClockClaim {
    fn from(clocks: ClocksArg) -> Self {
        match clocks {
            ClocksArg::Auto => Self::Auto,
            ClocksArg::SameHost => Self::SameHost,
            ClocksArg::Synchronised => Self::Synchronised,
            ClocksArg::None => Self::None,
        }
    }
}

impl From<StampArg> for TimeSource {
    fn from(stamp: StampArg) -> Self {
        match stamp {
            StampArg::Card => Self::Card,
            StampArg::Kernel => Self::Kernel,
            StampArg::Program => Self::Program,
            StampArg::Poll => Self::Poll,
            StampArg::Loop => Self::Loop,
        }
    }
}
