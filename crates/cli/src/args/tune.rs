//! `linerate tune`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bench::TuneGoal;
use clap::{Args, ValueEnum};

use super::{
    OutputArgs, PacketArgs, PatternArgs,
    bench::HostArgs,
    trials::{PathArgs, SettingArgs, SocketArgs},
};

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// Search in a private veth pair; the default, unless interfaces or a peer are given
    #[arg(value_name = "lab", value_parser = ["lab"], conflicts_with_all = ["peer", "tx_interface"])]
    pub(crate) place: Option<String>,
    /// What to make as good as it gets
    #[arg(long, value_enum, default_value_t = GoalOfTuneArg::Rx, value_name = "GOAL")]
    pub(crate) goal: GoalOfTuneArg,
    /// Time that the search may take
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) budget: Duration,
    /// Search only these knobs: names, or kinds like sysctl or coalesce; --dry-run lists them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Leave these knobs alone
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) never: Vec<String>,
    /// Leave the machine and the interface with the best settings, instead of putting them back; linerate nic restore
    /// undoes it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Go on with a search that ended before its time: a saved run, or the .partial file of one that was killed;
    /// everything else is as it was asked then
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Time of a trial
    #[arg(long, default_value = "300ms", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
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
    /// The command line, from which each trial's is made.
    #[arg(skip)]
    pub(crate) raw: Vec<OsString>,
}

/// What a search is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum GoalOfTuneArg {
    /// Packets per second sent, towards a receiver that drops in XDP
    Tx,
    /// Packets per second delivered
    Rx,
    /// The highest rate without loss
    Ndr,
    /// The 99th percentile of the one-way latency, at half of what the settings deliver as they are
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
