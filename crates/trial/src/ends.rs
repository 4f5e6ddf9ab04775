//! The two ends of a trial for the loop that runs it.

use std::{error::Error, time::Duration};

use measure::Trial;
use session::InFlight;
use sys::procfs::ProcError;

use crate::{
    record::{RxOutcome, TrialSettings, TxOutcome},
    watch::Look,
};

/// A sending and a receiving end, prepared: no packet is sent before [`Ends::begin`]. The loop calls the methods in this
/// order; those between [`Ends::look`] and [`Ends::stop`] while packets are sent.
pub trait Ends {
    /// Why a trial between them failed.
    type Error: Error + From<ProcError>;
    /// Counters that change while packets are in flight.
    type Seen: PartialEq;

    /// Time between two readings.
    const LOOK: Duration;
    /// The drain takes at most this long.
    const LONGEST_DRAIN: Duration;

    /// Reads all counters, from which the ledger starts.
    ///
    /// # Errors
    /// Counters that cannot be read.
    fn read_counters(&mut self) -> Result<(), Self::Error>;

    /// Sends warm-up packets, which are in the ledger but not in the rates.
    ///
    /// # Errors
    /// Ports or workers that cannot be started.
    fn warm_up(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Starts to send; returns the moment in monotonic nanoseconds.
    ///
    /// # Errors
    /// Ports or workers that cannot be started.
    fn begin(&mut self) -> Result<u64, Self::Error>;

    /// Counters so far. Regular work during the trial is done here.
    ///
    /// # Errors
    /// Counters that cannot be read; then the trial is lost.
    fn look(&mut self) -> Result<Look, Self::Error>;

    /// Whether everything has been sent, or the sender's path broke.
    fn is_finished(&self) -> bool;

    /// Whether the receiver ended before the sender.
    fn has_lost_receiver(&self) -> bool {
        false
    }

    /// Requests the sender to stop, without waiting.
    fn stop(&mut self);

    /// Waits for the sender's end and reports it to a remote receiver.
    ///
    /// # Errors
    /// A sender without a result.
    fn end_sending(&mut self) -> Result<(), Self::Error>;

    /// Packets delivered so far.
    fn delivered(&mut self) -> Result<u64, Self::Error>;

    /// The packets still in flight.
    ///
    /// # Errors
    /// Counters that cannot be read.
    fn in_flight(&mut self) -> Result<InFlight<Self::Seen>, Self::Error>;

    /// Stops the receiver and reads all counters for the last time.
    ///
    /// # Errors
    /// Counters that cannot be read.
    fn close(&mut self) -> Result<Outcome<Self::Error>, Self::Error>;

    /// The trial is complete: a remote receiver gets it, too.
    fn conclude(self, _trial: &Trial)
    where
        Self: Sized,
    {
    }
}

/// The counts of both ends.
#[derive(Debug)]
pub struct Outcome<E> {
    /// The settings for the record.
    pub settings: TrialSettings,
    /// The sender's half.
    pub tx: TxOutcome,
    /// The receiver's half, with the places of loss on both sides.
    pub rx: RxOutcome,
    /// The cause of a worker's early end.
    pub error: Option<E>,
}
