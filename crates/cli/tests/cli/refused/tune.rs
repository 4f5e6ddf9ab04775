//! What `linerate tune` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["tune", "--goal", "speed"], 2, &["invalid value 'speed' for '--goal <GOAL>'", "tx, rx, ndr, latency"]),
    (&["tune", "host"], 2, &["invalid value 'host'", "lab"]),
    (&["tune", "lab", "--peer", "127.0.0.1:9"], 2, &["cannot be used with"]),
    (&["tune", "--interface", "eth9"], 2, &["--peer"]),
    (&["tune", "--tx-interface", "eth9"], 2, &["--rx-interface"]),
    (
        &["tune", "--budget", "1s"],
        2,
        &["--budget is too small: a search needs at least twenty trials", "hint:  try --budget 1m"],
    ),
    (&["tune", "--budget", "5"], 2, &["'5' is not a duration"]),
    (&["tune", "--duration", "0s"], 2, &["--duration must be above zero", "hint:  try --duration 300ms"]),
    (
        &["tune", "--goal", "ndr", "--rate", "10kpps"],
        2,
        &["--rate applies only to --goal rx", "hint:  tx sends at the maximum"],
    ),
    (&["tune", "--tx", "udp,packet"], 2, &["a search takes one path: use one engine with --tx"]),
    (
        &["tune", "--tx", "tcp", "--rx", "tcp"],
        2,
        &["the search counts packets, but tcp has streams", "hint:  linerate bench --sweep"],
    ),
    (
        &["tune", "--goal", "latency", "--peer", "127.0.0.1:9"],
        2,
        &["linerate tune does not measure the latency to another host", "hint:  linerate send --reflect"],
    ),
    (
        &["tune", "--only", "wings"],
        2,
        &["--only: unknown knob 'wings'", "hint:  linerate tune --dry-run lists"],
    ),
    (
        &["tune", "--never", "batch-sise"],
        2,
        &["--never: unknown knob 'batch-sise'", "did you mean batch-size?"],
    ),
    (
        &["tune", "--only", "ring.rx"],
        2,
        &["no setting to search", "hint:  linerate tune --dry-run lists the excluded settings, and why"],
    ),
    (
        &["tune", "--resume", "/nonexistent.json"],
        4,
        &["cannot read /nonexistent.json", "hint:  a killed search"],
    ),
];
