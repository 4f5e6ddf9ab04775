//! The load that the paper is about: telephone calls, each 50 packets a second of at most 160 bytes of voice.

use measure::{Point, Run, Start};
use serde::Serialize;
use serde_json::json;

use super::{
    machine::{LINK_BPS, rdr_machine},
    point::{FRAME_OVERHEAD, RdrError},
};
use crate::{
    record::{self, Labels},
    simulate,
    stages::{buffers::BufferPolicy, traffic::Arrival},
};

/// Packets of a call in a second, in the direction that is received.
const PACKETS_PER_CALL: u32 = 50;
/// Headers between voice and Ethernet: 12 of RTP, 8 of UDP, 20 of IPv4.
const HEADERS: u32 = 40;
/// Simulated time of one load, warm-up included.
const CALLS_US: f64 = 60_000.0;
/// Losing less than this share of the packets counts as carrying the calls.
const LOSSLESS: f64 = 1e-3;

/// Calls that arrive on one port of the paper's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Number of simultaneous calls.
    pub calls: u32,
    /// Bytes of voice in a packet, 1 to 160.
    pub voice_bytes: u32,
}

impl Calls {
    /// Packets a second.
    pub fn offered_pps(self) -> f64 {
        f64::from(self.calls) * f64::from(PACKETS_PER_CALL)
    }

    fn frame_bytes(self) -> u32 {
        (self.voice_bytes + HEADERS).max(46) + FRAME_OVERHEAD
    }

    /// Calls that fill the link.
    pub fn at_line_rate(self) -> u32 {
        let frame_bits = f64::from(self.frame_bytes() + 20) * 8.0;
        (LINK_BPS as f64 / frame_bits / f64::from(PACKETS_PER_CALL)) as u32
    }

    /// Checks both numbers.
    ///
    /// # Errors
    /// [`RdrError::Voice`] or [`RdrError::Calls`] with the allowed range.
    pub fn check(self) -> Result<(), RdrError> {
        if !(1..=160).contains(&self.voice_bytes) {
            return Err(RdrError::Voice { bytes: self.voice_bytes });
        }
        let most = self.at_line_rate();
        if !(1..=most).contains(&self.calls) {
            return Err(RdrError::Calls { calls: self.calls, most });
        }
        Ok(())
    }

    fn outcome(self, policy: BufferPolicy) -> Result<(crate::Config, crate::Outcome), RdrError> {
        let mut config = rdr_machine(policy, 1);
        config.run.duration_us = CALLS_US;
        config.traffic.frame_bytes = self.frame_bytes();
        // calls begin independently of each other
        config.traffic.arrival = Arrival::Poisson;
        config.traffic.offered_pps = Some(self.offered_pps());
        let outcome = simulate(&config)?;
        Ok((config, outcome))
    }

    /// The most calls of this kind that a driver with this policy carries, losing less than one packet in a thousand.
    ///
    /// # Errors
    /// [`RdrError::Machine`] when the machine cannot be simulated.
    pub fn most_carried(self, policy: BufferPolicy) -> Result<u32, RdrError> {
        let (mut carried, mut lossy) = (0, self.at_line_rate() + 1);
        while lossy - carried > lossy / 200 + 1 {
            let calls = carried.midpoint(lossy);
            let (_, outcome) = Self { calls, ..self }.outcome(policy)?;
            let is_carried = outcome.window.lost as f64 <= LOSSLESS * outcome.window.sent as f64;
            if is_carried { carried = calls } else { lossy = calls }
        }
        Ok(carried)
    }

    /// Simulates the calls with both drivers, and finds how many each carries.
    ///
    /// # Errors
    /// [`RdrError`] when a number is out of range.
    pub fn run(self, mut start: Start) -> Result<Run, RdrError> {
        self.check()?;
        start.asked.insert("calls".into(), json!(self.calls));
        start.asked.insert("voice_bytes".into(), json!(self.voice_bytes));
        let (mut trials, mut points) = (Vec::new(), Vec::new());
        for policy in [BufferPolicy::Realloc, BufferPolicy::Recycle] {
            let (config, outcome) = self.outcome(policy)?;
            let label = format!("e1000 {}", json!(policy).as_str().unwrap_or_default());
            let labels = Labels { tx: format!("{} calls", self.calls), rx: label };
            trials.push(outcome.trial(&config, &labels, 1));
            let mut point = Point { values: outcome.results() };
            for (name, value) in [
                ("policy", json!(policy)),
                ("calls", json!(self.calls)),
                ("voice_bytes", json!(self.voice_bytes)),
                ("frame_bytes", json!(config.traffic.frame_bytes)),
                ("offered_pps", json!(self.offered_pps())),
                ("loss_ratio", json!(outcome.window.lost as f64 / outcome.window.sent.max(1) as f64)),
                ("most_calls", json!(self.most_carried(policy)?)),
                ("calls_at_line_rate", json!(self.at_line_rate())),
            ] {
                point.values.insert(name.into(), value);
            }
            points.push(point);
        }
        Ok(record::run(start, trials, Vec::new(), points))
    }
}
