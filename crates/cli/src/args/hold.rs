//! Holding the CPUs' speed during a measurement.

use clap::Args;

/// Of every command that measures.
#[derive(Debug, Clone, Args)]
pub(crate) struct HoldArgs {
    /// Hold the CPUs at their highest frequency and in their lightest idle state while this runs; the former settings return,
    /// even after a kill. Needs root
    #[arg(long, hide_short_help = true, help_heading = "Sockets and workers")]
    pub(crate) hold_cpu: bool,
}
