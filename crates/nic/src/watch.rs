//! What a card does per second: two samples, and the rates between them.

use std::{collections::BTreeMap, time::Instant};

use serde::Serialize;
use sys::procfs;

use crate::{
    Card, NicError, QueueCount, QueueCounts, counters::Counters, interrupts::Interrupt,
    queues::QueueInterrupt, read_counters, read_queue_counts,
};

/// All counters at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    at: Instant,
    counts: QueueCounts,
    counters: Counters,
    interrupts: Vec<Interrupt>,
    queues: Vec<QueueInterrupt>,
    cpus: Vec<(u32, procfs::CpuTimes)>,
    softnet: Vec<procfs::SoftnetStat>,
    /// Rounds of the receiving softirq by CPU.
    rounds: Vec<(u32, u64)>,
}

/// One receive queue's rates.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct QueueRate {
    /// Its number.
    pub queue: u32,
    /// Packets per second.
    pub rx_pps: f64,
    /// Bytes per second.
    pub rx_bytes_per_s: f64,
    /// Packets dropped per second.
    pub drop_pps: f64,
    /// Interrupts per second; `None` when this queue's interrupt is unknown.
    pub interrupts_per_s: Option<f64>,
    /// Packets an interrupt.
    pub packets_per_interrupt: Option<f64>,
    /// The CPU that takes the interrupt.
    pub cpu: Option<u32>,
}

/// One CPU's share of time in software interrupts, and what it did there.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CpuRate {
    /// Its number.
    pub cpu: u32,
    /// Share of time in software interrupts, 0 to 1.
    pub softirq: f64,
    /// Share of time in hardware interrupts, 0 to 1.
    pub irq: f64,
    /// Share of idle time, 0 to 1.
    pub idle: f64,
    /// Packets per second that its receive softirq processed, from all interfaces.
    pub packets_per_s: f64,
    /// Rounds of that softirq per second; each polls the cards that wait for it.
    pub rounds_per_s: f64,
    /// Packets per round; `None` without rounds.
    pub packets_per_round: Option<f64>,
    /// Rounds per second that ended with work left.
    pub squeezed_per_s: f64,
}

/// What happened between two samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Seconds between the samples.
    pub length_s: f64,
    /// Packets received per second, by the link's counter.
    pub rx_pps: f64,
    /// Bytes received per second.
    pub rx_bytes_per_s: f64,
    /// Packets sent per second.
    pub tx_pps: f64,
    /// Packets dropped for lack of room at the card or in its ring, per second.
    pub missed_pps: f64,
    /// Packets dropped on the way up, per second.
    pub drop_pps: f64,
    /// Receive queues.
    pub queues: Vec<QueueRate>,
    /// CPUs.
    pub cpus: Vec<CpuRate>,
    /// All other counters that moved, by how much.
    pub moved: Counters,
}

impl Sample {
    /// Reads everything now.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn take(card: &mut Card) -> Result<Self, NicError> {
        let counters = read_counters(card)?;
        let mut counts = read_queue_counts(card)?;
        if counts.rx.is_empty() && card.queues_in_use(true) == Some(1) {
            // A card with one queue counts it as the interface.
            let of = |name: &str| counters.get(name).copied().unwrap_or(0);
            let whole = QueueCount {
                packets: of("rx_packets"),
                bytes: of("rx_bytes"),
                drops: of("rx_missed_errors"),
            };
            counts.rx.insert(0, whole);
        }
        let interrupts = crate::card_interrupts(card)?;
        let queues = crate::queue_interrupts(card)?;
        let cpus = procfs::stat().map(|stat| stat.cpus).unwrap_or_default();
        let softnet = procfs::softnet_stat().unwrap_or_default();
        let rounds = procfs::softirqs().map(|softirqs| softirqs.net_rx).unwrap_or_default();
        Ok(Self { at: Instant::now(), counts, counters, interrupts, queues, cpus, softnet, rounds })
    }

    /// What happened since an earlier sample. Queues and counters that appeared or vanished in between are left out.
    pub fn since(&self, earlier: &Self) -> Rates {
        let length_s = self.at.duration_since(earlier.at).as_secs_f64().max(1e-9);
        let moved = crate::moved(&earlier.counters, &self.counters);
        let per_second = |count: u64| count as f64 / length_s;
        let rate = |name: &str| per_second(moved.get(name).copied().unwrap_or(0));
        let known = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"];
        Rates {
            length_s,
            rx_pps: rate("rx_packets"),
            rx_bytes_per_s: rate("rx_bytes"),
            tx_pps: rate("tx_packets"),
            missed_pps: rate("rx_missed_errors") + rate("rx_over_errors") + rate("rx_fifo_errors"),
            drop_pps: rate("rx_dropped"),
            queues: self.queue_rates(earlier, per_second),
            cpus: self.cpu_rates(earlier, length_s),
            moved: moved.into_iter().filter(|(name, _)| !known.contains(&name.as_str())).collect(),
        }
    }

    fn queue_rates(&self, earlier: &Self, per_second: impl Fn(u64) -> f64) -> Vec<QueueRate> {
        let before: BTreeMap<u32, u64> =
            earlier.interrupts.iter().map(|interrupt| (interrupt.number, interrupt.total())).collect();
        let of = |queue: u32, now: &QueueCount| {
            let was = earlier.counts.rx.get(&queue)?;
            let packets = now.packets.checked_sub(was.packets)?;
            let interrupt = self.queues.iter().find(|one| one.receives && one.queue == queue);
            let fired = interrupt.and_then(|one| one.total.checked_sub(*before.get(&one.number)?));
            Some(QueueRate {
                queue,
                rx_pps: per_second(packets),
                rx_bytes_per_s: per_second(now.bytes.saturating_sub(was.bytes)),
                drop_pps: per_second(now.drops.saturating_sub(was.drops)),
                interrupts_per_s: fired.map(&per_second),
                packets_per_interrupt: fired
                    .filter(|fired| *fired > 0)
                    .map(|fired| packets as f64 / fired as f64),
                cpu: interrupt.and_then(|one| one.cpus_effective.first().copied()),
            })
        };
        self.counts.rx.iter().filter_map(|(queue, now)| of(*queue, now)).collect()
    }

    fn cpu_rates(&self, earlier: &Self, length_s: f64) -> Vec<CpuRate> {
        let of = |(cpu, now): &(u32, procfs::CpuTimes)| {
            let (_, was) = earlier.cpus.iter().find(|(known, _)| known == cpu)?;
            let share = |part: fn(&procfs::CpuTimes) -> u64| {
                let total = |times: &procfs::CpuTimes| {
                    times.user
                        + times.nice
                        + times.system
                        + times.idle
                        + times.iowait
                        + times.irq
                        + times.softirq
                        + times.steal
                };
                let spent = total(now).saturating_sub(total(was)).max(1);
                part(now).saturating_sub(part(was)) as f64 / spent as f64
            };
            let softnet = |sample: &Self| sample.softnet.iter().find(|one| one.cpu == *cpu).copied();
            let (processed, squeezed) = match (softnet(earlier), softnet(self)) {
                // The kernel counts in 32 bits.
                (Some(was), Some(now)) => (
                    now.processed.wrapping_sub(was.processed),
                    now.time_squeeze.wrapping_sub(was.time_squeeze),
                ),
                _ => (0, 0),
            };
            let rounds_of =
                |sample: &Self| sample.rounds.iter().find(|(known, _)| known == cpu).map(|(_, n)| *n);
            let rounds =
                rounds_of(self).zip(rounds_of(earlier)).map_or(0, |(now, was)| now.saturating_sub(was));
            Some(CpuRate {
                cpu: *cpu,
                softirq: share(|times| times.softirq),
                irq: share(|times| times.irq),
                idle: share(|times| times.idle),
                packets_per_s: f64::from(processed) / length_s,
                rounds_per_s: rounds as f64 / length_s,
                packets_per_round: (rounds > 0).then(|| f64::from(processed) / rounds as f64),
                squeezed_per_s: f64::from(squeezed) / length_s,
            })
        };
        self.cpus.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let count = |packets| QueueCount { packets, bytes: packets * 60, drops: packets / 10 };
        let sample = |at, packets: u64| Sample {
            at,
            counts: QueueCounts { rx: BTreeMap::from([(0, count(packets))]), ..QueueCounts::default() },
            counters: Counters::from([
                ("rx_packets".into(), packets),
                ("rx_missed_errors".into(), packets / 2),
            ]),
            interrupts: Vec::new(),
            queues: Vec::new(),
            cpus: vec![(0, procfs::CpuTimes { softirq: packets, idle: packets, ..Default::default() })],
            softnet: vec![procfs::SoftnetStat { processed: packets as u32, ..Default::default() }],
            rounds: vec![(0, packets / 8)],
        };
        let start = Instant::now();
        let (earlier, later) = (sample(start, 1000), sample(start + Duration::from_secs(2), 3000));
        let rates = later.since(&earlier);
        assert_eq!((rates.rx_pps, rates.missed_pps), (1000.0, 500.0));
        assert_eq!((rates.queues[0].rx_pps, rates.queues[0].drop_pps), (1000.0, 100.0));
        assert_eq!((rates.cpus[0].softirq, rates.cpus[0].idle), (0.5, 0.5));
        assert_eq!((rates.cpus[0].rounds_per_s, rates.cpus[0].packets_per_round), (125.0, Some(8.0)));
        assert_eq!(earlier.since(&later).queues, [], "a counter that decreased is left out");
    }
}
