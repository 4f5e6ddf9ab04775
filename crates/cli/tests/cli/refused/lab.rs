//! What `linerate lab` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["lab", "vm"], 2, &["CMD"]),
    (&["lab", "vm", "--kernel", "5.10", "--", "true"], 2, &["no such kernel here: 5.10"]),
    (&["lab", "vm", "--pair", "i40e", "--", "true"], 2, &["no such card: i40e"]),
    (&["lab", "vm", "--accel", "hvf", "--", "true"], 2, &["no such accelerator: hvf"]),
    (
        &["lab", "vm", "--cpus", "0", "--memory", "1", "--share", "/nowhere", "--", "true"],
        2,
        &["1 to 64 CPUs, not 0", "at least 256 MiB", "/nowhere"],
    ),
];
