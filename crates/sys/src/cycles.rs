//! Cycles, instructions and cache misses of a thread, where the machine's counters can be read.

use perf_event::{Builder, Counter, events::Hardware};

/// Counts what the CPU does for the thread that made it.
pub struct HardwareCounters {
    cycles: Counter,
    instructions: Option<Counter>,
    cache_misses: Option<Counter>,
}

/// What was counted since the start, user and kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardwareCounts {
    /// CPU cycles.
    pub cycles: u64,
    /// Instructions completed, where that is counted.
    pub instructions: Option<u64>,
    /// Accesses that the last level of cache did not serve, where that is counted.
    pub cache_misses: Option<u64>,
}

impl HardwareCounters {
    /// Starts counting; `None` where there are no hardware counters or no permission to read them.
    pub fn of_this_thread() -> Option<Self> {
        Some(Self {
            cycles: started(Hardware::CPU_CYCLES)?,
            instructions: started(Hardware::INSTRUCTIONS),
            cache_misses: started(Hardware::CACHE_MISSES),
        })
    }

    /// Counts since the start; `None` when the kernel never had a counter to spare.
    pub fn read(&mut self) -> Option<HardwareCounts> {
        Some(HardwareCounts {
            cycles: scaled(&mut self.cycles)?,
            instructions: self.instructions.as_mut().and_then(scaled),
            cache_misses: self.cache_misses.as_mut().and_then(scaled),
        })
    }
}

fn started(event: Hardware) -> Option<Counter> {
    // The kernel's part is where packets are: counts without it (no CAP_PERFMON, kernel.perf_event_paranoid 2) would
    // mislead.
    let mut counter = Builder::new(event).include_kernel().build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}

fn scaled(counter: &mut Counter) -> Option<u64> {
    let counted = counter.read_count_and_time().ok()?;
    if counted.time_running == 0 {
        return None;
    }
    // Shared counters run part of the time: scale up, as perf does.
    let scale = counted.time_enabled as f64 / counted.time_running as f64;
    Some((counted.count as f64 * scale) as u64)
}
