//! `linerate recv`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use session::Network;
use traffic::{RxSpec, TimeSource};
use trial::ClockClaim;
use wire::{ProbeClock, Rate};

use super::{
    CardArgs, CpuList, HoldArgs, LevelArg, Listen, OutputArgs, RxRingArgs, cpus::parse_cpus, engines,
    interval::parse_period,
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate recv                        serve senders on port 4321 until Ctrl-C
  linerate recv --once --stats time    one sender, with latency and jitter
  linerate recv --threads 2 --reuseport")]
pub(crate) struct RecvArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RecvCommand>,
    /// Address to listen on, UDP for packets and TCP for senders' handshakes: ADDRESS, ADDRESS:PORT or PORT
    #[arg(default_value = "4321", value_name = "LISTEN")]
    pub(crate) listen: Listen,
    /// Receiving threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: u16,
    /// One socket per thread on the same port instead of one shared by all
    #[arg(long)]
    pub(crate) reuseport: bool,
    /// Let the kernel join datagrams of a flow (UDP GRO); each datagram is still counted
    #[arg(long)]
    pub(crate) gro: bool,
    /// SO_RCVBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) receive_buffer: Option<usize>,
    /// Most messages per system call
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) batch_size: u32,
    /// Poll without sleeping
    #[arg(long)]
    pub(crate) spin: bool,
    /// Keep the receiver busy for this long per packet, as an application that processes it would; the engine xdp does so
    /// in its XDP program, for at most 10us
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
    /// Serve only senders of this network, for example 203.0.113.0/24, and of this host; repeatable [default: private,
    /// link-local, loopback and benchmarking addresses]
    #[arg(long, value_name = "NET", visible_alias = "allow-from")]
    pub(crate) allow: Vec<Network>,
    /// Engines that senders may request, by name, besides that of --engine [default: all]
    #[arg(long, value_name = "ENGINES", value_delimiter = ',')]
    pub(crate) allow_engines: Option<Vec<String>>,
    /// Let senders request engines that attach a program to the interface (XDP, AF_XDP)
    #[arg(long)]
    pub(crate) allow_attach: bool,
    /// Refuse senders that request a higher rate than this, for example 1Mpps, or the maximum rate
    #[arg(long, value_name = "RATE")]
    pub(crate) max_rate: Option<Rate>,
    /// Serve only senders with the same secret in their --key file, and encrypt control connections
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Read these options from a TOML file, for example for a systemd unit: allow-from, allow-engines, allow-attach,
    /// max-rate and key; options on the command line override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Return probe packets, only to senders that request it (linerate send --reflect)
    #[arg(long)]
    pub(crate) reflect: bool,
    /// Profile the CPUs: where receiving spends its time, by stage
    #[arg(long)]
    pub(crate) profile: bool,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is measured, where, and how it is shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Statistics")]
pub(crate) struct MeasureArgs {
    #[arg(long, default_value = "udp", value_name = "ENGINE", help = engines::receiver())]
    pub(crate) engine: RxSpec,
    /// Receive only on this interface
    #[arg(long, value_name = "IF")]
    pub(crate) device: Option<String>,
    /// With the engine pci: allow detaching the card from its kernel driver; the driver is bound again afterwards, even
    /// after a kill
    #[arg(long, hide_short_help = true, requires = "device")]
    pub(crate) take_device: bool,
    #[command(flatten)]
    pub(crate) card: CardArgs,
    #[command(flatten)]
    pub(crate) ring: RxRingArgs,
    /// What to measure
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) stats: Option<LevelArg>,
    /// Format of the statistics at the end
    #[arg(long, value_enum, default_value_t = Display::Human, value_name = "FORM")]
    pub(crate) display: Display,
    /// Format of the time in senders' probe headers
    #[arg(long, value_enum, default_value_t = ProbeClockArg::Auto, value_name = "CLOCK")]
    pub(crate) probe_clock: ProbeClockArg,
    /// Relation of the senders' clocks to this host's; one-way latency is shown if the clocks' uncertainty is less than a
    /// tenth of it
    #[arg(long, value_enum, default_value_t = ClocksArg::Auto, value_name = "RELATION")]
    pub(crate) clocks: ClocksArg,
    /// With --clocks synchronised: the largest difference between the two clocks, for example 500us, if you know it
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration, requires = "clocks")]
    pub(crate) clock_bound: Option<Duration>,
    /// Socket of linuxptp's ptp4l, which reports how well this host's clock is synchronised [default: /var/run/ptp4l if it
    /// exists]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) ptp4l: Option<PathBuf>,
    #[arg(long, value_enum, value_name = "SOURCE", help = engines::stamp())]
    pub(crate) stamp: Option<StampArg>,
    /// Also write an HTML page with the histograms and the rate over time
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Requests to a running receiver from another terminal.
#[derive(Debug, Subcommand)]
pub(crate) enum RecvCommand {
    /// Show the results of a running receiver so far
    Status(AskArgs),
    /// Show the results so far, and reset the receiver's counters
    Reset(AskArgs),
    /// Change what a running receiver measures, or how it shows that: stats=none|counter|basic|time,
    /// display=human|script
    Set(SetArgs),
    /// Stop a running receiver, and show its results
    Stop(AskArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Changes; another level starts new statistics, and is refused while a sender is being served
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = parse_change)]
    pub(crate) changes: Vec<ReceiverChange>,
    /// Its process, when several receivers run
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

/// A change of a running receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiverChange {
    /// The level of statistics; `None` measures nothing.
    Stats(Option<LevelArg>),
    /// The form of statistics.
    Display(Display),
}

fn parse_change(text: &str) -> Result<ReceiverChange, String> {
    let value = |value: &str| format!("unknown value '{value}'");
    match text.split_once('=') {
        Some(("stats", "none")) => Ok(ReceiverChange::Stats(None)),
        Some(("stats", level)) => LevelArg::from_str(level, false)
            .map(|level| ReceiverChange::Stats(Some(level)))
            .map_err(|_| format!("{}: expected stats=none, counter, basic or time", value(level))),
        Some(("display", form)) => Display::from_str(form, false)
            .map(ReceiverChange::Display)
            .map_err(|_| format!("{}: expected display=human or script", value(form))),
        _ => Err("expected stats=LEVEL or display=FORM".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Its process, when several receivers run
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Format of the statistics [default: the receiver's]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) display: Option<Display>,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Display {
    /// For a person, in the layout of the pktgen receiver
    Human,
    /// One line per reader, in fixed columns under a header
    Script,
}

impl Display {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Script => "script",
        }
    }

    /// The form of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ProbeClockArg {
    /// Detect it from the numbers
    Auto,
    /// Seconds and microseconds of the wall clock, as mainline pktgen writes them
    Micros,
    /// 64 bits of nanoseconds since the host's boot
    Nanos,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClocksArg {
    /// Like same-host if all senders' addresses are this host's own, else compared over the control connections
    Auto,
    /// One host: for example, the sender is in another namespace
    SameHost,
    /// Synchronised by PTP or NTP; senders write wall-clock time
    Synchronised,
    /// Not related
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StampArg {
    /// The card, if its hardware timestamps are on
    Card,
    /// The kernel, when the driver passes it a packet
    Kernel,
    /// An XDP program, once per packet
    Program,
    /// An XDP program, once per poll of the device: packets of a poll share a time, and reading the clock costs next to
    /// nothing
    Poll,
    /// The receiving loop, once per batch
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
