//! How the machine's CPUs spent a trial: their time, their interrupts, and their network softirqs.

use std::{collections::BTreeMap, sync::Arc};

use bpf::{NapiCounts, SoftirqWatch};
use measure::{CpuShare, InterruptAccounting, InterruptRate, NapiPolls, NetRx, tick_margin};
use sys::{
    accounting, clock,
    procfs::{self, CpuTimes, Interrupt, ProcError, SoftirqThreads, Softirqs, SoftnetStat, Stat},
};

/// The most sources of interrupts in a CPU's record.
const MOST_INTERRUPTS: usize = 12;

/// Readings at a trial's begin.
pub(crate) struct CpuWatch {
    threads: SoftirqThreads,
    /// Counts polls of devices, if the trial has a diagnosis.
    napi: Option<Arc<SoftirqWatch>>,
    accounting: InterruptAccounting,
    before: Reading,
}

/// All counters at one moment.
struct Reading {
    at_ns: u64,
    stat: Stat,
    interrupts: Vec<Interrupt>,
    softirqs: Softirqs,
    softnet: Vec<SoftnetStat>,
    ksoftirqd_ns: Vec<(u32, u64)>,
    napi: Option<Vec<NapiCounts>>,
}

impl CpuWatch {
    /// Reads the counters; polls only with a watch that counts them.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn start(napi: Option<Arc<SoftirqWatch>>) -> Result<Self, ProcError> {
        let threads = SoftirqThreads::find();
        let before = Reading::of(&threads, napi.as_deref())?;
        Ok(Self { threads, napi, accounting: interrupt_accounting(), before })
    }

    /// The activity of each CPU since.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn shares(&self) -> Result<Vec<CpuShare>, ProcError> {
        Ok(self.before.until(&self.read()?, self.accounting))
    }

    fn read(&self) -> Result<Reading, ProcError> {
        Reading::of(&self.threads, self.napi.as_deref())
    }
}

/// The same for a screen: since the previous reading, and since the first.
pub struct CpuLooks {
    watch: CpuWatch,
    last: Option<Reading>,
}

impl CpuLooks {
    /// Reads the counters; polls of devices are counted if this process may load BPF programs.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn start() -> Result<Self, ProcError> {
        let napi = SoftirqWatch::start().ok().map(Arc::new);
        Ok(Self { watch: CpuWatch::start(napi)?, last: None })
    }

    /// The activity of each CPU since the last reading, and since the start.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn look(&mut self) -> Result<[Vec<CpuShare>; 2], ProcError> {
        let now = self.watch.read()?;
        let since = |before: &Reading| before.until(&now, self.watch.accounting);
        let both = [since(self.last.as_ref().unwrap_or(&self.watch.before)), since(&self.watch.before)];
        self.last = Some(now);
        Ok(both)
    }

    /// How this kernel accounts for time in interrupts.
    pub fn accounting(&self) -> InterruptAccounting {
        self.watch.accounting
    }
}

/// How this kernel accounts for time in interrupts.
pub fn interrupt_accounting() -> InterruptAccounting {
    match accounting::InterruptAccounting::of_this_kernel() {
        accounting::InterruptAccounting::Precise => InterruptAccounting::Precise,
        accounting::InterruptAccounting::Ticks => InterruptAccounting::Ticks,
        accounting::InterruptAccounting::Unknown => InterruptAccounting::Unknown,
    }
}

impl Reading {
    fn of(threads: &SoftirqThreads, napi: Option<&SoftirqWatch>) -> Result<Self, ProcError> {
        Ok(Self {
            at_ns: clock::monotonic_ns(),
            stat: procfs::stat()?,
            interrupts: procfs::interrupts()?,
            softirqs: procfs::softirqs()?,
            softnet: procfs::softnet_stat()?,
            ksoftirqd_ns: threads.run_ns(),
            napi: napi.and_then(|watch| watch.read().ok()),
        })
    }

    fn until(&self, after: &Self, accounting: InterruptAccounting) -> Vec<CpuShare> {
        let elapsed_ns = after.at_ns.saturating_sub(self.at_ns).max(1) as f64;
        let share = |cpu: u32, from: &CpuTimes, to: &CpuTimes| {
            let mut share = time_shares(cpu, from, to);
            share.interrupts_margin_ratio =
                margin(share.irq_ratio + share.softirq_ratio, elapsed_ns, accounting);
            let thread = grown(&self.ksoftirqd_ns, &after.ksoftirqd_ns, cpu);
            share.ksoftirqd_ratio = thread.map(|ns| ns as f64 / elapsed_ns);
            share.net_rx = self.net_rx(after, cpu, elapsed_ns);
            share.interrupts = interrupt_rates(&self.interrupts, &after.interrupts, cpu, elapsed_ns / 1e9);
            share
        };
        let later = |cpu: u32| after.stat.cpus.iter().find(|(other, _)| *other == cpu);
        let cpus = self.stat.cpus.iter();
        cpus.filter_map(|(cpu, from)| later(*cpu).map(|(_, to)| share(*cpu, from, to))).collect()
    }

    fn net_rx(&self, after: &Self, cpu: u32, elapsed_ns: f64) -> Option<NetRx> {
        let rounds = grown(&self.softirqs.net_rx, &after.softirqs.net_rx, cpu)?;
        let softnet = |reading: &Self| reading.softnet.iter().find(|stat| stat.cpu == cpu).copied();
        let (from, to) = softnet(self).zip(softnet(after))?;
        let napi = |reading: &Self| reading.napi.as_ref()?.get(cpu as usize).copied();
        let polls = napi(after).zip(napi(self)).map(|(to, from)| {
            let NapiCounts { polls, packets, full, empty, net_rx_ns } = to.since(from);
            NapiPolls { polls, packets, full, empty, net_rx_ratio: net_rx_ns as f64 / elapsed_ns }
        });
        Some(NetRx {
            rounds,
            // The kernel's counters have 32 bits and wrap.
            packets: to.processed.wrapping_sub(from.processed).into(),
            time_squeezes: to.time_squeeze.wrapping_sub(from.time_squeeze).into(),
            polls,
        })
    }
}

fn grown(before: &[(u32, u64)], after: &[(u32, u64)], cpu: u32) -> Option<u64> {
    let of = |list: &[(u32, u64)]| list.iter().find(|(other, _)| *other == cpu).map(|(_, count)| *count);
    Some(of(after)?.saturating_sub(of(before)?))
}

/// The uncertainty of a share of interrupts: ticks are samples, and the counters have a resolution.
fn margin(share: f64, elapsed_ns: f64, accounting: InterruptAccounting) -> Option<f64> {
    let resolution = accounting::stat_unit_ns() as f64 / elapsed_ns;
    match accounting {
        InterruptAccounting::Precise => Some(resolution.min(1.0)),
        InterruptAccounting::Ticks => {
            let looks = elapsed_ns / accounting::tick_ns() as f64;
            Some((tick_margin(share, looks) + resolution).min(1.0))
        }
        InterruptAccounting::Unknown => None,
    }
}

fn interrupt_rates(before: &[Interrupt], after: &[Interrupt], cpu: u32, seconds: f64) -> Vec<InterruptRate> {
    // Several sources may have one name: the queues of a disk.
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for to in after {
        let from = before.iter().find(|from| from.irq == to.irq);
        let grown = grown(from.map_or(&[], |from| &from.by_cpu), &to.by_cpu, cpu).unwrap_or(0);
        if grown > 0 {
            *counts.entry(if to.name.is_empty() { &to.irq } else { &to.name }).or_default() += grown;
        }
    }
    let mut rates: Vec<InterruptRate> = counts
        .into_iter()
        .map(|(name, count)| InterruptRate { name: name.to_owned(), rate_per_s: count as f64 / seconds })
        .collect();
    rates.sort_by(|a, b| b.rate_per_s.total_cmp(&a.rate_per_s));
    rates.truncate(MOST_INTERRUPTS);
    rates
}

/// The times as shares of their sum.
fn time_shares(cpu: u32, from: &CpuTimes, to: &CpuTimes) -> CpuShare {
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
        ..CpuShare::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ns: u64, cpus: Vec<(u32, CpuTimes)>) -> Reading {
        Reading {
            at_ns,
            stat: Stat { all: CpuTimes::default(), cpus },
            interrupts: Vec::new(),
            softirqs: Softirqs::default(),
            softnet: Vec::new(),
            ksoftirqd_ns: Vec::new(),
            napi: None,
        }
    }

    fn times(user: u64, softirq: u64, idle: u64) -> CpuTimes {
        CpuTimes { user, softirq, idle, ..CpuTimes::default() }
    }

    #[test]
    fn readings_cover_the_time_since_the_last_and_since_the_first() {
        let mut looks = CpuLooks::start().unwrap();
        looks.look().unwrap();
        let mut total = BTreeMap::new();
        // The counters tick a hundred times a second.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while total.values().all(|ratio: &f64| *ratio == 0.0) {
            assert!(std::time::Instant::now() < deadline, "this thread was busy all the time");
            let [last, whole] = looks.look().unwrap();
            assert_eq!(last.len(), whole.len());
            total = whole.iter().map(|cpu| (cpu.cpu, cpu.user_ratio + cpu.system_ratio)).collect();
        }
    }

    #[test]
    fn shares_cover_the_time_between_the_readings() {
        let before = reading(0, vec![(0, times(10, 0, 100)), (1, times(0, 0, 0))]);
        let after = reading(400_000_000, vec![(0, times(20, 20, 110))]);
        let shares = before.until(&after, InterruptAccounting::Ticks);
        assert_eq!(shares.len(), 1, "a CPU that went offline has no share");
        assert_eq!((shares[0].user_ratio, shares[0].softirq_ratio, shares[0].idle_ratio), (0.25, 0.5, 0.25));
        let sampled = shares[0].interrupts_margin_ratio.unwrap();
        let precise = before.until(&after, InterruptAccounting::Precise)[0].interrupts_margin_ratio.unwrap();
        assert!(sampled > precise && precise == 0.025, "10 ms of 400: {precise}");
        assert_eq!(before.until(&after, InterruptAccounting::Unknown)[0].interrupts_margin_ratio, None);
    }

    #[test]
    fn softirq_counters_of_32_bits_wrap() {
        let softnet =
            |processed, time_squeeze| SoftnetStat { processed, time_squeeze, ..SoftnetStat::default() };
        let mut before = reading(0, vec![(0, times(0, 0, 0))]);
        before.softnet = vec![softnet(u32::MAX - 1, 7)];
        before.softirqs.net_rx = vec![(0, 100)];
        before.napi = Some(vec![NapiCounts::default()]);
        before.ksoftirqd_ns = vec![(0, 5)];
        let mut after = reading(1_000, vec![(0, times(0, 1, 0))]);
        after.softnet = vec![softnet(8, 9)];
        after.softirqs.net_rx = vec![(0, 105)];
        after.napi = Some(vec![NapiCounts { polls: 4, packets: 12, full: 1, empty: 2, net_rx_ns: 500 }]);
        after.ksoftirqd_ns = vec![(0, 255)];
        let [share] = &before.until(&after, InterruptAccounting::Ticks)[..] else { panic!("one CPU") };
        let net_rx = share.net_rx.unwrap();
        assert_eq!((net_rx.rounds, net_rx.packets, net_rx.time_squeezes), (5, 10, 2));
        let polls = net_rx.polls.unwrap();
        assert_eq!((polls.packets_per_poll(), polls.net_rx_ratio), (Some(3.0), 0.5));
        assert_eq!(share.ksoftirqd_ratio, Some(0.25));
    }

    #[test]
    fn interrupts_are_rates_of_one_cpu_by_name_the_most_frequent_first() {
        let interrupt = |irq: &str, name: &str, counts: [u64; 2]| Interrupt {
            irq: irq.into(),
            name: name.into(),
            by_cpu: vec![(0, counts[0]), (1, counts[1])],
        };
        let before =
            [interrupt("41", "eth0-rx-0", [100, 0]), interrupt("LOC", "Local timer interrupts", [0, 0])];
        let after = [
            interrupt("41", "eth0-rx-0", [600, 9]),
            interrupt("42", "eth0-rx-1", [0, 4]),
            interrupt("LOC", "Local timer interrupts", [50, 0]),
        ];
        let rates = interrupt_rates(&before, &after, 0, 0.5);
        let named: Vec<_> = rates.iter().map(|rate| (rate.name.as_str(), rate.rate_per_s)).collect();
        assert_eq!(named, [("eth0-rx-0", 1000.0), ("Local timer interrupts", 100.0)]);
        assert_eq!(interrupt_rates(&before, &after, 1, 0.5).len(), 1, "a new interrupt had no count before");
    }
}
