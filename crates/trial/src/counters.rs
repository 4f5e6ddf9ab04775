//! The kernel's counters at both ends of a trial while it runs.

use ledger::{Drivers, DropReading, DropScope, DropWatch, HostCounters, LabGrowth, Received, lab_lines};
use measure::{LedgerLine, QueueUse};

use crate::{
    error::TrialError,
    location::{Location, Locations},
    queues::QueueReading,
};

/// Counters of both ends from one moment on.
pub struct CounterWatch {
    at: Locations,
    drivers: Drivers,
    drops: Option<DropWatch>,
    before: Growth,
    queues: QueueReading,
}

/// The counts of both ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// The sending end.
    pub tx: HostCounters,
    /// The receiving end.
    pub rx: HostCounters,
    /// The kernel's drop reasons, if they could be read: the sending end is namespace 0.
    pub drops: Option<DropReading>,
}

impl CounterWatch {
    /// Reads all counters. The kernel's drop reasons are read within `scope`, if this process may read them.
    ///
    /// # Errors
    /// Counters that cannot be read.
    pub fn start(at: Locations, scope: Option<&DropScope>) -> Result<Self, TrialError> {
        let namespaces = [at.tx.namespace(), at.rx.namespace()];
        let drops = scope.and_then(|scope| DropWatch::over(&namespaces, scope).ok());
        let before = Growth::read(&at, drops.as_ref())?;
        let queues = QueueReading::of(&at);
        Ok(Self { at, drivers: Drivers::built_in(), drops, before, queues })
    }

    /// The growth since.
    ///
    /// # Errors
    /// Counters that cannot be read.
    pub fn growth(&self) -> Result<Growth, TrialError> {
        let now = Growth::read(&self.at, self.drops.as_ref())?;
        let drops = now.drops.as_ref().zip(self.before.drops.as_ref());
        Ok(Growth {
            tx: now.tx.since(&self.before.tx, &self.drivers),
            rx: now.rx.since(&self.before.rx, &self.drivers),
            drops: drops.map(|(now, before)| now.since(before)),
        })
    }

    /// The ledger's lines. `refused` frames count as drops of the sending interface and were sent later.
    pub fn lines(
        &self,
        growth: &Growth,
        refused: u64,
        sent: Option<u64>,
        received: &Received,
    ) -> Vec<LedgerLine> {
        let drops = growth.drops.as_ref().map(|reading| &reading.places[..]);
        let growth = LabGrowth { tx: &growth.tx, rx: &growth.rx, drops, refused, sent };
        lab_lines(&growth, received, &self.drivers)
    }

    /// Packets by queue since.
    pub fn queues(&self) -> Option<QueueUse> {
        QueueReading::of(&self.at).since(&self.queues)
    }
}

impl Growth {
    fn read(at: &Locations, drops: Option<&DropWatch>) -> Result<Self, TrialError> {
        let drops = drops.map(DropWatch::read).transpose()?;
        let counters = |at: &Location| -> Result<HostCounters, TrialError> {
            Ok(at.run(|| HostCounters::read(at.counted()))??)
        };
        Ok(Self { tx: counters(&at.tx)?, rx: counters(&at.rx)?, drops })
    }
}
