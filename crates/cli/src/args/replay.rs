//! `linerate replay`.

use std::path::PathBuf;

use clap::Args;

use super::ViewArgs;

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate replay run.json                on the terminal's screen, at the original speed
  linerate replay run.json --speed 10     ten times as fast
  linerate replay run.json --web          in a browser")]
pub(crate) struct ReplayArgs {
    /// The run: a file that a command saved
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Speed, as a multiple of the original
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    pub(crate) speed: f64,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    const RANGE: std::ops::RangeInclusive<f64> = 0.01..=1e6;
    let speed = text.parse().ok().filter(|speed| RANGE.contains(speed));
    speed.ok_or_else(|| {
        format!("'{text}' is not a speed: expected a number from 0.01 to 1000000; 1 is the original")
    })
}
