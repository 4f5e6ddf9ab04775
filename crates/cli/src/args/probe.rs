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
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
