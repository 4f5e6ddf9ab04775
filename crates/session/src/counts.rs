//! What a host needs from the receiver on whose behalf it serves senders.

use std::net::{IpAddr, SocketAddr};

use measure::{ClockComparison, Trial};
use serde_json::Value;

use crate::{
    host_clock::HostClock,
    message::{Progress, Report, Wanted},
};

/// The receiver's counters, as the host needs them.
pub trait Counts: Send + Sync + 'static {
    /// Packets with these streams' tags so far, and all packets that the sockets dropped so far.
    fn progress(&self, tags: &[u16]) -> Progress;

    /// The tag that a stream's packets carry; 0 for stream 0.
    fn tag(&self, stream: u16) -> u16 {
        stream
    }

    /// Receives with the engine that the sender requests, or its own, until [`Counts::release`] has been called as often.
    ///
    /// # Errors
    /// The reason, for the sender's user.
    fn receive_by(&self, wanted: Option<&Wanted>, _sender: SocketAddr) -> Result<(), String> {
        match wanted {
            Some(Wanted { engine, .. }) => Err(format!("this receiver cannot change to the engine {engine}")),
            None => Ok(()),
        }
    }

    /// The sender no longer needs its engine.
    fn release(&self) {}

    /// Sends as planned to a receiver at this address, while `go_on` returns true; returns the trial.
    ///
    /// # Errors
    /// The reason, for the user who requested it.
    fn send_back(
        &self,
        _to: SocketAddr,
        _plan: &Value,
        _go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Box<Trial>, String> {
        Err("it cannot send".into())
    }

    /// Called when a trial begins; the returned value is passed to [`Counts::report`] or [`Counts::abandon`].
    fn begin(&self, joining: &Joining<'_>) -> u64;

    /// The trial that began at `begun` ends without a report.
    fn abandon(&self, _begun: u64) {}

    /// Returns packets of this address to it until [`Counts::end_returns`] has been called as often.
    ///
    /// # Errors
    /// The reason, for the sender's user.
    fn allow_returns(&self, _sender: IpAddr) -> Result<(), String> {
        Err("this receiver sends no packets back: start it with --reflect".into())
    }

    /// Stops returning them.
    fn end_returns(&self, _sender: IpAddr) {}

    /// This host's clock if packets are timed; `None` if no sender's clock matters.
    fn clock(&self) -> Option<&dyn HostClock> {
        None
    }

    /// Adds an exchange with a sender's clock, in the trial that began at `begun`.
    fn relate(&self, _begun: u64, _related: &Related<'_>) {}

    /// Whether reports include a profile of receiving.
    fn profiles(&self) -> bool {
        false
    }

    /// The receiver's half of a trial that began at `begun`, with `delivered` packets.
    fn report(&self, begun: u64, delivered: u64, senders: u32) -> Report;
}

/// The relation of a sender's clock to this host's.
#[derive(Debug, Clone, Copy)]
pub struct Related<'r> {
    /// Its streams' tags.
    pub tags: &'r [u16],
    /// How far this host's clock is ahead; both count from their host's boot.
    pub uptime_ahead_ns: i64,
    /// The same for the wall clocks.
    pub wall_ahead_ns: i64,
    /// The result of all exchanges so far.
    pub comparison: &'r ClockComparison,
}

/// A sender whose trial begins.
#[derive(Debug, Clone, Copy)]
pub struct Joining<'j> {
    /// Its address.
    pub peer: SocketAddr,
    /// Its streams' tags.
    pub tags: &'j [u16],
    /// Whether it requests a count of its packets at the driver.
    pub witness: bool,
}
