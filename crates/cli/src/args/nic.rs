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
    /// One page about a card's receive path; changes nothing
    Show(ShowArgs),
    /// Which queue, interrupt and CPU a flow's packets go to, and why
    Flow(FlowArgs),
    /// Flows that cover all queues evenly, or the change that spreads given flows
    Spread(SpreadArgs),
    /// Rates by queue, live: packets, interrupts, drops, CPU time in softirq
    Watch(WatchArgs),
    /// What holds the packet rate back, why, and what to change; changes nothing
    Advise(AdviseArgs),
    /// Change settings, read back what became of them, and keep a journal to undo them from
    Apply(ApplyArgs),
    /// Undo what killed commands left, or what apply changed
    ///
    /// With an INTERFACE, everything that is saved for it is undone: what a killed command left (divert, bench), and what
    /// apply changed before that. Without one, only what killed commands left, on every interface; where no command was
    /// killed, what apply changed. Each command is named, newest first. A command that still runs undoes its own changes.
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// Watch the counters for so long, to tell which of them move
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: std::time::Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    /// The interface that receives; without one, --key, --table and --fields say how to choose
    #[arg(value_name = "INTERFACE", conflicts_with_all = ["key", "table", "fields"])]
    pub(crate) interface: Option<String>,
    /// Where the packets are from: an address, or an address and a port (10.0.0.1:9 for example)
    #[arg(long, value_name = "ADDRESS", value_parser = parse_end)]
    pub(crate) src: End,
    /// Where they go
    #[arg(long, value_name = "ADDRESS", value_parser = parse_end)]
    pub(crate) dst: End,
    /// What they are
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    pub(crate) proto: Protocol,
    /// The hash key: 40 or 52 bytes in hex, as ethtool -x prints it
    #[arg(long, value_name = "HEX", requires_all = ["table", "fields"], required_unless_present = "interface")]
    pub(crate) key: Option<RssKey>,
    /// How the table spreads: equal:4, weights:6,2 or queues:0,0,1,1
    #[arg(long, value_name = "SPREAD", requires = "key")]
    pub(crate) table: Option<Spread>,
    /// Buckets of the table: a power of two
    #[arg(long, value_name = "COUNT", default_value_t = 128, conflicts_with = "interface")]
    pub(crate) buckets: usize,
    /// Send marked packets and report the queue they really took; --via says from where
    #[arg(long, requires_all = ["interface", "via"])]
    pub(crate) verify: bool,
    /// The interface at the other end of the cable, on this host
    #[arg(long, value_name = "INTERFACE", requires = "verify")]
    pub(crate) via: Option<String>,
    /// What is hashed: sd for addresses, sdfn for addresses and ports
    #[arg(long, value_name = "LETTERS", requires = "key")]
    pub(crate) fields: Option<HashFields>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SpreadArgs {
    /// The interface that receives
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// How many flows
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) flows: u32,
    /// Addresses that they may be from: one, or a range like 198.18.0.1-198.18.0.254
    #[arg(long, value_name = "ADDRESSES", default_value = "198.18.0.1")]
    pub(crate) src_addr: Values<IpAddr>,
    /// Addresses that they may go to
    #[arg(long, value_name = "ADDRESSES", default_value = "198.19.0.1")]
    pub(crate) dst_addr: Values<IpAddr>,
    /// Ports that they may be from
    #[arg(long, value_name = "PORTS", default_value = "1024-65535")]
    pub(crate) src_port: Values<u16>,
    /// Ports that they may go to
    #[arg(long, value_name = "PORTS", default_value = "9")]
    pub(crate) dst_port: Values<u16>,
    /// Take the first flows of these ranges as given, and find the table, key or fields that spread them
    #[arg(long)]
    pub(crate) given: bool,
    /// What they are
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
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: std::time::Duration,
    /// Stop after so many looks [default: when interrupted]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print one JSON object a line
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
    /// What the card shall be good at
    #[arg(long, value_enum, default_value_t = GoalArg::Pps)]
    pub(crate) goal: GoalArg,
    /// How long to watch the counters
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
    /// Least time from wire to program
    Latency,
    /// One queue for a program that takes its packets past the kernel
    Bypass,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: String,
    /// A setting and its value: ring.rx=512, rss.table=weights:0,1, feature.rx-gro=off; show lists the names
    #[arg(long = "set", value_name = "NAME=VALUE", required_unless_present = "plan")]
    pub(crate) settings: Vec<String>,
    /// Settings in a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Watch the packets received before and after, and keep the change only if they became more
    #[arg(long)]
    pub(crate) measure: bool,
    /// How long to watch each time, with --measure
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_period, requires = "measure")]
    pub(crate) duration: std::time::Duration,
    /// Do it even if that cuts connections through this interface
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print what would change and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The interface, with all that is saved for it [default: every interface that a killed command left changed; where
    /// there is none, every one that apply changed]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Undo only what killed commands left
    #[arg(long)]
    pub(crate) killed: bool,
    /// Print what would be undone and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An address, with a port where one was given.
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
