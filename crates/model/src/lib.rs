//! A discrete-event model of how a frame gets from the wire to the program that reads it.
//!
//! Pure: no device, clock, thread or file; time is simulated, randomness comes from a seed in the
//! configuration. The same configuration gives the same outcome, byte for byte, on every machine.
//!
//! ```
//! use model::{Config, simulate};
//!
//! let mut config = Config::default();
//! config.set("rate", "100000")?;
//! let outcome = simulate(&config)?;
//! assert_eq!(outcome.total.lost, 0);
//! assert_eq!(outcome.total.sent, outcome.total.delivered);
//! # Ok::<(), model::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod agenda;
mod calibrate;
mod config;
mod gauge;
mod machine;
mod outcome;
mod parameter;
mod plan;
mod presets;
mod random;
mod rdr;
mod record;
mod run_queue;
mod scenario;
mod stages;
pub mod theory;
mod transmit;
mod units;

pub use calibrate::{
    CalibrateError, Calibration, Card, Load, PairCalibration, PairTraits, calibrate, predict,
};
pub use config::{Config, RunLength, parameters};
pub use outcome::{
    BufferLevel, Counters, CpuFunction, CpuTime, FunctionTime, Level, Loss, LossStage, Occupancy, Outcome,
    QueueOutcome, Sample, Transaction, TransactionKind,
};
pub use parameter::{ConfigError, Parameter, Problem};
pub use plan::{
    Bottleneck, Capacity, CurvePoint, FLEET_PARAMETERS, Fleet, FleetPlan, MOST_MACHINES, queue_capacity_pps,
};
pub use presets::{PRESETS, Preset};
pub use rdr::{
    Basis, BusEvent, BusTrace, Calls, FITTED, Figure, FunctionShare, Rdr, RdrError, RdrPoint, RdrResult,
    Regimes, Sensitivity, rdr_figures, rdr_functions, rdr_machine, rdr_sensitivity,
};
pub use record::Labels;
pub use scenario::{Scenario, Sweep, SweepPoint, SweepResult};
pub use stages::{
    app::{App, Service},
    buffers::{BufferPolicy, Buffers},
    bus::{Bus, BusKind, DescriptorTraffic},
    memory::Memory,
    moderation::{Moderation, ModerationMode},
    packet_buffer::PacketBuffer,
    poll::Poll,
    ring::{Ring, RingKind},
    rss::{Difference, Rss},
    socket::Socket,
    stack::{Path, Stack},
    traffic::{Arrival, RecordedFrame, Traffic},
};
pub use transmit::{TRANSMIT_PARAMETERS, Transmit, Transmitted};

/// Runs a simulation.
///
/// # Errors
/// [`ConfigError::Invalid`] with every problem of the configuration, before anything is simulated.
///
/// # Panics
/// When a frame is missing from the ledger: a bug in the model.
pub fn simulate(config: &Config) -> Result<Outcome, ConfigError> {
    config.validate()?;
    Ok(machine::Machine::new(config).run())
}
