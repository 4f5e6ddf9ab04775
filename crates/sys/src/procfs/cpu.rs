//! `/proc/stat`: where each CPU's time went. Format: proc_stat(5).

use super::line::{ParseError, lines};

/// The machine's time, in ticks since boot; a tick is 1/`sysconf(_SC_CLK_TCK)` s, 10 ms on Linux.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// All CPUs together.
    pub all: CpuTimes,
    /// Each CPU that is online, with its number.
    pub cpus: Vec<(u32, CpuTimes)>,
}

/// Time by kind, in ticks; kinds that an older kernel does not report are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user space, guests included.
    pub user: u64,
    /// In user space with lowered priority.
    pub nice: u64,
    /// In the kernel on behalf of processes.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Idle while waiting for a disk.
    pub iowait: u64,
    /// In hardware interrupts.
    pub irq: u64,
    /// In software interrupts: including packet reception.
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
    /// Running guests; contained in `user`.
    pub guest: u64,
    /// Running guests with lowered priority; contained in `nice`.
    pub guest_nice: u64,
}

/// Reads `/proc/stat`.
pub fn parse_stat(text: &str) -> Result<Stat, ParseError> {
    let mut stat = Stat::default();
    for (line, bad) in lines(text) {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let (number, times) = rest.split_once(' ').ok_or_else(|| bad("a CPU and its times"))?;
        let times = CpuTimes::parse(times).ok_or_else(|| bad("a CPU's times"))?;
        if number.is_empty() {
            stat.all = times;
        } else {
            stat.cpus.push((number.parse().map_err(|_| bad("a CPU's number"))?, times));
        }
    }
    Ok(stat)
}

impl CpuTimes {
    fn parse(text: &str) -> Option<Self> {
        let mut ticks = [0; 10];
        for (slot, word) in ticks.iter_mut().zip(text.split_ascii_whitespace()) {
            *slot = word.parse().ok()?;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = ticks;
        Some(Self { user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice })
    }
}
