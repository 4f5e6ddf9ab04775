//! `linerate nic`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use wire::{HashFields, RssKey, Spread, Values};

use super::interval::{parse_interval, parse_period};

#[derive(Debug, Args)]
pub(crate) struct NicArgs {
    #[command(subcommand)]
    pub(crate) command: NicCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NicCommand {
    /// Show a card's receive path on one page; changes nothing
    Show(ShowArgs),
    /// Show which queue, interrupt and CPU handle a flow's packets, and why
    Flow(FlowArgs),
    /// Find flows that cover all queues evenly, or the change that spreads given flows
    Spread(SpreadArgs),
    /// Show rates by queue, live: packets, interrupts, drops, CPU time in softirq
    Watch(WatchArgs),
    /// Show what limits the packet rate, why, and what to change; changes nothing
    Advise(AdviseArgs),
    /// Change settings, read back the results, and keep a journal for undoing them
    Apply(ApplyArgs),
    /// Undo what killed commands left behind, or what apply changed
    ///
    /// With an INTERFACE, undoes everything saved for it: what a killed command left behind (divert, bench), and what apply
    /// changed before that. Without one, undoes what killed commands left behind, on every interface; if no command was
    /// killed, what apply changed. Names each command, newest first. A command that still runs undoes its own changes.
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// Watch the counters for this long, to see which of them move
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: std::time::Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    /// The receiving interface; without one, --key, --table and --fields describe the hash
    #[arg(value_name = "INTERFACE", conflicts_with_all = ["key", "table", "fields"])]
    pub(crate) interface: Option<String>,
    /// Source of the packets: an address, or an address and a port, for example 10.0.0.1:9
    #[arg(long, value_name = "ADDRESS", value_parser = parse_end)]
    pub(crate) src: End,
    /// Destination of the packets, in the same form
    #[arg(long, value_name = "ADDRESS", value_parser = parse_end)]
    pub(crate) dst: End,
    /// Their protocol
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    pub(crate) proto: Protocol,
    /// Hash key: 40 or 52 bytes in hex, as ethtool -x prints it
    #[arg(long, value_name = "HEX", requires_all = ["table", "fields"], required_unless_present = "interface")]
    pub(crate) key: Option<RssKey>,
    /// Spread of the table: equal:4, weights:6,2 or queues:0,0,1,1
    #[arg(long, value_name = "SPREAD", requires = "key")]
    pub(crate) table: Option<Spread>,
    /// Buckets of the table: a power of two
    #[arg(long, value_name = "COUNT", default_value_t = 128, conflicts_with = "interface")]
    pub(crate) buckets: usize,
    /// Send marked packets and report the queue they took; --via names the sending interface
    #[arg(long, requires_all = ["interface", "via"])]
    pub(crate) verify: bool,
    /// The interface at the other end of the cable, on this host
    #[arg(long, value_name = "INTERFACE", requires = "verify")]
    pub(crate) via: Option<String>,
    /// Hashed fields: sd for addresses, sdfn for addresses and ports
    #[arg(long, value_name = "LETTERS", requires = "key")]
    pub(crate) fields: Option<HashFields>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SpreadArgs {
    /// The receiving interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// Number of flows
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) flows: u32,
    /// Source addresses to choose from: one, or a range like 198.18.0.1-198.18.0.254
    #[arg(long, value_name = "ADDRESSES", default_value = "198.18.0.1")]
    pub(crate) src_addr: Values<IpAddr>,
    /// Destination addresses to choose from
    #[arg(long, value_name = "ADDRESSES", default_value = "198.19.0.1")]
    pub(crate) dst_addr: Values<IpAddr>,
    /// Source ports to choose from
    #[arg(long, value_name = "PORTS", default_value = "1024-65535")]
    pub(crate) src_port: Values<u16>,
    /// Destination ports to choose from
    #[arg(long, value_name = "PORTS", default_value = "9")]
    pub(crate) dst_port: Values<u16>,
    /// Take the first flows of these ranges as given, and find the table, key or fields that spread them
    #[arg(long)]
    pub(crate) given: bool,
    /// Their protocol
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    pub(crate) proto: Protocol,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// Time between updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: std::time::Duration,
    /// Stop after this many updates [default: when interrupted]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json_stream: bool,
    #[command(flatten)]
    pub(crate) view: super::ViewArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// What to optimize the card for
    #[arg(long, value_enum, default_value_t = GoalArg::Pps)]
    pub(crate) goal: GoalArg,
    /// Watch the counters for this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: std::time::Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GoalArg {
    /// Most packets per second
    Pps,
    /// Least latency from the wire to the program
    Latency,
    /// One queue for a program that bypasses the kernel
    Bypass,
}

fn settings_help() -> String {
    format!(
        "A setting and its value: ring.rx=512, rss.table=weights:0,1, feature.rx-gro=off; nic show lists this card's \
         names, which begin with {}",
        super::listed(&::nic::kinds().collect::<Vec<_>>(), "or")
    )
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    #[arg(long = "set", value_name = "NAME=VALUE", required_unless_present = "plan", help = settings_help())]
    pub(crate) settings: Vec<String>,
    /// Settings in a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Measure the rate of received packets before and after, and keep the change only if it rose
    #[arg(long)]
    pub(crate) measure: bool,
    /// With --measure: duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_period, requires = "measure")]
    pub(crate) duration: std::time::Duration,
    /// Go ahead even if that cuts connections through this interface
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print what would change and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The interface to restore, with everything saved for it [default: every interface that a killed command left
    /// changed; if none, every one that apply changed]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Undo only what killed commands left behind
    #[arg(long)]
    pub(crate) killed: bool,
    /// Print what would be undone and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An address, with a port if one was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// UDP
    Udp,
    /// TCP
    Tcp,
}

impl Protocol {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Udp => wire::PROTOCOL_UDP,
            Self::Tcp => wire::PROTOCOL_TCP,
        }
    }
}

fn parse_end(text: &str) -> Result<End, String> {
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Ok(End { address: socket.ip(), port: Some(socket.port()) });
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().map(|address| End { address, port: None }).map_err(|_| {
        format!("'{text}' is not an address: write 10.0.0.1, 10.0.0.1:53, 2001:db8::1 or [2001:db8::1]:53")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_may_have_a_port() {
        let end = |text: &str| parse_end(text).map(|end| (end.address.to_string(), end.port));
        assert_eq!(end("10.0.0.1:53"), Ok(("10.0.0.1".into(), Some(53))));
        assert_eq!(end("2001:db8::1"), Ok(("2001:db8::1".into(), None)));
        assert_eq!(end("[2001:db8::1]"), Ok(("2001:db8::1".into(), None)));
        assert!(end("host").unwrap_err().contains("write 10.0.0.1"));
    }
}
