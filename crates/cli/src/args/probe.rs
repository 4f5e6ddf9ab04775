//! `linerate probe`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// The interface to test [default: one of a private lab]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Allow attaching XDP programs to INTERFACE for a moment
    #[arg(long = "try", requires = "interface")]
    pub(crate) try_it: bool,
    /// Check whether this machine is quiet enough for measurements: steal, timers, speed, other load, spread
    #[arg(long, conflicts_with_all = ["interface", "try_it"])]
    pub(crate) quiet: bool,
    /// Duration of the check
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "quiet", value_parser = wire::parse_duration)]
    pub(crate) duration: std::time::Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
