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
pub(crate) struct DivertArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DivertCommand>,
    /// The interface whose queues are diverted
    #[arg(value_name = "INTERFACE", required_unless_present = "config")]
    pub(crate) interface: Option<String>,
    /// Which packets leave the kernel, in tcpdump's filter language; all for every packet [default: those that a
    /// rule of --rules takes]. This expression and those below each read a packet from its first byte: --match 'vlan 5'
    /// goes with --drop 'vlan and udp'
    #[arg(long = "match", value_name = "EXPR", required_unless_present_any = ["rules", "rule", "config"])]
    pub(crate) matching: Option<String>,
    /// The queues, for example 0,2-3; auto for all
    #[arg(long, alias = "queues", value_name = "LIST", default_value = "auto")]
    pub(crate) queue: QueueList,
    /// Of the packets that match, pass those and drop the others
    #[arg(long, value_name = "EXPR", group = "verdict")]
    pub(crate) keep: Option<String>,
    /// Of the packets that match, drop those and pass the others
    #[arg(long, value_name = "EXPR", group = "verdict")]
    pub(crate) drop: Option<String>,
    /// Pass so many of the packets that match and drop what is above, for example 10kpps or 5Mbps
    #[arg(long, value_name = "RATE", group = "verdict")]
    pub(crate) limit: Option<Rate>,
    /// Whose packets share the rate of --limit: source, destination or flow [default: all]
    #[arg(long, value_name = "KEY", value_parser = per)]
    pub(crate) per: Option<Per>,
    /// A file of rules, read again whenever it changes and at SIGHUP; one that cannot be used leaves the old rules; a line is VERDICT limit RATE per KEY EXPR, where the verdict
    /// is drop, pass or keep, and limit and per may be left out
    #[arg(long, value_name = "FILE", group = "verdict")]
    pub(crate) rules: Option<PathBuf>,
    /// A set of networks from a file, a network or an address a line, that rules and --match name: drop src set bad;
    /// repeatable, read again at SIGHUP
    #[arg(long = "set", value_name = "NAME=FILE", value_parser = named_file)]
    pub(crate) sets: Vec<(String, PathBuf)>,
    /// One rule, as a line of --rules; repeatable, the first that takes a packet decides
    #[arg(long, value_name = "RULE", group = "verdict", action = clap::ArgAction::Append)]
    pub(crate) rule: Vec<String>,
    /// Read the options from a TOML file, by their names: interface = "eth1", queue = "3", rules = ["drop udp and dst port 9"].
    /// Options given here outrank it. SIGHUP reads it again: match and rules change between two packets; anything else
    /// that changed, or a mistake, leaves the old rules
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Have the card help as far as it can: queue brings the packets to the queues of --queue by rules of the card, and all
    /// others elsewhere by its table; drop has the card drop what rules only drop. What the card does not take, the program
    /// picks, then on every queue; --dry-run says which. Undone at the end, after a kill by linerate nic restore. Large receive
    /// offload and taking VLAN tags off are switched off, and RPS and RFS lead no other packets to the CPUs of --cpus
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "queue")]
    pub(crate) steer: Option<SteerArg>,
    /// A setting of the card for the time of the diversion, as linerate nic apply takes it, such as
    /// rss.table=weights:1,0; repeatable
    #[arg(long = "card", value_name = "NAME=VALUE", conflicts_with = "steer")]
    pub(crate) card: Vec<Setting>,
    /// Where packets are decided about: in the kernel, or in this process through AF_XDP
    #[arg(long = "where", value_enum, default_value_t = PlaceArg::Xdp, value_name = "PLACE")]
    pub(crate) place: PlaceArg,
    /// With --where user: packets that pass go back to the kernel as if they had just arrived; else they are kept
    #[arg(long)]
    pub(crate) reinject: bool,
    /// Decide and count, and drop nothing: what a rule would drop passes. With --where user only together with --reinject
    #[arg(long, conflicts_with_all = ["limit", "steer"])]
    pub(crate) shadow: bool,
    /// Networks whose packets are never diverted, besides the SSH session that this is started from
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub(crate) management: Vec<Network>,
    /// Also divert the SSH session that this is started from
    #[arg(long)]
    pub(crate) divert_own_session: bool,
    /// Stop after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_period)]
    pub(crate) duration: Option<Duration>,
    /// CPUs of the queues' threads with --where user, for example 2-3; unless they --spin, they go before the ordinary
    /// threads there [default: the scheduler's choice]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub(crate) cpus: Option<CpuList>,
    /// Threads look again at once instead of sleeping until a packet comes
    #[arg(long)]
    pub(crate) spin: bool,
    /// Write one of so many dropped packets to --sample-to, for example 1/1000: in XDP of each rule on each CPU, the first one
    /// and every thousandth from there on; with --where user of each queue
    #[arg(long, value_name = "1/N", requires = "sample_to", value_parser = one_in)]
    pub(crate) sample: Option<u32>,
    /// The pcapng file for those; each packet's comment names the rule that dropped it
    #[arg(long, value_name = "FILE", requires = "sample")]
    pub(crate) sample_to: Option<PathBuf>,
    /// With --where user: a pcap file for packets that are kept
    #[arg(long, value_name = "FILE")]
    pub(crate) keep_to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) view: super::ViewArgs,
    /// Seconds between lines
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Print the last status as JSON (schema linerate.divert/1) instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print every step and what undoes it, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DivertCommand {
    /// Show what running diversions do
    Status(DivertStatusArgs),
    /// Divert one more queue of a running diversion
    AddQueue(DivertQueueArgs),
    /// Give a queue of a running diversion back to the kernel
    RemoveQueue(DivertQueueArgs),
    /// End a running diversion, undo what it changed and print its last status
    Stop(DivertStopArgs),
    /// Say which rule each packet of a recording meets; needs no interface and no privilege
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
    /// Which packets the rules are about, as --match of a diversion
    #[arg(long = "match", value_name = "EXPR")]
    pub(crate) matching: Option<String>,
    /// A set of networks that rules name, as --set of a diversion; repeatable
    #[arg(long = "set", value_name = "NAME=FILE", value_parser = named_file)]
    pub(crate) sets: Vec<(String, PathBuf)>,
    /// Only how many packets each rule took
    #[arg(long, conflicts_with = "json")]
    pub(crate) summary: bool,
    /// Print JSON: packets by rule, and the rule of each packet
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DivertStatusArgs {
    /// Only the one on this interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Draw again each second until interrupted
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
    /// Which diversion, when several run
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DivertStopArgs {
    /// Which diversion, when several run
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
}

/// What a card does of a diversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SteerArg {
    /// It brings the packets to the diverted queues
    Queue,
    /// It drops what rules only drop
    Drop,
}

/// Where packets are decided about.
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
            list.map_err(|_| format!("'{text}' is no list of queues: write for example 0,2-3, or auto"))?.0;
        queues.sort_unstable();
        queues.dedup();
        Ok(Self::Queues(queues))
    }
}

/// `1/1000`, or the number alone.
fn one_in(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text);
    let wrong = || format!("'{text}' is no share of packets: write for example 1/1000");
    number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)
}

fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.into(), file.into())),
        _ => Err(format!("'{text}' is no set: write for example bad=/etc/linerate/bad.txt")),
    }
}

fn per(text: &str) -> Result<Per, String> {
    parse_per(text)
        .ok_or_else(|| format!("'{text}' is nothing to limit by: write source, destination or flow"))
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
        assert!("x".parse::<QueueList>().unwrap_err().contains("no list of queues"));
    }
}
