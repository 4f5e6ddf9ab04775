//! One test in a process of its own, because it reads the process's memory.

use std::fs;

use model::{Config, simulate};

/// The peak memory of this process in kilobytes; `None` where the system does not report it.
fn peak_kilobytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn memory_does_not_grow_with_simulated_time() {
    // an overload of mixed sizes over many flows: every queue of the machine is full of different frames
    let mut config = Config::default();
    config.set("mix", "imix").unwrap();
    config.set("queues", "4").unwrap();
    config.set("flows", "100").unwrap();
    config.run.duration_us = 100_000.0;
    simulate(&config).unwrap();
    let short = peak_kilobytes();
    config.run.duration_us = 1_500_000.0;
    let outcome = simulate(&config).unwrap();
    assert!(outcome.total.lost > 100_000, "the machine is not overloaded");
    let (Some(short), Some(long)) = (short, peak_kilobytes()) else {
        println!("skipped: this system does not report a process's peak memory");
        return;
    };
    assert!(long - short < 1024, "{} more kilobytes for fifteen times the time", long - short);
}
