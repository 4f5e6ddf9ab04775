//! Experiments: the ladder of every sending engine against every receiving engine, sweeps, throughput searches and the
//! documents' experiments. This crate decides what to try next and what the results mean; the crate `trial` runs each trial.
#![forbid(unsafe_code)]

mod apu4d4;
mod capacity;
mod disk;
mod exact;
mod interfaces;
mod ladder;
mod lossless;
mod machine;
mod plan;
mod quiet;
mod rdr;
mod recorder;
mod row;
mod scale;
mod scale_plan;
mod scenario;
mod single_rx_queue;
mod steps;
mod sweep;
mod throughput;
mod tune;

pub use apu4d4::{APU4D4, Apu4d4Error, Apu4d4Plan, Apu4d4Row, Apu4d4Step, apu4d4_figures, run_apu4d4};
pub use disk::{DiskPlan, run_disk};
pub use exact::{
    BesideError, ExactError, ExactKernel, ExactPlan, ExactTable, ExactTables, ExactVerdict, judge_exact,
    run_exact, words_beside, words_inside, write_exact_tables,
};
pub use interfaces::{named_interfaces, receiving_interfaces, sending_interfaces};
pub use ladder::run_ladder;
pub use lossless::short_goal;
pub use machine::{read_lab_interfaces, read_machine};
pub use plan::BenchPlan;
pub use quiet::look_quiet;
pub use rdr::{ETHERNET_BYTES, RdrPlan, rdr_point, run_rdr};
pub use recorder::{Coming, Watcher, in_words};
pub use row::Row;
pub use scale_plan::{ScalePlan, ScaleStep, ScaledReceiver};
pub use scenario::{
    Program, ProgramOption, Published, Scenario, ScenarioError, Shipped, Step, nearest, scenario_schema,
    shipped,
};
pub use search::{Goal, GoalError, LimitedBy};
pub use single_rx_queue::{
    DivertedQueues, FLOOD_FACTOR, FloodFilter, FloodLoad, FloodWithoutLoss, OtherFlows, SINGLE_RX_QUEUE,
    SingleRxQueueError, SingleRxQueueEvent, SingleRxQueuePlan, SingleRxQueueRow, VALID_SHARE,
    run_single_rx_queue, single_rx_queue_figures,
};
pub use steps::{ExperimentPlan, StepPlan, StepsPlan, run_steps};
pub use sweep::{SweepPlan, Turn};
pub use throughput::{Searching, Tests, ThroughputPlan, run_throughput};
pub use tune::{
    Ask, Assignment, Bed, Combination, Knob, KnobValue, LOOPBACK, LocalBed, Planner, Refusal, Surroundings,
    TuneGoal, TunePlace, TunePlan, TuneSpace, run_tune,
};

#[cfg(doctest)]
#[doc = include_str!("../../../CONTRIBUTING.md")]
struct Contributing;
