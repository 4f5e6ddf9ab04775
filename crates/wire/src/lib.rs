//! Frames as bytes, and the arithmetic of sizes and rates.
//!
//! Pure: no device, clock, thread or file. Everything here works on byte slices and numbers that the
//! caller brings.
//!
//! ```
//! use wire::{FrameSize, LinkSpeed, Rate};
//!
//! let frame: FrameSize = "64".parse()?;
//! let rate: Rate = "100%".parse()?;
//! let pps = rate.to_pps(frame, Some(LinkSpeed::from_bps(10_000_000_000))).unwrap().unwrap();
//! assert_eq!(pps.round(), 14_880_952.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod probe;
mod rate;
mod size;

pub use probe::{PROBE_LEN, PROBE_MAGIC, PROBE_TAGGED_LEN, ProbeClock, ProbeHeader};
pub use rate::{LinkSpeed, Rate, RateError};
pub use size::{FrameSize, Layers, SizeError, parse_duration};
