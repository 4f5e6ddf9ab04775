//! Measures how quiet this machine is: a loop of equal work on one thread, timers on another, and the machine's counters.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use measure::{Quiet, QuietLook};
use sys::{accounting, clock, cpu, procfs};

/// Blocks of equal work in a reading.
const BLOCKS: u64 = 40;
/// Interval of the timers.
const TIMER_NS: u64 = 1_000_000;

/// Observes this machine for some time, during which linerate should do nothing else.
///
/// # Errors
/// When the kernel's counters cannot be read.
pub fn look_quiet(time: Duration) -> Result<Quiet, procfs::ProcError> {
    let block_ns = (clock::nanos(time) / BLOCKS).max(1_000_000);
    let turns = turns_in(block_ns);
    let stop = AtomicBool::new(false);
    let before = (procfs::stat()?.all, cpu::process_time().total_ns(), clock::monotonic_ns());
    let (blocks_ns, late_ns) = thread::scope(|scope| {
        let timers = scope.spawn(|| lateness(&stop));
        let blocks: Vec<f64> = (0..BLOCKS).map(|_| time_of(turns) as f64).collect();
        stop.store(true, Relaxed);
        (blocks, timers.join().unwrap_or_default())
    });
    let after = (procfs::stat()?.all, cpu::process_time().total_ns(), clock::monotonic_ns());
    let unit_s = accounting::stat_unit_ns() as f64 / 1e9;
    let spent_s =
        |of: fn(&procfs::CpuTimes) -> u64| of(&after.0).saturating_sub(of(&before.0)) as f64 * unit_s;
    Ok(Quiet::of(&QuietLook {
        duration_s: (after.2 - before.2) as f64 / 1e9,
        cpus: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        stolen_s: spent_s(|times| times.steal),
        busy_s: spent_s(|times| times.user + times.nice + times.system + times.irq + times.softirq),
        own_s: after.1.saturating_sub(before.1) as f64 / 1e9,
        late_ns,
        blocks_ns,
    }))
}

/// Lateness of timers until `stop`.
fn lateness(stop: &AtomicBool) -> Vec<f64> {
    let mut late = Vec::new();
    let mut due_ns = clock::monotonic_ns();
    while !stop.load(Relaxed) {
        due_ns += TIMER_NS;
        clock::sleep_until(due_ns);
        let now_ns = clock::monotonic_ns();
        late.push(now_ns.saturating_sub(due_ns) as f64);
        // a late timer must not make the next one late
        due_ns = due_ns.max(now_ns - now_ns % TIMER_NS);
    }
    late
}

/// Iterations of the loop that take about this long.
fn turns_in(block_ns: u64) -> u64 {
    let mut turns = 1 << 12;
    loop {
        let took_ns = time_of(turns).max(1);
        if took_ns >= block_ns / 4 || turns >= 1 << 40 {
            return (u128::from(turns) * u128::from(block_ns) / u128::from(took_ns)).max(1) as u64;
        }
        turns *= 2;
    }
}

/// The time of so many iterations: additions and multiplications that depend on each other, without memory.
fn time_of(turns: u64) -> u64 {
    let began_ns = clock::monotonic_ns();
    let mut value = black_box(1_u64);
    for _ in 0..turns {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(value);
    clock::monotonic_ns() - began_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_has_its_blocks_and_timers() {
        let quiet = look_quiet(Duration::from_millis(80)).unwrap();
        assert_eq!(u64::from(quiet.loop_blocks), BLOCKS);
        assert!(quiet.duration_s > 0.0 && quiet.cpus >= 1);
        assert!(quiet.timer_late_p99_ns >= quiet.timer_late_p50_ns);
        assert!((0.0..=1.0).contains(&quiet.steal_ratio), "{}", quiet.steal_ratio);
    }
}
