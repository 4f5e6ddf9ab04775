//! Tallies, histograms, statistics over trials, the ledger's arithmetic, and [`Run`], the one record of every measurement
//! and every model.
//!
//! Pure: no device, clock, thread or file; times and counters are arguments.
//!
//! ```
//! use measure::{Ledger, LedgerLine};
//!
//! let line = LedgerLine::new("receive buffer", 40, "socket SK_MEMINFO_DROPS");
//! let ledger = Ledger::close(1000, 960, vec![line]);
//! assert_eq!(ledger.unexplained, 0);
//! ```
#![forbid(unsafe_code)]

mod bend;
mod capacity;
mod change;
mod clocks;
mod cpu;
mod cpu_control;
mod distribution;
mod diversion;
mod effect;
mod figure;
mod fleet;
mod hdr;
mod histogram;
mod instructions;
mod jitter;
mod ledger;
mod place;
mod profile;
mod published;
mod queues;
mod quiet;
mod random;
mod receipt;
mod reception;
mod ring;
mod run;
mod sequence;
mod statistics;
mod student;
mod throughput;
mod timeline;
mod tuned;
mod unit;
mod unknown;

pub use bend::Bend;
pub use capacity::{Capacity, CapacitySide, LOSSLESS, Layer, SCALING, STAGE};
pub use change::{ChangePoint, change_points};
pub use clocks::{
    ClockAgreement, ClockComparison, ClockExchange, ClockSight, ClockStage, ClockTrack, bound_allows,
};
pub use cpu::{CpuShare, InterruptAccounting, InterruptRate, NapiPolls, NetRx, tick_margin};
pub use cpu_control::CpuControl;
pub use distribution::{Distribution, NanosSummary};
pub use diversion::{
    DivertLedger, DivertLeft, DivertLine, DivertQueue, DivertRule, DivertStatus, DivertSteering, Fate,
    FilterAt,
};
pub use effect::{Better, Conclusion, Effect, EffectScale, Question};
pub use figure::Figure;
pub use fleet::{FleetAgent, FleetHost, FleetRun, FleetTrial, FleetVoided};
pub use histogram::Histogram;
pub use instructions::{
    FunctionChange, FunctionInstructions, Instructions, Side, StackInstructions, StageInstructions,
};
pub use jitter::TransitVariation;
pub use ledger::{HostSide, Ledger, LedgerLine};
pub use place::{LossPlace, Place};
pub use profile::{FoldedStack, FunctionShare, Profile, Stage, StageShare};
pub use published::{Published, PublishedDocument, PublishedFigure};
pub use queues::{QueueGrowth, QueueUse};
pub use quiet::{Quiet, QuietLook, QuietReading};
pub use receipt::{Lateness, Receipt};
pub use reception::{
    ClockRelation, FlowStatistics, QueueCount, ReceptionShare, ReceptionStatistics, RoundTrips,
    SenderStatistics, StatisticsLevel, Timing,
};
pub use ring::{RingTrace, RingUse};
pub use run::{
    Cost, End, Endpoint, Interval, Machine, NicFacts, Origin, PairSummary, Point, Run, SCHEMA, Skipped,
    Start, Stream, Trial, Wire,
};
pub use sequence::{CountedSequence, Placed, SequenceCounts, SequenceSummary, SequenceTracker};
pub use statistics::{Summary, confidence_interval, median};
pub use throughput::{
    BoundBy, BurstResult, GoalResult, LatencyAt, LossAt, LossKinds, Throughput, ThroughputLimit,
};
pub use timeline::{Lane, Level, Mark, Timeline, View};
pub use tuned::{
    RateInterval, TuneArtefacts, TuneAttempt, TuneKnob, TuneRejected, TuneSearch, TuneStep, TunedRate,
};
pub use unit::Unit;
