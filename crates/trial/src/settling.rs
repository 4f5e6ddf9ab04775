//! Whether packets are still coming in, by a ledger that is about to close.

use measure::Ledger;

/// Changes while packets arrive or are found lost, and not otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    delivered: u64,
    /// The fewest unexplained packets so far.
    closest: u64,
}

/// Looks at a ledger until it settles. Other counters of the machine do not matter, however they move: those of other
/// traffic never rest, and neither does a card's that grows at each reading.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    closest: Option<u64>,
}

impl Settling {
    pub(crate) fn look(&mut self, ledger: &Ledger) -> Settled {
        let now = ledger.unexplained.unsigned_abs();
        let closest = self.closest.map_or(now, |before| before.min(now));
        self.closest = Some(closest);
        Settled { delivered: ledger.delivered, closest }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use measure::LedgerLine;
    use session::{InFlight, drain};

    use super::*;

    fn ledger(delivered: u64, lost: u64) -> Ledger {
        Ledger::close(100, delivered, vec![LedgerLine::new("ring", lost, "fake")])
    }

    #[test]
    fn packets_that_arrive_or_are_found_lost_are_movement() {
        let mut settling = Settling::default();
        let mut looks: Vec<Settled> = [(0, 0), (10, 0), (10, 20), (10, 90)]
            .map(|(delivered, lost)| settling.look(&ledger(delivered, lost)))
            .to_vec();
        looks.dedup();
        assert_eq!(looks.len(), 4);
    }

    #[test]
    fn a_counter_that_never_rests_does_not_keep_a_trial_waiting() {
        let mut settling = Settling::default();
        let mut lost = 200;
        let look = || -> Result<_, Infallible> {
            // More at each reading, and long more than was sent.
            lost += 30;
            let seen = settling.look(&ledger(10, lost));
            Ok(InFlight { is_complete: false, quiet: Duration::from_millis(10), seen })
        };
        let Ok(seen) = drain(Duration::MAX, look);
        assert_eq!(seen, Settled { delivered: 10, closest: 140 });
    }
}
