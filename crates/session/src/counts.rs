//! What a host needs of the receiver that it serves senders for.

use std::net::{IpAddr, SocketAddr};

use measure::{ClockComparison, Trial};
use serde_json::Value;

use crate::{
    host_clock::HostClock,
    message::{Progress, Report, Wanted},
};

/// The receiver's counters, as the host needs them.
pub trait Counts: Send + Sync + 'static {
    /// Packets with these streams' tags so far, and all that the sockets dropped so far.
    fn progress(&self, tags: &[u16]) -> Progress;

    /// The tag that the packets of a stream carry; 0 of stream 0.
    fn tag(&self, stream: u16) -> u16 {
        stream
    }

    /// Receives by the engine that the sender asks for, or by its own, until [`Counts::release`] was called as often.
    ///
    /// # Errors
    /// Why it cannot, for the sender's user.
    fn receive_by(&self, wanted: Option<&Wanted>, _sender: SocketAddr) -> Result<(), String> {
        match wanted {
            Some(Wanted { engine, .. }) => {
                Err(format!("this receiver does not change to the engine {engine}"))
            }
            None => Ok(()),
        }
    }

    /// The sender needs its engine no more.
    fn release(&self) {}

    /// Sends what the plan says to a receiver at this address, as long as `go_on` says so; returns the trial.
    ///
    /// # Errors
    /// Why not, for the user who asked.
    fn send_back(
        &self,
        _to: SocketAddr,
        _plan: &Value,
        _go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Box<Trial>, String> {
        Err("it does not send".into())
    }

    /// Called when a trial begins; what it returns comes back to [`Counts::report`] or [`Counts::abandon`].
    fn begin(&self, joining: &Joining<'_>) -> u64;

    /// The trial that began at `begun` ends without a report.
    fn abandon(&self, _begun: u64) {}

    /// Sends packets of this address back until [`Counts::end_returns`] was called as often.
    ///
    /// # Errors
    /// Why it cannot, for the sender's user.
    fn allow_returns(&self, _sender: IpAddr) -> Result<(), String> {
        Err("this receiver sends no packets back: start it with --reflect".into())
    }

    /// Sends them back no more.
    fn end_returns(&self, _sender: IpAddr) {}

    /// This host's clock where packets are timed; `None` where no sender's clock matters.
    fn clock(&self) -> Option<&dyn HostClock> {
        None
    }

    /// More is known of a sender's clock, in the trial that began at `begun`.
    fn relate(&self, _begun: u64, _related: &Related<'_>) {}

    /// Whether reports tell where receiving took its time.
    fn profiles(&self) -> bool {
        false
    }

    /// The receiver's half of a trial that began at `begun`, with `delivered` packets.
    fn report(&self, begun: u64, delivered: u64, senders: u32) -> Report;
}

/// How a sender's clock is related to ours.
#[derive(Debug, Clone, Copy)]
pub struct Related<'r> {
    /// Its streams' tags.
    pub tags: &'r [u16],
    /// By how much ours is ahead, of clocks that count from the hosts' start.
    pub uptime_ahead_ns: i64,
    /// The same of the wall clocks.
    pub wall_ahead_ns: i64,
    /// What all exchanges so far show.
    pub comparison: &'r ClockComparison,
}

/// A sender whose trial begins.
#[derive(Debug, Clone, Copy)]
pub struct Joining<'j> {
    /// Its address.
    pub peer: SocketAddr,
    /// Its streams' tags.
    pub tags: &'j [u16],
    /// Whether it wants its packets to be counted at the driver.
    pub witness: bool,
}
