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

impl LevelArg {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Basic => "basic",
            Self::Time => "time",
        }
    }

    /// The level of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }
}
