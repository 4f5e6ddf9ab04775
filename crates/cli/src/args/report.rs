//! `linerate report` and `linerate compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::load::parse_ratio;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A saved run, or - for standard input [default: the newest in linerate's state directory]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<PathBuf>,
    /// The form
    #[arg(long, short, value_enum, default_value_t = ReportForm::Text, value_name = "FORM")]
    pub(crate) format: ReportForm,
    /// The chart of an svg, by its name [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) chart: Option<String>,
    /// Write here instead of to standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// In text, show every pair's ledger and every figure, not only what needs attention
    #[arg(long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// Tables and words
    Text,
    /// One self-contained page with plots
    Html,
    /// One of the page's charts as an image of its own
    Svg,
    /// The run itself
    Json,
    /// One object a line
    JsonStream,
    /// One row a trial
    Csv,
    /// One row a point of a sweep or model
    PointsCsv,
    /// For an issue or a wiki
    Markdown,
    /// What iperf3 --json prints
    Iperf3,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The baseline, then the runs to compare with it; with --history, a series in order of time
    #[arg(value_name = "RUN", required_unless_present = "history")]
    pub(crate) runs: Vec<PathBuf>,
    /// Look for the runs at which something changed, among all runs of a directory; the exit status is 1 when the newest
    /// level of a pair is worse than the one before
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub(crate) history: Option<PathBuf>,
    /// The form
    #[arg(long, short, value_enum, default_value_t = CompareForm::Text, value_name = "FORM")]
    pub(crate) format: CompareForm,
    /// Confidence of the intervals, 0.5 to 0.9999
    #[arg(long, default_value_t = 0.95, value_name = "P")]
    pub(crate) confidence: f64,
    /// The smallest change that matters, as a share [default: 2%; 0.5% of instructions]
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    pub(crate) matters: Option<f64>,
    /// What decides: rates with their statistics, or instructions per packet, which are exact
    #[arg(long, value_enum, default_value_t = CompareMetric::Rates, value_name = "METRIC", conflicts_with = "history")]
    pub(crate) metric: CompareMetric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareMetric {
    /// Rates delivered; everything else is shown, too
    Rates,
    /// Instructions per packet of senders and receivers, as bench --exact counts them, and the functions that differ
    InstructionsPerPacket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareForm {
    /// Tables and words
    Text,
    /// Plain data
    Json,
    /// For an issue or a wiki
    Markdown,
}
