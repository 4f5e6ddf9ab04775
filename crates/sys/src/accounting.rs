//! How the kernel divides CPU time: exactly at every interrupt, or by sampling at each tick.
//!
//! With `CONFIG_IRQ_TIME_ACCOUNTING` (or `CONFIG_VIRT_CPU_ACCOUNTING_NATIVE`) the kernel reads a clock when an
//! interrupt begins and ends. Without, the timer tick charges its whole period to whatever it finds running
//! (`account_system_time` in `kernel/sched/cputime.c`): a sample, and time in hard interrupts is never found, because
//! the tick itself waits until they end.

use std::{fs, sync::OnceLock};

/// How the kernel accounts time in interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptAccounting {
    /// The kernel reads a clock at every interrupt's begin and end.
    Precise,
    /// The tick charges its period to what it interrupts.
    Ticks,
    /// Unknown.
    Unknown,
}

impl InterruptAccounting {
    /// Finds out once: the kernel's type information (or else its symbol table) names the functions that it was
    /// built with, to everyone.
    pub fn of_this_kernel() -> Self {
        static ANSWER: OnceLock<InterruptAccounting> = OnceLock::new();
        *ANSWER.get_or_init(|| {
            let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
            let types = fs::read("/sys/kernel/btf/vmlinux");
            let symbols = types.or_else(|_| fs::read("/proc/kallsyms")).unwrap_or_default();
            Self::judge(&symbols, &command_line)
        })
    }

    fn judge(symbols: &[u8], command_line: &str) -> Self {
        let has = |function: &str| contains(symbols, function.as_bytes());
        if !has("account_system_index_time") && !has("account_user_time") {
            return Self::Unknown;
        }
        let is_switched_off = command_line.split_ascii_whitespace().any(|word| word == "tsc=noirqtime");
        if has("irqtime_account_irq") && !is_switched_off || has("vtime_account_hardirq") {
            Self::Precise
        } else {
            Self::Ticks
        }
    }
}

/// Whether `bytes` contain `wanted`; libc's search, because every start searches megabytes.
fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    let (from, length) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: both pointers come from slices of the lengths given, and the search only reads.
    let found = unsafe { libc::memmem(from, length, wanted.as_ptr().cast(), wanted.len()) };
    !found.is_null()
}

/// Nanoseconds between timer ticks (1/`CONFIG_HZ`): the resolution of the coarse clock.
pub fn tick_ns() -> u64 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `resolution` is a valid timespec for the call to write to.
    let status = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    assert_eq!(status, 0, "every kernel has a coarse clock");
    resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64
}

/// Nanoseconds of the unit in `/proc/stat` (1/`_SC_CLK_TCK`).
pub fn stat_unit_ns() -> u64 {
    // SAFETY: takes a number and touches no memory.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(per_second).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_the_function_is_precise_unless_told_otherwise() {
        let judge =
            |symbols: &str, command_line| InterruptAccounting::judge(symbols.as_bytes(), command_line);
        let with = "\0account_user_time\0irqtime_account_irq\0";
        assert_eq!(judge(with, "quiet"), InterruptAccounting::Precise);
        assert_eq!(judge(with, "quiet tsc=noirqtime"), InterruptAccounting::Ticks);
        assert_eq!(judge("\0account_user_time\0", ""), InterruptAccounting::Ticks);
        assert_eq!(judge("\0vtime_account_hardirq\0account_user_time\0", ""), InterruptAccounting::Precise);
        assert_eq!(judge("\0udp_rcv\0", ""), InterruptAccounting::Unknown);
        assert_eq!(judge("", ""), InterruptAccounting::Unknown);
    }

    #[test]
    fn a_tick_is_one_of_the_kernel_s_choices() {
        assert!([100, 250, 300, 1000].iter().any(|hz| tick_ns().abs_diff(1_000_000_000 / hz) < 1_000));
        assert_eq!(stat_unit_ns(), 10_000_000);
    }
}
