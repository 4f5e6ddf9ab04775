//! `linerate ledger`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{
    ViewArgs,
    interval::{parse_interval, parse_period},
};

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate ledger                              where this machine loses packets, until Ctrl-C
  linerate ledger eth0 --flow 'udp port 53'    of one interface and one flow
  linerate ledger --duration 10s --json")]
pub(crate) struct LedgerArgs {
    /// The interface to watch [default: all except loopback]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Time between updates
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) duration: Option<Duration>,
    /// Show only drops of packets that match this expression in tcpdump's filter language; counters, which know no flows,
    /// are hidden
    #[arg(long, value_name = "EXPR")]
    pub(crate) flow: Option<String>,
    /// Also use this file of driver counters (TOML, see docs/ledger.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) drivers: Option<PathBuf>,
    /// Print one JSON document at the end (schema linerate.ledger/1)
    #[arg(long, conflicts_with = "json_stream")]
    pub(crate) json: bool,
    /// Print one JSON document per line and interval, and the totals as the last line
    #[arg(long)]
    pub(crate) json_stream: bool,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}
