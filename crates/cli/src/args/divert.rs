//! `linerate divert`.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use divert::{Network, Per, Setting, parse_per};
use wire::Rate;

use super::{
    CpuList,
    cpus::parse_cpus,
    interval::{parse_interval, parse_period},
};

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate divert eth0 --match 'udp port 53' --drop 'src net 203.0.113.0/24' --dry-run
  linerate divert eth0 --match 'udp port 53' --limit 1kpps --per source --for 10m
  linerate divert status")]
pub(crate) struct DivertArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DivertCommand>,
    /// The interface whose queues to divert
    #[arg(value_name = "INTERFACE", required_unless_present = "config")]
    pub(crate) interface: Option<String>,
    /// Divert the packets that match this expression in tcpdump's filter language; all matches every packet [default: those
    /// that a rule of --rules takes]. Each expression, here and below, reads a packet from its first byte: --match 'vlan 5'
    /// goes with --drop 'vlan and udp'
    #[arg(long = "match", value_name = "EXPR", required_unless_present_any = ["rules", "rule", "config"])]
    pub(crate) matching: Option<String>,
    /// Queues to divert, for example 0,2-3, or auto for all
    #[arg(long, alias = "queues", value_name = "LIST", default_value = "auto")]
    pub(crate) queue: QueueList,
    /// Of the matching packets, pass those that match this and drop the others
    #[arg(long, value_name = "EXPR", group = "verdict")]
    pub(crate) keep: Option<String>,
    /// Of the matching packets, drop those that match this and pass the others
    #[arg(long, value_name = "EXPR", group = "verdict")]
    pub(crate) drop: Option<String>,
    /// Pass at most this rate of matching packets and drop the excess, for example 10kpps or 5Mbps
    #[arg(long, value_name = "RATE", group = "verdict")]
    pub(crate) limit: Option<Rate>,
    /// Apply --limit per source, destination or flow [default: all]
    #[arg(long, value_name = "KEY", value_parser = per)]
    pub(crate) per: Option<Per>,
    /// File of rules, read again when it changes and at SIGHUP; if it has an error, the old rules stay. A line is VERDICT
    /// limit RATE per KEY EXPR; the verdict is drop, pass or keep, and limit and per are optional
    #[arg(long, value_name = "FILE", group = "verdict")]
    pub(crate) rules: Option<PathBuf>,
    /// A set of networks for rules and --match, from a file with one network or address per line; a rule names it: drop
    /// src set bad. Repeatable, read again at SIGHUP
    #[arg(long = "set", value_name = "NAME=FILE", value_parser = named_file)]
    pub(crate) sets: Vec<(String, PathBuf)>,
    /// A rule, written as a line of --rules; repeatable, the first that matches a packet decides
    #[arg(long, value_name = "RULE", group = "verdict", action = clap::ArgAction::Append)]
    pub(crate) rule: Vec<String>,
    /// Read options by their long names from a TOML file: interface = "eth1", queue = "3", rules = ["drop udp and dst port
    /// 9"]. Options on the command line override it. SIGHUP reads it again: match and rules change between two packets; if
    /// another option changed, or the file has an error, the old rules stay
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Use the card's own filters where it has them. queue: the card's rules bring matching packets to the queues of --queue,
    /// and its indirection table keeps all others off them. drop: the card also drops what the rules only drop. The
    /// program picks the packets that the card cannot, then on every queue; --dry-run shows which. Turns off LRO and VLAN
    /// stripping, and keeps RPS and RFS off the CPUs of --cpus. Undone at the end; after a kill, by linerate nic restore
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "queue")]
    pub(crate) steer: Option<SteerArg>,
    /// Change a setting of the card during the diversion, in the form of linerate nic apply, such as rss.table=weights:1,0;
    /// repeatable
    #[arg(long = "card", value_name = "NAME=VALUE", conflicts_with = "steer")]
    pub(crate) card: Vec<Setting>,
    /// Where to filter packets: in the kernel, or in this process through AF_XDP
    #[arg(long = "where", value_enum, default_value_t = PlaceArg::Xdp, value_name = "PLACE")]
    pub(crate) place: PlaceArg,
    /// With --where user: re-inject passed packets into the kernel as if they had just arrived, instead of keeping them
    #[arg(long)]
    pub(crate) reinject: bool,
    /// Match and count, but drop nothing: pass what a rule would drop. With --where user, requires --reinject
    #[arg(long, conflicts_with_all = ["limit", "steer"])]
    pub(crate) shadow: bool,
    /// Never divert packets of these networks, nor of the SSH session that starts the diversion
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub(crate) management: Vec<Network>,
    /// Also divert the SSH session that starts the diversion
    #[arg(long)]
    pub(crate) divert_own_session: bool,
    /// Stop after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_period)]
    pub(crate) duration: Option<Duration>,
    /// CPUs of the queues' threads with --where user, for example 2-3; without --spin, they run at real-time priority there
    /// [default: the scheduler's choice]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Poll without sleeping
    #[arg(long)]
    pub(crate) spin: bool,
    /// Write one in N dropped packets to --sample-to, for example 1/1000, starting with the first; counted per rule and
    /// CPU in XDP, per queue with --where user
    #[arg(long, value_name = "1/N", requires = "sample_to", value_parser = one_in)]
    pub(crate) sample: Option<u32>,
    /// The pcapng file for sampled packets; each packet's comment names the rule that dropped it
    #[arg(long, value_name = "FILE", requires = "sample")]
    pub(crate) sample_to: Option<PathBuf>,
    /// With --where user: a pcap file for kept packets
    #[arg(long, value_name = "FILE")]
    pub(crate) keep_to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) view: super::ViewArgs,
    /// Time between lines
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Print the last status as JSON (schema linerate.divert/1) instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print every step and how it is undone, and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DivertCommand {
    /// Show the running diversions
    Status(DivertStatusArgs),
    /// Divert one more queue in a running diversion
    AddQueue(DivertQueueArgs),
    /// Return a queue of a running diversion to the kernel
    RemoveQueue(DivertQueueArgs),
    /// End a running diversion, undo its changes and print its last status
    Stop(DivertStopArgs),
    /// Show which rule each packet of a pcap file meets; needs no interface and no privilege
    Test(DivertTestArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DivertTestArgs {
    /// The file of rules
    #[arg(value_name = "RULES")]
    pub(crate) rules: PathBuf,
    /// The packets: a pcap file of Ethernet frames
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: PathBuf,
    /// Apply the rules to these packets only, as --match of a diversion
    #[arg(long = "match", value_name = "EXPR")]
    pub(crate) matching: Option<String>,
    /// A set of networks for the rules, as --set of a diversion; repeatable
    #[arg(long = "set", value_name = "NAME=FILE", value_parser = named_file)]
    pub(crate) sets: Vec<(String, PathBuf)>,
    /// Show only how many packets each rule took
    #[arg(long, conflicts_with = "json")]
    pub(crate) summary: bool,
    /// Print JSON: packets by rule, and the rule of each packet
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DivertStatusArgs {
    /// Only the diversion on this interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Refresh every second until interrupted
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Print JSON: a list of statuses
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DivertQueueArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    pub(crate) queue: u32,
    /// The diversion's interface, when several run
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DivertStopArgs {
    /// The diversion's interface, when several run
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
}

/// The card's part in a diversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SteerArg {
    /// The card brings the packets to the diverted queues
    Queue,
    /// The card also drops what the rules only drop
    Drop,
}

/// Where packets are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlaceArg {
    /// In the kernel, by an XDP program
    Xdp,
    /// In this process, through AF_XDP
    User,
}

/// Queues as `0,2-3`, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueueList {
    /// Every queue that the interface has.
    Auto,
    /// These.
    Queues(Vec<u32>),
}

impl FromStr for QueueList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let list = parse_cpus(text);
        let mut queues =
            list.map_err(|_| format!("'{text}' is not a list of queues: write for example 0,2-3 or auto"))?.0;
        queues.sort_unstable();
        queues.dedup();
        Ok(Self::Queues(queues))
    }
}

/// `1/1000`, or the number alone.
fn one_in(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text);
    let wrong = || format!("'{text}' is not a share of packets: write for example 1/1000");
    number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)
}

pub(super) fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.into(), file.into())),
        _ => Err(format!("'{text}' is not a set: write for example bad=/etc/linerate/bad.txt")),
    }
}

fn per(text: &str) -> Result<Per, String> {
    parse_per(text)
        .ok_or_else(|| format!("'{text}' cannot have a limit of its own: write source, destination or flow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sets_are_read() {
        assert_eq!((one_in("1/1000"), one_in("7")), (Ok(1000), Ok(7)));
        for wrong in ["2/3", "1/0", "0", "1/", "x"] {
            assert!(one_in(wrong).is_err(), "{wrong}");
        }
        assert_eq!(named_file("bad=a=b"), Ok(("bad".into(), "a=b".into())));
        assert!(named_file("bad=").is_err() && named_file("=x").is_err() && named_file("bad").is_err());
    }

    #[test]
    fn queues_are_numbers_and_ranges_or_all() {
        assert_eq!("auto".parse(), Ok(QueueList::Auto));
        assert_eq!("2-3,0,2".parse(), Ok(QueueList::Queues(vec![0, 2, 3])));
        assert!("x".parse::<QueueList>().unwrap_err().contains("not a list of queues"));
    }
}
