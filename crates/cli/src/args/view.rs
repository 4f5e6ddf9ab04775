//! Live views of a running command.

use std::net::SocketAddr;

use clap::Args;

/// Live views of a running command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live view")]
pub(crate) struct ViewArgs {
    /// Print lines instead of a screen, on a terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Serve a live page for browsers, and print its address with a token [default address: a free port on loopback]
    #[arg(
        long,
        value_name = "[ADDR:]PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = parse_listen
    )]
    pub(crate) web: Option<SocketAddr>,
    /// Most browsers that --web serves at once
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) web_clients: u32,
    /// Serve metrics for Prometheus on this port of loopback, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_listen)]
    pub(crate) prometheus: Option<SocketAddr>,
}

pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(([127, 0, 0, 1], port).into());
    }
    text.parse().map_err(|_| {
        format!("'{text}' is not an address to listen on: write PORT, ADDRESS:PORT or [V6]:PORT")
    })
}
