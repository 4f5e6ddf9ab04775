//! Where results go.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

/// Where results go.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print the run as one JSON document instead of tables: linerate's own (schema linerate.run/1), or one object per
    /// trial in the format of iperf3 --json
    #[arg(
        long,
        value_enum,
        value_name = "SHAPE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "run",
        conflicts_with = "json_stream"
    )]
    pub(crate) json: Option<JsonArg>,
    /// Print one JSON object per line during the run
    #[arg(long)]
    pub(crate) json_stream: bool,
    /// Show every pair's ledger and all figures, not only those that need attention
    #[arg(long)]
    pub(crate) verbose: bool,
    /// File to save the run to [default: runs/TIME-COMMAND.json in linerate's state directory]
    #[arg(long, value_name = "FILE", conflicts_with = "no_save")]
    pub(crate) save: Option<PathBuf>,
    /// Do not save the run
    #[arg(long)]
    pub(crate) no_save: bool,
    /// Print the plan and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Time between progress lines and recorded intervals
    #[arg(long, value_name = "TIME", value_parser = super::interval::parse_interval)]
    pub(crate) interval: Option<Duration>,
    #[command(flatten)]
    pub(crate) view: super::ViewArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JsonArg {
    /// The run as it is saved
    Run,
    /// For scripts that read iperf3's output
    Iperf3,
}
