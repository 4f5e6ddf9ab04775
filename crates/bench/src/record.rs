//! From workers' results to the record's parts.

use std::collections::BTreeMap;

use engine::{EngineError, ReceiverResult, RxSnapshot, SenderResult, TxSnapshot, WorkerCost};
use measure::{
    Cost, CpuShare, Endpoint, Histogram, Ledger, LedgerLine, Receipt, ReceptionStatistics, Stream, Trial,
};
use sys::procfs::{CpuTimes, Stat};

/// What all sending workers did together.
#[derive(Debug)]
pub(crate) struct TxOutcome {
    /// Packets and bytes.
    pub(crate) tally: TxSnapshot,
    /// Packets that were due.
    pub(crate) scheduled: u64,
    /// Seconds from the common start to the last worker's end.
    pub(crate) seconds: f64,
    /// CPU time and cycles.
    pub(crate) cost: WorkerCost,
    /// Lateness of all packets.
    pub(crate) lateness: Histogram,
    /// The longest time any worker handed nothing over.
    pub(crate) largest_gap_ns: u64,
    /// The first error that ended a worker.
    pub(crate) error: Option<EngineError>,
}

/// The settings of a trial that its record repeats.
#[derive(Debug, Clone)]
pub(crate) struct TrialSettings {
    /// Number of the trial among those of its pair, from 1.
    pub(crate) trial: u32,
    /// The sending side.
    pub(crate) tx: Endpoint,
    /// Frame size, Ethernet header to FCS.
    pub(crate) frame_size_bytes: u32,
    /// UDP payload.
    pub(crate) payload_bytes: u32,
    /// Packets per second asked for.
    pub(crate) asked_pps: Option<f64>,
}

/// The receiving half of a trial.
#[derive(Debug, Clone)]
pub(crate) struct RxOutcome {
    /// The receiving side.
    pub(crate) endpoint: Endpoint,
    /// Packets delivered.
    pub(crate) delivered: u64,
    /// What receiving cost.
    pub(crate) cost: Cost,
    /// Where packets were lost, both sides' places.
    pub(crate) lines: Vec<LedgerLine>,
    /// How the machine's CPUs spent the trial.
    pub(crate) cpus: Vec<CpuShare>,
    /// Frames that left by the sending interface's own counter.
    pub(crate) on_wire: Option<u64>,
    /// What the receiver measured.
    pub(crate) statistics: Option<ReceptionStatistics>,
    /// What streams moved.
    pub(crate) stream: Option<Stream>,
}

impl TxOutcome {
    /// Adds up workers' results.
    pub(crate) fn of(results: Vec<SenderResult>) -> Self {
        let start_ns = results.iter().map(|r| r.start_ns).min().unwrap_or(0);
        let end_ns = results.iter().map(|r| r.end_ns).max().unwrap_or(start_ns);
        let mut lateness = Histogram::new();
        results.iter().for_each(|r| lateness.merge(&r.lateness));
        Self {
            tally: results.iter().map(|r| r.tally).fold(TxSnapshot::default(), TxSnapshot::plus),
            scheduled: results.iter().map(|r| r.scheduled).sum(),
            seconds: (end_ns - start_ns) as f64 / 1e9,
            cost: total_cost(results.iter().map(|r| r.cost)),
            lateness,
            largest_gap_ns: results.iter().map(|r| r.largest_gap_ns).max().unwrap_or(0),
            error: results.into_iter().find_map(|r| r.error),
        }
    }

    /// The finished trial; `interrupted` says whether a signal or a lost peer cut it short.
    pub(crate) fn into_trial(self, settings: TrialSettings, rx: RxOutcome, interrupted: bool) -> Trial {
        let sent = self.tally.packets;
        let per_second = |packets: u64| if self.seconds > 0.0 { packets as f64 / self.seconds } else { 0.0 };
        let mut receipt =
            Receipt::judge(settings.asked_pps, self.scheduled, sent, self.seconds, &self.lateness);
        receipt.on_wire = rx.on_wire;
        receipt.delivered = rx.delivered;
        receipt.largest_gap_ns = self.largest_gap_ns;
        let ledger = Ledger::close(sent, rx.delivered, rx.lines);
        Trial {
            trial: settings.trial,
            tx: settings.tx,
            rx: rx.endpoint,
            frame_size_bytes: settings.frame_size_bytes,
            payload_bytes: settings.payload_bytes,
            asked_pps: settings.asked_pps,
            parameters: BTreeMap::new(),
            duration_s: self.seconds,
            sent,
            sent_pps: per_second(sent),
            delivered: rx.delivered,
            delivered_pps: per_second(rx.delivered),
            loss_ratio: ledger.loss_ratio(),
            tx_cost: cost_per_packet(self.cost, sent),
            rx_cost: rx.cost,
            cpus: rx.cpus,
            ledger,
            receipt,
            statistics: rx.statistics,
            stream: rx.stream,
            interrupted: interrupted || self.error.is_some(),
        }
    }
}

/// What a receiver's workers cost, per packet delivered.
pub fn receive_cost(result: &ReceiverResult) -> Cost {
    let RxSnapshot { packets, foreign, .. } = result.tally();
    cost_per_packet(total_cost(result.workers.iter().map(|worker| worker.cost)), packets + foreign)
}

fn total_cost(costs: impl Iterator<Item = WorkerCost>) -> WorkerCost {
    costs.reduce(WorkerCost::plus).unwrap_or_default()
}

fn cost_per_packet(cost: WorkerCost, packets: u64) -> Cost {
    let per_packet = |amount: u64| (packets > 0).then(|| amount as f64 / packets as f64);
    Cost {
        user_s: cost.user_ns as f64 / 1e9,
        system_s: cost.system_ns as f64 / 1e9,
        ns_per_packet: per_packet(cost.user_ns + cost.system_ns),
        cycles_per_packet: cost.cycles.and_then(per_packet),
    }
}

/// How each CPU spent the time between two readings of `/proc/stat`.
pub(crate) fn cpu_shares(before: &Stat, after: &Stat) -> Vec<CpuShare> {
    let share = |cpu: u32, from: &CpuTimes, to: &CpuTimes| {
        let spent = |part: fn(&CpuTimes) -> u64| part(to).saturating_sub(part(from)) as f64;
        let user = spent(|t| t.user + t.nice);
        let system = spent(|t| t.system);
        let irq = spent(|t| t.irq);
        let softirq = spent(|t| t.softirq);
        let steal = spent(|t| t.steal);
        let idle = spent(|t| t.idle + t.iowait);
        let total = (user + system + irq + softirq + steal + idle).max(1.0);
        CpuShare {
            cpu,
            user_ratio: user / total,
            system_ratio: system / total,
            irq_ratio: irq / total,
            softirq_ratio: softirq / total,
            steal_ratio: steal / total,
            idle_ratio: idle / total,
        }
    };
    let later = |cpu: u32| after.cpus.iter().find(|(other, _)| *other == cpu);
    before.cpus.iter().filter_map(|(cpu, from)| later(*cpu).map(|(_, to)| share(*cpu, from, to))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(user: u64, softirq: u64, idle: u64) -> CpuTimes {
        CpuTimes { user, softirq, idle, ..CpuTimes::default() }
    }

    #[test]
    fn shares_are_of_the_time_between_the_readings() {
        let before = Stat { all: times(0, 0, 0), cpus: vec![(0, times(10, 0, 100)), (1, times(0, 0, 0))] };
        let after = Stat { all: times(0, 0, 0), cpus: vec![(0, times(20, 20, 110))] };
        let shares = cpu_shares(&before, &after);
        assert_eq!(shares.len(), 1, "a CPU that went offline has no share");
        assert_eq!((shares[0].user_ratio, shares[0].softirq_ratio, shares[0].idle_ratio), (0.25, 0.5, 0.25));
    }
}
