//! Packets by queue of the two interfaces: each queue's share.

use std::collections::BTreeMap;

use measure::QueueGrowth;

use crate::{
    ladder::Rung,
    number,
    table::{Cell, Column, Table},
};

/// One side's queues over all trials of a pair.
pub(crate) struct SideQueues<'r> {
    pub(crate) pair: &'r str,
    pub(crate) side: &'static str,
    /// Ascending, sums over the trials.
    pub(crate) queues: Vec<QueueGrowth>,
}

/// The sides of all pairs whose queues were counted.
pub(crate) fn of_pairs<'r>(rungs: &'r [Rung]) -> Vec<SideQueues<'r>> {
    let sides = rungs.iter().flat_map(|rung| {
        ["receiving", "sending"].map(|side| {
            let mut sums: BTreeMap<u32, QueueGrowth> = BTreeMap::new();
            for queues in rung.trials.iter().filter_map(|trial| trial.queues.as_ref()) {
                for queue in if side == "receiving" { &queues.rx } else { &queues.tx } {
                    let sum = sums
                        .entry(queue.queue)
                        .or_insert(QueueGrowth { queue: queue.queue, ..QueueGrowth::default() });
                    sum.packets = sum.packets.saturating_add(queue.packets);
                    sum.drops = sum.drops.saturating_add(queue.drops);
                }
            }
            SideQueues { pair: &rung.name, side, queues: sums.into_values().collect() }
        })
    });
    sides.filter(|side| !side.queues.is_empty()).collect()
}

impl SideQueues<'_> {
    /// A queue's share of the side's packets.
    pub(crate) fn share(&self, queue: &QueueGrowth) -> f64 {
        let all = self.queues.iter().map(|queue| queue.packets).fold(0, u64::saturating_add);
        queue.packets as f64 / all.max(1) as f64
    }
}

/// One row per queue.
pub(crate) fn table(sides: &[SideQueues]) -> Table {
    let rows = || sides.iter().flat_map(|side| side.queues.iter().map(move |queue| (side, queue)));
    let mut table = Table::titled("Queues");
    table.push(Column::words("pair", rows().map(|(side, _)| Cell::words(side.pair))));
    table.push(Column::words("side", rows().map(|(side, _)| Cell::words(side.side))));
    table.push(Column::figures("queue", "", rows().map(|(_, queue)| Cell::count(queue.queue.into()))));
    table.push(Column::figures("packets", "", rows().map(|(_, queue)| Cell::count(queue.packets))));
    let shares = rows().map(|(side, queue)| Cell::figure(side.share(queue), number::percent));
    table.push(Column::figures("share", "%", shares));
    table.push(Column::figures(
        "dropped",
        "",
        rows().map(|(_, queue)| Cell::count(queue.drops).bad_if(queue.drops > 0)),
    ));
    table.legend = "From driver and kernel counters, over all trials of the pair, including other programs' packets. A veth \
        counts only queues that NAPI polls."
        .into();
    table
}
