//! `linerate model`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use wire::Rate;

use super::OutputArgs;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate model --list                           presets and parameters
  linerate model --sweep rate=100kpps,1Mpps       received and lost against the offered rate
  linerate model --from run.json --load 1x,2x     predict loads from a measured run")]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ModelCommand>,
    /// The machine to simulate; --list shows all
    #[arg(long, default_value = "rdr", value_name = "NAME")]
    pub(crate) preset: String,
    /// List presets and parameters
    #[arg(long)]
    pub(crate) list: bool,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Compute every value of a parameter; several sweeps make every combination
    #[arg(long, value_name = "NAME=A,B,...")]
    pub(crate) sweep: Vec<String>,
    /// Fit the machine to a measured run, and predict rate and loss
    #[arg(long, value_name = "RUN", conflicts_with_all = ["sweep", "set"])]
    pub(crate) from: Option<PathBuf>,
    /// Offered loads to predict, in pps, or as a multiple of the predicted loss-free rate: 100kpps, 1.5x
    #[arg(long, value_name = "LOADS", value_delimiter = ',', default_value = "0.5x,1x,1.5x,2x", value_parser = parse_load)]
    pub(crate) load: Vec<model::Load>,
    /// With --from: a rate counts as loss-free up to this lost share
    #[arg(long, value_name = "RATIO", default_value = "0.1%", value_parser = wire::parse_ratio)]
    pub(crate) loss_ratio: f64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Compute how many machines, queues and cores a flood needs
    Plan(PlanArgs),
    /// Repeat the RDR paper's experiment: published figures beside the model's
    Rdr(RdrArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Rate of the flood, for example 300Mpps
    #[arg(long, value_name = "RATE")]
    pub(crate) flood: Option<Rate>,
    /// Frame size in bytes, Ethernet header to FCS
    #[arg(long, value_name = "BYTES")]
    pub(crate) frame_size: Option<wire::FrameSize>,
    /// Take a queue's capacity from this preset (linerate model --list)
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    pub(crate) preset: Option<String>,
    /// Take a queue's capacity from a measured run: the rate of its fastest receiver on one CPU
    #[arg(long, value_name = "RUN")]
    pub(crate) from: Option<PathBuf>,
    /// Set another parameter of the fleet: queue_pps, queues, cores, link_bps, flows, heavy_flows, machines, ...
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RdrArgs {
    /// Payloads in bytes, 46 to 1500 [default: the curve]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) payload: Vec<u32>,
    /// Receiving ports, 1 or 2
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) ports: Vec<u32>,
    /// How buffers are managed [default: both]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<PolicyArg>,
    /// Simulate this many telephone calls instead: 50 packets/s each
    #[arg(long, value_name = "N", conflicts_with_all = ["payload", "ports", "policy"])]
    pub(crate) calls: Option<u32>,
    /// Bytes of voice in a call's packet, 1 to 160
    #[arg(long, value_name = "BYTES", default_value_t = 160, requires = "calls")]
    pub(crate) voice_bytes: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Allocate and free per packet
    Realloc,
    /// Receive descriptor recycling
    Recycle,
}

fn parse_load(text: &str) -> Result<model::Load, String> {
    if text == "max" {
        return Ok(model::Load::Max);
    }
    if let Some(factor) = text.strip_suffix('x') {
        let factor: Option<f64> =
            factor.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
        return factor
            .map(model::Load::OfLossFree)
            .ok_or_else(|| format!("'{text}' is not a multiple: write for example 1.5x"));
    }
    match text.parse::<Rate>().map_err(|error| error.to_string())? {
        Rate::Pps(pps) => Ok(model::Load::Pps(pps)),
        _ => Err(format!("'{text}' is not in packets per second: write for example 100kpps, 1.5x or max")),
    }
}
