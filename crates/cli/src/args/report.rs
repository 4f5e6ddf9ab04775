//! `linerate report` and `linerate compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate report                                  the newest run as text
  linerate report run.json -f html -o run.html     one page with charts
  linerate report run.json -f csv")]
pub(crate) struct ReportArgs {
    /// A saved run, or - for standard input [default: the newest in linerate's state directory]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = ReportForm::Text, value_name = "FORM")]
    pub(crate) format: ReportForm,
    /// With --format svg: the name of the chart [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) chart: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// In text, show every pair's ledger and all figures, not only those that need attention
    #[arg(long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// Tables and sentences
    Text,
    /// One self-contained page with plots
    Html,
    /// One chart of the page as an SVG image
    Svg,
    /// The run itself
    Json,
    /// One object per line
    JsonStream,
    /// One row per trial
    Csv,
    /// One row per point of a sweep or model
    PointsCsv,
    /// For an issue or a wiki
    Markdown,
    /// The format of iperf3 --json
    Iperf3,
}

#[derive(Debug, Args)]
#[command(help_template = super::help::EXAMPLES_FIRST, after_help = "Examples:
  linerate compare before.json after.json                   status 1 if after is worse
  linerate compare before.json after.json -f markdown")]
pub(crate) struct CompareArgs {
    /// The baseline, then the runs to compare with it; with --history, a series in chronological order
    #[arg(value_name = "RUN", required_unless_present = "history")]
    pub(crate) runs: Vec<PathBuf>,
    /// Find the runs at which the results changed, among all runs of a directory; the exit status is 1 if a pair's newest
    /// level is worse than the one before
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub(crate) history: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = CompareForm::Text, value_name = "FORM")]
    pub(crate) format: CompareForm,
    /// Confidence of the intervals, 0.5 to 0.9999
    #[arg(long, default_value_t = 0.95, value_name = "P")]
    pub(crate) confidence: f64,
    /// The smallest change that matters, as a share [default: 2%; 0.5% of instructions]
    #[arg(long, value_name = "RATIO", value_parser = wire::parse_ratio)]
    pub(crate) matters: Option<f64>,
    /// What to judge: rates with their statistics, or instructions per packet, which are exact
    #[arg(long, value_enum, default_value_t = CompareMetric::Rates, value_name = "METRIC", conflicts_with = "history")]
    pub(crate) metric: CompareMetric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareMetric {
    /// Delivered rates; everything else is shown, too
    Rates,
    /// Instructions per packet of senders and receivers, as bench --exact counts them, and the functions that differ
    InstructionsPerPacket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareForm {
    /// Tables and sentences
    Text,
    /// Plain data
    Json,
    /// For an issue or a wiki
    Markdown,
}
