//! `linerate probe`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// The interface to try [default: one of a private lab]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Agree to XDP programs being attached to INTERFACE for a moment
    #[arg(long = "try", requires = "interface")]
    pub(crate) try_it: bool,
    /// Look at whether this machine is fit to measure on: steal, timers, speed, other load, spread
    #[arg(long, conflicts_with_all = ["interface", "try_it"])]
    pub(crate) quiet: bool,
    /// How long to look
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "quiet", value_parser = wire::parse_duration)]
    pub(crate) duration: std::time::Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
