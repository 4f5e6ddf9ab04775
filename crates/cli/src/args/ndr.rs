//! `linerate bench ndr`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use wire::Rate;

use super::{
    OutputArgs, PacketArgs, PatternArgs,
    trials::{PathArgs, SettingArgs, SocketArgs, SweepArgs},
};

#[derive(Debug, Args)]
pub(crate) struct NdrArgs {
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) goals: GoalArgs,
    /// Tests besides the search
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_value = "latency")]
    pub(crate) tests: Vec<TestArg>,
    /// Repetitions of the back-to-back test
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// The longest burst of the back-to-back test, at the generator's highest rate (RFC 2544: at least 2s)
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) longest_burst: Duration,
    /// Warm up: send for this long before each trial, without counting
    #[arg(long, default_value = "50ms", value_name = "TIME", value_parser = wire::parse_duration)]
    pub(crate) omit: Duration,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    #[command(flatten)]
    pub(crate) packets: PacketArgs,
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) lab: SettingArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Search goals, in MLRsearch's terms.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search goals")]
pub(crate) struct GoalArgs {
    /// Loss ratios, one goal each
    #[arg(long, value_name = "RATIOS", value_delimiter = ',', default_value = "0,0.5%", value_parser = wire::parse_ratio)]
    pub(crate) loss_ratio: Vec<f64>,
    /// Share of a load's trial time that may exceed the loss ratio; 0 is as strict as RFC 2544
    #[arg(long, value_name = "RATIO", default_value = "0.5", value_parser = wire::parse_ratio)]
    pub(crate) exceed_ratio: f64,
    /// Duration of a full-length trial
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = wire::parse_duration)]
    pub(crate) final_duration: Duration,
    /// Total trial time that classifies a load
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = wire::parse_duration)]
    pub(crate) duration_sum: Duration,
    /// Duration of the first trials, which narrow the range
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = wire::parse_duration)]
    pub(crate) initial_duration: Duration,
    /// Stop when the bounds are this close, as a share of the upper one
    #[arg(long, value_name = "RATIO", default_value = "2%", value_parser = wire::parse_ratio)]
    pub(crate) width: f64,
    /// The lowest load tried [default: a thousandth of the highest]
    #[arg(long, value_name = "RATE")]
    pub(crate) min_load: Option<Rate>,
    /// The highest load tried [default: the generator's maximum rate]
    #[arg(long, value_name = "RATE")]
    pub(crate) max_load: Option<Rate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestArg {
    /// Latency at 10, 50 and 90 % of the throughput found
    Latency,
    /// Lost share against offered load (RFC 2544, 26.3)
    FrameLoss,
    /// The longest lossless burst (RFC 2544, 26.4)
    BackToBack,
    /// Only the search
    None,
}
