//! Cycles, instructions and cache misses of a thread or of CPUs, if the machine's counters can be read.

use std::{fs, io};

use perf_event::{Builder, Counter, events::Hardware};
use thiserror::Error;

/// Counts the CPU's work for the thread that created it, or for everything on one CPU.
pub struct HardwareCounters {
    cycles: Counter,
    instructions: Option<Counter>,
    cache_misses: Option<Counter>,
}

/// The counts since the start, user and kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardwareCounts {
    /// CPU cycles.
    pub cycles: u64,
    /// Instructions completed, if counted.
    pub instructions: Option<u64>,
    /// Misses of the last-level cache, if counted.
    pub cache_misses: Option<u64>,
}

/// Why counting is not possible.
#[derive(Debug, Error)]
pub enum NoCounters {
    /// The CPU has none, or its hypervisor hides them.
    #[error("this machine has no hardware counters (most virtual machines have none)")]
    Absent,
    /// This process may not use them.
    #[error(
        "not permitted: kernel.perf_event_paranoid is {paranoid}; counting in the kernel needs CAP_PERFMON, or a value of at most 1 (0 for whole CPUs)"
    )]
    NotPermitted {
        /// `kernel.perf_event_paranoid`; distributions use values above the kernel's 2.
        paranoid: String,
    },
    /// A kernel built without.
    #[error("this kernel has no perf events")]
    NoPerfEvents,
    /// Anything else.
    #[error("the kernel refuses to count cycles")]
    Refused(#[source] io::Error),
}

impl NoCounters {
    /// The meaning of an error of `perf_event_open(2)`.
    fn of(error: io::Error, paranoid: impl FnOnce() -> String) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Self::Absent,
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted { paranoid: paranoid() },
            Some(libc::ENOSYS) => Self::NoPerfEvents,
            _ => Self::Refused(error),
        }
    }
}

impl HardwareCounters {
    /// Starts counting for the calling thread.
    ///
    /// # Errors
    /// [`NoCounters`].
    pub fn of_this_thread() -> Result<Self, NoCounters> {
        Self::start(|builder| {
            builder.observe_self();
        })
    }

    /// Starts counting for everything on a CPU.
    ///
    /// # Errors
    /// [`NoCounters`].
    pub fn of_cpu(cpu: u32) -> Result<Self, NoCounters> {
        Self::start(|builder| {
            builder.any_pid().one_cpu(cpu as usize);
        })
    }

    fn start(whose: impl Fn(&mut Builder)) -> Result<Self, NoCounters> {
        let started = |event| -> io::Result<Counter> {
            // Packets are processed in the kernel: counts without it (no CAP_PERFMON, kernel.perf_event_paranoid 2)
            // would mislead.
            let mut builder = Builder::new(event);
            whose(builder.include_kernel());
            let mut counter = builder.build()?;
            counter.enable()?;
            Ok(counter)
        };
        let cycles = started(Hardware::CPU_CYCLES).map_err(|error| {
            let read = || fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            NoCounters::of(error, || read().map_or_else(|_| "unknown".into(), |text| text.trim().into()))
        })?;
        Ok(Self {
            cycles,
            instructions: started(Hardware::INSTRUCTIONS).ok(),
            cache_misses: started(Hardware::CACHE_MISSES).ok(),
        })
    }

    /// Counts since the start; `None` when the kernel never had a free counter.
    pub fn read(&mut self) -> Option<HardwareCounts> {
        Some(HardwareCounts {
            cycles: scaled(&mut self.cycles)?,
            instructions: self.instructions.as_mut().and_then(scaled),
            cache_misses: self.cache_misses.as_mut().and_then(scaled),
        })
    }
}

impl HardwareCounts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, |mine, others| mine + others)
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    /// A count that one of them lacks is unknown for both.
    fn each(self, other: Self, both: fn(u64, u64) -> u64) -> Self {
        let known = |mine: Option<u64>, others: Option<u64>| {
            mine.zip(others).map(|(mine, others)| both(mine, others))
        };
        Self {
            cycles: both(self.cycles, other.cycles),
            instructions: known(self.instructions, other.instructions),
            cache_misses: known(self.cache_misses, other.cache_misses),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_nothing_is_counted_is_said_in_words() {
        let words = |errno| NoCounters::of(io::Error::from_raw_os_error(errno), || "2".into()).to_string();
        assert_eq!(
            words(libc::ENOENT),
            "this machine has no hardware counters (most virtual machines have none)"
        );
        assert_eq!(words(libc::ENODEV), words(libc::ENOENT));
        assert_eq!(
            words(libc::EACCES),
            "not permitted: kernel.perf_event_paranoid is 2; counting in the kernel needs CAP_PERFMON, or a value of at most 1 (0 for whole CPUs)"
        );
        assert_eq!(words(libc::ENOSYS), "this kernel has no perf events");
        assert_eq!(words(libc::EMFILE), "the kernel refuses to count cycles");
    }

    #[test]
    fn this_machine_counts_or_says_why_not() {
        match HardwareCounters::of_this_thread() {
            Ok(mut counters) => assert!(counters.read().is_none_or(|counts| counts.cycles > 0)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn counts_are_added_and_subtracted_and_what_one_lacks_stays_unknown() {
        let a = HardwareCounts { cycles: 10, instructions: Some(20), cache_misses: Some(3) };
        let b = HardwareCounts { cycles: 4, instructions: Some(5), cache_misses: None };
        let both = HardwareCounts { cycles: 14, instructions: Some(25), cache_misses: None };
        assert_eq!(a.plus(b), both);
        let since = HardwareCounts { cycles: 6, instructions: Some(15), cache_misses: None };
        assert_eq!(a.since(b), since);
    }
}
