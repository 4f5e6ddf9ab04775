//! The two ends of a trial as the loop that runs it sees them.

use std::{error::Error, time::Duration};

use measure::Trial;
use session::InFlight;
use sys::procfs::ProcError;

use crate::{
    record::{RxOutcome, TrialSettings, TxOutcome},
    watch::Look,
};

/// A sending and a receiving end, prepared: nothing is sent before [`Ends::begin`]. The loop calls the methods in this
/// order; those between [`Ends::look`] and [`Ends::stop`] while packets are sent.
pub trait Ends {
    /// Why a trial between them cannot go on.
    type Error: Error + From<ProcError>;
    /// Counters that change while packets are in flight.
    type Seen: PartialEq;

    /// Time between two looks.
    const LOOK: Duration;
    /// Packets in flight are waited for no longer than this.
    const LONGEST_DRAIN: Duration;

    /// Reads all counters, from which the ledger starts.
    ///
    /// # Errors
    /// Counters that cannot be read.
    fn read_counters(&mut self) -> Result<(), Self::Error>;

    /// Sends what is in the ledger and not in the rates.
    ///
    /// # Errors
    /// What cannot be started.
    fn warm_up(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Starts to send; returns the moment in monotonic nanoseconds.
    ///
    /// # Errors
    /// What cannot be started.
    fn begin(&mut self) -> Result<u64, Self::Error>;

    /// Counters so far. What has to be done while the trial runs is done here.
    ///
    /// # Errors
    /// Counters that cannot be read; the trial is lost then.
    fn look(&mut self) -> Result<Look, Self::Error>;

    /// Whether all has been sent, or the sender's path broke.
    fn is_finished(&self) -> bool;

    /// Whether the receiver ended before the sender.
    fn has_lost_receiver(&self) -> bool {
        false
    }

    /// Asks the sender to stop, without waiting.
    fn stop(&mut self);

    /// Waits for the sender's end; a receiver elsewhere learns of it.
    ///
    /// # Errors
    /// A sender without a result.
    fn end_sending(&mut self) -> Result<(), Self::Error>;

    /// Packets delivered so far.
    fn delivered(&mut self) -> Result<u64, Self::Error>;

    /// What is still missing of the packets that were sent.
    ///
    /// # Errors
    /// Counters that cannot be read.
    fn in_flight(&mut self) -> Result<InFlight<Self::Seen>, Self::Error>;

    /// Stops the receiver and reads all counters for the last time.
    ///
    /// # Errors
    /// Counters that cannot be read.
    fn close(&mut self) -> Result<Outcome<Self::Error>, Self::Error>;

    /// The trial is complete: a receiver elsewhere gets it, too.
    fn conclude(self, _trial: &Trial)
    where
        Self: Sized,
    {
    }
}

/// What both ends counted.
#[derive(Debug)]
pub struct Outcome<E> {
    /// What the record repeats.
    pub settings: TrialSettings,
    /// The sender's half.
    pub tx: TxOutcome,
    /// The receiver's half, with the places of loss on both sides.
    pub rx: RxOutcome,
    /// What ended a worker early.
    pub error: Option<E>,
}
