//! Experiments: the ladder of every sending engine against every receiving engine, its trials, and the
//! counters that close each trial's ledger.
#![forbid(unsafe_code)]

mod apu4d4;
mod cpu_time;
mod cpus;
mod hosts;
mod interfaces;
mod ladder;
mod machine;
mod peers;
mod plan;
mod profile;
mod queues;
mod reception;
mod record;
mod recorder;
mod scenario;
mod single_rx_queue;
mod spec;
mod steps;
mod sweep;
mod throughput;
mod timing;
mod trial;

pub use apu4d4::{APU4D4, Apu4d4Error, Apu4d4Plan, Apu4d4Row, Apu4d4Step, run_apu4d4};
pub use cpu_time::CpuLooks;
pub use cpus::CpuPlan;
pub use hosts::{HostPlan, HostTrial, HostTrialError, run_host_trial};
pub use interfaces::{named_interfaces, receiving_interfaces, sending_interfaces};
pub use ladder::run_ladder;
pub use machine::{read_lab_interfaces, read_machine};
pub use peers::{Peer, PeerError, PeerPair, PeerReceiver, run_peer_trial};
pub use plan::{BenchPlan, LabEnd, Pair, share_of_flows};
pub use profile::{Diagnosis, ProfileError};
pub use reception::{Reception, ReceptionError};
pub use record::receive_cost;
pub use recorder::{Coming, Row, Watcher, in_words};
pub use scenario::{
    Program, ProgramOption, Published, Scenario, ScenarioError, Shipped, Step, nearest, scenario_schema,
    shipped,
};
pub use search::{Goal, GoalError};
pub use single_rx_queue::{
    FLOOD_FACTOR, FloodFilter, FloodLoad, PUBLISHED_PPS, SINGLE_RX_QUEUE, SingleRxQueueError,
    SingleRxQueueEvent, SingleRxQueuePlan, SingleRxQueueRow, VALID_SHARE, run_single_rx_queue,
    single_rx_queue_figures,
};
pub use spec::{RxSpec, SpecError, TxSpec};
pub use steps::{ExperimentPlan, StepPlan, StepsPlan, run_steps};
pub use sweep::{SweepPlan, Turn};
pub use throughput::{Tests, ThroughputPlan, run_throughput};
pub use timing::{ClockClaim, timed_reception};
pub use trial::{Tick, TrialError, TrialRun, run_trial};
