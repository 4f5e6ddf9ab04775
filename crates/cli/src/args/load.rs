//! Rates, and the loss that is too much.

use clap::Args;
use traffic::Departures;
use wire::Rate;

/// Rate and acceptable loss.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Total rate of all threads: N[k|M|G](pps|bps|bpsl1), N% of line rate, or max
    #[arg(long, default_value = "max", value_name = "RATE")]
    pub(crate) rate: Rate,
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    /// Exit with status 1 if a larger share of the sent packets is lost, for example 0.001 or 0.1%
    #[arg(long, value_name = "RATIO", value_parser = wire::parse_ratio)]
    pub(crate) max_loss: Option<f64>,
}

/// How packets leave, at any rate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct PatternArgs {
    /// Departure pattern: constant, poisson or burst:N
    #[arg(long, default_value_t = Departures::Constant, value_name = "PATTERN")]
    pub(crate) departures: Departures,
    /// Most packets per system call
    #[arg(long, hide_short_help = true, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) batch_size: u32,
}
