//! Packets by queue of a trial's two interfaces.

use measure::{QueueGrowth, QueueUse};
use nic::{Card, QueueCounts};

use crate::location::{Location, Locations};

/// The counts of both sides' queues so far.
pub(crate) struct QueueReading {
    tx: QueueCounts,
    rx: QueueCounts,
}

impl QueueReading {
    /// An interface without counters by queue has no queues here: a trial must not fail because of that.
    pub(crate) fn of(at: &Locations) -> Self {
        let read = |at: &Location| {
            let counts =
                at.run(|| Card::open(at.interface()).and_then(|mut card| nic::read_queue_counts(&mut card)));
            counts.ok().and_then(Result::ok).unwrap_or_default()
        };
        Self { tx: read(&at.tx), rx: read(&at.rx) }
    }

    /// The growth of the counters since an earlier reading; `None` if no queue counted a packet.
    pub(crate) fn since(&self, earlier: &Self) -> Option<QueueUse> {
        let queues =
            QueueUse { tx: grown(&earlier.tx.tx, &self.tx.tx), rx: grown(&earlier.rx.rx, &self.rx.rx) };
        let any = queues.tx.iter().chain(&queues.rx).any(|queue| queue.packets > 0);
        any.then_some(queues)
    }
}

type Counts = std::collections::BTreeMap<u32, nic::QueueCount>;

/// Growth of each queue; a side without growth has none.
fn grown(earlier: &Counts, later: &Counts) -> Vec<QueueGrowth> {
    let growth = later.iter().map(|(queue, now)| {
        let before = earlier.get(queue).copied().unwrap_or_default();
        QueueGrowth {
            queue: *queue,
            packets: now.packets.saturating_sub(before.packets),
            drops: now.drops.saturating_sub(before.drops),
        }
    });
    let queues: Vec<QueueGrowth> = growth.collect();
    let moved = queues.iter().any(|queue| queue.packets > 0 || queue.drops > 0);
    if moved { queues } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(u32, u64, u64)]) -> QueueCounts {
        let rx = of.iter().map(|(queue, packets, drops)| {
            (*queue, nic::QueueCount { packets: *packets, bytes: 0, drops: *drops })
        });
        QueueCounts { rx: rx.collect(), ..QueueCounts::default() }
    }

    #[test]
    fn queues_grow_separately_and_a_side_without_growth_has_none() {
        let earlier = QueueReading { tx: QueueCounts::default(), rx: counts(&[(0, 5, 1), (1, 7, 0)]) };
        let later = QueueReading { tx: QueueCounts::default(), rx: counts(&[(0, 5, 1), (1, 17, 2)]) };
        let grown = later.since(&earlier).unwrap();
        assert!(grown.tx.is_empty());
        assert_eq!(grown.rx[0], QueueGrowth { queue: 0, packets: 0, drops: 0 });
        assert_eq!(grown.rx[1], QueueGrowth { queue: 1, packets: 10, drops: 2 });
        assert_eq!(later.since(&later), None);
    }
}
