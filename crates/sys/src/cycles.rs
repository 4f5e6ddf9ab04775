//! CPU cycles of a thread, where the machine's counters can be read.

use perf_event::{Builder, Counter, events::Hardware};

/// Counts the cycles of the thread that made it.
pub struct CycleCounter(Counter);

impl CycleCounter {
    /// Starts counting; `None` where there are no hardware counters or no permission to read them.
    pub fn of_this_thread() -> Option<Self> {
        let mut counter = Builder::new(Hardware::CPU_CYCLES).build().ok()?;
        counter.enable().ok()?;
        Some(Self(counter))
    }

    /// Cycles since the start, user and kernel; `None` when the kernel never had a counter to spare.
    pub fn read(&mut self) -> Option<u64> {
        let counted = self.0.read_count_and_time().ok()?;
        if counted.time_running == 0 {
            return None;
        }
        // Shared counters run part of the time: scale up, as perf does.
        let scale = counted.time_enabled as f64 / counted.time_running as f64;
        Some((counted.count as f64 * scale) as u64)
    }
}
