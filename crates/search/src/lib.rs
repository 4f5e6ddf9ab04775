//! Throughput searches as pure code: which trial to run next, and what all trials together show. No device, clock or
//! thread: the caller runs the trials.
//!
//! The words are those of draft-ietf-bmwg-mlrsearch: a [`Goal`] allows a share of lossy trial time, a load is
//! classified for a goal as lower bound, upper bound or undecided, and the conditional throughput is the forwarding
//! rate at the relevant lower bound. The frame loss rate and back-to-back tests are RFC 2544's (26.3 and 26.4), the
//! latter with RFC 9004's correction.
//!
//! ```
//! use search::{Goal, LimitedBy, Measured, Search, SearchPlan, Step};
//!
//! let plan = SearchPlan { goals: vec![Goal::ndr()], ..SearchPlan::up_to(1e6) };
//! let mut search = Search::new(plan).unwrap();
//! // a device that forwards 300 000 packets per second and drops the rest
//! while let Step::Measure { load_pps, duration_s } = search.next() {
//!     let sent = (load_pps * duration_s) as u64;
//!     let lost = ((load_pps - 3e5).max(0.0) * duration_s) as u64;
//!     search.record(load_pps, duration_s, Measured { duration_s, scheduled: sent, sent, lost });
//! }
//! let outcome = &search.outcomes()[0];
//! let lower = outcome.lower.as_ref().unwrap();
//! assert!(lower.load_pps <= 3e5 && lower.load_pps > 3e5 * (1.0 - 2.0 * outcome.goal.width_ratio));
//! assert_eq!(outcome.limit, LimitedBy::Loss);
//! ```
#![forbid(unsafe_code)]

mod back_to_back;
mod classify;
mod controller;
mod frame_loss;
mod goal;
mod tune;

pub use back_to_back::{BackToBack, Burst};
pub use classify::{Class, Sums, Tried, classify, conditional_throughput_pps};
pub use controller::{Bound, LimitedBy, Measured, Outcome, Search, SearchPlan, Step};
pub use frame_loss::{FrameLoss, LossPoint};
pub use goal::{Goal, GoalError};
pub use tune::{
    Gain, Refused, Settings, TunedStep, Tuning, TuningEnd, TuningOutcome, TuningPhase, TuningPlan,
    TuningStep, Why,
};
