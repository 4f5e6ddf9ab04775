//! What receivers measure.

use clap::ValueEnum;
use measure::StatisticsLevel;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelArg {
    /// Packets and bytes
    Counter,
    /// Also work time, rates, loss, reordering, duplicates
    Basic,
    /// Also inter-arrival times, jitter, latency
    Time,
}

impl From<LevelArg> for StatisticsLevel {
    fn from(level: LevelArg) -> Self {
        match level {
            LevelArg::Counter => Self::Counter,
            LevelArg::Basic => Self::Basic,
            LevelArg::Time => Self::Time,
        }
    }
}
