//! `linerate agent` and `linerate fleet`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Subcommand};
use session::Network;
use wire::Rate;

use super::{divert::named_file, output::OutputArgs, view::parse_listen};

/// The NATS server and the credentials for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// NATS server: nats://HOST:PORT or tls://HOST:PORT; several separated by commas [default: LINERATE_NATS from the
    /// environment, else nats://127.0.0.1:4222]
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Credentials file, as nsc writes it
    #[arg(long, value_name = "FILE", conflicts_with = "nkey")]
    pub(crate) creds: Option<PathBuf>,
    /// File with the seed of an nkey
    #[arg(long, value_name = "FILE")]
    pub(crate) nkey: Option<PathBuf>,
    /// File with the certificates of the authority that signed the server's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate, if the server requires one
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) cert_key: Option<PathBuf>,
    /// Start TLS before the server's first message (handshake_first in the server's configuration)
    #[arg(long)]
    pub(crate) tls_first: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  linerate agent --label role=sender --max-rate 2Mpps --allow-to 10.0.0.0/8\n  linerate agent \
                  --nats tls://n1:4222 --creds agent.creds --limits /etc/linerate/agent.toml\n\nThe limits are the \
                  owner's: no coordinator can raise them. --max-rate and --allow-to override the --limits file. An \
                  agent opens no port before a run, and stops sending within two seconds if it loses \
                  the server."
)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Name of this agent, unique in the fleet [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A label for plans to select agents by; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Address that its packets leave from and arrive at [default: that of the default route]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// Network namespace for its packets: /run/netns/NAME or /proc/PID/ns/net
    #[arg(long, value_name = "PATH")]
    pub(crate) netns: Option<PathBuf>,
    /// File with the owner's limits: max-rate, allow-to, allow-from, allow-without-agent, max-duration, commands,
    /// allow-attach
    #[arg(long, value_name = "FILE", help_heading = "Limits")]
    pub(crate) limits: Option<PathBuf>,
    /// Highest rate that it may send at
    #[arg(long, value_name = "RATE", help_heading = "Limits")]
    pub(crate) max_rate: Option<Rate>,
    /// Network that it may send to; repeatable [default: loopback, private, link-local and benchmarking addresses]
    #[arg(long, value_name = "NETWORK", help_heading = "Limits")]
    pub(crate) allow_to: Vec<Network>,
    /// Network that it may receive from; repeatable [default: the same]
    #[arg(long, value_name = "NETWORK", help_heading = "Limits")]
    pub(crate) allow_from: Vec<Network>,
    /// The only interface on which a coordinator may divert packets (linerate fleet divert) [default: none]
    #[arg(long, value_name = "IF", help_heading = "Limits")]
    pub(crate) divert: Option<String>,
    /// Serve metrics for Prometheus on this port of loopback, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_listen)]
    pub(crate) prometheus: Option<SocketAddr>,
    /// Print the name, the server, the limits and the privileges that it keeps, and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// For tests, a wrong clock: TIME ahead, and PPM fast
    #[arg(long, value_name = "TIME,PPM", hide = true)]
    pub(crate) clock_skew: Option<fleet::Skew>,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("'{text}' is not a label: write NAME=VALUE, for example role=sender")),
    }
}

#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Start a trial fleet on this machine: a server, and agents in namespaces, until Ctrl-C
    Up(FleetUpArgs),
    /// Show the connected agents: machine, interface, clock, limits
    Status(FleetStatusArgs),
    /// Run a plan with all agents that it selects
    Run(Box<FleetRunArgs>),
    /// Recover the record of a run from the server, after its coordinator died
    Collect(FleetCollectArgs),
    /// Give many agents the same rules for diverting packets, in waves; show them; undo them
    Divert(FleetDivertArgs),
    /// Generate an nkey: write the seed to a new file, and print the public key for the server's configuration
    NewKey {
        /// The new file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Install nats-server: as a Go module, or from Debian's package
    GetServer,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  linerate fleet up --here 4 &\n  linerate fleet run plan.toml\n\nThe agents are a1, a2 \
                  and so on: the first ones have the label role=sender, the last ones role=receiver."
)]
pub(crate) struct FleetUpArgs {
    /// Number of agents, all on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) here: u32,
    /// Number of receiving agents [default: a quarter, at least one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=999))]
    pub(crate) receivers: Option<u32>,
    /// The server's port on loopback; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 4222)]
    pub(crate) port: u16,
    /// More arguments for each agent, after --
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FleetStatusArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// How long to wait for answers
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::interval::parse_period)]
    pub(crate) wait: Duration,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A plan is TOML; everything has a default:\n  rate = \"100kpps\"          # of the whole fleet, or a \
                  list: [\"10kpps\", \"20kpps\"]\n  duration = \"10s\"\n  trials = 3\n  [senders]\n  select = { role = \
                  \"sender\" }\n  engine = \"udp\"\n  [receivers]\n  select = { role = \"receiver\" }\n  engine = \
                  \"udp\"\n\ndocs/fleet.md has all of it."
)]
pub(crate) struct FleetRunArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    pub(crate) plan: PathBuf,
    /// Number of agents that may return no result: totals then lack them, and loss is given as a range
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) tolerate: u32,
    /// Name of the run [default: the time and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetCollectArgs {
    /// Name of the run, as fleet run printed it
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetDivertArgs {
    #[command(subcommand)]
    pub(crate) command: FleetDivertCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetDivertCommand {
    /// Apply rules: to the canaries first, to the other agents when the canaries are well
    #[command(
        after_help = "Example:\n  linerate fleet divert apply rules.toml --to role=edge --canaries 1\n\nThe rules:\n  \
                      match = \"udp and dst port 53\"\n  rules = [\"drop src net 203.0.113.0/24\", \"pass limit 1kpps per \
                      source all\"]\n  lease = \"1h\"            # agents undo the rules after this time; apply again to \
                      renew\n  keep-answers = 0.5      # undo where the host then sends less than this share of its \
                      packets\n  settle = \"5s\"           # measured over this time\n\nAn agent diverts only on the \
                      interface that its owner names (linerate agent --divert IF). It validates rules before they \
                      reach the kernel."
    )]
    Apply(FleetDivertApplyArgs),
    /// Show the rules of each agent, and whether they are in force
    Status(FleetDivertStatusArgs),
    /// Show the last 16 revisions of each agent's rules: time, author, text
    History(FleetDivertStatusArgs),
    /// Return to the rules before the last ones, or to none, on all agents at once
    Undo(FleetDivertTarget),
}

/// Which agents, by which server.
#[derive(Debug, Args)]
pub(crate) struct FleetDivertTarget {
    /// Label that an agent must have; repeatable [default: all agents]
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) to: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetDivertApplyArgs {
    /// The rules
    #[arg(value_name = "RULES.toml")]
    pub(crate) rules: PathBuf,
    /// A set of networks for the rules, from a file with one network or address per line, which goes to the agents with
    /// the rules: drop src set bad. Repeatable
    #[arg(long = "set", value_name = "NAME=FILE", value_parser = named_file)]
    pub(crate) sets: Vec<(String, PathBuf)>,
    /// Agents that get the rules first
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) canaries: usize,
    #[command(flatten)]
    pub(crate) target: FleetDivertTarget,
}

#[derive(Debug, Args)]
pub(crate) struct FleetDivertStatusArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: FleetDivertTarget,
}
