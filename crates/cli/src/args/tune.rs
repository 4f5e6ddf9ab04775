//! `linerate tune`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bench::TuneGoal;
use clap::{Args, ValueEnum};
use wire::Rate;

use super::{
    OutputArgs, PacketArgs, PatternArgs,
    bench::HostArgs,
    trials::{PathArgs, SettingArgs, SocketArgs},
};

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate tune                         receive more packets per second, in the lab
  linerate tune --goal tx --budget 2m   send more
  linerate tune --peer 192.0.2.7        to another host, which runs linerate recv")]
pub(crate) struct TuneArgs {
    /// Search in a private veth pair; the default unless interfaces or a peer are given
    #[arg(value_name = "lab", value_parser = ["lab"], conflicts_with_all = ["peer", "tx_interface"])]
    pub(crate) place: Option<String>,
    /// What to optimize
    #[arg(long, value_enum, default_value_t = GoalOfTuneArg::Rx, value_name = "GOAL")]
    pub(crate) goal: GoalOfTuneArg,
    /// Time limit of the search
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) budget: Duration,
    /// Search only these knobs: names, or kinds like sysctl or coalesce; --dry-run lists them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Do not change these knobs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) never: Vec<String>,
    /// Leave the machine and the interface at the best settings instead of restoring the old ones; linerate nic restore
    /// undoes it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Resume an interrupted search: a saved run, or the .partial file of a killed one; all other options come from that
    /// search
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Duration of a trial
    #[arg(long, default_value = "300ms", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    /// Offered load of each trial with --goal rx: N[k|M|G](pps|bps|bpsl1), N% of line rate, or max
    #[arg(long, default_value = "max", value_name = "RATE", help_heading = "Load")]
    pub(crate) rate: Rate,
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) lab: SettingArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The command line that each trial's is made from.
    #[arg(skip)]
    pub(crate) raw: Vec<OsString>,
}

/// The goal of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum GoalOfTuneArg {
    /// Packets sent per second, towards a receiver that drops in XDP
    Tx,
    /// Packets delivered per second
    Rx,
    /// The highest rate without loss
    Ndr,
    /// 99th percentile of the one-way latency, at half of the rate that the current settings deliver
    Latency,
}

impl From<GoalOfTuneArg> for TuneGoal {
    fn from(goal: GoalOfTuneArg) -> Self {
        match goal {
            GoalOfTuneArg::Tx => Self::Tx,
            GoalOfTuneArg::Rx => Self::Rx,
            GoalOfTuneArg::Ndr => Self::Ndr,
            GoalOfTuneArg::Latency => Self::Latency,
        }
    }
}
