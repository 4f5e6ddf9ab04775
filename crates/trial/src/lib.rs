//! Trials: one loop that starts, watches, stops and drains, reads the counters and closes the ledger, over *ends*:
//! our engines in a lab or on two interfaces, another program's ([`run_peer_trial`]), receivers on other hosts
//! ([`run_host_trial`]). The crate `bench` decides what to try next and what the results mean.
//!
//! ```no_run
//! use lab::LabPlan;
//! use trial::{CpuPlan, Pair, TrialPlan, run_lab_trial};
//!
//! lab::gain_access()?; // while the process still has one thread
//! let pair = Pair { tx: "udp".parse()?, rx: "udp".parse()? };
//! let plan = TrialPlan {
//!     duration_ns: 1_000_000_000,
//!     count: None,
//!     omit_ns: 0,
//!     rate_pps: Some(100_000.0),
//!     departures: traffic::Departures::Constant,
//!     frame_size_bytes: 64,
//!     payload_bytes: 18,
//!     tagged: true,
//!     ipv6: false,
//!     tx_threads: 1,
//!     rx_threads: 1,
//!     flows: 1,
//!     tx_batch_size: 1024,
//!     rx_batch_size: 512,
//!     spin: false,
//!     work_ns: 0,
//!     cpus: CpuPlan::default(),
//!     lab: LabPlan::default(),
//!     frames: wire::FrameSpec::default(),
//!     interval_ns: 500_000_000,
//!     seed: 1,
//!     separate_softirq: None,
//!     profile: false,
//!     statistics: None,
//! };
//! let run = run_lab_trial(&plan, &pair, 1, |_| true)?;
//! assert!(run.trial.ledger.is_closed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod across;
mod back;
mod back_trial;
mod counters;
mod cpu_time;
mod cpus;
mod drivers_below;
mod endpoint;
mod ends;
mod engines;
mod error;
mod frame_path;
mod hosts;
mod instructions;
mod location;
mod machine_clock;
mod peers;
mod placement;
mod plan;
mod profile;
mod queues;
mod reception;
mod record;
mod run;
mod segmentation;
mod settling;
mod stages;
mod stream_watch;
mod timing;
mod watch;

pub use back::BackPlan;
pub use back_trial::{BackError, run_back_trial};
pub use counters::{CounterWatch, Growth};
pub use cpu_time::{CpuLooks, interrupt_accounting};
pub use cpus::CpuPlan;
pub use endpoint::{rx_endpoint, tx_endpoint};
pub use ends::{Ends, Outcome};
pub use engines::{EngineEnds, EngineSetup, run_lab_trial, run_trial_in};
pub use error::{BrokenSegmentation, PeerError, TrialError};
pub use frame_path::{FramePath, FramePathError, GivenMacs};
pub use hosts::{ArmedHostTrial, HostPlan, HostTrial, HostTrialError, run_host_trial};
pub use instructions::{CountError, CountNames, TrialCounts, read_counts};
pub use location::{Location, Locations};
pub use peers::{Peer, PeerPair, PeerReceiver, run_peer_trial};
pub use placement::{Cards, in_order, place, place_beside};
pub use plan::{LabEnd, Pair, TrialPlan, any_like, workers_towards};
pub use profile::{Diagnosis, ProfileError};
pub use reception::{EngineChoice, Policy, Reception, ReceptionError, ReceptionMark};
pub use record::{RxOutcome, TrialSettings, TxOutcome, receive_cost};
pub use run::{TrialRun, run_trial};
/// Packets in flight, for [`Ends::in_flight`].
pub use session::InFlight;
/// A receiving engine that a sender requests, and a receiver's report.
pub use session::{Report, Wanted};
pub use settling::Settled;
pub use timing::{ClockClaim, ClockSources, timed_reception};
pub use watch::{Look, Tick, WatchPlan};
