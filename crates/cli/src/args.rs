//! The command line as typed. What it means is decided in `plan`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use crate::failure::{Failure, Status};
use bench::{RxSpec, TxSpec};
use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::Departures;
use wire::{Rate, SizeMix, Values};

mod targets;

pub(crate) use targets::{Listen, Target};

/// Finds out how many packets per second this machine can really send and receive, and where every other
/// packet went.
#[derive(Debug, Parser)]
#[command(
    name = "linerate",
    version,
    args_override_self = true,
    max_term_width = 100,
    after_help = "Exit status: 0 done; 1 ran, but a goal was missed (rate not held, ledger not closed, receiver lost, \
                  --max-loss exceeded); 2 wrong usage; 3 a capability or kernel feature is missing; 4 the \
                  environment refused (address in use, interface missing, no consent, disk); 5 a bug in linerate."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure every sending path against every receiving path, in a private lab or towards a receiver
    Bench(Box<BenchArgs>),
    /// Send to receivers that agreed
    Send(Box<SendArgs>),
    /// Receive, count, and answer senders that ask
    Recv(Box<RecvArgs>),
    /// Try which paths work here, and say what each missing one needs
    Probe(ProbeArgs),
    /// Simulate a NIC's receive path: presets, sweeps, predictions, fleets, the RDR paper
    Model(Box<ModelArgs>),
    /// Show a saved run as text, JSON, CSV, Markdown or one HTML page
    Report(ReportArgs),
    /// Compare runs statistically; the exit status is a regression gate
    Compare(CompareArgs),
    /// Print the manual page (troff)
    #[command(hide = true)]
    Man,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What the packets look like.
#[derive(Debug, Args)]
#[command(next_help_heading = "Packets")]
pub(crate) struct PacketArgs {
    /// Frame size in bytes, Ethernet header to FCS (RFC 2544): SIZE, imix, 64:28,594:16,1518:4, inc:64-1518,
    /// random:64-1518, list:64,512 [default: 64 with IPv4, 84 with IPv6]
    #[arg(long, value_name = "BYTES", conflicts_with = "payload")]
    pub(crate) frame_size: Option<SizeMix>,
    /// UDP payload in bytes instead of the frame size, in the same forms
    #[arg(long, value_name = "BYTES")]
    pub(crate) payload: Option<SizeMix>,
    /// Flows (source ports) in all, spread over the sending threads [default: one a thread]
    #[arg(long, value_name = "N")]
    pub(crate) flows: Option<usize>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// How the time stands in the probe header
    #[arg(long, value_enum, default_value_t = ClockArg::Nanos, value_name = "CLOCK")]
    pub(crate) probe_clock: ClockArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClockArg {
    /// Seconds and microseconds, as mainline pktgen writes them
    Micros,
    /// 64 bits of nanoseconds
    Nanos,
}

/// How fast and how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Rate of all threads together: N[k|M|G](pps|bps|bpsl1), N% of line rate, or max
    #[arg(long, default_value = "max", value_name = "RATE")]
    pub(crate) rate: Rate,
    /// Pattern of departures: constant, poisson or burst:N
    #[arg(long, default_value_t = Departures::Constant, value_name = "PATTERN")]
    pub(crate) departures: Departures,
    /// Packets a system call, at most
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) batch_size: u32,
    /// Largest lost share of the packets sent before the exit status is 1, for example 0.001 or 0.1%
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    pub(crate) max_loss: Option<f64>,
}

/// Where results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print the run as one JSON document (schema linerate.run/1) instead of tables
    #[arg(long, conflicts_with = "json_stream")]
    pub(crate) json: bool,
    /// Print one JSON object a line while it runs
    #[arg(long)]
    pub(crate) json_stream: bool,
    /// Save the run here [default: runs/TIME-COMMAND.json in linerate's state directory]
    #[arg(long, value_name = "FILE", conflicts_with = "no_save")]
    pub(crate) save: Option<PathBuf>,
    /// Do not save the run
    #[arg(long)]
    pub(crate) no_save: bool,
    /// Print the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seconds between progress lines and recorded intervals
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) interval: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A scenario file (TOML) that holds options; those on the command line are added to it
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: Option<PathBuf>,
    /// Sending engines [default: every one that works here]
    #[arg(long, value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) tx: Vec<TxSpec>,
    /// Receiving engines [default: every one that works here]
    #[arg(long, value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) rx: Vec<RxSpec>,
    /// Sending threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: u16,
    /// Receiving threads [default: as many as sending threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) rx_threads: Option<u16>,
    /// Time of a trial
    #[arg(long, default_value = "400ms", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    /// Trials of each pair
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) trials: u32,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Use IPv6 in the lab
    #[arg(long)]
    pub(crate) ipv6: bool,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) lab: LabArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
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
    /// Receivers look again at once instead of sleeping until a packet comes
    #[arg(long)]
    pub(crate) spin: bool,
}

/// The embedded lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lab")]
pub(crate) struct LabArgs {
    /// Queues of the lab's veth pair
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) queues: u16,
    /// Receive softirq in a kernel thread on the receiver's CPU instead of the sender's
    #[arg(long)]
    pub(crate) threaded_napi: bool,
}

/// Real interfaces instead of the lab.
#[derive(Debug, Args)]
#[command(next_help_heading = "Real interfaces instead of the lab")]
pub(crate) struct HostArgs {
    /// Send from this interface
    #[arg(long, value_name = "IF", requires = "peer")]
    pub(crate) interface: Option<String>,
    /// Towards this host, where `linerate recv` runs: ADDRESS or ADDRESS:PORT
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: Option<Target>,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Receivers as ADDRESS or ADDRESS:PORT (an IPv6 address before a port in brackets), a thread each; the port is
    /// 4321 if none is given
    #[arg(required_unless_present = "write_pcap", value_name = "TARGET")]
    pub(crate) targets: Vec<Target>,
    /// Sending threads, spread over the targets [default: one a target]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) threads: Option<u16>,
    /// Seconds to send [default: 10s unless --count is given]
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Packets to send, all threads together
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    #[command(flatten)]
    pub(crate) frames: FrameArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Hand the kernel up to 64 datagrams as one message (UDP GSO)
    #[arg(long)]
    pub(crate) gso: bool,
    /// SO_SNDBUF in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) send_buffer: Option<usize>,
    /// CPUs of the workers, for example 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Interface to send from, whatever the routes say
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Local address to send from
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// Send without asking; only to loopback, private, link-local and benchmarking addresses
    #[arg(long)]
    pub(crate) no_handshake: bool,
    /// Send without asking to any address: only where you are allowed to
    #[arg(long, requires = "no_handshake")]
    pub(crate) i_am_allowed_to_send_there: bool,
    /// Write the frames to a pcap file instead of sending them; needs --count
    #[arg(long, value_name = "FILE", requires = "count")]
    pub(crate) write_pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Headers and what varies from frame to frame.
#[derive(Debug, Args)]
#[command(next_help_heading = "Frames (headers and what varies)")]
pub(crate) struct FrameArgs {
    /// Source MAC address, for engines that make whole frames
    #[arg(long, value_name = "MAC")]
    pub(crate) src_mac: Option<wire::MacAddr>,
    /// Destination MAC address, for engines that make whole frames
    #[arg(long, value_name = "MAC")]
    pub(crate) dst_mac: Option<wire::MacAddr>,
    /// VLAN tag(s), outermost first, for engines that make whole frames
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub(crate) vlan: Vec<wire::VlanTag>,
    /// Source address: ADDRESS, or inc:, random: of a range or CIDR, or list:a,b
    #[arg(long, value_name = "ADDR")]
    pub(crate) src_addr: Option<Values<IpAddr>>,
    /// Destination address, likewise [default: the first target's]
    #[arg(long, value_name = "ADDR")]
    pub(crate) dst_addr: Option<Values<IpAddr>>,
    /// Source port: PORT, or inc:1024-2047, random:1024-2047,seed=7, list:53,123
    #[arg(long, value_name = "PORT")]
    pub(crate) src_port: Option<Values<u16>>,
    /// Destination port, likewise [default: the first target's]
    #[arg(long, value_name = "PORT")]
    pub(crate) dst_port: Option<Values<u16>>,
    /// Time to live (hop limit), for engines that make whole frames
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) ttl: u8,
}

#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
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
    /// CPUs of the workers, for example 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Stop after this time [default: when interrupted]
    #[arg(long, value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Stop when the first sender has finished
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A saved run, or - for standard input [default: the newest in linerate's state directory]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<PathBuf>,
    /// The form
    #[arg(long, short, value_enum, default_value_t = ReportForm::Text, value_name = "FORM")]
    pub(crate) format: ReportForm,
    /// Write here instead of to standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// Tables and words
    Text,
    /// One self-contained page with plots
    Html,
    /// The run itself
    Json,
    /// One object a line
    JsonStream,
    /// One row a trial
    Csv,
    /// One row a point of a sweep or model
    PointsCsv,
    /// For an issue or a wiki
    Markdown,
    /// What iperf3 --json prints
    Iperf3,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The baseline, then the runs to compare with it; with --history, a series in order of time
    #[arg(value_name = "RUN", required_unless_present = "history")]
    pub(crate) runs: Vec<PathBuf>,
    /// Look for the runs at which something changed, among all runs of a directory
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub(crate) history: Option<PathBuf>,
    /// The form
    #[arg(long, short, value_enum, default_value_t = CompareForm::Text, value_name = "FORM")]
    pub(crate) format: CompareForm,
    /// Confidence of the intervals, 0.5 to 0.9999
    #[arg(long, default_value_t = 0.95, value_name = "P")]
    pub(crate) confidence: f64,
    /// The smallest change that matters, as a share
    #[arg(long, default_value = "2%", value_name = "RATIO", value_parser = parse_ratio)]
    pub(crate) matters: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareForm {
    /// Tables and words
    Text,
    /// Plain data
    Json,
    /// For an issue or a wiki
    Markdown,
}

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// The interface to try [default: one of a private lab]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Agree to XDP programs being attached to INTERFACE for a moment
    #[arg(long = "try", requires = "interface")]
    pub(crate) try_it: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ModelCommand>,
    /// The machine to simulate; --list shows all
    #[arg(long, default_value = "rdr", value_name = "NAME")]
    pub(crate) preset: String,
    /// List presets and parameters
    #[arg(long)]
    pub(crate) list: bool,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Compute every value of a parameter; several sweeps make every combination
    #[arg(long, value_name = "NAME=A,B,...")]
    pub(crate) sweep: Vec<String>,
    /// Take the machine from a measured run, and predict rate and loss
    #[arg(long, value_name = "RUN", conflicts_with_all = ["sweep", "set"])]
    pub(crate) from: Option<PathBuf>,
    /// Offered loads to predict, in pps, or as a multiple of the predicted loss-free rate: 100kpps, 1.5x
    #[arg(long, value_name = "LOADS", value_delimiter = ',', default_value = "0.5x,1x,1.5x,2x", value_parser = parse_load)]
    pub(crate) load: Vec<model::Load>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// How many machines, queues and cores a flood needs
    Plan(PlanArgs),
    /// The RDR paper's experiment: published figures beside the model's
    Rdr(RdrArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Packets per second of the flood, for example 300Mpps
    #[arg(long, value_name = "RATE")]
    pub(crate) flood: Option<Rate>,
    /// Frame size in bytes, Ethernet header to FCS
    #[arg(long, value_name = "BYTES")]
    pub(crate) frame_size: Option<wire::FrameSize>,
    /// Set another parameter of the fleet
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RdrArgs {
    /// Payloads in bytes, 46 to 1500 [default: the curve]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) payload: Vec<u32>,
    /// Receiving ports, 1 or 2
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) ports: Vec<u32>,
    /// What becomes of buffers [default: both]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<PolicyArg>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Allocate and free per packet
    Realloc,
    /// Receive descriptor recycling
    Recycle,
}

/// CPUs as `0,2-3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<u32>);

impl CpuList {
    /// What is wrong with it on this machine.
    pub(crate) fn problem(&self, allowed: &[u32]) -> Option<Failure> {
        let absent = self.0.iter().find(|cpu| !allowed.contains(cpu))?;
        let first_and_last = allowed.first().zip(allowed.last());
        let range = first_and_last.map(|(first, last)| format!("{first} to {last}")).unwrap_or_default();
        Some(
            Failure::new(Status::Refused, format!("CPU {absent} is absent or not allowed here"))
                .hint(format!("this process may use CPUs {range}")),
        )
    }
}

fn parse_cpus(text: &str) -> Result<CpuList, String> {
    let wrong = || format!("'{text}' is not a list of CPUs: write for example 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| wrong())?;
        let last: u32 = last.parse().map_err(|_| wrong())?;
        if first > last || last > 65_535 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

fn parse_load(text: &str) -> Result<model::Load, String> {
    if text == "max" {
        return Ok(model::Load::Max);
    }
    if let Some(factor) = text.strip_suffix('x') {
        let factor: Option<f64> =
            factor.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
        return factor
            .map(model::Load::OfLossFree)
            .ok_or_else(|| format!("'{text}' is no multiple: write for example 1.5x"));
    }
    match text.parse::<Rate>().map_err(|error| error.to_string())? {
        Rate::Pps(pps) => Ok(model::Load::Pps(pps)),
        _ => Err(format!("'{text}' is not in packets per second: write for example 100kpps, 1.5x or max")),
    }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&(ratio * scale)) => Ok(ratio * scale),
        _ => Err(format!("'{text}' is not a share: write for example 0.001 or 0.1%")),
    }
}

impl From<ClockArg> for wire::ProbeClock {
    fn from(clock: ClockArg) -> Self {
        match clock {
            ClockArg::Micros => Self::Micros,
            ClockArg::Nanos => Self::Nanos,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cpu_lists_and_shares() {
        assert_eq!(parse_cpus("0,2-3").unwrap(), CpuList(vec![0, 2, 3]));
        for wrong in ["", "a", "3-1", "1-", "99999999"] {
            assert!(parse_cpus(wrong).unwrap_err().contains("write for example"), "{wrong}");
        }
        assert_eq!(parse_ratio("0.1%"), Ok(0.001));
        assert_eq!(parse_ratio("1"), Ok(1.0));
        assert!(parse_ratio("2").is_err() && parse_ratio("-1%").is_err() && parse_ratio("x").is_err());
    }
}
